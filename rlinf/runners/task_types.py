"""The table of task types: which runner, workers and data a recipe's ``runner.task_type`` selects.

Imports neither torch nor Ray, so that a plug-in may register a task type while a recipe is being checked. Its section
classes are registered in ``rlinf.config.registries.task_configs`` under the same name.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlinf.registry import Registry

OWN_SCRIPT = "the script that belongs to the recipe"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskType:
    """What recipes of one ``runner.task_type`` run with.

    ``data``, ``workers`` and ``runner`` are import paths, ``"package.module:name"``; see ``rlinf.runners.launch``.

    Attributes:
        data: Called as ``data(cfg, stack)`` before the cluster is opened; returns the recipe, completed by what was
            read, and keyword arguments for ``runner``. What it enters on ``stack`` is left after the cluster is closed.
        workers: Called as ``workers(cfg, launcher)``; starts the worker groups and returns the recipe, completed by
            what they reported.
        runner: Called as ``runner(cfg, **groups, **data)``; returns the ``StepRunner``.
        script: What a user starts to run such a recipe, for messages.
    """

    data: str
    workers: str
    runner: str
    script: str = OWN_SCRIPT


task_types: Registry[TaskType] = Registry("task type")

_EMBODIED = {
    "data": "rlinf.runners.collection:prepare_episodes",
    "workers": "rlinf.runners.embodied_runner:start_workers",
}
_LANGUAGE = "rlinf.runners.language_runner:start_workers"

task_types.register(
    "embodied",
    TaskType(
        **_EMBODIED,
        runner="rlinf.runners.async_embodied_runner:make_embodied_runner",
        script="examples/embodiment/run_embodiment.sh or examples/embodiment/train_embodied_agent.py",
    ),
)
task_types.register(
    "offline",
    TaskType(
        **_EMBODIED,
        runner="rlinf.runners.embodied_runner:OfflineRunner",
        script="examples/embodiment/run_embodiment.sh or examples/embodiment/train_offline.py",
    ),
)
task_types.register(
    "reasoning",
    TaskType(
        data="rlinf.runners.reasoning_runner:read_prompt_sets",
        workers=_LANGUAGE,
        runner="rlinf.runners.reasoning_runner:ReasoningRunner",
        script="examples/reasoning/run_main_grpo_math.sh or examples/reasoning/main_grpo.py",
    ),
)
task_types.register(
    "sft",
    TaskType(
        data="rlinf.runners.sft_runner:read_example_sets",
        workers=_LANGUAGE,
        runner="rlinf.runners.sft_runner:SftRunner",
        script="examples/sft/run_sft.sh or examples/sft/main_sft.py",
    ),
)

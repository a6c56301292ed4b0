"""What each ``runner.task_type`` runs with: its data, workers, runner, and the words of ``rlinf plan``.

The names are registered in ``rlinf.config.registries.task_types``, each with such a record as its target. Imports
neither torch nor Ray.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskType:
    """What recipes of one ``runner.task_type`` run with.

    All but ``script`` are import paths, ``"package.module:name"``; see ``rlinf.runners.launch``.

    Attributes:
        data: Called as ``data(cfg, stack)`` before the cluster is opened; returns the recipe, completed by what was
            read, and keyword arguments for ``runner``. What it enters on ``stack`` is left after the cluster is closed.
        workers: Called as ``workers(cfg, launcher)``; starts the worker groups and returns the recipe, completed by
            what they reported.
        runner: Called as ``runner(cfg, **groups, **data)``; returns the ``StepRunner``.
        plan: Called as ``plan(cfg, world)`` with the recipe and the ``WorldSizes`` of its groups; returns what
            ``rlinf plan`` prints of a step, as pairs of a name and a text. It imports neither torch nor Ray.
        script: What a user starts to run such a recipe, for messages.
    """

    data: str
    workers: str
    runner: str
    plan: str | None = None
    script: str | None = None


EMBODIED = TaskType(
    data="rlinf.runners.collection:prepare_episodes",
    workers="rlinf.runners.embodied_runner:start_workers",
    runner="rlinf.runners.async_embodied_runner:make_embodied_runner",
    plan="rlinf.cli.step_plan:embodied_rows",
    script="examples/embodiment/run_embodiment.sh or examples/embodiment/train_embodied_agent.py",
)
COLLECT = TaskType(
    data=EMBODIED.data,
    workers="rlinf.runners.collect_runner:start_workers",
    runner="rlinf.runners.collect_runner:CollectRunner",
    plan="rlinf.cli.step_plan:collect_rows",
    script="examples/embodiment/collect_data.sh",
)
OFFLINE = replace(
    EMBODIED,
    runner="rlinf.runners.embodied_runner:OfflineRunner",
    script="examples/embodiment/run_embodiment.sh or examples/embodiment/train_offline.py",
)
REASONING = TaskType(
    data="rlinf.runners.reasoning_runner:read_prompt_sets",
    workers="rlinf.runners.language_runner:start_workers",
    runner="rlinf.runners.reasoning_runner:ReasoningRunner",
    plan="rlinf.cli.step_plan:reasoning_rows",
    script="examples/reasoning/run_main_grpo_math.sh or examples/reasoning/main_grpo.py",
)
VALUE = TaskType(
    data="rlinf.runners.value_runner:read_nothing",
    workers="rlinf.runners.value_runner:start_workers",
    runner="rlinf.runners.value_runner:ValueRunner",
    plan="rlinf.cli.step_plan:value_rows",
    script="examples/embodiment/run_embodiment.sh or examples/embodiment/train_offline.py",
)
SFT = TaskType(
    data="rlinf.runners.sft_runner:read_example_sets",
    workers="rlinf.runners.language_runner:start_workers",
    runner="rlinf.runners.sft_runner:SftRunner",
    plan="rlinf.cli.step_plan:sft_rows",
    script="examples/sft/run_sft.sh or examples/sft/main_sft.py",
)

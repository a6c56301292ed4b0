"""Folders of runs, written by what writes them in a run."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlinf.config import load_recipe, to_dict, validate_cfg
from rlinf.config.schema.runner import LoggerConfig
from rlinf.data.messages.responses import ResponseGroup
from rlinf.telemetry import MetricLogger, claim_run_dir
from rlinf.telemetry.evaluation import EvalEpisode, write_episodes
from rlinf.telemetry.report import RunFolder, write_report
from rlinf.telemetry.responses import sample_rows
from rlinf.telemetry.rundir import record_launch
from rlinf.telemetry.trace import INSTANT, SPAN, ProcessTrace
from rlinf.telemetry.trace_export import write_trace
from tests.unit.data.messages.response_samples import Sample, group_of

RECIPE = "gym_cartpole_ppo_mlp"
HOSTILE = "</script><script>window.broken = 1</script><!--<script> & \u2028 <img src=x onerror='window.broken = 2'>"


class Ticks:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def make_run(
    root: Path,
    name: str = "cart",
    *,
    steps: int = 4,
    overrides: str = (),
    metrics: Callable[[Any], dict[str, Any]] | Callable[[Any], dict[str, float]] | None = None,
    resume: bool = False,
    placement: str | None = None,
) -> Path:
    """Write a run's folder and return it.

    Args:
        root: Folder that holds experiments.
        name: The experiment's.
        steps: Steps after the evaluation of step 0; each takes two seconds.
        overrides: Of the recipe.
        metrics: Returns the metrics of a step; None gives some of each kind.
        resume: Whether this is a further launch.
        placement: As it was drawn when the run began.
    """
    cfg = validate_cfg(load_recipe(RECIPE, [f'runner.logger.experiment_name="{name}"', *overrides]))
    command = ["python", "train.py", "--config-name", RECIPE, *overrides]
    with claim_run_dir(root, name, resume=resume, overwrite=False) as folder:
        record_launch(folder, name, config=to_dict(cfg), seed=7, command=command, placement=placement)
    clock = Ticks()
    with MetricLogger(folder, LoggerConfig(logger_backends=[]), clock=clock) as logger:
        for step in range(steps + 1):
            logger.log((metrics or some_metrics)(step), step)
            logger.commit(step)
            clock.now += 2.0
    return folder


def some_metrics(step: int) -> dict[str, Any]:
    if step == 0:
        return {"eval/return": 9.5}
    evaluation = {"eval/return": 10.0 + step, "eval/success_once": step / 10} if step % 2 == 0 else {}
    return evaluation | {
        "env/return": float(step),
        "rollout/advantage": 0.0,
        "train/loss": 1 / step,
        "time/step": 1.5,
        "time/restarts": 0.0,
        "time/env_steps_per_second": 100.0,
        "time/phase/rollout": 1.0,
        "time/phase/training": 0.5,
        "time/phase/sync_weights": 0.1,
        "time/actor/training": 0.4,
        "time/actor/peak_memory_gib": 1.0,
        "time/env/interact": 0.9,
        "time/env/env_step": 0.6,
        "time/env/wait_for_actions": 0.2,
    }


def answer(
    text: str = "4",
    *,
    prompt: str = "2+2=",
    reward: float = 1.0,
    group: int = 3,
    member: int = 0,
    reference: str = "4",
) -> ResponseGroup:
    sample = Sample(
        group_id=group,
        index=member,
        token_ids=(1, 2),
        versions=(5, 6),
        reward=reward,
        reward_terms={"math": reward, "format": 0.5},
    )
    return group_of([sample], [text], prompt=prompt, reference=reference)


def add_answers(folder: Path, step: int, answers: list[ResponseGroup], source: str = "samples") -> None:
    path = folder / source / f"step_{step:08d}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(sample_rows(group) for group in answers), encoding="utf-8")


def add_episodes(folder: Path, step: int, count: int) -> None:
    episodes = [
        EvalEpisode(epoch=0, env=index, number=0, task="reach", metrics={"return": index + 0.5, "success_once": 1.0})
        for index in range(count)
    ]
    write_episodes(folder / "evaluations" / f"step_{step:08d}.jsonl", episodes)


def add_trace(folder: Path, steps: int = 2) -> None:
    """Write a trace in which each step is 10 ms: a worker trains in the last 4 of them, 1 of these in the optimizer."""
    thread = (threading.get_ident(), 0)
    driver, worker = [], []
    for step in range(1, steps + 1):
        start = (step - 1) * 10_000_000
        driver += [
            (SPAN, start, 6_000_000, thread, "rollout", "phase", {}, None),
            (SPAN, start + 6_000_000, 4_000_000, thread, "training", "phase", {}, None),
            (INSTANT, start + 10_000_000, 0, thread, "step", "run", {"step": step}, None),
        ]
        worker += [
            (SPAN, start + 6_000_000, 4_000_000, thread, "run_training", "call", {}, None),
            (SPAN, start + 8_000_000, 1_000_000, thread, "optimizer_step", "train", {}, None),
        ]
    names = {"driver": driver, "ActorGroup:0": worker}
    traces = [
        ProcessTrace(process, "host", "boot", pid, events, 0, {thread[0]: "MainThread"}, 0, 0)
        for pid, (process, events) in enumerate(names.items())
    ]
    write_trace(folder / "trace.json", traces)


def page_data(*folders: Path, output: Path) -> Any:
    """Write the page of runs and return the JSON in it."""
    write_report([RunFolder.read(folder) for folder in folders], output)
    return embedded(output.read_text(encoding="utf-8"))


def embedded(page: str) -> Any:
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(text)

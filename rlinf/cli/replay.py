"""``rlinf replay``: make a train step of a run again, in this process, from what ``runner.dump_steps`` wrote."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rlinf.cli.arguments import add_overrides
from rlinf.config import load_recipe, validate_cfg
from rlinf.errors import ConfigError
from rlinf.telemetry.logger import METRICS_FILE
from rlinf.telemetry.rundir import CONFIG_FILE, DUMPS_FOLDER, dump_folder

if TYPE_CHECKING:
    from rlinf.config.schema.root import RLinfConfig

# Metrics of these families are computed by the actor.
_OWN = ("train/", "rollout/")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``rlinf replay``."""
    parser.add_argument("run", metavar="RUN", help="folder of the run")
    parser.add_argument("--step", type=int, required=True, metavar="N", help="the step, one of runner.dump_steps")
    add_overrides(parser)


def run(args: argparse.Namespace) -> int:
    """Make the step again, and print its metrics next to the recorded ones.

    One process does the work of all ranks of the actor. Where it had one, and nothing is overridden, the same machine
    computes the same numbers, to the bit.

    Returns:
        0.

    Raises:
        ConfigError: The folder holds no run, or not this step; or the overrides are wrong.
        CheckpointError: A file of the step cannot be read.
    """
    folder = Path(args.run)
    if not (folder / CONFIG_FILE).is_file():
        raise ConfigError(f"{folder} holds no run: there is no {CONFIG_FILE}. Name the folder of an experiment.")
    step_folder = dump_folder(folder, args.step)
    if not step_folder.is_dir():
        found = ", ".join(str(int(path.name.rpartition("_")[2])) for path in sorted((folder / DUMPS_FOLDER).glob("*")))
        raise ConfigError(
            f"Step {args.step} of {folder} was not dumped; {f'these were: {found}' if found else 'none was'}. "
            "Name steps in runner.dump_steps before the run."
        )
    cfg = validate_cfg(load_recipe(str(folder / CONFIG_FILE), args.overrides))
    replayed = _make_step(cfg, step_folder, args.step)
    print("\n".join(_compare(_recorded(folder, args.step), replayed)))
    return 0


def _make_step(cfg: RLinfConfig, folder: Path, step: int) -> dict[str, float]:
    import torch

    from rlinf.workers.actor.actor_worker import ActorWorker
    from rlinf.workers.actor.step_dump import STATE_FOLDER, read_step

    dumped = read_step(folder)
    torch.set_num_threads(dumped.num_threads)
    worker = ActorWorker(cfg, {})
    try:
        worker.init_worker()
        worker.load_checkpoint(str(folder / STATE_FOLDER))
        worker.version = dumped.version
        metrics = worker.compute_advantages(dumped.batch) | worker.run_training(step=step)
    finally:
        worker._shut_down()
    return {name: value for name, value in metrics.items() if name.startswith(_OWN)}


def _recorded(folder: Path, step: int) -> dict[str, float | None]:
    """Return the metrics that the run has logged for a step; none if it was killed before."""
    path = folder / METRICS_FILE
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    rows = [row for row in map(json.loads, lines) if row["step"] == step]
    return rows[-1] if rows else {}


def _compare(recorded: Mapping[str, float | None], replayed: Mapping[str, float]) -> list[str]:
    width = max(map(len, replayed))
    lines = [f"{'metric':<{width}}  {'recorded':>22}  {'replayed':>22}"]
    largest, num_different, compared = 0.0, 0, 0
    for name, value in sorted(replayed.items()):
        known = recorded.get(name)
        lines.append(f"{name:<{width}}  {'-' if known is None else repr(known):>22}  {value!r:>22}")
        if name not in recorded:
            continue
        compared += 1
        # The log has null for what is not finite.
        is_same = known == value or (known is None and not math.isfinite(value))
        if not is_same:
            num_different += 1
            largest = math.inf if known is None else max(largest, abs(known - value) / max(abs(known), abs(value)))
    if num_different:
        lines.append(f"\n{num_different} of {compared} metrics differ, by {largest:.1e} of their value at most.")
    else:
        lines.append(f"\nAll {compared} recorded metrics are the same to the bit.")
    return lines

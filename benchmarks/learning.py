"""What recipes learn, on which seeds and how fast: runs them and keeps their evaluation curves.

Each seed runs as a user would run it, in a process of its own, one after the other. One JSON file per recipe goes to
``benchmarks/results/learning/``, so that a result need not be repeated to be believed.

    python benchmarks/learning.py metaworld_reach_ppo_mlp --seeds 0 1 2
    python benchmarks/learning.py gym_cartpole_ppo_mlp gym_pendulum_ppo_mlp --seeds 0 1 2
    python benchmarks/learning.py tiny_online_reinpp --beside=--random-feedback --suffix _random

Some recipes need another program beside them, a client or a search; it is started with them, and ``--beside`` are more
arguments of it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rlinf.config import load_recipe

REPO = Path(__file__).resolve().parents[1]
RESULTS = REPO / "benchmarks" / "results" / "learning"


SEEDED_SECTIONS = {"embodied": "env.train", "reasoning": "data", "sft": "data"}
"""What has a seed beside the actor, by the kind of task."""

LAUNCHERS = {
    "agents": "examples/agents/run_agents.sh",
    "reasoning": "examples/reasoning/run_main_grpo_math.sh",
    "sft": "examples/sft/run_sft.sh",
}
"""Scripts that run a recipe, by the folder that holds it; the others' is ``run_embodiment.sh``."""


BESIDE = {
    "tiny_online_reinpp": ("agents/online_client.py", "results/tiny_math/train.jsonl"),
    "tiny_search_grpo": ("agents/search/serve_corpus.py", "results/tiny_search/corpus.jsonl", "--port", "8000"),
}
"""Programs that run beside a recipe, with their arguments."""

EVALUATED_BY = {"tiny_online_reinpp": "tiny_math_grpo"}
"""The recipe whose evaluation tells what another has learned, which has none: before and after it."""


def run_seed(recipe: str, seed: int, overrides: list[str], beside: Sequence[str] = ()) -> dict[str, object]:
    """Run one recipe with one seed; return its evaluation curve and how long it took."""
    task = load_recipe(recipe).runner.get("task_type", "embodied")
    with tempfile.TemporaryDirectory() as folder:
        launcher = REPO / LAUNCHERS.get(folder_of(recipe), "examples/embodiment/run_embodiment.sh")
        command = ["bash", str(launcher), recipe, "--no-install"]
        command += [f"actor.seed={seed}", f"runner.logger.log_path={folder}", *overrides]
        if task in SEEDED_SECTIONS:
            command.append(f"{SEEDED_SECTIONS[task]}.seed={seed}")
        work_folder = prepare(recipe, seed, Path(folder))
        started = time.monotonic()
        with running_beside(recipe, seed, beside, work_folder):
            run_quietly(command, work_folder)
        seconds = time.monotonic() - started
        records = read_metrics(Path(folder) / recipe)
        is_evaluated = recipe not in EVALUATED_BY
        curve = [kept for record in records if (kept := points_of(record, is_evaluated=is_evaluated))]
        if not is_evaluated:
            checkpoint = Path(folder) / recipe / "checkpoints" / f"global_step_{records[-1]['step']}"
            evaluation = EVALUATED_BY[recipe]
            curve.insert(0, {"step": 0, **evaluate(evaluation, [], work_folder)})
            curve[-1] |= evaluate(evaluation, [f"runner.ckpt_path={checkpoint}"], work_folder)
    return {
        "seed": seed,
        "overrides": overrides,
        **({"beside": list(beside)} if beside else {}),
        "steps": records[-1]["step"],
        "process_seconds": round(seconds, 1),
        "training_seconds": records[-1]["time_seconds"],
        "curve": curve,
    }


def read_metrics(folder: Path) -> list[dict[str, float]]:
    """Return the lines of metrics of a run."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@contextlib.contextmanager
def running_beside(recipe: str, seed: int, arguments: Sequence[str], work_folder: Path) -> Iterator[None]:
    """Have the program run that a recipe needs beside it, if it needs one."""
    if recipe not in BESIDE:
        yield
        return
    script, *own = BESIDE[recipe]
    if recipe in EVALUATED_BY:
        own += ["--seed", str(seed)]
    command = [sys.executable, str(REPO / "examples" / script), *own, *arguments]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=work_folder) as program:
        try:
            yield
        finally:
            program.terminate()


def points_of(record: dict[str, float], *, is_evaluated: bool) -> dict[str, float]:
    """Return what a curve shows of a line of metrics: evaluations, or rewards of training where there are none."""
    shown = "eval/" if is_evaluated else "rollout/reward"
    kept = {name: value for name, value in record.items() if name.startswith(shown)}
    return {"step": record["step"], "time_seconds": record["time_seconds"], **kept} if kept else {}


def evaluate(recipe: str, overrides: list[str], work_folder: Path) -> dict[str, float]:
    """Return what a recipe's evaluation says of a checkpoint; without one, of the model that it starts from."""
    launcher = REPO / LAUNCHERS[folder_of(recipe)]
    with tempfile.TemporaryDirectory() as folder:
        command = ["bash", str(launcher), recipe, "--no-install", "runner.only_eval=true"]
        command += [f"runner.logger.log_path={folder}", *overrides]
        run_quietly(command, work_folder)
        (evaluated,) = (Path(folder) / recipe / "eval_only").iterdir()
        (record,) = read_metrics(evaluated)
    return {name: value for name, value in record.items() if name.startswith("eval/")}


def run_quietly(command: list[str], work_folder: Path) -> None:
    """Run a launcher with this interpreter's packages."""
    environment = {**os.environ, "RLINF_PLAIN": "1", "RLINF_VENV": sys.prefix}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=work_folder, env=environment)


def folder_of(recipe: str) -> str:
    """Return the folder of ``examples`` that holds a recipe."""
    return next((file.parents[1].name for file in (REPO / "examples").glob(f"*/config/{recipe}.yaml")), "embodiment")


def prepare(recipe: str, seed: int, folder: Path) -> Path:
    """Return where to run a recipe; a model that it starts from is made there, of the same seed."""
    if not recipe.startswith("tiny_"):
        return REPO
    model = Path(load_recipe(recipe).actor.model.model_path)
    task = model.parent.name.removeprefix("tiny_")
    own = f"reasoning/make_tiny_{task}.py"
    maker = [own] if (REPO / "examples" / own).exists() else ["agents/make_tiny_agents.py", task]
    command = [sys.executable, str(REPO / "examples" / maker[0]), *maker[1:]]
    subprocess.run([*command, "--folder", str(folder / model.parent), "--seed", str(seed)], check=True)
    return folder


def earlier_runs(
    path: Path, commit: str, overrides: list[str], seeds: list[int], beside: Sequence[str] = ()
) -> list[dict[str, object]]:
    """Return a file's runs of other seeds, where it holds the same commit, overrides and arguments beside."""
    report = json.loads(path.read_text()) if path.exists() else {"commit": None, "runs": []}
    if report["commit"] != commit:
        return []
    changes = (overrides, list(beside))
    return [
        run
        for run in report["runs"]
        if (run["overrides"], run.get("beside", [])) == changes and run["seed"] not in seeds
    ]


def main() -> None:
    """Run every recipe with every seed and print the last evaluation of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="+")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--override", action="append", default=[], help="key=value, may be given several times")
    parser.add_argument("--beside", action="append", default=[], help="an argument of the program beside it, likewise")
    parser.add_argument("--suffix", default="", help="of the file's name, where overrides make it another result")
    parser.add_argument("--keep", action="store_true", help="runs of other seeds, of the same commit and overrides")
    args = parser.parse_args()
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=REPO, check=True)
    commit = head.stdout.strip()
    RESULTS.mkdir(parents=True, exist_ok=True)
    for recipe in args.recipes:
        path = RESULTS / f"{recipe}{args.suffix}.json"
        runs = earlier_runs(path, commit, args.override, args.seeds, args.beside) if args.keep else []
        for seed in args.seeds:
            runs.append(run_seed(recipe, seed, args.override, args.beside))
            last = runs[-1]["curve"][-1]
            print(recipe, {"seed": seed, "training_seconds": runs[-1]["training_seconds"], **last}, flush=True)
            report = {"recipe": recipe, "commit": commit, "cpu_cores": os.cpu_count(), "runs": runs}
            path.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""What recipes learn, on which seeds and how fast: runs them and keeps their evaluation curves.

Each seed runs as a user would run it, in a process of its own, one after the other. One JSON file per recipe goes to
``benchmarks/results/learning/``, so that a result need not be repeated to be believed.

    python benchmarks/learning.py metaworld_reach_ppo_mlp --seeds 0 1 2
    python benchmarks/learning.py gym_cartpole_ppo_mlp gym_pendulum_ppo_mlp --seeds 0 1 2
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
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


def run_seed(recipe: str, seed: int, overrides: list[str]) -> dict[str, object]:
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
        environment = {**os.environ, "RLINF_PLAIN": "1", "RLINF_VENV": sys.prefix}
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=work_folder, env=environment)
        seconds = time.monotonic() - started
        lines = (Path(folder) / recipe / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    curve = [
        {name: value for name, value in record.items() if name in {"step", "time_seconds"} or name.startswith("eval/")}
        for record in records
        if any(name.startswith("eval/") for name in record)
    ]
    return {
        "seed": seed,
        "overrides": overrides,
        "steps": records[-1]["step"],
        "process_seconds": round(seconds, 1),
        "training_seconds": records[-1]["time_seconds"],
        "curve": curve,
    }


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


def earlier_runs(path: Path, commit: str, overrides: list[str], seeds: list[int]) -> list[dict[str, object]]:
    """Return a file's runs of other seeds, where it holds the same commit and overrides."""
    report = json.loads(path.read_text()) if path.exists() else {"commit": None, "runs": []}
    if report["commit"] != commit:
        return []
    return [run for run in report["runs"] if run["overrides"] == overrides and run["seed"] not in seeds]


def main() -> None:
    """Run every recipe with every seed and print the last evaluation of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="+")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--override", action="append", default=[], help="key=value, may be given several times")
    parser.add_argument("--suffix", default="", help="of the file's name, where overrides make it another result")
    parser.add_argument("--keep", action="store_true", help="runs of other seeds, of the same commit and overrides")
    args = parser.parse_args()
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=REPO, check=True)
    commit = head.stdout.strip()
    RESULTS.mkdir(parents=True, exist_ok=True)
    for recipe in args.recipes:
        path = RESULTS / f"{recipe}{args.suffix}.json"
        runs = earlier_runs(path, commit, args.override, args.seeds) if args.keep else []
        for seed in args.seeds:
            runs.append(run_seed(recipe, seed, args.override))
            last = runs[-1]["curve"][-1]
            print(recipe, {"seed": seed, "training_seconds": runs[-1]["training_seconds"], **last}, flush=True)
            report = {"recipe": recipe, "commit": commit, "cpu_cores": os.cpu_count(), "runs": runs}
            path.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()

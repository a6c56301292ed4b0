"""What training while environments are stepped gains over taking turns, and what it could gain at most.

One recipe runs in turns and asynchronously, several times each, alternately. Environments and inference share one core
and the actor has another, in both modes. A rollout keeps the first core busy for e seconds, and what follows from it
(advantages, training, handing on the weights) the second for l. One after the other they take e + l; at the same time
not less than the longer of the two: the bound is (e + l) / max(e, l).

Both are taken inside the asynchronous run, without what its workers spend waiting for each other, and so is the step
that they are compared with: whatever else the machine does is in all three. In turns each core rests while the other
works, which makes both slower afterwards; how much faster a step is than in turns is therefore another number
(``gain_over_turns``), and not what is held against the bound.

    python benchmarks/async_overlap.py > benchmarks/results/async_overlap.json
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
RECIPE = "gym_cartpole_async_ppo_mlp"
# Until the first steps are over, memory is still being allocated and caches are cold.
WARMUP_STEPS = 5
# What keeps each core busy: seconds of worker methods, and those among them in which a worker waits for the other core.
BUSY = {
    "environment": (("rollout/generate",), ("rollout/wait_for_weights",)),
    "learner": (("actor/advantages", "actor/training", "actor/sync_weights"), ()),
}
CORES = {"EnvGroup": 0, "RolloutGroup": 0, "ActorGroup": 1}


def register() -> None:
    """Bind a worker's process to its group's core: this file is the plug-in of the runs that it starts."""
    from rlinf.scheduler.runtime import find_runtime

    runtime = find_runtime()
    if runtime is None or runtime.identity is None:
        return
    cores = sorted(os.sched_getaffinity(0))
    core = cores[CORES[runtime.identity.address.group_name] % len(cores)]
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), {core})


def run(steps: int, threshold: int | None, overrides: list[str]) -> dict[str, float]:
    """Run the recipe once; return mean seconds of a step and of its parts, after the warm-up."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["bash", str(REPO / "examples/embodiment/run_embodiment.sh"), RECIPE, "--no-install"]
        command += [f"runner.logger.log_path={folder}", f"runner.max_epochs={steps + WARMUP_STEPS}"]
        command += ["runner.val_check_interval=-1", "runner.logger.logger_backends=[]"]
        command += [f"algorithm.staleness_threshold={'null' if threshold is None else threshold}", *overrides]
        environment = {
            **os.environ,
            "RLINF_VENV": sys.prefix,
            "RLINF_PLAIN": "1",
            "RLINF_EXT_MODULE": Path(__file__).stem,
            "PYTHONPATH": f"{Path(__file__).parent}{os.pathsep}{REPO}",
            "OMP_NUM_THREADS": "1",
            # Ray gives its workers a low priority, which counts where the machine has other work to do.
            "RAY_worker_niceness": "0",
        }
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        lines = (Path(folder) / RECIPE / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    # The last step waits for its weights to be loaded and is followed by a checkpoint.
    first, *timed = records[WARMUP_STEPS - 1 : -1]
    result = {"step_seconds": (timed[-1]["time_seconds"] - first["time_seconds"]) / len(timed)}
    for name, (parts, waits) in BUSY.items():
        busy = (sum(record[f"time/{p}"] for p in parts) - sum(record[f"time/{w}"] for w in waits) for record in timed)
        result[f"{name}_seconds"] = statistics.fmean(busy)
    if threshold is not None:
        result["staleness_mean"] = statistics.fmean(record["rollout/staleness_mean"] for record in timed)
    return result


def main() -> None:
    """Run both modes in turns and print medians, the bound and the share of it that is reached, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3, help="how often each mode runs")
    parser.add_argument("--steps", type=int, default=40, help="timed training steps of each run")
    parser.add_argument("--threshold", type=int, default=1, help="algorithm.staleness_threshold")
    parser.add_argument("overrides", nargs="*", help="recipe keys, for example algorithm.update_epoch=20")
    args = parser.parse_args()
    if len(os.sched_getaffinity(0)) < 2:
        parser.error("two cores are needed: one for the environments and one for the actor.")
    modes: dict[str, int | None] = {"in_turns": None, "asynchronous": args.threshold}
    turns: dict[str, list[dict[str, float]]] = {name: [] for name in modes}
    for _ in range(args.turns):
        for name, threshold in modes.items():
            turns[name].append(run(args.steps, threshold, args.overrides))
            print(name, turns[name][-1], file=sys.stderr)
    medians = {
        name: {key: statistics.median(result[key] for result in results) for key in results[0]}
        for name, results in turns.items()
    }
    overlapped = medians["asynchronous"]
    rollout, learner, step = (overlapped[f"{name}_seconds"] for name in ("environment", "learner", "step"))
    bound = (rollout + learner) / max(rollout, learner)
    speedup = (rollout + learner) / step
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=REPO, check=True)
    report = {
        "recipe": RECIPE,
        "commit": commit.stdout.strip(),
        "cpu_cores": os.cpu_count(),
        "load_average": os.getloadavg()[1],
        "overrides": args.overrides,
        "staleness_threshold": args.threshold,
        "environment_seconds": rollout,
        "learner_seconds": learner,
        "step_seconds": step,
        "bound": bound,
        "speedup": speedup,
        "share_of_bound": speedup / bound,
        "gain_over_turns": medians["in_turns"]["step_seconds"] / step,
        "medians": medians,
        "turns": turns,
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()

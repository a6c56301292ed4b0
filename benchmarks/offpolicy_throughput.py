"""Gradient steps and environment steps per second of SAC on Pendulum-v1: RLinf beside stable-baselines3.

Both train policies and twin critics of the same widths on batches of the same size, with as many updates for each
environment step, from as many environments stepped between updates. They run in turns, each turn in a process of its
own with one thread for each process. Ratios are those of neighbouring turns, and the median of them counts. Three
rates are told apart: updates per second of the time spent in updates; the same by the processor time that they took,
which hardly changes where the machine has other work to do; and environment steps per second of everything: stepping,
acting, updates, and for RLinf also its messages and weight synchronisation.

    pip install stable-baselines3
    python benchmarks/offpolicy_throughput.py > benchmarks/results/offpolicy_throughput.json
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
RECIPE = "gym_pendulum_sac_mlp"
NUM_ENVS, ENV_STEPS_PER_ENV, UPDATES, BATCH = 8, 8, 64, 256
ENV_STEPS_PER_STEP = NUM_ENVS * ENV_STEPS_PER_ENV
CAPACITY, WARMUP_TRANSITIONS = 20_000, 512
# Steps that only fill the replay, and two more in which caches and allocators warm up.
UNTIMED_STEPS = WARMUP_TRANSITIONS // ENV_STEPS_PER_STEP + 2
WIDTHS = (64, 256)


def register() -> None:
    """Have learners report the processor time of their updates: this file is the plug-in of the runs it starts."""
    from rlinf.workers.actor.off_policy_learner import OffPolicyLearner

    update = OffPolicyLearner.update

    def timed(self: OffPolicyLearner, step: int) -> dict[str, float]:
        started = time.process_time()
        return update(self, step) | {"cpu_seconds": time.process_time() - started}

    OffPolicyLearner.update = timed  # type: ignore[method-assign]


def rates(seconds: list[float], update_seconds: list[float], cpu_seconds: list[float]) -> dict[str, float]:
    """Return what the timed steps amount to."""
    return {
        "env_steps_per_second": len(seconds) * ENV_STEPS_PER_STEP / sum(seconds),
        "updates_per_second": len(seconds) * UPDATES / sum(update_seconds),
        "updates_per_cpu_second": len(seconds) * UPDATES / sum(cpu_seconds),
        "share_updates": sum(update_seconds) / sum(seconds),
    }


def run_rlinf(width: int, steps: int) -> dict[str, float]:
    """Train the recipe through Ray and read the step times from its metrics."""
    overrides = (
        f"actor.model.hidden_dims=[{width},{width}]",
        f"env.train.total_num_envs={NUM_ENVS}",
        f"env.train.max_steps_per_rollout_epoch={ENV_STEPS_PER_ENV}",
        f"algorithm.update_epoch={UPDATES}",
        f"algorithm.replay_buffer.capacity={CAPACITY}",
        f"algorithm.replay_buffer.min_buffer_size={WARMUP_TRANSITIONS}",
        f"actor.global_batch_size={BATCH}",
        f"actor.micro_batch_size={BATCH}",
        "runner.val_check_interval=-1",
        f"runner.max_epochs={UNTIMED_STEPS + steps}",
    )
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(REPO / "examples/embodiment/train_embodied_agent.py"), "--config-name", RECIPE]
        command += [*overrides, f"runner.logger.log_path={folder}"]
        # Ray gives its workers a low priority, which counts where the machine has other work to do.
        environment = {
            **os.environ,
            "RLINF_PLAIN": "1",
            "RAY_worker_niceness": "0",
            "RLINF_EXT_MODULE": Path(__file__).stem,
            "PYTHONPATH": f"{Path(__file__).parent}{os.pathsep}{REPO}",
        }
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=REPO, env=environment)
        lines = (Path(folder) / RECIPE / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    timed = [record for record in records if record["step"] > UNTIMED_STEPS]
    columns = ("time/step", "time/actor/training", "train/cpu_seconds")
    return rates(*([record[name] for record in timed] for name in columns))


def run_sb3(width: int, steps: int) -> dict[str, float]:
    """Train stable-baselines3's SAC and time its steps by the ends of its updates."""
    import torch
    from stable_baselines3 import SAC
    from stable_baselines3.common.env_util import make_vec_env

    torch.set_num_threads(1)
    ends: list[float] = []
    update_seconds: list[float] = []
    cpu_seconds: list[float] = []

    class TimedSAC(SAC):
        def train(self, gradient_steps: int, batch_size: int = BATCH) -> None:
            started, cpu_started = time.perf_counter(), time.process_time()
            super().train(gradient_steps, batch_size)
            ends.append(time.perf_counter())
            update_seconds.append(ends[-1] - started)
            cpu_seconds.append(time.process_time() - cpu_started)

    agent = TimedSAC(
        "MlpPolicy",
        make_vec_env("Pendulum-v1", NUM_ENVS, seed=0),
        learning_rate=1e-3,
        buffer_size=CAPACITY,
        learning_starts=WARMUP_TRANSITIONS,
        batch_size=BATCH,
        gamma=0.99,
        tau=0.005,
        train_freq=(ENV_STEPS_PER_ENV, "step"),
        gradient_steps=UPDATES,
        policy_kwargs={"net_arch": [width, width]},
        device="cpu",
        seed=0,
    )
    agent.learn((UNTIMED_STEPS + steps) * ENV_STEPS_PER_STEP)
    first = len(ends) - steps
    seconds = [end - before for before, end in zip(ends[first - 1 :], ends[first:], strict=False)]
    return rates(seconds, update_seconds[first:], cpu_seconds[first:])


CONTENDERS = {"rlinf": run_rlinf, "sb3": run_sb3}


def run_turn(name: str, width: int, steps: int) -> dict[str, float]:
    """Run one contender in a process of its own; report what it measured and the CPU seconds it used."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, __file__, "--only", name, "--width", str(width), "--steps", str(steps)]
    paths = [str(REPO), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return result | {"cpu_seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}


def compare(width: int, turns: int, steps: int) -> dict[str, object]:
    """Run all contenders in turns with networks of one width; return medians, ratios and all turns."""
    results: dict[str, list[dict[str, float]]] = {name: [] for name in CONTENDERS}
    for _ in range(turns):
        for name, measured in results.items():
            measured.append(run_turn(name, width, steps))
            print(width, name, measured[-1], file=sys.stderr)
    medians = {
        name: {key: statistics.median(result[key] for result in measured) for key in measured[0]}
        for name, measured in results.items()
    }
    pairs = list(zip(results["rlinf"], results["sb3"], strict=True))
    keys = ("updates_per_second", "updates_per_cpu_second", "env_steps_per_second")
    ratio = {key: statistics.median(ours[key] / theirs[key] for ours, theirs in pairs) for key in keys}
    return {"hidden_dims": [width, width], "ratio_to_sb3": ratio, "medians": medians, "turns": results}


def main() -> None:
    """Compare at all widths and print the report as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=2, help="how often each contender runs")
    parser.add_argument("--steps", type=int, default=30, help="timed training steps of each turn")
    parser.add_argument("--only", choices=CONTENDERS, help="run one contender once (used for the turns)")
    parser.add_argument("--width", type=int, default=WIDTHS[0], help="width of the networks, with --only")
    args = parser.parse_args()
    if args.only:
        print(json.dumps(CONTENDERS[args.only](args.width, args.steps)))
        return
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=REPO, check=True)
    report = {
        "task": "Pendulum-v1, SAC",
        "commit": commit.stdout.strip(),
        "cpu_cores": os.cpu_count(),
        "load_average": os.getloadavg()[1],
        "num_envs": NUM_ENVS,
        "batch_size": BATCH,
        "updates_per_env_step": UPDATES / ENV_STEPS_PER_STEP,
        "widths": [compare(width, args.turns, args.steps) for width in WIDTHS],
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()

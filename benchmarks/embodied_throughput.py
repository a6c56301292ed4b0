"""End-to-end environment steps per second of PPO on Meta-World reach-v3: RLinf, stable-baselines3, and raw stepping.

All three step the same task with chunks of five steps; RLinf and stable-baselines3 train the same network on the same
batches for the same number of epochs. They run in turns within one process tree, each turn in a process of its own, and
the medians over turns are compared. The limit is what as many processes as RLinf steps environments in reach when they
do nothing but step them.

RLinf steps Meta-World faster than Meta-World's own wrappers do (the same numbers, bit for bit). So the other two run
twice: as shipped (what a user of theirs gets), and on RLinf's single environment (``_same_env``), which leaves what the
training systems themselves cost.

    pip install stable-baselines3
    python benchmarks/embodied_throughput.py --turns 3 > benchmarks/results/embodied_throughput.json
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import multiprocessing.connection
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

REPO = Path(__file__).resolve().parents[1]
NUM_ENVS, CHUNK, HORIZON = 8, 5, 100
CHUNKS_PER_STEP, BATCH, EPOCHS = 40, 80, 10
ENV_STEPS_PER_STEP = NUM_ENVS * CHUNK * CHUNKS_PER_STEP
NUM_ENV_PROCESSES = 2

OVERRIDES = (
    f"env.train.total_num_envs={NUM_ENVS}",
    f"env.train.max_episode_steps={HORIZON}",
    f"env.train.max_steps_per_rollout_epoch={CHUNK * CHUNKS_PER_STEP}",
    f"env.train.num_env_processes={NUM_ENV_PROCESSES}",
    f"actor.model.num_action_chunks={CHUNK}",
    f"actor.global_batch_size={BATCH}",
    f"actor.micro_batch_size={BATCH}",
    f"algorithm.update_epoch={EPOCHS}",
    "runner.val_check_interval=-1",
    "~runner.stop_at",
)


def run_rlinf(steps: int, overrides: list[str]) -> dict[str, float]:
    """Train the recipe through Ray and read the step times from its metrics."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(REPO / "examples/embodiment/train_embodied_agent.py")]
        command += ["--config-name", "metaworld_reach_ppo_mlp", *OVERRIDES, f"runner.max_epochs={steps + 1}"]
        command += [f"runner.logger.log_path={folder}", *overrides]
        environment = {**os.environ, "RLINF_PLAIN": "1"}
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=REPO, env=environment)
        lines = (Path(folder) / "metaworld_reach_ppo_mlp" / "metrics.jsonl").read_text().splitlines()
    # The first step warms up caches, the allocator and the environments' lazy imports.
    records = [json.loads(line) for line in lines if json.loads(line)["step"] > 1]
    seconds = sum(record["time/step"] for record in records)
    return {
        "env_steps_per_second": len(records) * ENV_STEPS_PER_STEP / seconds,
        "share_env_step": sum(record["time/env/env_step"] for record in records) / seconds,
        "share_infer": sum(record["time/rollout/infer"] for record in records) / seconds,
        "share_training": sum(record["time/actor/training"] for record in records) / seconds,
        "share_sync_weights": sum(record["time/actor/sync_weights"] for record in records) / seconds,
    }


def make_env(seed: int, *, same_env: bool) -> gymnasium.Env[Any, Any]:
    """Return the task for stable-baselines3: five steps per action, and an episode of 100 steps."""
    import gymnasium
    import metaworld  # noqa: F401 - registers its ids

    from rlinf.envs.simulators.metaworld.metaworld_single import make_metaworld_env

    class SameEnv(gymnasium.Env):
        def __init__(self) -> None:
            self.single = make_metaworld_env(render=False, task_name="reach-v3")
            self.observation_space = self.single.observation_space["states"]
            self.action_space = self.single.action_space
            self.seeds = np.random.default_rng(seed)

        def reset(
            self, *, seed: int | None = None, options: dict[str, Any] | None = None
        ) -> tuple[Any, dict[Any, Any]]:
            return self.single.reset(int(self.seeds.integers(1 << 31))), {}

        def step(self, action: Any) -> tuple[Any, float, Any, Any, Any]:
            obs, reward, terminated, truncated, success = self.single.step(action)
            return obs, reward, terminated, truncated, {"success": success}

    class Repeat(gymnasium.Wrapper):
        def step(self, action: Any) -> tuple[Any, float, Any, Any, Any]:
            total = 0.0
            for _ in range(CHUNK):
                obs, reward, terminated, truncated, info = self.env.step(action)
                total += float(reward)
                if terminated or truncated:
                    break
            return obs, total, terminated, truncated, info

    if same_env:
        env = SameEnv()
    else:
        env = gymnasium.make("Meta-World/MT1", env_name="reach-v3", seed=seed, disable_env_checker=True)
    return gymnasium.wrappers.TimeLimit(Repeat(env), HORIZON // CHUNK)


def run_sb3(steps: int, *, same_env: bool) -> dict[str, float]:
    """Train stable-baselines3's PPO and time all iterations but the first."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.vec_env import SubprocVecEnv, VecNormalize

    torch.set_num_threads(1)

    class Clock(BaseCallback):
        def __init__(self) -> None:
            super().__init__()
            self.marks = []

        def _on_rollout_start(self) -> None:
            self.marks.append(time.perf_counter())

        def _on_step(self) -> bool:
            return True

    env = VecNormalize(SubprocVecEnv([lambda seed=seed: make_env(seed, same_env=same_env) for seed in range(NUM_ENVS)]))
    network = {"net_arch": {"pi": [128, 128], "vf": [128, 128]}, "activation_fn": torch.nn.Tanh}
    clock = Clock()
    agent = PPO(
        "MlpPolicy",
        env,
        n_steps=CHUNKS_PER_STEP,
        batch_size=BATCH,
        n_epochs=EPOCHS,
        gamma=0.95,
        learning_rate=5e-4,
        policy_kwargs=network,
        device="cpu",
    )
    # One iteration more than is timed, so that the last timed one ends where another begins.
    agent.learn((steps + 2) * CHUNKS_PER_STEP * NUM_ENVS, callback=clock)
    env.close()
    seconds = clock.marks[steps + 1] - clock.marks[1]
    return {"env_steps_per_second": steps * ENV_STEPS_PER_STEP / seconds}


def step_raw(connection: multiprocessing.connection.Connection, seeds: list[int], same_env: bool) -> None:
    """Step some environments for ever, and count."""

    envs = [make_env(seed, same_env=same_env) for seed in seeds]
    for env in envs:
        env.reset()
    rng = np.random.default_rng(0)
    connection.send("ready")
    deadline = time.perf_counter() + connection.recv()
    count, started = 0, time.perf_counter()
    while time.perf_counter() < deadline:
        for env in envs:
            _, _, terminated, truncated, _ = env.step(rng.uniform(-1, 1, 4).astype(np.float32))
            count += CHUNK
            if terminated or truncated:
                env.reset()
    connection.send(count / (time.perf_counter() - started))


def run_raw(seconds: float, *, same_env: bool) -> dict[str, float]:
    """Step all environments in as many processes as RLinf uses, and do nothing else."""
    context = multiprocessing.get_context("spawn")
    per_process = NUM_ENVS // NUM_ENV_PROCESSES
    pipes, processes = [], []
    for index in range(NUM_ENV_PROCESSES):
        mine, theirs = context.Pipe()
        seeds = list(range(index * per_process, (index + 1) * per_process))
        processes.append(context.Process(target=step_raw, args=(theirs, seeds, same_env)))
        processes[-1].start()
        pipes.append(mine)
    for pipe in pipes:
        pipe.recv()
    for pipe in pipes:
        pipe.send(seconds)
    rate = sum(pipe.recv() for pipe in pipes)
    for process in processes:
        process.join()
    return {"env_steps_per_second": rate}


def run_turn(name: str, steps: int, overrides: list[str]) -> dict[str, float]:
    """Run one contender in a process of its own; report what it measured and the CPU seconds it used."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, __file__, "--only", name, "--steps", str(steps), *overrides]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPO)}
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return result | {"cpu_seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}


def main() -> None:
    """Run all contenders in turns and print medians and ratios as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3, help="how often each contender runs")
    parser.add_argument("--steps", type=int, default=20, help="timed training steps of each turn")
    parser.add_argument("--only", help="run one contender once (used for the turns)")
    parser.add_argument("overrides", nargs="*", help="recipe keys for RLinf, for example rollout.pipeline_stage_num=2")
    args = parser.parse_args()
    contenders = {
        "rlinf": lambda: run_rlinf(args.steps, args.overrides),
        "sb3": lambda: run_sb3(args.steps, same_env=False),
        "sb3_same_env": lambda: run_sb3(args.steps, same_env=True),
        "raw": lambda: run_raw(10.0, same_env=False),
        "raw_same_env": lambda: run_raw(10.0, same_env=True),
    }
    if args.only:
        print(json.dumps(contenders[args.only]()))
        return
    turns: dict[str, list[dict[str, float]]] = {name: [] for name in contenders}
    for _ in range(args.turns):
        for name, results in turns.items():
            results.append(run_turn(name, args.steps, args.overrides))
            print(name, results[-1], file=sys.stderr)
    medians = {
        name: {key: statistics.median(result[key] for result in results) for key in results[0]}
        for name, results in turns.items()
    }
    rates = {name: values["env_steps_per_second"] for name, values in medians.items()}
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=REPO, check=True)
    report = {
        "task": "Meta-World reach-v3, PPO",
        "commit": commit.stdout.strip(),
        "cpu_cores": os.cpu_count(),
        "num_envs": NUM_ENVS,
        "num_env_processes": NUM_ENV_PROCESSES,
        "env_steps_per_training_step": ENV_STEPS_PER_STEP,
        "overrides": args.overrides,
        "ratio_to": {name: rates["rlinf"] / rate for name, rate in rates.items() if name != "rlinf"},
        "share_outside_env_step": 1.0 - medians["rlinf"]["share_env_step"],
        "medians": medians,
        "turns": turns,
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()

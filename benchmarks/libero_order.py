"""Whether what an evaluation of LIBERO finds depends on the process, the order of starts and the size of batches.

Plays every start state of a suite by one tiny policy of random weights, twice at once, each time in a process of its
own: in the published order in large batches, and with tasks and trials in another order in small ones. The policy is
called with whole batches, as in an evaluation. Prints how many starts end alike: success, length, the last image and
state, and every action in between.

    python benchmarks/libero_order.py --suite libero_object > benchmarks/results/libero_order.json
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlinf.config.schema.env import LiberoEnvConfig
from rlinf.config.schema.vla import OpenVLAOFTConfig
from rlinf.envs import make_vector_env
from rlinf.envs.simulators.libero.libero_assets import find_assets, libero_versions, load_suite
from rlinf.envs.simulators.libero.libero_starts import NUM_TASKS, NUM_TRIALS, libero_starts
from rlinf.models import get_policy
from toolkits.vla.make_tiny import TinyShape, write_tiny

REPO = Path(__file__).parents[1]
CHUNK, SIZE = 8, 64
KEYS = ("success", "length", "states", "main_images", "wrist_images", "actions")


@dataclass(frozen=True)
class Play:
    """How a suite is played.

    Attributes:
        suite: Its name.
        tasks: Numbers of its tasks, in this order.
        trials: Numbers of each task's start states, in this order.
        num_envs: Environments, a multiple of the tasks: the policy's batch.
        max_episode_steps: A multiple of the chunk.
    """

    suite: str
    tasks: list[int]
    trials: list[int]
    num_envs: int
    max_episode_steps: int


def policy_config(folder: Path) -> OpenVLAOFTConfig:
    """Return the section of the tiny policy."""
    return OpenVLAOFTConfig(
        model_type="openvla_oft", model_path=str(folder), action_dim=7, num_action_chunks=CHUNK, max_prompt_length=48
    )


def env_config(play: Play) -> LiberoEnvConfig:
    """Return the section of the environments: every start once, in the order of the play."""
    return LiberoEnvConfig(
        env_type="libero",
        task_suite_name=play.suite,  # type: ignore[arg-type]
        task_id_filter=play.tasks,
        trial_id_filter=play.trials,
        total_num_envs=play.num_envs,
        max_episode_steps=play.max_episode_steps,
        max_steps_per_rollout_epoch=play.max_episode_steps,
        rollout_epoch=len(play.tasks) * len(play.trials) // play.num_envs,
        auto_reset=False,
        use_ordered_reset_state_ids=True,
        image_size=SIZE,
        render_quality="light",
    )


def evaluate(folder: Path, play: Play) -> dict[str, dict[str, Any]]:
    """Play every start; return by ``task trial`` what it ended with, actions and images as hashes."""
    torch.set_num_threads(1)
    policy, cfg = get_policy(policy_config(folder)), env_config(play)
    starts, ends = libero_starts(cfg), dict[str, dict[str, Any]]()
    with make_vector_env(cfg, num_envs=play.num_envs) as env:
        for epoch in range(cfg.rollout_epoch):
            obs = env.reset(epoch)
            names = [" ".join(map(str, starts.start(int(number)))) for number in env.reset_state_ids]
            actions: list[list[bytes]] = [[] for _ in names]
            for _ in range(play.max_episode_steps // CHUNK):
                chosen, _ = policy.predict_action_batch(obs, mode="eval")
                step = env.chunk_step(chosen)
                obs = step.obs
                for row in range(len(names)):
                    if step.executed[row].any():
                        actions[row].append(chosen[row].numpy().tobytes())
                ids = [] if step.final_ids is None else step.final_ids.tolist()
                for place, row in enumerate(ids):
                    assert step.final_obs is not None
                    episode, seen = step.episodes[place], step.final_obs
                    ends[names[row]] = {
                        "success": episode["success_once"],
                        "length": episode["episode_len"],
                        **{key: _hash(seen[key][place].numpy().tobytes()) for key in KEYS[2:5]},
                        "actions": _hash(b"".join(actions[row])),
                    }
            print(f"{len(ends)} starts", file=sys.stderr, flush=True)
    return ends


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def compare(one: dict[str, dict[str, Any]], other: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return how many starts end alike, by what is compared, and which do not."""
    if one.keys() != other.keys():
        raise ValueError(f"the starts differ: {sorted(one.keys() ^ other.keys())}")
    return {
        "starts": len(one),
        "equal": {key: sum(one[name][key] == other[name][key] for name in one) for key in KEYS},
        "unequal": sorted(name for name in one if one[name] != other[name]),
        "successes": int(sum(end["success"] for end in one.values())),
        "distinct_ends": len({end["states"] for end in one.values()}),
        "distinct_plans": len({end["actions"] for end in one.values()}),
    }


def play_in_process(folder: Path, play: Play) -> subprocess.Popen[str]:
    """Begin to evaluate in a process of its own, which prints the result."""
    command = [sys.executable, __file__, "--play", json.dumps(asdict(play)), "--model", str(folder)]
    environ = {**os.environ, "PYTHONPATH": str(REPO)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPO, env=environ)


def result_of(process: subprocess.Popen[str]) -> dict[str, dict[str, Any]]:
    """Wait for a process, and return what it printed last."""
    out, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"a process of the evaluation ended with {process.returncode}")
    return dict(json.loads(out.splitlines()[-1]))


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", choices=sorted(NUM_TASKS), default="libero_object")
    parser.add_argument("--trials", type=int, default=NUM_TRIALS, help="start states of each task")
    parser.add_argument("--max-episode-steps", type=int, default=2 * CHUNK, help=f"a multiple of {CHUNK}")
    parser.add_argument("--seed", type=int, default=0, help="of the other order")
    parser.add_argument("--model", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--play", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.play:
        print(json.dumps(evaluate(args.model, Play(**json.loads(args.play)))))
        return
    tasks, trials = list(range(NUM_TASKS[args.suite])), list(range(args.trials))
    shuffled = np.random.default_rng(args.seed)
    plays = [
        Play(args.suite, tasks, trials, 2 * len(tasks), args.max_episode_steps),
        Play(
            args.suite,
            [int(task) for task in shuffled.permutation(tasks)],
            [int(trial) for trial in shuffled.permutation(trials)],
            len(tasks),
            args.max_episode_steps,
        ),
    ]
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=REPO, check=True)
    began = time.monotonic()
    sentences = [task.language for task in load_suite(args.suite, find_assets(None)).tasks]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_tiny(folder, TinyShape(image_size=SIZE - SIZE % 14, words=sentences), policy_config(folder))
        found = [result_of(process) for process in [play_in_process(folder, play) for play in plays]]
    report = {
        "commit": commit.stdout.strip(),
        "seed": args.seed,
        "suite": args.suite,
        "max_episode_steps": args.max_episode_steps,
        "batches": [play.num_envs for play in plays],
        "versions": libero_versions(None),
        "minutes": round((time.monotonic() - began) / 60, 1),
        **compare(found[0], found[1]),
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()

"""Vision-language-action policies: environment steps with images, and what a chunk and an update cost.

Four questions, each in processes of its own, in turns:

- ``env``: how many steps of ``langpick`` with images a second, through the vector environment with two processes, next
  to the limit: two processes that step and draw and do nothing else. Both draw once for each chunk of five actions.
  ``each_step`` draws after every action, ``full`` also with the renderer's usual quality.
- ``tiny``: rollout and update of small policies in the published layout, by part, and what a chunk keeps in memory.
- ``layers``: seconds of one layer of each published stack at its full size, of random weights, in a chunk and in an
  update, and what the whole model makes of it (``vla_layers.py``).
- ``memory``: what a rollout takes for an environment and an update for a sample at full size, and for small policies
  what is counted next to what the process takes (``vla_memory.py``).

Seconds of policies on a CPU are those of one processor, so that other processes do not count.

    python benchmarks/vla_throughput.py --part env tiny --turns 5 > benchmarks/results/vla_throughput.json
    python benchmarks/vla_throughput.py --part layers --turns 1 > benchmarks/results/vla_layers.json
    python benchmarks/vla_throughput.py --part memory --turns 1 > benchmarks/results/vla_memory.json
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import multiprocessing.connection
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from benchmarks.vla_layers import layers, seconds
from benchmarks.vla_memory import memory, tiny_memory
from benchmarks.vla_sizes import CHUNK, KINDS, SIZE, tiny_observations, tiny_policy

REPO = Path(__file__).resolve().parents[1]
NUM_ENVS, NUM_PROCESSES = 16, 2
SECONDS = 4.0
"""Of one turn of an environment."""
BATCH, UPDATE_BATCH = 16, 32


def vector_env(*, look_every: int, quality: str) -> dict[str, float]:
    """Step random chunks through the vector environment.

    Args:
        look_every: Actions of a chunk, after which images are drawn.
        quality: Of the images.
    """
    from rlinf.config.schema.env import LangPickEnvConfig
    from rlinf.envs import make_vector_env

    cfg = LangPickEnvConfig(
        env_type="langpick",
        total_num_envs=NUM_ENVS,
        num_env_processes=NUM_PROCESSES,
        image_size=SIZE,
        render_quality=cast(Any, quality),
        max_episode_steps=40,
        max_steps_per_rollout_epoch=40,
    )
    generator = torch.Generator().manual_seed(0)
    with make_vector_env(cfg, num_envs=NUM_ENVS) as env:
        env.reset(0)
        env.chunk_step(torch.zeros(NUM_ENVS, look_every, 4))
        count, started = 0, time.perf_counter()
        while time.perf_counter() < started + SECONDS:
            env.chunk_step(torch.rand(NUM_ENVS, look_every, 4, generator=generator) * 2 - 1)
            count += NUM_ENVS * look_every
        return {"env_steps_per_second": count / (time.perf_counter() - started)}


def step_bare(connection: multiprocessing.connection.Connection, num_envs: int) -> None:
    """Step and draw environments for ever, begin episodes again after 40 steps, and count."""
    from rlinf.envs.simulators.langpick_single import make_langpick_env

    envs = [
        make_langpick_env(
            render=False, image_size=SIZE, is_light=True, shows_objects=False, random_hand=False, disturbance=0.0
        )
        for _ in range(num_envs)
    ]
    rng = np.random.default_rng(0)
    for env in envs:
        env.observe(env.reset(0))
    connection.send("ready")
    connection.recv()
    count, chunks, started = 0, 0, time.perf_counter()
    while time.perf_counter() < started + SECONDS:
        for env in envs:
            for _ in range(CHUNK):
                env.step(rng.uniform(-1, 1, 4).astype(np.float32))
            env.observe(None)
            count += CHUNK
        chunks += 1
        if chunks % (40 // CHUNK) == 0:
            for env in envs:
                env.observe(env.reset(chunks))
    connection.send(count / (time.perf_counter() - started))


def bare_env() -> dict[str, float]:
    """Step environments in as many processes, without the vector environment."""
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for _ in range(NUM_PROCESSES):
        mine, theirs = context.Pipe()
        processes.append(context.Process(target=step_bare, args=(theirs, NUM_ENVS // NUM_PROCESSES)))
        processes[-1].start()
        pipes.append(mine)
    for pipe in pipes:
        pipe.recv()
    for pipe in pipes:
        pipe.send("go")
    rate = sum(pipe.recv() for pipe in pipes)
    for process in processes:
        process.join()
    return {"env_steps_per_second": rate}


def tiny(kind: str, device: torch.device) -> dict[str, float]:
    """Time the parts of a rollout's chunk and of an update, and count what a chunk keeps."""
    policy, obs = tiny_policy(kind).to(device), tiny_observations(BATCH)
    generator = torch.Generator(device).manual_seed(0)

    def act() -> Any:
        return policy.predict_action_batch(obs, mode="train", generator=generator)

    _, output = act()
    kept = output.forward_inputs
    repeated = {name: value.repeat(UPDATE_BATCH // BATCH, *[1] * (value.ndim - 1)) for name, value in kept.items()}
    record = policy.inputs.record(obs, device)

    def see() -> None:
        with torch.no_grad():
            policy.prefix(record) if hasattr(policy, "prefix") else policy.see(record)

    def evaluate() -> Any:
        return policy.default_forward(repeated)

    def update() -> None:
        evaluation = evaluate()
        (evaluation.logprobs.sum() + evaluation.values.sum()).backward()

    chunk, seen, forward, both = (seconds(call, device) for call in (act, see, evaluate, update))
    return {
        "chunk_seconds": chunk,
        "share_images_and_words": seen / chunk,
        "update_seconds_per_chunk": both / UPDATE_BATCH,
        "backward_over_forward": (both - forward) / forward,
        "kilobytes_per_chunk": sum(value.numel() * value.element_size() for value in kept.values()) / BATCH / 1e3,
        "parameters": float(sum(p.numel() for p in policy.parameters())),
    }


def contenders(device: torch.device) -> dict[str, Callable[[], dict[str, float]]]:
    """Return what takes turns, by name."""
    found: dict[str, Callable[[], dict[str, float]]] = {
        "env/rlinf": lambda: vector_env(look_every=CHUNK, quality="light"),
        "env/bare": bare_env,
        "env/each_step": lambda: vector_env(look_every=1, quality="light"),
        "env/full": lambda: vector_env(look_every=1, quality="full"),
    }
    measured = {"tiny": tiny, "layers": layers, "memory": memory, "memory/tiny": tiny_memory}
    found |= {f"{name}/{kind}": partial(measure, kind, device) for name, measure in measured.items() for kind in KINDS}
    return found


def run_turn(name: str, device: str) -> dict[str, float]:
    """Run one contender in a process of its own."""
    command = [sys.executable, __file__, "--only", name, "--device", device]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPO)}
    result: dict[str, float] = json.loads(
        subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout.splitlines()[-1]
    )
    return result


def main() -> None:
    """Run all contenders in turns and print medians and ratios as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5, help="how often each contender runs")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="of the policies")
    parts = ["env", "tiny", "layers", "memory"]
    parser.add_argument("--part", nargs="+", choices=parts, default=parts, help="run these questions alone")
    parser.add_argument("--only", help="run one contender once (used for the turns)")
    args = parser.parse_args()
    found = contenders(torch.device(args.device))
    if args.only:
        print(json.dumps(found[args.only]()))
        return
    turns: dict[str, list[dict[str, float]]] = {name: [] for name in found if name.partition("/")[0] in args.part}
    for _ in range(args.turns):
        for name, results in turns.items():
            results.append(run_turn(name, args.device))
            print(name, results[-1], file=sys.stderr)
    medians = {
        name: {key: statistics.median(result[key] for result in results) for key in results[0]}
        for name, results in turns.items()
    }
    rates = {name: value["env_steps_per_second"] for name, value in medians.items() if name.startswith("env/")}
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=REPO, check=True)
    report = {
        "task": f"langpick, {NUM_ENVS} environments in {NUM_PROCESSES} processes, images of {SIZE} pixels",
        "commit": commit.stdout.strip(),
        "cpu_cores": os.cpu_count(),
        # What else ran: environments share the processors with it.
        "load_average": os.getloadavg()[0],
        "device": torch.cuda.get_device_name() if args.device == "cuda" else args.device,
        "ratio_to_bare": {name: rate / rates["env/bare"] for name, rate in rates.items()},
        "medians": medians,
        "turns": turns,
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()

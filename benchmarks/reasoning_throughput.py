"""A GRPO step, the synchronisation of weights and generation: RLinf beside TRL, memcpy and the bare engine.

``grpo``: whole steps of training, RLinf's with an actor, a rollout and a reward worker that share one slot, and those
of TRL's ``GRPOTrainer`` with transformers generation. Both ask as many prompts, draw answers up to the same length,
call the same reward function, and train the same model on the same batches and micro-batches, two optimizer steps each;
as that makes the second batch older than its policy, both recompute log-probabilities before. Answers have one length
(``equal lengths``: padding wastes nothing of them), or end by themselves (``own lengths``). The sides run in turns,
each turn in a process of its own with one thread for each process. Seconds until the answers are there and rewarded are
told apart from the rest, and CPU seconds of all processes stand beside.

``modes``: the same steps by RLinf alone, trainer and engine on a core each, in turns and asynchronously (answers are up
to two steps ahead). Asynchronous steps take as long as the slower of the two at best: ``overlap`` is the share of that
bound.

``weights``: from the actor's model into the engine's, checksums included, against copying as many bytes within memory.

``rollout``: tokens per second through the rollout worker, asked by another process, against the same engine class with
the same arguments, asked by its own. Below the engine, ``generation_engines.py`` compares.

    pip install --no-deps trl==1.16.0
    python benchmarks/reasoning_throughput.py --output benchmarks/results/reasoning_throughput.json
    python benchmarks/reasoning_throughput.py --quick --contenders rlinf     # everything of ours once
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from reasoning_peers import (
    CASES,
    CONTENDERS,
    GROUP_SIZE,
    MODES,
    Case,
    load_rlinf,
    make_inputs,
    tree_cpu_seconds,
)

REPO = Path(__file__).resolve().parents[1]
# About 76 MB of float32.
SYNCED = Case(512, 8, num_prompts=16, max_numbers=2, answer_tokens=8)
NUM_REQUESTS, ROLLOUT_TOKENS = 64, 64
PARTS = ("grpo", "modes", "weights", "rollout")


def in_turns(turns: int, contenders: dict[str, Callable[[], Any]]) -> dict[str, list[dict[str, float]]]:
    """Run all contenders one after the other, once to warm up and ``turns`` times; return seconds, wall and CPU."""
    measured: dict[str, list[dict[str, float]]] = {name: [] for name in contenders}
    for turn in range(turns + 1):
        for name, run in contenders.items():
            cpu, started = tree_cpu_seconds(), time.perf_counter()
            run()
            seconds = time.perf_counter() - started
            if turn:
                measured[name].append({"seconds": seconds, "cpu_seconds": tree_cpu_seconds() - cpu})
    return measured


def medians(turns: dict[str, list[dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Return the median of each number over turns."""
    return {
        name: {key: statistics.median(turn[key] for turn in each) for key in each[0]} for name, each in turns.items()
    }


def ratio(numerator: list[dict[str, float]], denominator: list[dict[str, float]], key: str) -> float:
    """Return the median over turns of the quotient within a turn."""
    return statistics.median(a[key] / b[key] for a, b in zip(numerator, denominator, strict=True))


def compare_weights(turns: int, folder: Path) -> dict[str, Any]:
    """Synchronise the weights of a large model, in turns with copying as many bytes."""
    from rlinf.runners.launch import launch_groups
    from rlinf.scheduler import Cluster, wait_all

    make_inputs(SYNCED, folder)
    cfg = load_rlinf(SYNCED, folder)
    source = torch.ones((folder / "model/model.safetensors").stat().st_size, dtype=torch.uint8)
    target = torch.zeros_like(source)
    with Cluster(cfg.cluster.num_nodes, cfg.cluster) as cluster:
        _, groups = launch_groups(cfg, cluster)
        wait_all(*(group.init_worker() for group in groups.values()))
        versions = iter(range(turns + 1))

        def synchronise() -> None:
            version = next(versions)
            receiving = groups["rollout"].sync_model_from_actor(version=version)
            wait_all(receiving, groups["actor"].sync_model_to_rollout(version=version))

        measured = in_turns(turns, {"rlinf": synchronise, "memcpy": lambda: target.copy_(source)})
    return {
        "megabytes": source.nbytes / 1e6,
        "speed_vs_memcpy": ratio(measured["memcpy"], measured["rlinf"], "seconds"),
        "medians": medians(measured),
    }


def compare_rollout(turns: int, folder: Path, backend: str) -> dict[str, Any]:
    """Answer prompts through the worker and by an engine of this process, in turns."""
    from rlinf.data.datasets.prompts import load_tokenizer, read_prompts
    from rlinf.data.messages.generation import GenerationRequest, SamplingParams
    from rlinf.hybrid_engines.generation import generation_engines
    from rlinf.runners.launch import launch_groups
    from rlinf.scheduler import Cluster, wait_all

    case = Case(128, 4, NUM_REQUESTS, max_numbers=12, answer_tokens=ROLLOUT_TOKENS)
    make_inputs(case, folder)
    cfg = load_rlinf(case, folder, f"rollout.rollout_backend={backend}")
    tokenizer = load_tokenizer(cfg.actor.model.model_path)
    prompts = read_prompts(cfg.data.train_data_paths, cfg.data, tokenizer, split="train").prompts[:NUM_REQUESTS]
    params = SamplingParams(max_new_tokens=ROLLOUT_TOKENS, ignore_eos=True, n=GROUP_SIZE, seed=0)
    loop = asyncio.new_event_loop()
    engine = generation_engines.get(backend)(
        cfg.rollout,
        model_path=folder / "model",
        device=torch.device("cpu"),
        precision="fp32",
        seed=0,
        max_context_tokens=cfg.max_context_tokens,
    )
    loop.run_until_complete(engine.start())

    async def ask_engine() -> None:
        ids = (prompt.token_ids for prompt in prompts)
        requests = [GenerationRequest(request_id=str(i), prompt_ids=p, params=params) for i, p in enumerate(ids)]
        await asyncio.gather(*map(engine.generate, requests))

    with Cluster(cfg.cluster.num_nodes, cfg.cluster) as cluster:
        _, groups = launch_groups(cfg, cluster)
        wait_all(*(group.init_worker() for group in groups.values()))
        worker = groups["rollout"]

        def ask_worker() -> None:
            wait_all(*(worker.generate(p, group_id=i, params=params, split="train") for i, p in enumerate(prompts)))

        measured = in_turns(turns, {"worker": ask_worker, "engine": lambda: loop.run_until_complete(ask_engine())})
    loop.run_until_complete(engine.close())
    tokens = NUM_REQUESTS * GROUP_SIZE * ROLLOUT_TOKENS
    middle = medians(measured)
    return {
        "backend": backend,
        "requests": NUM_REQUESTS,
        "answers_per_request": GROUP_SIZE,
        "tokens_per_second": {name: tokens / each["seconds"] for name, each in middle.items()},
        "speed_vs_engine": ratio(measured["engine"], measured["worker"], "seconds"),
        "medians": middle,
    }


def run_alone(*arguments: str) -> Any:
    """Run a part of this script in a process of its own, with one thread; return what it reports."""
    paths = [str(REPO), str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "RLINF_PLAIN": "1",
        # Ray gives its workers a low priority, which counts where the machine has other work to do.
        "RAY_worker_niceness": "0",
        "PYTHONPATH": os.pathsep.join(paths),
    }
    command = [sys.executable, __file__, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def compare_grpo(name: str, turns: int, steps: int, contenders: list[str]) -> dict[str, Any]:
    """Let the contenders make GRPO steps of one size, in turns."""
    measured: dict[str, list[dict[str, float]]] = {contender: [] for contender in contenders}
    for _ in range(turns):
        for contender, results in measured.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            result = run_alone("--alone", contender, "--case", name, "--steps", str(steps))
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            results.append(result | {"process_cpu_seconds": spent})
            print(name, contender, results[-1], file=sys.stderr)
    report: dict[str, Any] = {"case": vars(CASES[name]), "medians": medians(measured), "turns": measured}
    if len(contenders) == len(CONTENDERS):
        keys = ("step_seconds", "step_cpu_seconds", "answering_seconds", "training_seconds")
        report["speed_vs_trl"] = {key: ratio(measured["trl"], measured["rlinf"], key) for key in keys}
    return report


def compare_modes(name: str, turns: int, steps: int) -> dict[str, Any]:
    """Let our own modes make GRPO steps of one size, in turns."""
    measured: dict[str, list[dict[str, float]]] = {"in turns": [], "asynchronous": []}
    for _ in range(turns):
        for mode, results in measured.items():
            results.append(run_alone("--alone", "rlinf", "--case", name, "--mode", mode, "--steps", str(steps)))
            print(name, mode, results[-1], file=sys.stderr)
    bounds = [max(turn["answering_seconds"], turn["training_seconds"]) for turn in measured["in turns"]]
    reached = [turn["step_seconds"] for turn in measured["asynchronous"]]
    return {
        "case": vars(CASES[name]),
        "medians": medians(measured),
        "asynchronous_speed_vs_in_turns": ratio(measured["in turns"], measured["asynchronous"], "step_seconds"),
        "overlap": statistics.median(bound / seconds for bound, seconds in zip(bounds, reached, strict=True)),
    }


def run_part(args: argparse.Namespace) -> None:
    """Measure one part in this process, and print it as one line."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        if args.alone == "weights":
            result = compare_weights(args.turns, Path(folder))
        elif args.alone == "rollout":
            result = compare_rollout(args.turns, Path(folder), args.engine)
        else:
            case = CASES[args.case]
            make_inputs(case, Path(folder))
            overrides = MODES[args.mode] if args.alone == "rlinf" else ()
            result = CONTENDERS[args.alone](case, args.steps, Path(folder), *overrides)
    print(json.dumps(result))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short turn of everything")
    parser.add_argument("--only", nargs="*", choices=PARTS, default=PARTS)
    parser.add_argument("--contenders", nargs="*", choices=list(CONTENDERS), default=list(CONTENDERS))
    parser.add_argument("--turns", type=int, default=None, help="how often each contender runs")
    parser.add_argument("--steps", type=int, default=None, help="timed GRPO steps of each turn")
    parser.add_argument("--engine", default="hf", help="rollout_backend of the rollout part")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--alone", choices=[*CONTENDERS, "weights", "rollout"], help=argparse.SUPPRESS)
    parser.add_argument("--mode", choices=list(MODES), default="collocated", help=argparse.SUPPRESS)
    parser.add_argument("--case", choices=list(CASES), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.alone:
        run_part(args)
        return
    turns, steps = args.turns or (1 if args.quick else 3), args.steps or (1 if args.quick else 8)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False, cwd=REPO)
    conditions = {
        "commit": commit.stdout.strip(),
        "cpu_cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "turns": turns,
        "steps": steps,
    }
    rollout = f"rollout {args.engine}"
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "grpo": lambda: {name: compare_grpo(name, turns, steps, args.contenders) for name in CASES},
        "modes": lambda: compare_modes("own lengths", turns, steps),
        "weights": lambda: run_alone("--alone", "weights", "--turns", str(1 if args.quick else 15)),
        rollout: lambda: run_alone("--alone", "rollout", "--turns", str(turns), "--engine", args.engine),
    }
    # Parts that are measured another time, or with another engine, stay as they are.
    report = json.loads(args.output.read_text()) if args.output and args.output.exists() else {}
    for name in [rollout if each == "rollout" else each for each in args.only]:
        load = os.getloadavg()
        report[name] = parts[name]() | {"conditions": conditions | {"load_before": load}}
        if args.output:
            args.output.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()

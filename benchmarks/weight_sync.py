"""Weight synchronisation from a trainer to a generation engine, against copying as many bytes within memory.

Trainer and ``hf`` engine are worker processes of one machine, as a recipe launches them. Every case runs in turns with
a copy of the trainer's bytes by this process, so that whatever else the machine does meets both; a ratio is the median
over turns of the ratio within a turn.

``fp32``, ``bf16``: an engine that computes in this precision; it adopts the buckets, its parameters are views of them.
The trainer holds float32 in both cases, which ``bf16`` casts on the way. ``speed_vs_memcpy``: whole synchronisations
while the engine is idle, relative to the bytes that the trainer holds. ``pause_in_memcpys``: how long it does not
generate when it has requests in flight (``time/rollout/pause_seconds``).

    export OMP_NUM_THREADS=1
    python benchmarks/weight_sync.py --label now --output benchmarks/results/weight_sync.json    # keeps other labels
    python benchmarks/weight_sync.py --quick --cases fp32
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from reasoning_peers import Case, load_rlinf, make_inputs
from reasoning_throughput import in_turns, medians, ratio

REPO = Path(__file__).resolve().parents[1]
# About 303 MB of float32: with a quarter of it, the calls that begin a synchronisation take a third of its time.
MODEL = Case(1024, 8, num_prompts=16, max_numbers=2, answer_tokens=100)
CASES = {"fp32": (), "bf16": ("rollout.model.precision=bf16",)}
NUM_REQUESTS, PROMPT_TOKENS = 16, 8


class Bench:
    """A trainer and an engine, and the copy that they are compared with.

    Args:
        cluster: Where to launch.
        cfg: The recipe.
        num_bytes: Bytes of the weights that the trainer holds.
    """

    def __init__(self, cluster: Any, cfg: Any, num_bytes: int) -> None:
        from rlinf.runners.launch import launch_groups
        from rlinf.scheduler import wait_all

        self.num_bytes = num_bytes
        _, self.groups = launch_groups(cfg, cluster)
        wait_all(*(group.init_worker() for group in self.groups.values()))
        self.version = self.request = 0
        self.source = torch.ones(num_bytes, dtype=torch.uint8)
        self.target = torch.zeros_like(self.source)

    def copy(self) -> None:
        """Copy as many bytes."""
        self.target.copy_(self.source)

    def synchronise(self) -> None:
        """Bring the engine to the trainer's weights."""
        from rlinf.scheduler import wait_all

        receiving = self.groups["rollout"].sync_model_from_actor(version=self.version)
        wait_all(receiving, self.groups["actor"].sync_model_to_rollout(version=self.version))
        self.version += 1

    def pause_seconds(self) -> float:
        """Synchronise while the engine generates; return how long it did not."""
        from rlinf.data.messages.generation import SamplingParams
        from rlinf.data.messages.responses import Prompt

        numbers = range(self.request, self.request + NUM_REQUESTS)
        self.request += NUM_REQUESTS
        params = SamplingParams(max_new_tokens=MODEL.answer_tokens, ignore_eos=True)
        rollout = self.groups["rollout"]
        running = [
            rollout.generate(
                Prompt(index=n, token_ids=tuple(range(4, 4 + PROMPT_TOKENS)), text=""),
                group_id=n,
                params=params,
                split="train",
            )
            for n in numbers
        ]
        rollout.pop_execution_times().wait()
        self.synchronise()
        stats = rollout.stats().wait()[0]
        assert stats.num_running + stats.num_waiting, "the engine was idle: nothing was paused"
        for each in running:
            each.wait()
        seconds: float = rollout.pop_execution_times().wait()[0]["pause_seconds"]
        return seconds


def measure_case(turns: int, num_pauses: int, folder: Path, overrides: tuple[str, ...]) -> dict[str, Any]:
    """Measure synchronisations and pauses of a recipe."""
    from rlinf.scheduler import Cluster

    make_inputs(MODEL, folder)
    cfg = load_rlinf(MODEL, folder, *overrides)
    with Cluster(cfg.cluster.num_nodes, cfg.cluster) as cluster:
        bench = Bench(cluster, cfg, (folder / "model/model.safetensors").stat().st_size)
        measured = in_turns(turns, {"sync": bench.synchronise, "memcpy": bench.copy})
        copies = measured["memcpy"]
        pauses: list[dict[str, float]] = []
        in_turns(num_pauses, {"pause": lambda: pauses.append({"seconds": bench.pause_seconds()})})
    speed = ratio(copies, measured["sync"], "seconds")
    median_copy = statistics.median(copy["seconds"] for copy in copies)
    return {
        "megabytes": bench.num_bytes / 1e6,
        "speed_vs_memcpy": speed,
        "speed_vs_memcpy_fastest": fastest(copies) / fastest(measured["sync"]),
        "cpu_vs_memcpy": cpu_seconds(measured["sync"]) / copied if (copied := cpu_seconds(copies)) else None,
        "pause_in_memcpys": statistics.median(pause["seconds"] for pause in pauses[1:]) / median_copy,
        "pause_in_memcpys_fastest": fastest(pauses[1:]) / fastest(copies),
        "medians": medians({**measured, "pause": pauses[1:]}),
    }


def cpu_seconds(turns: list[dict[str, float]]) -> float:
    """Return the CPU seconds of all turns: the clock ticks too slowly for one of them."""
    return sum(turn["cpu_seconds"] for turn in turns)


def fastest(turns: list[dict[str, float]]) -> float:
    """Return the seconds of the fastest turn: what the rest of the machine slowed down least."""
    return min(turn["seconds"] for turn in turns)


def run_alone(case: str, turns: int, num_pauses: int) -> Any:
    """Run a case in a process of its own; return what it printed last."""
    command = [sys.executable, __file__, "--alone", case, "--turns", str(turns), "--pauses", str(num_pauses)]
    # Ray gives its workers a low priority, which counts where the machine has other work to do.
    environment = {**os.environ, "RAY_worker_niceness": "0"}
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    return json.loads(output.splitlines()[-1])


def main() -> None:
    """Measure every case and print or write one JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--pauses", type=int, default=10, help="synchronisations while the engine generates")
    parser.add_argument("--quick", action="store_true", help="two turns of each case")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--label", default="now", help="name of the results within the output")
    parser.add_argument("--alone", choices=list(CASES), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.alone:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(measure_case(args.turns, args.pauses, Path(folder), CASES[args.alone])))
        return
    turns, pauses = (2, 2) if args.quick else (args.turns, args.pauses)
    result: dict[str, Any] = {case: run_alone(case, turns, pauses) for case in args.cases}
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=REPO, stdout=subprocess.PIPE, text=True).stdout.strip()
    result["conditions"] = {
        "commit": commit,
        "cpu_cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "turns": turns,
        "load": os.getloadavg(),
    }
    print(json.dumps(result, indent=1))
    if args.output:
        known = json.loads(args.output.read_text()) if args.output.exists() else {}
        args.output.write_text(json.dumps(known | {args.label: result}, indent=1) + "\n")


if __name__ == "__main__":
    main()

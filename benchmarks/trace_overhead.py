"""What the trace costs: nanoseconds per span, and the share of a training step, by count.

The share of a process is its spans per step times the cost of the dearest kind of span, over the duration of a step:
an upper bound of what tracing adds to the step, because spans of a process that waits cost nothing. Step time and
number of spans come from a traced run of a recipe whose environment costs next to nothing, so that messages, and with
them spans, follow one another as closely as they ever do.

    python benchmarks/trace_overhead.py > benchmarks/results/trace_overhead.json
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
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from rlinf.scheduler.address import WorkerAddress
from rlinf.scheduler.comm.spans import MessageTrace
from rlinf.telemetry import trace
from rlinf.workers.streams import step_tag

REPO = Path(__file__).resolve().parents[1]
LIMIT_SHARE = 0.02
MESSAGES = MessageTrace(WorkerAddress("EnvGroup", 0))
TAG = step_tag("train", 0)


def plain_span() -> None:
    """A span without details, like a timer's."""
    with trace.span("name", "category"):
        pass


def message() -> None:
    """What a send adds: its span, and the number that connects it with its receive."""
    with MESSAGES.sending(TAG, ("RolloutGroup", 0)):
        pass


def nothing() -> None:
    """What the loop itself costs."""


def nanoseconds(function: Callable[[], None], *, turns: int = 7, calls: int = 20_000) -> float:
    """Return the median over turns of the time of one call."""
    times = []
    for _ in range(turns):
        started = time.perf_counter_ns()
        for _ in range(calls):
            function()
        times.append((time.perf_counter_ns() - started) / calls)
    return statistics.median(times)


def cost_per_span() -> dict[str, float]:
    """Measure spans while tracing is off and on."""
    loop = nanoseconds(nothing)
    result = {"off": nanoseconds(plain_span) - loop, "message_off": nanoseconds(message) - loop}
    # As small as the default, so that the buffer also drops events, as it does in a long run.
    trace.enable("benchmark", 100_000)
    result |= {"on": nanoseconds(plain_span) - loop, "message_on": nanoseconds(message) - loop}
    trace.disable()
    return {name: round(value, 1) for name, value in result.items()}


def traced_run(recipe: str, steps: int, overrides: list[str]) -> dict[str, object]:
    """Run a recipe with tracing; return its step time and each process's spans per step, without the first step."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(REPO / "examples/embodiment/train_embodied_agent.py"), "--config-name", recipe]
        command += [f"runner.max_epochs={steps + 1}", "runner.val_check_interval=-1"]
        command += ["cluster.tracer.enable=true", f"runner.logger.log_path={folder}", *overrides]
        environment = {**os.environ, "RLINF_PLAIN": "1"}
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=REPO, env=environment)
        merged = json.loads((Path(folder) / recipe / "trace.json").read_text())
        megabytes = (Path(folder) / recipe / "trace.json").stat().st_size / 1e6
    names = {e["pid"]: e["args"]["name"] for e in merged["traceEvents"] if e["name"] == "process_name"}
    spans = [event for event in merged["traceEvents"] if event["ph"] == "X"]
    begins = [event["ts"] for event in spans if event["cat"] == "phase" and event["name"] == "rollout"]
    first, last = begins[1], begins[-1]
    counted = Counter(names[event["pid"]] for event in spans if first <= event["ts"] < last)
    num_steps = len(begins) - 2
    return {
        "recipe": recipe,
        "overrides": overrides,
        "steps": num_steps,
        "step_seconds": round((last - first) / 1e6 / num_steps, 4),
        "spans_per_step": {process: round(count / num_steps, 1) for process, count in sorted(counted.items())},
        "file_megabytes": round(megabytes, 2),
    }


def main() -> None:
    """Print the costs as JSON; fail if the share is above the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="gym_cartpole_ppo_mlp")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--override", action="append", default=[], help="key=value, may be given several times")
    args = parser.parse_args()
    cost = cost_per_span()
    run = traced_run(args.recipe, args.steps + 1, args.override)
    dearest = max(cost["on"], cost["message_on"]) / 1e9
    dearest_off = max(cost["off"], cost["message_off"]) / 1e9
    most = max(run["spans_per_step"].values())
    share = most * dearest / run["step_seconds"]
    result = {
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "nanoseconds_per_span": cost,
        "run": run,
        "share_of_step_on": round(share, 5),
        "share_of_step_off": round(most * dearest_off / run["step_seconds"], 6),
        "limit": LIMIT_SHARE,
    }
    print(json.dumps(result, indent=1))
    if share >= LIMIT_SHARE:
        sys.exit(f"tracing costs {share:.1%} of a step, more than {LIMIT_SHARE:.0%}")


if __name__ == "__main__":
    main()

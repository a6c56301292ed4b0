"""What agents cost: eight measures, each against the same work without what agents add, in turns.

``tokens`` (P1): tokens per second of 64 concurrent episodes of four turns, played by the workflow ``multi_turn`` with
instant responses, against the bare engine that is given the same requests, each when the one before it is complete.
Turns of an episode are 16 to 48 tokens long: requests do not end all at once.
``http_vs_workflow`` (P3): the same by a client in a process of its own. ``prefix_share`` (P8): of the full blocks
of 16 tokens that an engine holds of a turn, the share that the prompt of the next turn begins with.

``server`` (P3): CPU time of the serving process per request, against an HTTP server of the same package that does
nothing. ``messages`` (P6): what a token costs the driver and the process that plays episodes, against Python objects.

``steps`` (P2): seconds of a step of tiny math with the workflow ``rlvr`` against the same without a section ``agent``.
``slow`` (P5): seconds of a step whose responses take 0.05 s, against one in which one of twenty takes twenty times as
long; in order; with generation up to two steps ahead (``algorithm.staleness_threshold=2``), which makes all samples two
versions old; and with up to half of the groups left to the next step (``algorithm.carry_over=0.5``, a threshold of 1),
which makes these one version old: of that P5 speaks.

``forks`` (P4): a training step on episodes of eight turns whose client rewrites every turn, against one with as many
tokens and no forks; ``gain_of_sharing`` is against computing every context anew.

``workers`` (P7): the episodes of P1 by the workers of a run against the bare engine in the process of the benchmark.
``peer`` (P7), where verl is installed: episodes of three calls by the workflow ``tools`` and by verl's tool agent loop,
on the same engine of the same process.

Quotients are medians over rounds of those within a round, sides in both orders. Where one thread of one process does
all the work, its CPU time is judged (``_cpu``): what the work takes on a machine that has nothing else to do.
That of all processes together is for ``steps``, in which they take turns.

    export OMP_NUM_THREADS=1
    python benchmarks/agents.py --output benchmarks/results/agents.json
    python benchmarks/agents.py --quick --only tokens server
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from rlinf.utils.optional import is_installed

REPO = Path(__file__).resolve().parents[1]
PARTS = ("tokens", "server", "messages", "steps", "slow", "forks", "workers", "peer")
AIMS = {
    "P1 hf": (">=", 0.90, "tokens hf", "workflow_vs_engine_cpu"),
    "P1 vllm": (">=", 0.95, "tokens vllm", "workflow_vs_engine_cpu"),
    "P2": (">=", 0.97, "steps", "speed_cpu"),
    "P3 server milliseconds": ("<=", 2.0, "server", "median"),
    "P3 http": (">=", 0.90, "tokens hf", "http_vs_workflow"),
    "P4": ("<=", 1.15, "forks", "forked_vs_plain_cpu"),
    "P5": ("<=", 1.1, "slow", "carried over"),
    "P6 driver bytes": ("<=", 16.0, "messages", "driver_bytes_per_token"),
    "P6 driver microseconds": ("<=", 0.02, "messages", "driver_microseconds_per_token"),
    "P7 bare engine": (">=", 0.90, "workers", "workers_vs_engine"),
    "P7 verl's loop": (">=", 1.0, "peer", "speed_vs_verl_cpu"),
    "P8": (">=", 0.95, "tokens hf", "prefix_share"),
}
"""What is aimed at: the part of the report and its entry."""


def measure_alone(arguments: argparse.Namespace) -> Any:
    """Measure one part in this process."""
    # Imported here: parts that need neither torch nor an engine do not wait for them.
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kind, _, detail = arguments.alone.partition(":")
        if kind in {"tokens", "server", "messages"}:
            import agent_episodes

            if kind == "tokens":
                from examples.reasoning.make_tiny_model import make_tiny_model

                model = make_tiny_model(folder, max_context_tokens=agent_episodes.MAX_CONTEXT_TOKENS)
                return agent_episodes.measure_tokens(arguments.rounds, model, detail)
            if kind == "server":
                return agent_episodes.measure_server(arguments.rounds, arguments.requests)
            return agent_episodes.measure_messages(arguments.rounds)
        if kind == "peer":
            import agent_peers

            return agent_peers.measure_peers(arguments.rounds, folder)
        import agent_steps

        if kind == "run":
            run, _, order = detail.partition(":")
            return agent_steps.measure_run(run, order, arguments.steps, folder)
        measure = {"forks": agent_steps.measure_forks, "workers": agent_steps.measure_workers}[kind]
        return measure(arguments.rounds, folder)


def run_alone(arguments: argparse.Namespace, part: str) -> Any:
    """Measure one part in a process of its own, with one thread; return what it reports."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "RLINF_PLAIN": "1",
        # Ray gives its workers a low priority, which counts where the machine has other work to do.
        "RAY_worker_niceness": "0",
        "PYTHONPATH": os.pathsep.join([str(REPO), str(Path(__file__).parent), *sys.path[1:]]),
    }
    numbers = ("rounds", "steps", "requests")
    options = [text for name in numbers for text in (f"--{name}", str(getattr(arguments, name)))]
    command = [sys.executable, __file__, "--alone", part, *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def compare_runs(arguments: argparse.Namespace, sides: list[tuple[str, str]]) -> dict[str, Any]:
    """Make runs in turns; return the medians of each side and what the rounds were."""
    measured: dict[str, list[dict[str, float]]] = {f"{run}, {order}": [] for run, order in sides}
    for number in range(arguments.rounds):
        for run, order in sides if number % 2 == 0 else sides[::-1]:
            measured[f"{run}, {order}"].append(run_alone(arguments, f"run:{run}:{order}"))
    medians = {
        side: {key: statistics.median(found[key] for found in rounds) for key in rounds[0]}
        for side, rounds in measured.items()
    }
    return {"medians": medians, "rounds": measured}


def quotient(report: dict[str, Any], above: str, below: str, key: str = "step_seconds") -> float:
    """Return the median over rounds of the quotient within a round."""
    rounds = report["rounds"]
    return statistics.median(a[key] / b[key] for a, b in zip(rounds[above], rounds[below], strict=True))


def compare_steps(arguments: argparse.Namespace) -> dict[str, Any]:
    """P2: steps with the workflow ``rlvr`` against steps without one."""
    plain, played = "without a workflow, in order", "rlvr, in order"
    report = compare_runs(arguments, [("without a workflow", "in order"), ("rlvr", "in order")])
    return {
        "speed": quotient(report, plain, played),
        "speed_cpu": quotient(report, plain, played, "step_cpu_seconds"),
        **report,
    }


def compare_slow(arguments: argparse.Namespace) -> dict[str, Any]:
    """P5: steps in which a few responses are slow against steps in which none is."""
    orders = ("in order", "ahead", "carried over")
    report = compare_runs(arguments, [(run, order) for order in orders for run in ("equal tools", "slow tools")])
    return {order: quotient(report, f"slow tools, {order}", f"equal tools, {order}") for order in orders} | report


def entry(report: dict[str, Any], part: str, name: str) -> float | None:
    """Return an entry of the report; None where it was not measured."""
    found = report.get(part, {}).get(name)
    return found if isinstance(found, float) else None


def verdicts(report: dict[str, Any]) -> dict[str, Any]:
    """Return for each aim what was measured, and whether it is met."""
    found: dict[str, Any] = {}
    for aim, (sign, limit, part, name) in AIMS.items():
        value = entry(report, part, name)
        is_met = None if value is None else value >= limit if sign == ">=" else value <= limit
        found[aim] = {"aim": f"{sign} {limit:g}", "measured": value, "is_met": is_met}
    return found


def main() -> None:
    """Measure, and print the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round of everything")
    parser.add_argument("--only", nargs="*", choices=PARTS, default=PARTS)
    parser.add_argument("--rounds", type=int, default=5, help="how often each side runs")
    parser.add_argument("--steps", type=int, default=8, help="timed steps of each run")
    parser.add_argument("--requests", type=int, default=320, help="of each measurement of the server")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.steps, arguments.requests = 1, 1, 32
    if arguments.alone:
        print(json.dumps(measure_alone(arguments)))
        return
    engines = ["hf", *(["vllm"] if is_installed("vllm") else [])]
    parts: dict[str, Callable[[], Any]] = {
        **{f"tokens {name}": lambda name=name: run_alone(arguments, f"tokens:{name}") for name in engines},
        **{name: lambda name=name: run_alone(arguments, name) for name in ("server", "messages", "forks", "workers")},
        **({"peer": lambda: run_alone(arguments, "peer")} if is_installed("verl") else {}),
        "steps": lambda: compare_steps(arguments),
        "slow": lambda: compare_slow(arguments),
    }
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False, cwd=REPO)
    conditions = {
        "commit": commit.stdout.strip(),
        "platform": platform.platform(),
        "cpu_cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        **{name: getattr(arguments, name) for name in ("rounds", "steps", "requests")},
    }
    # Parts that are measured another time, or with another engine, stay as they are.
    report = json.loads(arguments.output.read_text()) if arguments.output and arguments.output.exists() else {}
    for part, measure in parts.items():
        if part.partition(" ")[0] not in arguments.only:
            continue
        load = os.getloadavg()
        report[part] = measure() | {"conditions": conditions | {"load_before": load}}
        report["aims"] = verdicts(report)
        if arguments.output:
            arguments.output.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()

"""``rlinf status``: what every worker of a running run does and waits for, and since when."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from rlinf.errors import MissingPackageError
from rlinf.scheduler.run_status import clock, query_status, run_title

# Fits a terminal next to nothing else; a wider one is used up to the second.
_MIN_WIDTH, _MAX_WIDTH = 80, 100
# A stack that does not come within this time belongs to a process that cannot be stopped for it.
_STACK_SECONDS = 20.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``rlinf status``."""
    parser.add_argument(
        "run", nargs="?", help="name of the run, or of its experiment; may be left out where only one run is alive"
    )
    parser.add_argument(
        "--address", metavar="HOST:PORT", help="the run's Ray; default RAY_ADDRESS, else this machine's"
    )
    parser.add_argument("--stacks", action="store_true", help="also print the Python stacks of workers on this machine")
    parser.add_argument("--json", action="store_true", help="print JSON, times in seconds since 1970")


def run(args: argparse.Namespace) -> int:
    """Print what a run does.

    Returns:
        0.

    Raises:
        ClusterError: The arguments name no single run, or it does not answer.
        MissingPackageError: ``--stacks`` needs py-spy.
    """
    spy = _find_py_spy() if args.stacks else None
    status = query_status(args.run, args.address)
    if spy is not None:
        status["stacks"] = {name: _stack(spy, pid) for name, pid in _local_pids(status)}
    if args.json:
        print(json.dumps(status, indent=2))
        return 0
    console = Console(width=min(max(shutil.get_terminal_size().columns, _MIN_WIDTH), _MAX_WIDTH), highlight=False)
    console.print(f"Run {run_title(status['namespace'], status['experiment_name'])}", markup=False)
    console.print(_processes(status))
    for table in (_channels(status), _leases(status)):
        if table.row_count:
            console.print(table)
    for name, stack in status.get("stacks", {}).items():
        console.print(f"\n{name}\n{stack}", markup=False)
    return 0


def _processes(status: dict[str, Any]) -> Table:
    table = _table("worker", "pid", "node", "does")
    for group in status["groups"]:
        if group["state"] == "closed":
            table.add_row(f"{group['name']} (launch {group['incarnation']})", "", "", "closed")
            continue
        again = f" (launch {group['incarnation']})" if group["incarnation"] > 1 else ""
        for rank in group["ranks"]:
            node = f"{rank['node_rank']} {rank['node_ip']}" if "node_ip" in rank else ""
            name = f"{group['name']}:{rank['rank']}{again}"
            table.add_row(name, str(rank.get("pid", "")), node, _does(rank, rank["state"]))
    for service in status["services"]:
        table.add_row(service["label"], str(service.get("pid", "")), "", _does(service, "ready"))
    return table


def _does(process: dict[str, Any], state: str) -> str:
    if state == "gone":
        return "gone"
    lines = ["starting"] if state == "starting" else []
    if not process.get("answers", True):
        lines.append("does not answer: it computes without a pause, or is stopped")
    lines += [f"{call['method']}() since {clock(call['since'])}" for call in process.get("calls", ())]
    lines += [f"{wait['what']} since {clock(wait['since'])}" for wait in process.get("waits", ())]
    if process.get("dropped"):
        lines.append(f"{process['dropped']} messages of dead workers dropped")
    return "\n".join(lines) or "idle"


def _channels(status: dict[str, Any]) -> Table:
    table = _table("channel", "key", "items", "waiting")
    for channel in status["channels"]:
        size = f" of {channel['maxsize']}" if channel["maxsize"] else ""
        for key in channel["keys"] or [{"key": "", "items": 0, "getters": [], "putters": []}]:
            waiting = [f"{who['who']} gets since {clock(who['since'])}" for who in key["getters"]]
            waiting += [f"{who['who']} puts since {clock(who['since'])}" for who in key["putters"]]
            table.add_row(channel["name"], key["key"], f"{key['items']}{size}", "\n".join(waiting))
    return table


def _leases(status: dict[str, Any]) -> Table:
    table = _table("lease", "holder", "waiting")
    for lock in status["leases"]["locks"]:
        table.add_row(f"lock {lock['key']}", lock["holder"], ", ".join(lock["waiting"]))
    for port in status["leases"]["ports"]:
        table.add_row(f"port {port['port']}", port["holder"], "")
    return table


def _table(*columns: str) -> Table:
    table = Table(expand=True, show_edge=False, pad_edge=False)
    for index, column in enumerate(columns):
        # The last column holds long texts.
        table.add_column(column, overflow="fold", ratio=1 if index == len(columns) - 1 else None)
    return table


def _local_pids(status: dict[str, Any]) -> Iterator[tuple[str, int]]:
    for group in status["groups"]:
        for rank in group["ranks"]:
            if rank.get("node_id") == status["here"] and rank["state"] != "gone":
                yield f"{group['name']}:{rank['rank']}", rank["pid"]


def _find_py_spy() -> str:
    installed = Path(sys.executable).with_name("py-spy")
    found = str(installed) if installed.exists() else shutil.which("py-spy")
    if found is None:
        raise MissingPackageError(
            "--stacks needs py-spy, which is not installed. Install it with: pip install 'rlinf[debug]'"
        )
    return found


def _stack(spy: str, pid: int) -> str:
    try:
        done = subprocess.run(
            [spy, "dump", "--pid", str(pid)], capture_output=True, text=True, timeout=_STACK_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"py-spy has not answered within {_STACK_SECONDS:g} s."
    return done.stdout.strip() or done.stderr.strip()

"""How a run went: its launches, restarts and warnings, and whether it has ended."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rlinf.telemetry.events import EVENTS_FILE
from rlinf.telemetry.report.run_folder import RunFolder, read_records
from rlinf.telemetry.rundir import WORKER_LOGS_FOLDER

_MAX_EVENTS = 300
_MAX_LOG_FILES = 200
# The end of each worker's log; a run that warns all the time fills it with the same line.
_MAX_LOG_BYTES = 64_000
_MAX_LOG_LINES = 200
_MAX_CHARACTERS = 600
_LOG_LINE = re.compile(r"^(\d\d:\d\d:\d\d) (WARNING|ERROR|CRITICAL) \[([^\]]*)\] (.*)$")


def describe_history(run: RunFolder) -> dict[str, Any]:
    """Return what is recorded about how a run went.

    Returns:
        ``launches`` as ``run.json`` has them; ``events``, the newest of ``events.jsonl``; ``hidden_events``, how many
        older ones there are; ``worker_warnings`` from the workers' logs; ``status``, in words; ``problems`` of reading.
    """
    events = [_event(record) for record in read_records(run.path / EVENTS_FILE).rows]
    return {
        "status": _status(events),
        "launches": [_launch(launch) for launch in run.launches],
        "events": events[-_MAX_EVENTS:],
        "hidden_events": max(len(events) - _MAX_EVENTS, 0),
        "restarts": sum(event["kind"] == "restart" for event in events),
        "warnings": sum(event["kind"] == "warning" for event in events),
        "worker_warnings": list(_worker_warnings(run.path / WORKER_LOGS_FOLDER)),
        "problems": run.problems,
    }


def _event(record: dict[str, Any]) -> dict[str, Any]:
    step = record.get("step")
    return {
        "time": str(record.get("time", "")),
        "kind": str(record.get("kind", "")),
        "step": step if isinstance(step, int) else None,
        "text": str(record.get("text", ""))[:_MAX_CHARACTERS],
    }


def _status(events: Sequence[dict[str, Any]]) -> str:
    """Return how the last launch ended; an empty text where nothing is recorded."""
    for event in reversed(events):
        if event["kind"] == "end":
            return str(event["text"])
        if event["kind"] == "start":
            return "No end is recorded: it is still running, or was killed."
    return ""


def _launch(launch: dict[str, Any]) -> dict[str, Any]:
    versions, git = launch.get("versions"), launch.get("git")
    command = launch.get("command")
    return {
        "started_at": str(launch.get("started_at", "")),
        "resumed": bool(launch.get("resumed")),
        "host": str(launch.get("host", "")),
        "seed": launch.get("seed"),
        "command": " ".join(map(str, command)) if isinstance(command, list) else "",
        "versions": {str(k): str(v) for k, v in versions.items() if v} if isinstance(versions, dict) else {},
        "commit": str(git.get("commit", "")) if isinstance(git, dict) else "",
        "changed": bool(git.get("changed")) if isinstance(git, dict) else False,
    }


def _worker_warnings(folder: Path) -> Iterator[dict[str, str]]:
    """Yield the newest warnings of each worker's log, equal ones of a worker once."""
    if not folder.is_dir():
        return
    count = 0
    for path in sorted(folder.glob("*.log"))[:_MAX_LOG_FILES]:
        lines: dict[tuple[str, str, str], str] = {}
        for line in _tail(path).splitlines():
            match = _LOG_LINE.match(line)
            if match:
                lines[match[2], match[3], match[4][:_MAX_CHARACTERS]] = match[1]
        for (level, worker, text), time in lines.items():
            count += 1
            if count > _MAX_LOG_LINES:
                return
            yield {"time": time, "level": level.lower(), "worker": worker, "text": text}


def _tail(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(path.stat().st_size - _MAX_LOG_BYTES, 0))
            return file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""

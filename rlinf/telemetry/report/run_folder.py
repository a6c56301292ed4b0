"""Finds the folders of runs, and reads what they hold as far as it can be read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlinf.errors import ReportError
from rlinf.telemetry.logger import METRICS_FILE
from rlinf.telemetry.rundir import CONFIG_FILE, RUN_FILE

# ``<log_path>/<a>/<b>``: names of experiments may have parts, and users keep sweeps in folders.
_MAX_DEPTH = 4
_Json = dict[str, Any]


@dataclass
class RunFolder:
    """One run's folder.

    Attributes:
        path: The folder, absolute.
        name: What to call the run; unique within a page.
        launches: One entry a launch, as ``run.json`` has them; the last is the newest.
        config: The resolved recipe; None where it cannot be read.
        problems: What could not be read, in words.
    """

    path: Path
    name: str
    launches: list[_Json] = field(default_factory=list)
    config: _Json | None = None
    problems: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> RunFolder:
        """Read what says which run this is."""
        run = cls(path.absolute(), path.absolute().name)
        text = run.text(RUN_FILE)
        if text is not None:
            try:
                record = json.loads(text)
                run.launches = [dict(launch) for launch in record["launches"]]
                run.name = str(record.get("experiment_name") or run.name)
            except (ValueError, KeyError, TypeError) as error:
                run.problems.append(f"{RUN_FILE} cannot be read: {error}")
        run.config = run.yaml(CONFIG_FILE)
        return run

    def text(self, name: str) -> str | None:
        """Return a file's text; None where there is no such file, or it cannot be read."""
        path = self.path / name
        if not path.is_file():
            return None
        try:
            return path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            self.problems.append(f"{name} cannot be read: {error.strerror}")
            return None

    def yaml(self, name: str) -> _Json | None:
        """Return the mapping that a YAML file holds; None where it holds none."""
        from yaml import YAMLError, safe_load

        text = self.text(name)
        if text is None:
            return None
        try:
            data = safe_load(text)
        except YAMLError as error:
            self.problems.append(f"{name} cannot be read: {' '.join(str(error).split())}")
            return None
        return data if isinstance(data, dict) else None


def find_runs(paths: Sequence[str | Path]) -> list[RunFolder]:
    """Return the runs that folders are, or hold.

    Args:
        paths: Folders of runs, or folders above them (``runner.logger.log_path``).

    Returns:
        The runs in the order of the paths, each once, with names that tell them apart.

    Raises:
        ReportError: A path is no folder, or there is no run in it.
    """
    folders: dict[Path, None] = {}
    for given in paths:
        path = Path(given).expanduser()
        found = list(_runs_in(path, 0)) if path.is_dir() else []
        if not found:
            what = "holds no run" if path.is_dir() else "is not a folder"
            raise ReportError(
                f"LOG_PATH: received '{given}', which {what}; give the folder of a run (it holds {METRICS_FILE} and "
                f"{RUN_FILE}), or one above it, for example results/my_experiment"
            )
        folders |= dict.fromkeys(folder.resolve() for folder in found)
    runs = [RunFolder.read(folder) for folder in folders]
    _tell_apart(runs)
    return runs


def _runs_in(folder: Path, depth: int) -> Iterator[Path]:
    if (folder / METRICS_FILE).is_file() or (folder / RUN_FILE).is_file():
        yield folder
    elif depth < _MAX_DEPTH:
        for child in sorted(folder.iterdir()):
            if child.is_dir() and not child.name.startswith("."):
                yield from _runs_in(child, depth + 1)


def _tell_apart(runs: Iterable[RunFolder]) -> None:
    """Add as much of the path as it takes to the names of runs that share one."""
    by_name: dict[str, list[RunFolder]] = {}
    for run in runs:
        by_name.setdefault(run.name, []).append(run)
    for name, same in by_name.items():
        if len(same) < 2:
            continue
        depth = next(n for n in range(1, 99) if len({run.path.parts[-n:] for run in same}) == len(same))
        for run in same:
            # The experiment's name usually is the folder's; then the path says it already.
            path = "/".join(run.path.parts[-depth:])
            run.name = path if path.endswith(name) else f"{path} ({name})"


@dataclass
class Records:
    """What was read of a file of one JSON object a line.

    Attributes:
        rows: The objects.
        num_lines: Lines that are not empty, those that were not parsed among them.
        is_whole: Whether the file was read to its end.
    """

    rows: list[_Json] = field(default_factory=list)
    num_lines: int = 0
    is_whole: bool = True


def read_records(path: Path, *, max_rows: int | None = None, max_bytes: int | None = None) -> Records:
    """Read a file of one JSON object a line; a line that holds none, such as a torn last one, is passed over.

    Args:
        path: The file; need not exist.
        max_rows: Objects to return; further lines are only counted. None returns all.
        max_bytes: Read about so much of the file; None reads all.
    """
    records = Records()
    try:
        with open(path, "rb") as file:
            for line in file:
                if max_bytes is not None and file.tell() > max_bytes and records.rows:
                    records.is_whole = False
                    break
                records.num_lines += bool(line.strip())
                row = read_line(line) if max_rows is None or len(records.rows) < max_rows else None
                if row is not None:
                    records.rows.append(row)
    except OSError:
        records.is_whole = False
    return records


def read_line(line: bytes) -> _Json | None:
    """Return the JSON object that a line holds; None where it holds none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def spread(items: Sequence[Any], limit: int) -> list[Any]:
    """Return at most ``limit`` of the items, evenly spread, the first and the last among them."""
    if len(items) <= limit:
        return list(items)
    return [items[round(i * (len(items) - 1) / (limit - 1))] for i in range(limit)] if limit > 1 else [items[-1]]

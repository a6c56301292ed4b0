"""A language model's prompts and responses, from ``samples/`` and ``evaluations/``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlinf.telemetry.report.run_folder import read_records, spread
from rlinf.telemetry.rundir import EVALUATIONS_FOLDER, SAMPLES_FOLDER

# Bytes that the samples of a page take, for all runs together.
_MAX_PAGE_BYTES = 1_200_000
# Of one file: the rest of a larger one is not looked at.
_MAX_FILE_BYTES = 4_000_000
_MAX_STEPS = 24
_MAX_ROWS = 48
_MIN_ROWS = 4
_MAX_CHARACTERS = 3000
_STEP_FILE = re.compile(r"step_(\d+)\.jsonl")
_SOURCES = {"training": SAMPLES_FOLDER, "evaluation": EVALUATIONS_FOLDER}
_NUMBERS = ("reward", "num_tokens", "group", "member")


def describe_samples(folder: Path, *, num_runs: int = 1) -> dict[str, Any] | None:
    """Return what the page shows of a run's samples; None where it has none.

    Args:
        folder: The run's folder.
        num_runs: Runs that the page shows.

    Returns:
        By source, ``training`` and ``evaluation``: a list of steps, each with its ``step``, its ``rows`` and the
        ``total`` of rows in the file (None where it was not read to its end).
    """
    budget = _MAX_PAGE_BYTES // num_runs
    files = {source: step_files(folder / name) for source, name in _SOURCES.items()}
    max_rows, max_steps = _MAX_ROWS, _MAX_STEPS
    while True:
        found = {source: _read(steps, max_steps, max_rows) for source, steps in files.items()}
        found = {source: steps for source, steps in found.items() if steps}
        if len(json.dumps(found)) <= budget or (max_rows <= _MIN_ROWS and max_steps <= 1):
            return found or None
        max_steps = max_steps if max_rows > _MIN_ROWS else max_steps // 2
        max_rows = max(max_rows // 2, _MIN_ROWS)


def step_files(folder: Path) -> dict[int, Path]:
    """Return the files ``step_<N>.jsonl`` of a folder by step, in order; none where there is no such folder."""
    if not folder.is_dir():
        return {}
    matches = ((_STEP_FILE.fullmatch(path.name), path) for path in folder.iterdir())
    return dict(sorted((int(match[1]), path) for match, path in matches if match))


def _read(files: Mapping[int, Path], max_steps: int, max_rows: int) -> list[dict[str, Any]]:
    """Read some of the files, and of each its first rows."""
    steps = []
    for step in spread(list(files), max_steps):
        records = read_records(files[step], max_rows=max_rows, max_bytes=_MAX_FILE_BYTES)
        rows = [row for record in records.rows if (row := _sample(record)) is not None]
        if rows:
            steps.append({"step": step, "rows": rows, "total": records.num_lines if records.is_whole else None})
    return steps


def _sample(record: dict[str, Any]) -> dict[str, Any] | None:
    if "prompt" not in record or "answer" not in record:
        return None
    row: dict[str, Any] = {name: _number(record.get(name)) for name in _NUMBERS}
    terms = record.get("reward_terms")
    versions = record.get("versions")
    return row | {
        **{name: _cut(str(record.get(name, ""))) for name in ("prompt", "answer", "reference")},
        "terms": {str(name): _number(value) for name, value in terms.items()} if isinstance(terms, dict) else {},
        "finish": str(record.get("finish_reason", "")),
        "versions": [_number(v) for v in versions[:2]] if isinstance(versions, list) else [],
    }


def _cut(text: str) -> str:
    if len(text) <= _MAX_CHARACTERS:
        return text
    return f"{text[:_MAX_CHARACTERS]} ... ({len(text) - _MAX_CHARACTERS} more characters)"


def _number(value: object) -> float | int | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None

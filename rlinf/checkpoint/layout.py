"""How a checkpoint lies on the disk, and which folders count as one.

::

    <root>/global_step_<N>/            a checkpoint
        actor/ ...                     files of the workers
        env/rank_<R>.safetensors       the training episodes of an env rank that had not ended
        runner.json                    the runner's state and the metrics at this step
        COMPLETE                       written last: step, sequence number, and the size of every file
    <root>/LATEST                      name of the newest checkpoint; a hint for people and scripts
    <root>/.tmp_global_step_<N>/       being written; worthless after a kill
    <root>/.old_global_step_<N>/       the former content of a step that is being replaced
    <root>/.trash_checkpoint_.../                 being deleted

A folder without COMPLETE, or whose files do not have the sizes that COMPLETE lists, is never loaded.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlinf.errors import CheckpointError

COMPLETE = "COMPLETE"
LATEST = "LATEST"
RUNNER_FILE = "runner.json"
FORMAT = 1
TEMPORARY_PREFIX = ".tmp_"
OLD_PREFIX = ".old_"
TRASH_PREFIX = ".trash_checkpoint_"
_NAME = re.compile(r"global_step_(\d+)")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint.

    Attributes:
        path: Its folder.
        step: Its global step.
        sequence: Rises with every commit under one root; a run that was resumed from an earlier step writes lower steps
            later, so age follows this and not the step.
    """

    path: Path
    step: int
    sequence: int


def folder_name(step: int) -> str:
    """Return the folder name of a step's checkpoint."""
    return f"global_step_{step}"


def is_step_folder(path: Path) -> bool:
    """Return whether a path is named like a checkpoint, complete or not."""
    return _NAME.fullmatch(path.name) is not None


def file_sizes(folder: Path) -> dict[str, int]:
    """Return the size in bytes of every file below a folder, COMPLETE itself left out, by POSIX path relative to it."""
    sizes = {
        path.relative_to(folder).as_posix(): path.stat().st_size
        for parent, _, names in os.walk(folder)
        for path in (Path(parent, name) for name in names)
    }
    sizes.pop(COMPLETE, None)
    return dict(sorted(sizes.items()))


def complete_marker(folder: Path, *, step: int, sequence: int) -> str:
    """Return the text of COMPLETE for a finished folder."""
    record = {"format": FORMAT, "step": step, "sequence": sequence, "files": file_sizes(folder)}
    return json.dumps(record, indent=1) + "\n"


def read_checkpoint(path: Path) -> Checkpoint:
    """Return the checkpoint in a folder.

    Args:
        path: The folder.

    Raises:
        CheckpointError: The folder is not complete; the message says why and carries no remedy yet.
    """
    try:
        record: dict[str, Any] = json.loads((path / COMPLETE).read_text(encoding="utf-8"))
        step, sequence, files = int(record["step"]), int(record["sequence"]), dict(record["files"])
        version = int(record["format"])
    except FileNotFoundError:
        raise CheckpointError(f"{path} is half-written: it holds no file {COMPLETE}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path / COMPLETE} cannot be read: {error}") from error
    if version != FORMAT:
        raise CheckpointError(f"{path} has checkpoint format {version}; this version of RLinf reads format {FORMAT}")
    for name, size in files.items():
        file = path / name
        found = file.stat().st_size if file.is_file() else None
        if found != size:
            state = "is missing" if found is None else f"has {found} bytes"
            raise CheckpointError(f"{path} is damaged: {name} {state}, {COMPLETE} lists {size} bytes")
    return Checkpoint(path, step, sequence)


def scan(root: Path) -> tuple[list[Checkpoint], list[str]]:
    """Find the checkpoints under a root.

    Args:
        root: A ``checkpoints`` folder; need not exist.

    Returns:
        The complete ones, oldest first, and for each folder named like one that is not complete the reason.
    """
    complete: list[Checkpoint] = []
    problems: list[str] = []
    if not root.is_dir():
        return complete, problems
    for path in sorted(root.iterdir()):
        # A kill between the two renames that replace a step leaves the old content under its other name only.
        replaced = path.name.startswith(OLD_PREFIX) and not (root / path.name.removeprefix(OLD_PREFIX)).exists()
        if not path.is_dir() or not (is_step_folder(path) or replaced):
            continue
        try:
            complete.append(read_checkpoint(path))
        except CheckpointError as error:
            problems.append(str(error))
    return sorted(complete, key=lambda checkpoint: (checkpoint.sequence, checkpoint.step)), problems

"""Writes, finds and retires checkpoints, so that a kill at any instant leaves the last complete one usable."""

from __future__ import annotations

import json
import logging
import math
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlinf.checkpoint.layout import (
    COMPLETE,
    FORMAT,
    LATEST,
    OLD_PREFIX,
    RUNNER_FILE,
    TEMPORARY_PREFIX,
    TRASH_PREFIX,
    Checkpoint,
    complete_marker,
    folder_name,
    is_step_folder,
    read_checkpoint,
    scan,
)
from rlinf.errors import CheckpointError
from rlinf.registry import did_you_mean
from rlinf.utils.files import (
    commit_folder,
    delete_leftover,
    fsync_path,
    fsync_tree,
    remove_folder,
    rename_durably,
    write_atomic,
)

_LOG = logging.getLogger(__name__)


class CheckpointManager:
    """The checkpoints of one experiment; used by the one process that drives the run.

    A save is ``folder = begin(step)``, the workers write below ``folder``, then ``commit(...)``. Nothing is visible
    under a checkpoint's name before it is whole and on the disk.

    Args:
        root: The ``checkpoints`` folder; made by the first ``begin``.
        keep: How many of the newest checkpoints stay; 0 keeps all.
        keep_best: A metric, higher being better, whose best checkpoint stays too, for example ``eval/success_once``.
    """

    def __init__(self, root: Path, keep: int = 3, keep_best: str | None = None) -> None:
        if keep < 0:
            raise CheckpointError(f"runner.keep_checkpoints is {keep}; use 0 to keep all, or a positive number")
        # Absolute, since workers with other working directories are handed paths below it.
        self._root = Path(root).expanduser().absolute()
        self._keep = keep
        self._keep_best = keep_best
        self._best_warned = False
        self._writing: tuple[int, Path] | None = None

    @property
    def root(self) -> Path:
        """The ``checkpoints`` folder, absolute."""
        return self._root

    def begin(self, step: int) -> Path:
        """Start a checkpoint, clearing away what a killed run left half-done.

        Args:
            step: Global step that the checkpoint belongs to.

        Returns:
            An empty folder for the workers to write into. Workers on other nodes must see it too, and have flushed
            their files (``rlinf.utils.files.fsync_tree``) before ``commit``.
        """
        if step < 0:
            raise CheckpointError(f"a checkpoint's step is 0 or more, got {step}")
        self._root.mkdir(parents=True, exist_ok=True)
        self._recover()
        folder = self._root / (TEMPORARY_PREFIX + folder_name(step))
        folder.mkdir()
        self._writing = (step, folder)
        return folder

    def commit(
        self,
        step: int,
        runner_state: Mapping[str, Any],
        metrics: Mapping[str, float] | None = None,
        *,
        required: Sequence[str] = (),
    ) -> Path:
        """Publish the checkpoint that ``begin`` started, then drop those that retention no longer keeps.

        Args:
            step: The step given to ``begin``.
            runner_state: Small JSON-able state of the runner itself, for ``runner.json``.
            metrics: Metrics at this step, for ``keep_best``.
            required: Names in the folder that must exist and not be empty, for example ``["actor"]``: a check that the
                workers' files arrived.

        Returns:
            The checkpoint's folder.

        Raises:
            CheckpointError: Nothing was begun for this step, a required name is missing or empty, or the state is no
                JSON.
        """
        if self._writing is None or self._writing[0] != step:
            raise CheckpointError(f"commit({step}) without begin({step}); begin a checkpoint, write it, then commit it")
        folder = self._writing[1]
        missing = [name for name in required if not _holds_bytes(folder / name)]
        if missing:
            raise CheckpointError(
                f"checkpoint of step {step}: {', '.join(missing)} missing or empty in {folder}; if the workers run on "
                "other nodes, put runner.logger.log_path on a file system that all nodes share"
            )
        (folder / RUNNER_FILE).write_text(_runner_json(step, runner_state, metrics or {}), encoding="utf-8")
        # COMPLETE must never reach the disk before what it vouches for.
        fsync_tree(folder)
        newest = max((checkpoint.sequence for checkpoint in scan(self._root)[0]), default=0)
        write_atomic(folder / COMPLETE, complete_marker(folder, step=step, sequence=newest + 1))
        final = self._publish(folder, self._root / folder_name(step))
        self._writing = None
        write_atomic(self._root / LATEST, final.name + "\n")
        self._retire(final)
        return final

    def resolve(self, resume_dir: str | None) -> Path | None:
        """Find the checkpoint that ``runner.resume_dir`` names. Changes nothing on the disk.

        Args:
            resume_dir: None; ``auto`` for the newest complete checkpoint of this experiment; or a path: of a
                checkpoint, of a ``checkpoints`` folder or of a run's folder (the newest complete one in it), absolute,
                relative to the working directory, or a checkpoint's bare name.

        Returns:
            The checkpoint's folder, or None for None and for ``auto`` when this experiment has no complete one.

        Raises:
            CheckpointError: A path that holds no complete checkpoint.
        """
        if resume_dir is None:
            return None
        if resume_dir == "auto":
            return self._newest(self._root)
        if not resume_dir.strip():
            raise CheckpointError("runner.resume_dir is empty; use null, auto or the path of a checkpoint")
        given = Path(resume_dir).expanduser()
        path = next((p for p in (given.absolute(), self._root / given) if p.exists()), None)
        if path is None:
            raise CheckpointError(f"runner.resume_dir: {resume_dir} does not exist. {self._remedy(given.parent)}")
        return self._resolve_existing(resume_dir, path)

    def _resolve_existing(self, resume_dir: str, path: Path) -> Path:
        if (path / COMPLETE).exists() or is_step_folder(path):
            try:
                return read_checkpoint(path).path
            except CheckpointError as error:
                raise CheckpointError(f"runner.resume_dir: {error}. {self._remedy(path.parent)}") from error
        found = self._newest(path) or self._newest(path / "checkpoints")
        if found is not None:
            return found
        outer = next((parent for parent in path.parents if (parent / COMPLETE).exists()), None)
        if outer is not None:
            raise CheckpointError(
                f"runner.resume_dir: {resume_dir} is a part of a checkpoint; use the whole: runner.resume_dir={outer}"
            )
        raise CheckpointError(
            f"runner.resume_dir: {resume_dir} holds no complete checkpoint. {self._remedy(path)} To start from model "
            "weights alone, use runner.ckpt_path."
        )

    def mark_resumed(self, path: Path) -> None:
        """Make the checkpoint that the run continues from the newest one; call it once its state is loaded.

        Without this a run that goes back to an earlier step, and is killed before its first save, would with ``auto``
        jump to the later checkpoints that it had left behind. They stay until retention drops them.

        Args:
            path: The checkpoint, from ``resolve``; one outside this experiment is left alone.
        """
        complete = scan(self._root)[0]
        mine = next((checkpoint for checkpoint in complete if checkpoint.path == Path(path).absolute()), None)
        if mine is None or mine is complete[-1]:
            return
        marker = complete_marker(mine.path, step=mine.step, sequence=complete[-1].sequence + 1)
        write_atomic(mine.path / COMPLETE, marker)
        write_atomic(self._root / LATEST, mine.path.name + "\n")

    def _newest(self, root: Path) -> Path | None:
        complete, problems = scan(root)
        for problem in problems:
            _LOG.warning("ignoring a checkpoint: %s", problem)
        return complete[-1].path if complete else None

    def _remedy(self, folder: Path) -> str:
        """Name the checkpoints next to the requested one, or else those of this experiment."""
        for root in (folder, folder / "checkpoints", self._root):
            complete = scan(root)[0]
            if complete:
                return (
                    f"Complete there: {', '.join(c.path.name for c in complete)} in {root}; or use null to start anew."
                )
        return "Use the path of a folder global_step_<N> that holds a file COMPLETE, or null to start anew."

    def _recover(self) -> None:
        """Undo what a killed run left: half-written folders, half-done replacements, half-done deletions."""
        for path in sorted(self._root.iterdir()):
            if path.name.startswith(TEMPORARY_PREFIX + "global_step_"):
                remove_folder(path, self._trash())
            elif path.name.startswith(TRASH_PREFIX):
                delete_leftover(path)
            elif path.name.startswith(OLD_PREFIX):
                final = self._root / path.name.removeprefix(OLD_PREFIX)
                if final.exists():
                    remove_folder(path, self._trash())
                else:
                    rename_durably(path, final)
            elif path.name.startswith(f".{LATEST}."):
                delete_leftover(path)

    def _publish(self, folder: Path, final: Path) -> Path:
        """Rename into place. A folder of that name gives way: an earlier run's, or a half-written copy."""
        old = self._root / (OLD_PREFIX + final.name)
        replaces = final.exists()
        if replaces:
            rename_durably(final, old)
        commit_folder(folder, final)
        if replaces:
            remove_folder(old, self._trash())
        return final

    def _retire(self, committed: Path) -> None:
        if self._keep == 0:
            return
        complete = scan(self._root)[0]
        kept = {checkpoint.path for checkpoint in complete[-self._keep :]} | {committed}
        try:
            best = self._best(complete)
        except CheckpointError as error:
            _LOG.warning("no checkpoint is dropped, as the best is not known: %s", error)
            return
        if best is not None:
            kept.add(best.path)
        for checkpoint in complete:
            if checkpoint.path not in kept:
                remove_folder(checkpoint.path, self._trash())
        fsync_path(self._root)

    def _best(self, complete: list[Checkpoint]) -> Checkpoint | None:
        """Return the checkpoint with the highest ``keep_best`` metric; of equal ones the newest."""
        if self._keep_best is None:
            return None
        best: tuple[float, Checkpoint] | None = None
        measured: dict[str, float] = {}
        for checkpoint in complete:
            metrics = _read_runner_file(checkpoint.path)["metrics"]
            measured |= metrics
            value = metrics.get(self._keep_best)
            if value is not None and (best is None or value >= best[0]):
                best = value, checkpoint
        if best is None and not self._best_warned:
            self._best_warned = True
            _LOG.warning(
                "runner.keep_best: no checkpoint so far was saved in a step that measured '%s'.%s Let "
                "runner.save_interval be a multiple of runner.val_check_interval",
                self._keep_best,
                did_you_mean(self._keep_best, measured),
            )
        return best[1] if best else None

    def _trash(self) -> Path:
        return self._root / f"{TRASH_PREFIX}{uuid.uuid4().hex[:8]}"


def _holds_bytes(path: Path) -> bool:
    """Return whether a file, or any file in a folder, has content."""
    files = path.rglob("*") if path.is_dir() else [path]
    return any(file.is_file() and file.stat().st_size > 0 for file in files)


def checkpoint_step(path: Path) -> int:
    """Return the global step of a checkpoint, from what is written in it and not from its folder's name.

    Args:
        path: A checkpoint's folder.

    Raises:
        CheckpointError: ``runner.json`` is missing or cannot be read.
    """
    return int(_read_runner_file(Path(path))["step"])


def _runner_json(step: int, runner_state: Mapping[str, Any], metrics: Mapping[str, float]) -> str:
    finite = {name: float(value) for name, value in metrics.items() if math.isfinite(value)}
    record = {"format": FORMAT, "step": step, "metrics": dict(sorted(finite.items())), "state": dict(runner_state)}
    try:
        return json.dumps(record, indent=1) + "\n"
    except (TypeError, ValueError) as error:
        raise CheckpointError(
            f"the runner's state at step {step} is not JSON ({error}); save tensors and arrays in files of "
            "the checkpoint's folder"
        ) from error


def _read_runner_file(path: Path) -> dict[str, Any]:
    file = path / RUNNER_FILE
    try:
        record: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        version, _ = record["format"], (record["step"], record["metrics"], record["state"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{file} cannot be read: {error!r}; resume from another checkpoint (runner.resume_dir=auto takes the "
            "newest complete one)"
        ) from error
    if version != FORMAT:
        raise CheckpointError(f"{file} has format {version}; this version of RLinf reads format {FORMAT}")
    return record

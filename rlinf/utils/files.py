"""Files that survive a kill at any instant: a path holds either the old content or the new, never a mixture."""

from __future__ import annotations

import logging
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LOG = logging.getLogger(__name__)


def fsync_path(path: Path) -> None:
    """Force one file's content, or one folder's list of names, to the disk.

    Args:
        path: An existing file or folder.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_tree(folder: Path) -> None:
    """Force everything below a folder to the disk, the folder itself last.

    Args:
        folder: An existing folder; symbolic links in it are not followed.
    """
    for parent, _, names in os.walk(folder, topdown=False):
        for name in names:
            path = Path(parent, name)
            if not path.is_symlink():
                fsync_path(path)
        fsync_path(Path(parent))


@contextmanager
def naming_file(path: Path) -> Iterator[None]:
    """Give errors of the disk, of which many do not say where, the name of the file that is written in the block.

    Args:
        path: The file.
    """
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def write_atomic(path: Path, data: bytes | str) -> None:
    """Replace a file's content in one step: write a second file, force it to disk, rename, force the rename to disk.

    Args:
        path: The file to create or replace; its folder must exist.
        data: New content; text is stored as UTF-8.
    """
    content = data.encode() if isinstance(data, str) else data
    # The name is unique, so that two writers never share a half-written file; the last rename wins.
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        with naming_file(path), open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    fsync_path(path.parent)


def rename_durably(source: Path, target: Path) -> None:
    """Rename within one folder and force the rename to the disk.

    Args:
        source: Existing file or folder.
        target: New name in the same file system; a folder must not exist there yet.
    """
    os.rename(source, target)
    fsync_path(target.parent)
    if source.parent != target.parent:
        fsync_path(source.parent)


def commit_folder(temporary: Path, final: Path) -> None:
    """Publish a folder under its final name once every byte in it is on the disk.

    Args:
        temporary: The finished folder, in the same file system as ``final``.
        final: Name to publish it under; must not exist.

    Raises:
        FileExistsError: ``final`` exists; a folder can only be replaced by moving the old one away first.
    """
    if os.path.lexists(final):
        raise FileExistsError(f"cannot publish {temporary} as {final}: {final} exists; move it away first")
    fsync_tree(temporary)
    rename_durably(temporary, final)


def remove_folder(folder: Path, trash: Path) -> None:
    """Remove a folder so that it is never seen half-removed: rename it first, then delete it under that name.

    What cannot be removed stays, with a warning: tidying up must not end what does it.

    Args:
        folder: Folder to remove.
        trash: Free name in the same file system; a folder of that name that is found after a kill may be deleted.
    """
    try:
        rename_durably(folder, trash)
    except OSError as error:
        _warn_undeleted(folder, error)
    else:
        delete_leftover(trash)


def delete_leftover(path: Path) -> None:
    """Delete a file or a folder that is no longer needed, as far as possible; a warning names what stays.

    Args:
        path: What to delete. On a network file system a file that another process has open may keep its folder alive.
    """
    errors: list[BaseException] = []
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, onerror=lambda function, name, failure: errors.append(failure[1]))
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        errors.append(error)
    if errors and os.path.lexists(path):
        _warn_undeleted(path, errors[0])


def _warn_undeleted(path: Path, error: BaseException) -> None:
    _LOG.warning("%s cannot be deleted (%s); it stays. Delete it by hand.", path, error)

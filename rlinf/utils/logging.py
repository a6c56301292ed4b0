"""One logger tree, ``rlinf.*``: level from ``RLINF_LOG_LEVEL``, lines that name the worker they come from."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

_ROOT = "rlinf"
_FORMAT = "%(asctime)s %(levelname)s [%(origin)s] %(message)s"
_DATE_FORMAT = "%H:%M:%S"


class _Origin(logging.Filter):
    """Add the group and rank of this process (or the logger's name) to each record."""

    name_of_process = ""

    def filter(self, record: logging.LogRecord) -> bool:
        record.origin = self.name_of_process or record.name
        return True


_origin = _Origin()


class _StderrHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Write to the present ``sys.stderr``: test runners and progress displays replace it."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> object:
        return sys.stderr


def get_logger(name: str | None = None) -> logging.Logger:
    """Return a logger of the ``rlinf`` tree, configured on first use.

    Args:
        name: Name below ``rlinf``; a name that already starts with it is taken as it is. None is the root of the tree.
    """
    root = logging.getLogger(_ROOT)
    if not root.handlers:
        _add_handler(root, _StderrHandler())
        root.setLevel(os.environ.get("RLINF_LOG_LEVEL", "INFO").upper())
        root.propagate = False
    if not name or name == _ROOT:
        return root
    return logging.getLogger(name if name.startswith(f"{_ROOT}.") else f"{_ROOT}.{name}")


def configure_worker_logging(origin: str, log_file: Path | None) -> None:
    """Make this process's lines carry ``origin`` and, when given, also go to ``log_file``.

    Args:
        origin: What the process is, for example ``"EnvWorker:0"``.
        log_file: File to append to; its folder is created.
    """
    _origin.name_of_process = origin
    root = get_logger()
    if log_file is not None:
        log_file.parent.mkdir(parents=True, exist_ok=True)
        _add_handler(root, logging.FileHandler(log_file, encoding="utf-8"))


def _add_handler(root: logging.Logger, handler: logging.Handler) -> None:
    handler.setFormatter(logging.Formatter(_FORMAT, _DATE_FORMAT))
    handler.addFilter(_origin)
    root.addHandler(handler)

"""Which environment variables a worker gets.

Precedence: the node's at ``ray start`` < the head's set after that < ``env_configs.env_vars`` < what the launch sets.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

# Lists of folders: a new value goes in front of the old one.
PATH_VARIABLES = frozenset(
    {
        "PATH",
        "LD_LIBRARY_PATH",
        "LIBRARY_PATH",
        "PYTHONPATH",
        "CPATH",
        "C_INCLUDE_PATH",
        "CPLUS_INCLUDE_PATH",
        "MANPATH",
        "PKG_CONFIG_PATH",
        "CMAKE_PREFIX_PATH",
        "DYLD_LIBRARY_PATH",
    }
)
# Belong to one process or one machine, or are set by Ray and the launch for each worker.
_PERSONAL = frozenset(
    {
        "_",
        "PWD",
        "OLDPWD",
        "SHLVL",
        "TERM",
        "COLUMNS",
        "LINES",
        "HOME",
        "USER",
        "LOGNAME",
        "HOSTNAME",
        "SHELL",
        "TMPDIR",
        "DISPLAY",
        "VIRTUAL_ENV",
        "PYTEST_CURRENT_TEST",
        "CUDA_VISIBLE_DEVICES",
        "RLINF_NODE_RANK",
        "RLINF_CPU_SLOTS",
        "RLINF_COMM_NET_DEVICES",
    }
)
# What the dynamic loader, the C library, the interpreter or Ray read before a worker can set anything itself.
_EARLY = PATH_VARIABLES | {"LANG", "TMPDIR", "TZ"}
_EARLY_PREFIXES = ("DYLD_", "GLIBC_", "LC_", "LD_", "MALLOC_", "PYTHON", "RAY_")
_PERSONAL_PREFIXES = ("RAY_", "SSH_", "XDG_", "DBUS_", "BASH_FUNC_")


@dataclass(frozen=True)
class ProcessEnvironment:
    """What a worker's process changes in its environment before it imports anything heavy.

    Attributes:
        head: The head's variables that are newer than its ``ray start``.
        configured: Variables of ``env_configs``.
        launch: Variables of the launch itself.
        sys_path: Folders of the driver's code.
    """

    head: Mapping[str, str] = field(repr=False)
    configured: Mapping[str, str] = field(repr=False)
    launch: Mapping[str, str]
    sys_path: tuple[str, ...] = ()

    def apply(self) -> None:
        """Change ``os.environ`` and ``sys.path``."""
        for name, value in self.head.items():
            if name not in self.configured or name in PATH_VARIABLES:
                set_variable(name, value)
        for name, value in self.configured.items():
            set_variable(name, value)
        os.environ.update(self.launch)
        folders = [*self.sys_path, *self.head.get("PYTHONPATH", "").split(os.pathsep)]
        sys.path.extend(folder for folder in folders if folder and folder not in sys.path)


def early_variables(configured: Mapping[str, str]) -> dict[str, str]:
    """Return those of ``env_configs`` that must be there when a process starts, in the form that Ray wants.

    Ray writes them to its logs and shows them on command lines; the others, secrets among them, stay out of both.
    """
    return {
        name: f"{value}:${{{name}}}" if name in PATH_VARIABLES else value
        for name, value in configured.items()
        if name in _EARLY or name.startswith(_EARLY_PREFIXES)
    }


def set_variable(name: str, value: str) -> None:
    """Set a variable of this process; path-like ones get the new folders in front of the old."""
    old = os.environ.get(name, "")
    os.environ[name] = prepend_path(value, old) if name in PATH_VARIABLES else value


def prepend_path(new: str, old: str) -> str:
    """Return the folders of ``new`` followed by those of ``old`` that are not among them."""
    first = [part for part in new.split(os.pathsep) if part]
    return os.pathsep.join([*first, *(part for part in old.split(os.pathsep) if part and part not in first)])


def environment_hashes() -> dict[str, str]:
    """Return a hash for each variable of this process: enough to compare, without handing out secrets."""
    return {name: _hash(value) for name, value in os.environ.items()}


def newer_than(hashes: Mapping[str, str]) -> dict[str, str]:
    """Return this process's variables that differ from those behind ``hashes``, without personal ones."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in _PERSONAL and not name.startswith(_PERSONAL_PREFIXES) and hashes.get(name) != _hash(value)
    }


def code_folders() -> tuple[str, ...]:
    """Return the entries of ``sys.path`` that hold the user's code, not the interpreter's or its packages."""
    prefixes = (sys.prefix, sys.base_prefix)
    return tuple(
        os.path.abspath(entry)
        for entry in sys.path
        if not entry.startswith(prefixes) and "site-packages" not in entry and not entry.endswith(".zip")
    )


def _hash(value: str) -> str:
    return hashlib.blake2b(value.encode(errors="surrogateescape"), digest_size=8).hexdigest()

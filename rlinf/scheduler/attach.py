"""Which Ray a run uses: the one named or started by this user, or one of its own; never a stranger's."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import ray
from ray._private import ray_logging
from ray._private import utils as ray_utils
from ray._private import worker as ray_worker
from ray._raylet import Config  # type: ignore[attr-defined]

from rlinf.errors import ClusterError
from rlinf.utils.logging import get_logger
from rlinf.utils.ray_address import VARIABLE, named_ray, wants_new_ray

# Another machine on the same network answers within milliseconds.
_ANSWER_SECONDS = 10.0
# What a Unix socket's path of 107 bytes leaves next to "/ray/session_<date>_<time>_<process>/sockets/plasma_store".
_RAY_BASE_BYTES = 38
# Ray needs 3 to 10 s on an idle machine.
_SLOW_START_SECONDS = 20.0


@dataclass(frozen=True)
class Attachment:
    """The Ray in use.

    Attributes:
        owned: Whether the run started it, and must stop it.
        description: Which one it is, in words.
    """

    owned: bool
    description: str


def attach_ray(namespace: str) -> Attachment:
    """Connect this process to Ray.

    Raises:
        ClusterError: Ray cannot be reached or started.
    """
    if ray.is_initialized():
        return Attachment(False, f"the Ray this process is connected to ({ray.get_runtime_context().gcs_address})")
    _keep_log_lines()
    address, why = named_ray(), VARIABLE
    if not address and not wants_new_ray():
        address, why = find_own_ray() or "", "started by this user on this machine"
    _without_colors()
    options: dict[str, Any] = {"namespace": namespace, "log_to_driver": True, "logging_level": "WARNING"}
    try:
        if address:
            _require_answer(address, why)
            adopt_authentication(address)
            with _telling_of_a_slow_start(), _keeping_sigterm():
                ray.init(address=address, **options)
            return Attachment(False, f"the Ray at {address} ({why})")
        # On a busy machine the default of 30 s is too short for Ray's processes to come up.
        os.environ.setdefault("RAY_raylet_start_wait_time_s", "200")
        # What Ray does by itself, but with a warning about it.
        os.environ.setdefault("RAY_AUTH_MODE", "token")
        Config.initialize("")
        with _telling_of_a_slow_start(), _keeping_sigterm():
            ray.init(address="local", include_dashboard=False, _temp_dir=str(_ray_folder()), **options)
        keep_token_private()
    except (OSError, RuntimeError, ValueError) as error:
        raise ClusterError(
            f"Cannot {f'connect to the Ray at {address} ({why})' if address else 'start Ray'}: {error} `rlinf doctor` "
            "says what this machine lacks."
        ) from error
    return Attachment(True, "a Ray of its own on this machine")


def _without_colors() -> None:
    """Keep Ray's prefixes of worker lines free of terminal codes where they go to a file or a pipe."""
    if sys.stdout.isatty() and sys.stderr.isatty():
        return
    for codes in (ray_worker.colorama.Fore, ray_worker.colorama.Style):
        for name in vars(codes):
            setattr(codes, name, "")


@contextlib.contextmanager
def _telling_of_a_slow_start() -> Iterator[None]:
    """Say that Ray is still starting, and which log says why, once it takes longer than one would expect."""

    def report() -> None:
        logs = _ray_folder() / "session_latest/logs"
        get_logger(__name__).warning(
            "Ray has not started within %.0f s; waiting on. A busy machine or a slow disk takes minutes. Its logs: %s",
            _SLOW_START_SECONDS,
            logs,
        )

    timer = threading.Timer(_SLOW_START_SECONDS, report)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextlib.contextmanager
def _keeping_sigterm() -> Iterator[None]:
    """Keep this process's own handler of SIGTERM, if it has one: Ray sets one that exits, and then one that aborts."""
    own = signal.getsignal(signal.SIGTERM)
    if not callable(own) or threading.current_thread() is not threading.main_thread():
        yield
        return
    set_handler, ray_utils.set_sigterm_handler = ray_utils.set_sigterm_handler, lambda _: None
    try:
        yield
    finally:
        ray_utils.set_sigterm_handler = set_handler
        # Ray's C++ part has set its handler behind Python's back.
        signal.signal(signal.SIGTERM, own)


def _ray_folder() -> Path:
    """Return the folder of Ray's sessions: Ray's own choice, but not one whose path is too long for its sockets."""
    chosen = os.environ.get("RAY_TMPDIR")
    base = chosen or os.environ.get("TMPDIR") or "/tmp"
    return Path(base if chosen or len(os.fsencode(base)) <= _RAY_BASE_BYTES else "/tmp") / "ray"


def _require_answer(address: str, why: str) -> None:
    """Refuse an address at which nothing listens: Ray would try for half a minute and then speak of its internals."""
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        return
    try:
        socket.create_connection((host.rpartition("/")[2].strip("[]"), int(port)), timeout=_ANSWER_SECONDS).close()
    except OSError as error:
        raise ClusterError(
            f"No Ray answers at {address} ({why}): {error}. Start one there with ray_utils/start_ray.sh, or unset "
            "RAY_ADDRESS to let the run start its own."
        ) from error


def adopt_authentication(address: str) -> None:
    """Use the authentication that the cluster's processes on this machine use, unless the user has chosen one.

    Ray does so by itself only where it looks for a cluster on its own, not where it is given an address; without the
    token it is refused, after half a minute of retries.

    Args:
        address: ``HOST:PORT`` of the cluster.
    """
    if "RAY_AUTH_MODE" in os.environ:
        return
    for process in _own_ray_processes(address.rpartition(":")[2]):
        try:
            started_with = process.environ()
        except psutil.Error:
            continue
        for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"):
            if name in started_with:
                os.environ.setdefault(name, started_with[name])
        # Ray has read the variables when it was imported.
        Config.initialize("")
        return


def keep_token_private() -> None:
    """Restrict Ray's token file, which Ray makes readable to all users, to this user."""
    token = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    with contextlib.suppress(OSError):  # no such file, or another user's
        if token.stat().st_mode & 0o077:
            token.chmod(0o600)


def _keep_log_lines() -> None:
    """Forward every line of every worker: Ray would merge equal ones, and the ranks they came from would be lost."""
    if "RAY_DEDUP_LOGS" not in os.environ:
        # Ray reads the variable when it is imported, which is before anything here runs.
        ray_logging.RAY_DEDUP_LOGS = False


def find_own_ray() -> str | None:
    """Return the address of the Ray that this user started here with ``ray start``, if it is alive."""
    record = _ray_folder() / "ray_current_cluster"
    try:
        if record.stat().st_uid != os.getuid():
            return None
        address = record.read_text().strip()
    except OSError:
        return None
    host, _, port = address.rpartition(":")
    if not port.isdigit() or not _runs_here_as_me(port):
        return None
    with contextlib.suppress(OSError), socket.create_connection((host.strip("[]"), int(port)), timeout=2):
        return address
    return None


def running_rays() -> list[str]:
    """Return the addresses of every Ray of this user that has a node on this machine."""
    found: set[str] = set()
    for process in psutil.process_iter(["uids", "name", "cmdline"]):
        info = process.info
        if info["name"] != "raylet" or info["uids"] is None or info["uids"].real != os.getuid():
            continue
        prefix = "--gcs-address="
        found.update(part.removeprefix(prefix) for part in info["cmdline"] or () if part.startswith(prefix))
    return sorted(found)


def _runs_here_as_me(port: str) -> bool:
    """Whether a Ray head or node of this user, for the cluster on this port, runs on this machine."""
    if next(_own_ray_processes(port), None) is not None:
        return True
    get_logger(__name__).debug("A recorded Ray on port %s is not alive, or not this user's.", port)
    return False


def _own_ray_processes(port: str) -> Iterator[psutil.Process]:
    """Yield this user's Ray processes on this machine that belong to the cluster on this port."""
    for process in psutil.process_iter(["uids", "name", "cmdline"]):
        info = process.info
        if info["uids"] is None or info["uids"].real != os.getuid() or info["name"] not in {"gcs_server", "raylet"}:
            continue
        if any(argument.endswith((f"port={port}", f":{port}")) for argument in info["cmdline"] or ()):
            yield process

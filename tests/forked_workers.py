"""Workers of Ray in tests are forked off a process that has imported torch and what else most of them import.

Each would import it anew, which takes seconds of a processor; a fork takes next to none. A test process has one such
server, which does not import Ray, and that one a server for each of Ray's jobs, which does.

Ray starts this file in place of its own program for workers: it hands its arguments, environment and output to the
server and ends, and the server's child runs Ray's program with them. A worker with another interpreter, or with other
variables of those that are read when a process starts, starts as without a server. Scripts that tests start are forked
off the same server, by ``start_script``, and the Rays of both do without services that no test asks anything of.

``python tests/forked_workers.py --run SCRIPT ...`` runs a script whose Ray does so too, without a server.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import importlib.util
import io
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SOCKET = "RLINF_TEST_FORK_SOCKET"
# What nearly every worker imports.
MODULES = (
    "torch.distributed.checkpoint",
    "gymnasium",
    "zmq",
    "hydra",
    "rich.console",
    "torch.utils.tensorboard",
    "rlinf.config.schema.root",
    "rlinf.hybrid_engines.train.fsdp",
    "rlinf.runners.readiness",
)
# What all workers import once Ray may be: it reads these variables of a worker when it is imported, and never again.
JOB = ("RAY_JOB_ID", "RAY_RAYLET_PID")
RAY_MODULES = (
    "ray._private.workers.default_worker",
    "rlinf.scheduler.manager",
    "rlinf.scheduler.shell",
    "rlinf.workers.actor.actor_worker",
    "rlinf.workers.env.env_worker",
    "rlinf.workers.rollout.rollout_worker",
)
# What workers of language models import; in the server if the test process has imported transformers.
LANGUAGE_MODULES = (
    "transformers.models.auto.modeling_auto",
    "transformers.models.qwen2.modeling_qwen2",
    "tests.language_tables",
)
# What an interpreter, its loader or a library reads once.
_EARLY = ("PATH", "LANG", "TZ", "LC_", "LD_", "DYLD_", "GLIBC_", "MALLOC_", "PYTHON", "OMP_", "MKL_", "HF_")
# What Ray sets in a worker before it imports torch, whose sums have other last bits with another number of threads.
THREADS = {"OMP_NUM_THREADS": "1"}
STREAMS = (0, 1, 2)
# Ray's program sees to the first itself, and a child of the server to the second.
_NOT_EARLY = {"PYTHONUNBUFFERED", "PYTHONPATH"}


@dataclass(frozen=True)
class Start:
    """What a process was started with."""

    arguments: list[str]
    environment: dict[str, str]
    interpreter: str
    folder: str

    @classmethod
    def here(cls) -> Start:
        """Return what this process was started with."""
        return cls(sys.argv[1:], dict(os.environ), sys.executable, os.getcwd())

    def is_like(self, other: Start) -> bool:
        """Return whether a process started so can become one that is started as another."""
        return self._early() == other._early() and self.interpreter == other.interpreter

    def _early(self) -> dict[str, str]:
        """Return the variables that are read when a process starts."""
        names = [name for name in self.environment if name.startswith(_EARLY) and name not in _NOT_EARLY]
        return {**THREADS, **{name: self.environment[name] for name in names}}


def fork_workers() -> None:
    """Have the workers of every Ray that this process starts forked, and start neither autoscaler nor dashboard."""
    from ray._private.node import Node
    from ray._private.parameter import RayParams

    given, serve_dashboard = RayParams.update_if_absent, Node.start_api_server

    def update_if_absent(self: RayParams, **values: Any) -> None:
        if "worker_path" in values:
            start_server()
            values["worker_path"] = __file__
            self.no_monitor = True
        given(self, **values)

    def start_api_server(self: Node, *, include_dashboard: bool | None, raise_on_failure: bool) -> None:
        if include_dashboard:
            serve_dashboard(self, include_dashboard=include_dashboard, raise_on_failure=raise_on_failure)

    RayParams.update_if_absent = update_if_absent
    Node.start_api_server = start_api_server
    # Workers that are started before anyone asks for them fit none of ours, which have variables of their own.
    os.environ.setdefault("RAY_prestart_worker_first_driver", "0")


def start_server() -> None:
    """Start this process's server, which ends with it, unless it has one or was started with one."""
    if SOCKET in os.environ:
        return
    folder = tempfile.TemporaryDirectory(prefix="fork", dir="/tmp")
    os.environ[SOCKET] = f"{folder.name}/socket"
    modules = [*MODULES, *(LANGUAGE_MODULES if "transformers" in sys.modules else ())]
    command = [sys.executable, __file__, "--serve", *modules]
    server = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env={**THREADS, **os.environ},
    )
    assert server.stdout is not None
    server.stdout.readline()

    def stop() -> None:
        server.communicate()
        folder.cleanup()

    atexit.register(stop)


def listen(path: str) -> socket.socket:
    """Return a socket that a worker's request can be sent to from now on."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(128)
    return listener


def serve(listener: socket.socket, modules: Sequence[str], job: str | None = None) -> Start | None:
    """Fork for every request; return None in a server once the test process is gone, and the request in a worker.

    Args:
        listener: Where requests arrive.
        modules: What is imported first.
        job: Ray's job and node whose workers this is the server of; None forks such a server for each.
    """
    with listener:
        for module in modules:
            importlib.import_module(module)
        gc.freeze()
        signal.signal(signal.SIGCHLD, reap)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
            with listener.accept()[0] as connection:
                try:
                    start, files = receive(connection)
                except ConnectionError:
                    continue
                of_job = job or job_of(start)
                answer = "y" if start.is_like(Start.here()) else "n"
                if answer == "y" and of_job != job:
                    answer = f"{os.environ[SOCKET]}_{of_job}"
                    if not os.path.exists(answer):
                        of_this = listen(answer)
                        if os.fork() == 0:
                            os.environ.update((name, start.environment[name]) for name in JOB)
                            for file in files:
                                os.close(file)
                            return serve(of_this, RAY_MODULES, of_job)
                        of_this.close()
                elif answer == "y" and os.fork() == 0:
                    if len(files) > len(STREAMS):
                        supervise(files)
                    else:
                        os.setpgid(0, 0)  # Ray ends a worker with its process group
                    for number, file in enumerate(files):
                        os.dup2(file, number)
                        os.close(file)
                    return start
                with contextlib.suppress(ConnectionError):  # it was ended meanwhile
                    connection.sendall(answer.encode())
            for file in files:
                os.close(file)
        return None


def receive(connection: socket.socket) -> tuple[Start, list[int]]:
    """Return what a worker was started with, its standard input and outputs, and where a script's end is told."""
    message, files, *_ = socket.recv_fds(connection, 1 << 20, len(STREAMS) + 1)
    while not message.endswith(b"\n"):
        more = connection.recv(1 << 20)
        if not more:
            raise ConnectionError("A worker was ended before it had asked.")
        message += more
    return Start(**json.loads(message)), files


def supervise(files: list[int]) -> None:
    """Return in a fork that is a script; this process tells who it is and how it ends, and ends then.

    Args:
        files: The script's standard input and outputs, and where that is told, which this takes.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    told = files.pop()
    script = os.fork()
    if script == 0:
        os.close(told)
        os.setsid()
        return
    for file in (*STREAMS, *files):
        os.close(file)
    os.write(told, f"{script}\n".encode())
    _, status = os.waitpid(script, 0)
    os.write(told, f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def job_of(start: Start) -> str | None:
    """Return Ray's job and node of a worker; None for those of a run that is a process of its own, which has few."""
    is_of_run = "RLINF_TEST_MARK" in start.environment or any(name not in start.environment for name in JOB)
    return None if is_of_run else "_".join(start.environment[name] for name in JOB)


def reap(*_: object) -> None:
    """Let workers that have ended go, so that what they have spent counts as spent by the server."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def become(start: Start) -> None:
    """Run Ray's program for workers, or a script, in a child of the server."""
    import random

    import numpy as np

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    random.seed()
    np.random.seed()
    os.environ.clear()
    os.environ.update(start.environment)
    folders = start.environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[1:1] = [folder for folder in folders if folder and folder not in sys.path]
    if "RLINF_TEST_MARK" in start.environment:  # which a child of the server was not started with
        Path(start.environment["RAY_TMPDIR"], f"forked_{os.getpid()}").touch()
    os.chdir(start.folder)
    if start.arguments[:1] == ["--run"]:
        outputs = (io.FileIO(number, "w", closefd=False) for number in STREAMS[1:])
        sys.stdout, sys.stderr = (io.TextIOWrapper(output, write_through=True) for output in outputs)  # type: ignore[arg-type]
        run_script(start.arguments[1:])
        return
    if "ray" in sys.modules:
        from ray._raylet import Config

        Config.initialize("")  # reads the other variables anew
    program = worker_program()
    sys.argv = [program, *start.arguments]
    sys.path[0] = os.path.dirname(program)
    runpy.run_path(program, run_name="__main__")


def run_script(arguments: list[str]) -> None:
    """Run a script, whose path is the first argument, as if it had been started by itself."""
    fork_workers()
    sys.argv = arguments
    sys.path[0] = os.path.dirname(sys.argv[0])
    runpy.run_path(sys.argv[0], run_name="__main__")


def is_forked(start: Start, path: str, files: Sequence[int] = STREAMS) -> bool:
    """Ask a server for a process, and then the one that it names; return whether there is one.

    Args:
        start: What it is started with.
        path: The server's socket.
        files: Its standard input and outputs; of a script, also where the server tells its number and its end.
    """
    answer = b""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        socket.send_fds(server, [json.dumps(asdict(start)).encode() + b"\n"], files)
        answer = server.recv(1 << 10)
    return is_forked(start, answer.decode()) if answer.startswith(b"/") else answer == b"y"


def worker_program() -> str:
    """Return the path of Ray's program for workers, without importing Ray."""
    package = importlib.util.find_spec("ray")
    assert package is not None
    assert package.origin is not None
    return str(Path(package.origin).parent / "_private" / "workers" / "default_worker.py")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        sys.path[0] = str(Path(__file__).parents[1])
        request = serve(listen(os.environ[SOCKET]), sys.argv[2:])
        if request is not None:
            become(request)
    elif sys.argv[1:2] == ["--run"]:
        run_script(sys.argv[2:])
    elif not is_forked(Start.here(), os.environ[SOCKET]):
        program = worker_program()
        os.execv(sys.executable, [sys.executable, program, *sys.argv[1:]])

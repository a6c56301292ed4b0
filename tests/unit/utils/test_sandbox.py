"""What programs can do in the sandbox, and what is left of them afterwards."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import textwrap
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rlinf.errors import RewardError
from rlinf.utils import sandbox as sandbox_module
from rlinf.utils.sandbox import Sandbox, SandboxLimits
from tests.unit.utils.hostile_programs import ATTEMPTS, GREEDY, LINGERING, filled

PLACES = ["/", "/tmp", "/usr", "/dev/shm"]


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    try:
        sandbox = Sandbox(SandboxLimits(timeout_seconds=60.0))
    except RewardError as error:
        if not re.search("new namespaces|mount of", str(error)):  # a fault of the sandbox, not of the machine
            raise
        pytest.skip(f"programs cannot be isolated on this machine: {error}")
    yield sandbox
    sandbox.close()


@pytest.fixture(scope="module")
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as threads:
        yield threads


def programs_left() -> dict[Any, Any]:
    """Return the processes that run a sandbox's program or launcher, with their command lines."""
    left = {}
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit():
                command = (folder / "cmdline").read_bytes()
                if command.endswith(b"utf8\0/tmp/main.py\0") or b"rlinf-sandbox-" in command:
                    left[folder.name] = command
    return left


def assert_nothing_left() -> None:
    """The kernel needs a moment to end a namespace; what others start meanwhile does not count."""
    deadline = time.monotonic() + 30
    left = programs_left()
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        left = {pid: command for pid, command in programs_left().items() if pid in left}
    assert left == {}


def test_a_program_reads_prints_and_writes_in_its_own_folder(sandbox: Sandbox) -> None:
    program = "print(input()[::-1])\nopen('own', 'w').write('x')\nexit(3)"
    outcome = sandbox.run({"main.py": program, "other.py": ""}, "olleh\n")
    assert outcome.output == b"hello\n"
    assert outcome.exit_code == 3
    assert not Path("/tmp/own").exists()


def test_no_attempt_to_get_out_succeeds(sandbox: Sandbox, threads: ThreadPoolExecutor, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    before = {place: set(os.listdir(place)) for place in PLACES}
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        inserted = {"mark": str(mark), "port": server.getsockname()[1], "pid": os.getpid()}
        outcomes = threads.map(
            lambda program: sandbox.run({"main.py": filled(program, **inserted)}), list(ATTEMPTS.values())
        )
        told = {name: outcome.output for name, outcome in zip(ATTEMPTS, outcomes, strict=True)}
        assert {name: output for name, output in told.items() if output} == {}
        with pytest.raises(BlockingIOError):
            server.accept()
    assert not mark.exists()
    assert "rlinf-mark" not in {name for place in PLACES for name in set(os.listdir(place)) - before[place]}
    assert_nothing_left()


def test_what_would_be_an_escape_is_noticed() -> None:
    """The same attempts without isolation: enough of them succeed to show that they are real."""
    sandbox = Sandbox(SandboxLimits(timeout_seconds=60.0), isolate=False)
    for name in ("reads users", "kills the tests"):
        program = filled(ATTEMPTS[name], mark="/x", port=1, pid=os.getpid())
        assert sandbox.run({"main.py": program}).output == b"ESCAPED\n", name
    sandbox.close()


@pytest.mark.usefixtures("sandbox")
def test_greedy_programs_are_ended(threads: ThreadPoolExecutor) -> None:
    brief = Sandbox(SandboxLimits(timeout_seconds=2.0, wall_seconds=4.0, memory_bytes=256 << 20))
    outcomes = list(threads.map(lambda program: brief.run({"main.py": program}), GREEDY.values()))
    brief.close()
    assert [name for name, outcome in zip(GREEDY, outcomes, strict=True) if outcome.exit_code == 0] == []
    assert max(len(outcome.output) for outcome in outcomes) <= 1 << 20
    causes = dict(zip(GREEDY, (outcome.killed_for for outcome in outcomes), strict=True))
    assert {name: causes[name] for name in ("spins", "sleeps", "floods the output", "crashes")} == {
        "spins": "timeout",
        "sleeps": "timeout",
        "floods the output": "output",
        "crashes": None,
    }
    assert_nothing_left()


@pytest.mark.parametrize("isolate", [True, False])
def test_what_a_program_leaves_behind_ends_with_it(sandbox: Sandbox, isolate: bool) -> None:
    own = sandbox if isolate else Sandbox(sandbox.limits, isolate=False)
    for name, program in LINGERING.items():
        assert own.run({"main.py": program}).exit_code == 0, name
    assert_nothing_left()
    if not isolate:
        own.close()


def test_programs_do_not_meet(sandbox: Sandbox, threads: ThreadPoolExecutor) -> None:
    """Each has processes, files and limits of its own, although all run at once."""
    program = (
        "import os, time\n"
        "if os.fork() == 0: time.sleep(0.5); os._exit(0)\n"
        "print(sorted(os.listdir('.')), len([p for p in os.listdir('/proc') if p.isdigit()]))\n"
        "open(str(time.time_ns()), 'w')\n"
    )
    outcomes = list(threads.map(lambda _: sandbox.run({"main.py": program}), range(4)))
    assert {outcome.output for outcome in outcomes} == {b"['main.py'] 3\n"}


@pytest.mark.parametrize("isolate", [True, False])
def test_processes_share_one_bound_of_memory(request: pytest.FixtureRequest, isolate: bool) -> None:
    """Each stays far below it; pages that they share count once."""
    if isolate:
        request.getfixturevalue("sandbox")
    many = """
        import os, time
        for _ in range(10):
            if os.fork() == 0:
                held = bytearray(48 << 20)
                time.sleep(600)
        time.sleep(600)
    """
    shared = """
        import os, time
        held = bytearray(96 << 20)
        for _ in range(4):
            if os.fork() == 0:
                time.sleep(1)
                os._exit(0)
        time.sleep(1.5)
    """
    own = Sandbox(SandboxLimits(timeout_seconds=60.0, wall_seconds=60.0, memory_bytes=256 << 20), isolate=isolate)
    outcome = own.run({"main.py": textwrap.dedent(many)})
    assert (outcome.exit_code, outcome.killed_for) == (None, "memory")
    assert own.run({"main.py": textwrap.dedent(shared)}).exit_code == 0
    own.close()
    assert_nothing_left()


@pytest.mark.parametrize("isolate", [True, False])
def test_no_memory_can_be_had_that_no_process_is_charged_for(request: pytest.FixtureRequest, isolate: bool) -> None:
    if isolate:
        request.getfixturevalue("sandbox")
    own = Sandbox(SandboxLimits(timeout_seconds=60.0), isolate=isolate)
    actions = {
        "memfd": "os.memfd_create('x')",
        "shared anonymous mapping": "mmap.mmap(-1, 1 << 20)",
        "System V segment": "assert libc.shmget(0, 1 << 20, 0o1600) < 0; raise PermissionError",
        "System V queue": "assert libc.msgget(0, 0o1600) < 0; raise PermissionError",
    }
    allowed = "mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)"
    program = "import ctypes, mmap, os\nlibc = ctypes.CDLL(None)\n" + allowed
    for name, action in actions.items():
        program += f"\ntry: {action}; print({name!r})\nexcept PermissionError: pass"
    outcome = own.run({"main.py": program})
    assert (outcome.exit_code, outcome.output) == (0, b"")
    own.close()


def test_the_number_of_processes_is_bounded_where_the_kernel_does_not(threads: ThreadPoolExecutor) -> None:
    """A root's processes have no RLIMIT_NPROC without a user of their own."""
    own = Sandbox(SandboxLimits(timeout_seconds=60.0, wall_seconds=30.0, processes=6), isolate=False)
    program = "import os, time\nfor _ in range(20):\n    if os.fork() == 0: time.sleep(600)\ntime.sleep(600)"
    outcome = own.run({"main.py": program})
    assert outcome.exit_code != 0
    assert outcome.killed_for == ("processes" if os.geteuid() == 0 else None)
    own.close()
    assert_nothing_left()


def test_processor_time_counts_and_waiting_for_a_processor_does_not(sandbox: Sandbox) -> None:
    """All processes of a program share it; a sleep takes none of it."""
    own = Sandbox(SandboxLimits(timeout_seconds=0.6, wall_seconds=60.0))
    spin = "import os, time\nfor _ in range(8):\n    if os.fork() == 0:\n        while True: pass\ntime.sleep(600)"
    assert own.run({"main.py": spin}).killed_for == "timeout"
    assert own.run({"main.py": "import time\ntime.sleep(1.5)"}).exit_code == 0
    own.close()


def test_starting_the_interpreter_takes_none_of_the_time(sandbox: Sandbox) -> None:
    own = Sandbox(SandboxLimits(timeout_seconds=0.001, wall_seconds=60.0))
    assert [own.run({"main.py": "print(1)"}).output for _ in range(3)] == [b"1\n"] * 3
    own.close()


PATCHED_LAUNCHER = """
import importlib.util, json, sys, time
spec = importlib.util.spec_from_file_location("launcher", {launcher!r})
launcher = importlib.util.module_from_spec(spec)
spec.loader.exec_module(launcher)
{patch}
launcher.main(json.loads(sys.argv[1]))
"""


@pytest.fixture
def patch_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that has the launcher run after some lines of Python."""

    def patch(text: str) -> None:
        file = tmp_path / "patched_sandbox_launcher.py"
        file.write_text(PATCHED_LAUNCHER.format(launcher=str(sandbox_module._LAUNCHER), patch=textwrap.dedent(text)))
        monkeypatch.setattr(sandbox_module, "_LAUNCHER", file)

    return patch


def test_a_program_that_ends_just_before_its_time_is_over_has_ended(
    sandbox: Sandbox, patch_launcher: Callable[..., None]
) -> None:
    """The supervisor's time runs on while it reports; that is no fault of the sandbox."""
    own = Sandbox(SandboxLimits(timeout_seconds=1.0, wall_seconds=1.0))
    patch_launcher(
        """
        report = launcher.report
        launcher.report = lambda *told: (time.sleep(1.5), report(*told))
        """
    )
    outcome = own.run({"main.py": "exit(3)"})
    assert (outcome.exit_code, outcome.killed_for) == (3, None)
    own.close()


def test_a_program_that_ended_has_ended_however_late_that_is_noticed(
    sandbox: Sandbox, patch_launcher: Callable[..., None]
) -> None:
    """The supervisor comes to look when the time is over, and the program has long ended."""
    patch_launcher(
        """
        watch = launcher.watch
        launcher.watch = lambda program, plan, proc: (
            time.sleep(1.5), watch(program, plan | {"wall_seconds": 0.0}, proc)
        )[1]
        """
    )
    Sandbox(SandboxLimits(timeout_seconds=60.0)).close()


def test_limits_hold_where_a_container_forbids_to_mount_proc(
    sandbox: Sandbox, patch_launcher: Callable[..., None]
) -> None:
    patch_launcher(
        """
        mount = launcher.mount
        def forbidding(source, target, kind, *others):
            if kind == "proc":
                raise PermissionError("proc")
            mount(source, target, kind, *others)
        launcher.mount = forbidding
        """
    )
    own = Sandbox(SandboxLimits(timeout_seconds=0.6, wall_seconds=60.0, memory_bytes=256 << 20))
    assert own.run({"main.py": "import os\nprint(os.path.exists('/proc/self'))"}).output == b"False\n"
    assert own.run({"main.py": "import os\nos.fork()\nwhile True: pass"}).killed_for == "timeout"
    many = "import os, time\nfor _ in range(8):\n    if os.fork() == 0: held = bytearray(48 << 20); time.sleep(60)"
    assert own.run({"main.py": f"{many}\ntime.sleep(60)"}).killed_for == "memory"
    own.close()


KERNEL_TIME = """
import os
for _ in range(3):
    if os.fork() == 0:
        file = os.open("/dev/urandom", os.O_RDONLY)
        while True: os.read(file, 1 << 20)
for _ in range(3): os.wait()
"""


def test_time_in_the_kernel_counts(sandbox: Sandbox) -> None:
    """Without it, each of the processes would end by its own limit, and the program well."""
    own = Sandbox(SandboxLimits(timeout_seconds=1.0, wall_seconds=60.0))
    assert own.run({"main.py": KERNEL_TIME}).killed_for == "timeout"
    own.close()


@pytest.mark.parametrize("isolate", [True, False])
def test_too_much_output_ends_everything_that_the_program_started(
    request: pytest.FixtureRequest, isolate: bool
) -> None:
    if isolate:
        request.getfixturevalue("sandbox")
    own = Sandbox(SandboxLimits(timeout_seconds=60.0, output_bytes=1000), isolate=isolate)
    child = "if os.fork() == 0:\n    os.setsid()\n    time.sleep(600)"
    program = f"import os, time\n{child}\nprint('x' * 5000, flush=True)\ntime.sleep(600)"
    outcome = own.run({"main.py": program})
    assert (outcome.exit_code, outcome.killed_for, len(outcome.output)) == (None, "output", 1000)
    assert_nothing_left()
    own.close()


def test_signals_to_the_supervisor_are_the_programs_own_affair(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a user namespace a program is the same user as its supervisor, and may send it signals."""
    plan = Sandbox._plan
    monkeypatch.setattr(Sandbox, "_plan", lambda *received: plan(*received) | {"user_namespace": True})
    try:
        own = Sandbox(SandboxLimits(timeout_seconds=60.0))
    except RewardError as error:
        pytest.skip(f"programs cannot be isolated in user namespaces on this machine: {error}")
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGALRM, signal.SIGCHLD):
        outcome = own.run({"main.py": f"import os, time\nos.kill(1, {number})\ntime.sleep(0.3)\nexit(4)"})
        assert (outcome.exit_code, outcome.killed_for) == (4, None), number
    outcome = own.run({"main.py": f"import os, time\nos.kill(1, {signal.SIGTERM})\ntime.sleep(600)"})
    assert (outcome.exit_code, outcome.killed_for) == (None, None)
    own.close()


def test_a_strict_umask_changes_nothing(sandbox: Sandbox) -> None:
    before = os.umask(0o077)
    try:
        own = Sandbox(SandboxLimits(timeout_seconds=60.0))
    finally:
        os.umask(before)
    own.close()


@pytest.mark.parametrize("isolate", [True, False])
def test_an_interpreter_that_does_not_start_is_an_error_when_the_sandbox_is_made(
    request: pytest.FixtureRequest, isolate: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message has what it wrote, as the loader does that misses a library; no folder stays."""
    if isolate:
        request.getfixturevalue("sandbox")
    plan = Sandbox._plan

    def broken(self: object, work: Path, cpu_seconds: float) -> dict[str, Any]:
        command = ["/bin/sh", "-c", "echo 'libx.so: cannot open' >&2; exit 127"]
        return plan(self, work, cpu_seconds) | {"command": command}

    monkeypatch.setattr(Sandbox, "_plan", broken)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(RewardError, match=r"exit code 127.*libx\.so: cannot open.*LD_LIBRARY_PATH"):
        Sandbox(SandboxLimits(), isolate=isolate)
    assert list(tmp_path.iterdir()) == []


def test_a_limit_that_no_program_can_keep_is_an_error_when_the_sandbox_is_made() -> None:
    with pytest.raises(RewardError, match="memory"):
        Sandbox(SandboxLimits(memory_bytes=1 << 20), isolate=False)


def test_no_folder_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    sandbox = Sandbox(SandboxLimits(), isolate=False)
    sandbox.run({"main.py": "open('left', 'w')"})
    sandbox.close()
    assert list(tmp_path.iterdir()) == []

"""A guest is another interpreter: it shares no package, says what is wrong, and ends with its host."""

import ast
import os
import platform
import signal
import subprocess
import sys
import textwrap
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pool_processes import wait_until_gone

from rlinf.envs import guest_process, guests
from rlinf.envs.guest_process import GuestProcess, GuestSetup, made_by_guest
from rlinf.envs.guest_remote import installed_versions
from rlinf.envs.process_pool import ProcessPool
from rlinf.envs.raw_chunk import ChunkRequest, EpisodeRule
from rlinf.envs.single_env import SingleEnvSpec
from rlinf.errors import EnvironmentFailure

HERE = str(Path(__file__).parent)


def pool(
    num_processes: int = 1,
    *,
    setup: dict[str, Any] | None = None,
    limits: dict[str, float] | None = None,
    **init_params: Any,
) -> ProcessPool:
    spec = SingleEnvSpec(
        env_type="guest",
        factory=made_by_guest,
        kwargs={"init_params": init_params, "episode": {"group_size": 1, "max_episode_steps": 9}},
        num_envs=3,
    )
    given = {"python": sys.executable, "adapter": "guest_simulator", "env_vars": {"PYTHONPATH": HERE}, **(setup or {})}
    start = partial(GuestProcess, setup=GuestSetup(**given))
    return ProcessPool(spec, num_processes, process=start, **(limits or {}))


def play(guests: ProcessPool, num_steps: int = 2) -> Any:
    guests.reset(np.arange(3), np.array([0, 1, 2]))
    request = ChunkRequest(
        actions=np.zeros((3, num_steps, 1), np.float32),
        active=np.ones(3, np.bool_),
        steps=np.zeros(3, np.int64),
        next_seeds=None,
        rule=EpisodeRule(max_episode_steps=99, ignore_terminations=False),
    )
    guests.send_chunk(request)
    return guests.recv_chunk()


def interpreter(folder: Path, body: str) -> str:
    """Return a program that a guest's interpreter is replaced with; it gets the arguments of one."""
    file = folder / "python"
    file.write_text(f"#!{sys.executable}\nimport os, sys\n{textwrap.dedent(body)}")
    file.chmod(0o755)
    return str(file)


@pytest.mark.parametrize("num_processes", [1, 2])
def test_rows_of_all_guests_come_together(num_processes: int) -> None:
    guests = pool(num_processes)
    chunk = play(guests, 4)
    assert chunk.rewards.tolist() == [[1, 2, 3, 0], [1, 2, 3, 4], [1, 2, 3, 4]]
    assert chunk.final_ids.tolist() == [0, 1]
    assert chunk.obs["states"].tolist() == [[0, 3], [1, 4], [2, 4]]
    assert chunk.obs["task_descriptions"] == ["count from 0", "count from 1", "count from 2"]
    assert guests.spaces.action.shape == (1,)
    guests.close()


def test_a_guest_sees_none_of_the_packages_and_paths_of_its_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path / "seen"
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setenv("VIRTUAL_ENV", "/host")
    code = f"""
        keys = [os.environ.get(name) for name in ("PYTHONPATH", "VIRTUAL_ENV", "MUJOCO_GL")]
        open({str(seen)!r}, "w").write(repr(keys))
        os.execv({sys.executable!r}, [{sys.executable!r}, *sys.argv[1:]])
    """
    guests = pool(setup={"python": interpreter(tmp_path, code), "env_vars": {"PYTHONPATH": HERE, "MUJOCO_GL": "egl"}})
    guests.close()
    assert seen.read_text() == repr([HERE, None, "egl"])


def test_the_guests_folder_is_a_package_of_its_own_name() -> None:
    code = (
        "import runpy, sys; sys.argv = ['x']; sys.path.insert(0, FOLDER);"
        "load = runpy.run_path(FOLDER + '/__main__.py')['load_package'];"
        "from pathlib import Path; load(Path(FOLDER)); import rlinf_guest.guest_server as serve;"
        "print(serve.load_adapter('published_rlinf').__name__, 'rlinf' in sys.modules, 'gymnasium' in sys.modules)"
    )
    folder = repr(str(Path(__file__).parents[3] / "rlinf" / "envs" / "guests"))
    found = subprocess.run(
        [sys.executable, "-I", "-c", code.replace("FOLDER", folder)], capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == ["rlinf_guest.published_rlinf", "False", "False"]


def test_guests_may_be_older_than_their_host() -> None:
    folder = Path(guests.__file__).parent
    for file in folder.glob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"), feature_version=(3, 8))
        evaluated = [node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign) and node.value]
        generic = [
            ast.unparse(part)
            for node in evaluated
            for part in ast.walk(node.value or node)
            if isinstance(part, ast.Subscript) and ast.unparse(part.value) in {"dict", "list", "tuple", "np.ndarray"}
        ]
        assert not generic, f"{file.name}: Python 3.8 cannot evaluate {generic}"


def test_errors_of_a_simulator_come_with_their_traceback() -> None:
    with pytest.raises(EnvironmentFailure, match=r"the joint exploded(?s:.*)guest_simulator.py"):
        play(pool(fail_at=2))
    with pytest.raises(EnvironmentFailure, match="unexpected keyword argument"):
        pool(colour="red")


def test_a_guest_that_dies_fails_the_call_at_once() -> None:
    with pytest.raises(EnvironmentFailure, match=r"guest \d+ .*exit code 3"):
        play(pool(crash_at=2))


def test_a_guest_ends_with_its_host() -> None:
    guests = pool()
    pids = [child.process.pid for child in guests._children]
    guests.close()
    for pid in pids:
        wait_until_gone(pid)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("sys.exit(4)", "exit code 4"),
        ("import time; time.sleep(60)", r"said nothing within 1 s.*startup_timeout_seconds"),
        (
            "from multiprocessing.connection import Connection\n"
            "sys.path.insert(0, sys.argv[1]); from guest_wire import encode\n"
            "Connection(int(sys.argv[3])).send_bytes(encode(['hello', {'protocol': 7}]))\n"
            "import time; time.sleep(60)",
            "speaks protocol 7; this host speaks 3",
        ),
        (
            "from multiprocessing.connection import Connection\n"
            "Connection(int(sys.argv[3])).send_bytes(b'pickled')\nimport time; time.sleep(60)",
            "sent no greeting",
        ),
    ],
)
def test_what_is_no_guest_is_refused(tmp_path: Path, body: str, message: str) -> None:
    seconds = 1 if body.startswith("import time") else 60
    with pytest.raises(EnvironmentFailure, match=message):
        pool(setup={"python": interpreter(tmp_path, body), "startup_timeout_seconds": seconds})


IMPOSTOR = """
    import struct, time
    from multiprocessing.connection import Connection
    sys.path.insert(0, sys.argv[1])
    from guest_wire import MAGIC, PROTOCOL, encode
    connection = Connection(int(sys.argv[3]))
    connection.send_bytes(encode(['hello', {'protocol': PROTOCOL}]))
    connection.recv_bytes()
"""


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("os.write(connection.fileno(), struct.pack('!iQ', -1, 2**62))", "more than 2147483647 bytes"),
        (
            "connection.send_bytes(b'RLS1' + struct.pack('<I', 2) + b'[]' + struct.pack('<Q', 2**40))",
            "no reply to 'build': message has 1099511627776 bytes in shared memory, which has 2147483647",
        ),
        ("os.write(connection.fileno(), struct.pack('!i', 100) + b'half')", "sent nothing for 1 s in the midst"),
        ("connection.send(print)", r"guest \d+ .* sent what is no reply to 'build': message begins with b'\\x80"),
        ("connection.send_bytes(MAGIC + struct.pack('<I', 10**6) + b'[' * 10**6)", "not JSON, or too deep"),
        ("connection.send_bytes(encode(['ok', {'action_low': 3}]))", "no reply to 'build': action_low"),
        ("connection.send_bytes(encode(['error', ['ConformanceError', 'half', '']]))", "ConformanceError: half"),
    ],
)
def test_a_reply_that_is_none_closes_the_pool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, message: str
) -> None:
    monkeypatch.setattr(guest_process, "_STALL_SECONDS", 1)
    pid = tmp_path / "pid"
    code = f"{textwrap.dedent(IMPOSTOR)}\nopen({str(pid)!r}, 'w').write(str(os.getpid()))\n{body}\ntime.sleep(60)"
    with pytest.raises(EnvironmentFailure, match=message):
        pool(setup={"python": interpreter(tmp_path, code)})
    wait_until_gone(int(pid.read_text()))


def test_a_build_that_takes_too_long_is_ended_and_its_key_named() -> None:
    with pytest.raises(EnvironmentFailure, match=r"No answer within 1 s.*guest_simulator of .*build_timeout_seconds"):
        pool(build_seconds=30, limits={"build_timeout_seconds": 1})


def test_a_guest_that_comes_further_may_take_its_time(tmp_path: Path) -> None:
    body = f"""
        file = {str(Path(guests.__file__).parent)!r}
        sys.argv[1] = {str(tmp_path / "guests")!r}
        import shutil; shutil.copytree(file, sys.argv[1], dirs_exist_ok=True)
        wire = os.path.join(sys.argv[1], "guest_wire.py")
        text = open(wire).read().replace("HEARTBEAT_SECONDS = 15.0", "HEARTBEAT_SECONDS = 0.2")
        open(wire, "w").write(text)
        os.execv({sys.executable!r}, [{sys.executable!r}, *sys.argv[1:]])
    """
    quick = interpreter(tmp_path, body)
    slow = pool(setup={"python": quick}, step_seconds=0.25)
    slow._timeout_seconds = 1.5
    assert play(slow, 4).executed.sum() == 11
    slow.close()
    stuck = pool(setup={"python": quick}, step_seconds=30)
    stuck._timeout_seconds = 1.5
    with pytest.raises(EnvironmentFailure, match=r"it is alive, for 2 s in 'chunk', .* the last of them does not end"):
        play(stuck)


def test_a_guest_that_is_stopped_is_told_from_one_that_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest_process, "HEARTBEAT_SECONDS", 0.1)
    stopped = pool()
    stopped._timeout_seconds = 1.0
    os.kill(stopped._children[0].process.pid, signal.SIGSTOP)
    with pytest.raises(EnvironmentFailure, match=r"no heartbeat for 1 s, so it is stopped"):
        play(stopped)


def test_a_simulator_is_closed_with_its_pool(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    guests = pool(closed_file=str(closed))
    guests.close()
    assert closed.exists()


def test_large_images_come_through_shared_memory_and_small_ones_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = list[int]()
    receive = GuestProcess.receive

    def noted(guest: GuestProcess) -> bytes:
        lengths.append(len(message := receive(guest)))
        return message

    monkeypatch.setattr(GuestProcess, "receive", noted)
    for size, small in ((64, False), (400, True)):
        guests = pool(image_size=size)
        first, second = play(guests, 1), play(guests, 2)
        for chunk, time in ((first, 1), (second, 2)):
            assert chunk.obs["main_images"].shape == (3, size, size, 3)
            assert [set(image.flat) for image in chunk.obs["main_images"]] == [{time}, {time + 1}, {time + 2}]
        assert (lengths[-1] < 10_000) == small
        guests.close()


def test_a_guest_cannot_make_the_shared_file_shorter_or_longer(tmp_path: Path) -> None:
    refused = tmp_path / "refused"
    code = f"""
        for size in (0, 2**32):
            try:
                os.ftruncate(int(sys.argv[5]), size)
            except PermissionError:
                open({str(refused)!r}, "a").write("x")
        os.execv({sys.executable!r}, [{sys.executable!r}, *sys.argv[1:]])
    """
    guests = pool(setup={"python": interpreter(tmp_path, code)}, image_size=400)
    assert play(guests, 1).obs["main_images"].shape == (3, 400, 400, 3)
    guests.close()
    assert refused.read_text() == "xx"


def test_a_guest_says_which_versions_it_has() -> None:
    setup = GuestSetup(python=sys.executable, adapter="guest_simulator", env_vars={"PYTHONPATH": HERE})
    assert installed_versions(setup, "guest") == {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "no-such-simulator": "",
    }


def test_an_interpreter_that_is_not_there_is_named() -> None:
    with pytest.raises(EnvironmentFailure, match="/no/such/python"):
        pool(setup={"python": "/no/such/python"})

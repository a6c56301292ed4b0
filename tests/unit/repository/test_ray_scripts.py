"""What the scripts for several machines refuse and explain, without starting Ray."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[3] / "ray_utils"


@pytest.fixture
def call(tmp_path: Path) -> Callable[..., tuple[int, str, str]]:
    """Run a script as a user without a token, with a ``ray`` that only says how it was called."""
    programs = tmp_path / "venv/bin"
    programs.mkdir(parents=True)
    ray = programs / "ray"
    ray.write_text(f'#!/bin/sh\necho "$@" rank $RLINF_NODE_RANK mode $RAY_AUTH_MODE >> {tmp_path}/calls\nexit 9\n')
    ray.chmod(0o755)
    (programs / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (programs / "python").chmod(0o755)

    def run(script: str, *arguments: str, **variables: str) -> tuple[int, str, str]:
        kept = {name: os.environ[name] for name in ("PATH",)}
        environment = {**kept, "HOME": str(tmp_path), "RLINF_VENV": str(tmp_path / "venv"), **variables}
        done = subprocess.run(
            ["bash", str(SCRIPTS / script), *arguments], env=environment, capture_output=True, text=True, check=False
        )
        calls = tmp_path / "calls"
        return done.returncode, done.stdout + done.stderr, calls.read_text() if calls.exists() else ""

    return run


def give_token(tmp_path: Path) -> None:
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray/auth_token").write_text("the token")
    (tmp_path / ".ray/auth_token").chmod(0o644)


@pytest.mark.parametrize("script", ["start_ray.sh", "check_ray.sh"])
def test_help(call: Callable[..., tuple[int, str, str]], script: str) -> None:
    code, said, _ = call(script, "--help")
    assert code == 0
    assert said.startswith("Usage: bash ray_utils/")


@pytest.mark.parametrize(
    ("arguments", "variables", "code", "text"),
    [
        (["head"], {}, 1, "RLINF_NODE_RANK is not set"),
        (["head"], {"RLINF_NODE_RANK": "first"}, 1, "must be a whole number"),
        (["head", "--port", "x"], {"RLINF_NODE_RANK": "0"}, 2, "--port must be a whole number, got 'x'"),
        (["worker"], {"RLINF_NODE_RANK": "1"}, 2, "a worker needs the head's address"),
        (["head", "worker"], {"RLINF_NODE_RANK": "0"}, 2, "one role at a time"),
        (["head", "--num-cpus", "1"], {"RLINF_NODE_RANK": "0"}, 2, "follow after --"),
        (["head"], {"RLINF_NODE_RANK": "0", "RAY_AUTH_MODE": "disabled"}, 1, "Unset it"),
        (["worker", "10.0.0.1"], {"RLINF_NODE_RANK": "1"}, 1, "scp 10.0.0.1:.ray/auth_token"),
        ([], {"RANK": "1", "MASTER_ADDR": "10.0.0.1"}, 1, "scp 10.0.0.1:.ray/auth_token"),
        (["head"], {"RLINF_NODE_RANK": "0", "RLINF_COMM_NET_DEVICES": "eth77"}, 1, "it has"),
    ],
)
def test_what_cannot_work_is_refused_before_ray_starts(
    call: Callable[..., tuple[int, str, str]], arguments: list[str], variables: dict[str, str], code: int, text: str
) -> None:
    returned, said, calls = call("start_ray.sh", *arguments, **variables)
    assert (returned, calls) == (code, "")
    assert text in said
    assert "Traceback" not in said


def test_the_rank_is_there_before_ray_and_the_token_stays_private(
    call: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    give_token(tmp_path)
    with socket.socket() as free:
        free.bind(("", 0))
        port = str(free.getsockname()[1])
    arguments = ("--rank", "00", "--port", port, "--", "--num-gpus", "1")
    code, said, calls = call("start_ray.sh", *arguments, RLINF_COMM_NET_DEVICES="lo")
    assert code == 1
    assert "ray start failed" in said
    assert calls == (
        f"start --num-gpus 1 --disable-usage-stats --node-ip-address 127.0.0.1 --head --port {port} rank 0 mode token\n"
    )
    assert (tmp_path / ".ray/auth_token").stat().st_mode & 0o777 == 0o600
    assert "the token" not in said


def test_a_head_that_does_not_answer_is_named(call: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    give_token(tmp_path)
    code, said, calls = call("start_ray.sh", "worker", "127.0.0.1:1", "--rank", "1", "--timeout", "0")
    assert (code, calls) == (1, "")
    assert "Nothing answers at 127.0.0.1:1 within 0 s" in said


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_finds_nothing() -> None:
    done = subprocess.run(["shellcheck", *SCRIPTS.glob("*.sh")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout

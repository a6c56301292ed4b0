"""Ray starts in the temporary folder, or in a shorter one."""

from typing import Any

import pytest

from rlinf.errors import ClusterError
from rlinf.scheduler import attach
from rlinf.scheduler.attach import attach_ray


@pytest.fixture
def start_of_ray(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note with which folder Ray would be started; it refuses one that is too long, as Ray does."""
    folders = []

    def init(*, _temp_dir: str, **_: Any) -> None:
        folders.append(_temp_dir)
        if len(_temp_dir) > 50:
            raise OSError("AF_UNIX path length cannot exceed 107 bytes")

    for name in ("RAY_ADDRESS", "RAY_TMPDIR", "TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr(attach, "find_own_ray", lambda: None)
    monkeypatch.setattr("ray.init", init)
    return folders


@pytest.mark.parametrize(
    ("temporary", "folder"), [("", "/tmp/ray"), ("/var/tmp", "/var/tmp/ray"), (f"/var/{'x' * 34}", "/tmp/ray")]
)
def test_ray_starts_in_the_temporary_folder_or_a_shorter_one(
    start_of_ray: Any, monkeypatch: pytest.MonkeyPatch, temporary: str, folder: str
) -> None:
    monkeypatch.setenv("TMPDIR", temporary)
    assert attach_ray("test").owned
    assert start_of_ray == [folder]


def test_a_folder_for_ray_that_is_too_long_is_a_typed_error(start_of_ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TMPDIR", f"/var/{'x' * 60}")
    with pytest.raises(ClusterError, match="Cannot start Ray: AF_UNIX path length"):
        attach_ray("test")


def test_local_starts_a_ray_even_where_one_runs(start_of_ray: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attach, "find_own_ray", lambda: "127.0.0.1:6379")
    monkeypatch.setenv("RAY_ADDRESS", "local")
    assert attach_ray("test").owned
    assert len(start_of_ray) == 1

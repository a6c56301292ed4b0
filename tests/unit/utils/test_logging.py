"""One tree of loggers, whose lines name the process they come from."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlinf.utils import logging as rlinf_logging
from rlinf.utils.logging import configure_worker_logging, get_logger


@pytest.fixture(autouse=True)
def handlers_stay_as_they_were() -> Iterator[None]:
    root = get_logger()
    before, name = list(root.handlers), rlinf_logging._origin.name_of_process
    yield
    for handler in set(root.handlers) - set(before):
        root.removeHandler(handler)
        handler.close()
    rlinf_logging._origin.name_of_process = name


def test_names_are_below_one_root_which_keeps_its_lines_to_itself() -> None:
    assert get_logger() is get_logger("rlinf") is logging.getLogger("rlinf")
    assert get_logger("runner") is get_logger("rlinf.runner") is logging.getLogger("rlinf.runner")
    assert not get_logger().propagate


def test_lines_name_the_logger_or_else_the_worker(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    get_logger("runner").warning("one")
    configure_worker_logging("EnvGroup:3", tmp_path / "new" / "env.log")
    get_logger("runner").warning("two")
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith("WARNING [rlinf.runner] one")
    assert second.endswith("WARNING [EnvGroup:3] two")
    (line,) = (tmp_path / "new" / "env.log").read_text(encoding="utf-8").splitlines()
    assert line.endswith("WARNING [EnvGroup:3] two")

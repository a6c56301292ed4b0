"""A worker that is killed while children that it has forked live on, with everything that it had open."""

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
from chaos_workers import Chaotic

from tests.chaos.conftest import PROCESS_SECONDS, assert_died, assert_raises_death, kill

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def children() -> Iterator[list[psutil.Process]]:
    """The processes that are left to this test to end."""
    found = []
    yield found
    for pid in found:
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(pid).kill()


def test_its_death_is_noticed_and_it_can_be_launched_again(
    launch: Callable[..., Any], children: Any, chance: random.Random
) -> None:
    left, right = launch(Chaotic.create_group(), name="left", first=2), launch(Chaotic.create_group(), name="right")
    children += left.fork(300).wait()
    receiving = right.attempt("receive", "left", 0)
    sleeping = left.sleep(300)
    name = kill(left, after=chance.uniform(0, 0.3))
    assert_raises_death(sleeping, name)
    assert_died(receiving.wait(timeout=PROCESS_SECONDS)[0], name)
    assert psutil.Process(children[0]).is_running()
    left.relaunch()
    launch.note(left)
    receiving = right.attempt("receive", "left", 0)
    left.flood("right", 0, 1).wait(timeout=PROCESS_SECONDS)
    assert receiving.wait(timeout=PROCESS_SECONDS)[0][0] == "returned"

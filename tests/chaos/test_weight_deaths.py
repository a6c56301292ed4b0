"""Senders and receivers of weights are killed at any message: the others keep what they have, and go on."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from weight_workers import NUM_LAYERS, NUM_OWNERS, OWNERS, TAKERS, Owner, Taker

from rlinf.errors import WorkerDiedError

pytestmark = pytest.mark.timeout(180)
# Announcement and buckets of an owner; a patch is proposed before it is announced.
NUM_MESSAGES = {"bucket": 1 + NUM_LAYERS // NUM_OWNERS, "patch": 2 + NUM_LAYERS // NUM_OWNERS}


class Run:
    """Two owners and two takers."""

    def __init__(self, launch: Callable[..., Any], kind: str) -> None:
        self.owners = launch(Owner.create_group(kind, 2), name=OWNERS, ranks=NUM_OWNERS, wait=False)
        self.takers = launch(Taker.create_group(kind, 2), name=TAKERS, ranks=2, first=1, wait=False)
        for group in (self.owners, self.takers):
            launch.note(group.wait_ready())  # type: ignore[attr-defined]
        self.launch, self.version = launch, 0

    def sync(self) -> None:
        """Bring all takers to the next version."""
        self.version += 1
        taking = self.takers.take(self.version)
        self.owners.publish(self.version).wait()
        taking.wait()
        assert self.present() == [(self.version, [float(self.version)])] * 2

    def present(self) -> list[tuple[int, list[float]]]:
        """Return what each taker has."""
        found: list[tuple[int, list[float]]] = self.takers.present().wait()
        return found

    def relaunch(self, group: Any) -> None:
        """Launch a group again."""
        group.relaunch()
        self.launch.note(group)  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["bucket", "patch"])
def test_an_owner_dies(launch: Callable[..., Any], kind: str, chance: random.Random) -> None:
    run = Run(launch, kind)
    run.sync()
    run.sync()
    before = run.present()
    dead, last = chance.randrange(NUM_OWNERS), chance.randrange(NUM_MESSAGES[kind])
    taking = run.takers.attempt("take", run.version + 1)
    publishing = [
        run.owners.execute_on(rank).attempt("publish", run.version + 1, last if rank == dead else None)
        for rank in range(NUM_OWNERS)
    ]
    assert taking.wait() == ["WorkerDiedError"] * 2
    with pytest.raises(WorkerDiedError):
        publishing[dead].wait()
    assert run.present() == before
    run.relaunch(run.owners)
    run.version += 1
    run.sync()
    run.sync()


@pytest.mark.parametrize("kind", ["bucket", "patch"])
def test_a_receiver_dies(launch: Callable[..., Any], kind: str, chance: random.Random) -> None:
    run = Run(launch, kind)
    run.sync()
    run.sync()
    dead = chance.randrange(2)
    last = chance.randrange(1, NUM_OWNERS * NUM_MESSAGES[kind])
    taking = [
        run.takers.execute_on(rank).attempt("take", run.version + 1, *([last] if rank == dead else []))
        for rank in range(2)
    ]
    publishing = run.owners.attempt("publish", run.version + 1)
    with pytest.raises(WorkerDiedError):
        taking[dead].wait()
    publishing.wait()
    taking[1 - dead].wait(timeout=60)
    version, values = run.takers.execute_on(1 - dead).present().wait()[0]
    assert version in {run.version, run.version + 1}
    assert values == [float(version)]
    run.relaunch(run.takers)
    run.version += 1
    run.sync()
    run.sync()

"""One client at a time holds the lease of the weights; it ends by itself."""

from __future__ import annotations

import asyncio

import pytest
from served_engines import TokenEngine

from rlinf.errors import WeightSyncError
from rlinf.hybrid_engines.serving import weight_lease
from rlinf.hybrid_engines.serving.weight_lease import WeightLease


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return a clock that a test sets."""
    clock = [1000.0]
    monkeypatch.setattr(weight_lease.time, "monotonic", lambda: clock[0])
    return clock


def take(lease: WeightLease, client: str, seconds: float = 30.0) -> None:
    asyncio.run(lease.take(client, seconds=seconds))


def test_a_lease_lasts_while_its_client_gives_signs(now: list[float]) -> None:
    lease = WeightLease(TokenEngine())
    take(lease, "a")
    now[0] += 20
    lease.renew("a")
    lease.renew("b")
    now[0] += 20
    lease.check("a")
    with pytest.raises(WeightSyncError, match=r"heard of 0 s ago.*ends 30 s from now"):
        take(lease, "b")
    now[0] += 29
    with pytest.raises(WeightSyncError, match="Another client"):
        take(lease, "b")
    now[0] += 2
    take(lease, "b")
    with pytest.raises(WeightSyncError, match="does not have the lease"):
        lease.check("a")


def test_others_do_not_keep_a_lease_alive(now: list[float]) -> None:
    lease = WeightLease(TokenEngine())
    take(lease, "a")
    now[0] += 20
    lease.renew("b")
    lease.renew("")
    now[0] += 11
    take(lease, "b")
    lease.check("b")


def test_a_lease_can_be_given_back_and_taken_twice(now: list[float]) -> None:
    lease = WeightLease(TokenEngine())
    take(lease, "a")
    take(lease, "a")
    take(lease, "a", 0)
    for client in ("a", ""):
        with pytest.raises(WeightSyncError):
            lease.check(client)
    take(lease, "b")


def test_the_next_client_starts_with_versions_of_its_own() -> None:
    engine = TokenEngine()
    lease = WeightLease(engine)
    take(lease, "a")
    engine._version = 5
    take(lease, "a")
    assert engine.version == 5
    take(lease, "a", 0)
    take(lease, "b")
    assert engine.version == -1

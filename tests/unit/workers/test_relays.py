"""Every link between nodes carries the weights once, whichever rank owns them, and all receivers get them."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from typing import Any, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlinf.config.schema.train import WeightSyncerConfig
from rlinf.errors import CommTimeoutError
from rlinf.hybrid_engines.train.train_engine import TrainEngine
from rlinf.workers.actor.weight_publisher import WeightPublisher
from rlinf.workers.relays import plan_relays
from rlinf.workers.weight_inbox import WeightInbox
from rlinf.workers.weight_syncer import make_weight_syncer
from tests.unit.workers.post_office import PostOffice
from tests.unit.workers.weight_run import CFG, SIZES, Rank, Weights, values

Nodes = dict[str, list[str]]
NODES = st.lists(st.sampled_from("abcd"), min_size=1, max_size=8)


@given(own=st.sampled_from("abcd"), rollout=NODES, inference=NODES)
def test_each_node_gets_the_weights_once_and_shares_them(own: str, rollout: list[str], inference: list[str]) -> None:
    nodes = {"RolloutGroup": rollout, "InferenceGroup": inference}
    relays = plan_relays(own, nodes)
    node_of = {(group, rank): node for group, ranks in nodes.items() for rank, node in enumerate(ranks)}
    entered: Counter[str] = Counter()
    left: Counter[str] = Counter()
    for receiver, node in node_of.items():
        source = relays.get(receiver)
        source_node = own if source is None else node_of[source]
        if source_node != node:
            entered[node] += 1
            left[source_node] += 1
        # There is no circle: every way leads to the owner.
        steps = 0
        while source is not None:
            source, steps = relays.get(source), steps + 1
            assert steps <= len(node_of)
    assert entered == dict.fromkeys(set(node_of.values()) - {own}, 1)
    assert set(left.values()) <= {1}


class Hosts:
    """Ranks on several nodes; counts what crosses from one to another."""

    def __init__(self, actors: str, receivers: str, cfg: WeightSyncerConfig = CFG) -> None:
        self.nodes = {"ActorGroup": list(actors), "RolloutGroup": list(receivers)}
        self.office, self.crossed = PostOffice(), Counter[str]()
        self.lock = threading.Lock()
        post, fetch = self.office.post, self.office.fetch

        def counted(source: Any, target: Any, tag: Any, message: Any) -> None:
            with self.lock:
                ends = [self.nodes[group][rank] for group, rank in (source, target)]
                if ends[0] != ends[1] and isinstance(message, torch.Tensor):
                    self.crossed["".join(ends)] += message.nbytes
                post(source, target, tag, message)

        def locked(*route: Any) -> Any:
            with self.lock:
                return fetch(*route)

        self.office.post, self.office.fetch = counted, locked  # type: ignore[method-assign]
        self.owners = tuple(number % len(actors) for number in range(len(SIZES)))
        sizes = {"RolloutGroup": len(receivers)}
        self.publishers = [
            WeightPublisher(self.worker("ActorGroup", rank), receivers=sizes, cfg=cfg) for rank in range(len(actors))
        ]
        self.inboxes = [
            WeightInbox(make_weight_syncer(self.worker("RolloutGroup", rank), cfg), "ActorGroup")
            for rank in range(len(receivers))
        ]

    def worker(self, group: str, rank: int) -> Any:
        """Return a worker that knows its node."""
        worker = self.office.wire(Rank, group=group, rank=rank)
        worker._messenger.node_id = self.nodes[group][rank]
        worker._messenger.find_nodes = self.nodes.__getitem__
        return worker

    def sync(self, version: int) -> list[dict[str, float] | None]:
        """Publish weights; return what each receiver got, None where it waited in vain."""
        found: list[dict[str, float] | None] = [None] * len(self.inboxes)

        def take(rank: int) -> None:
            with contextlib.suppress(CommTimeoutError):
                found[rank] = values(self.inboxes[rank].take(version))

        threads = [threading.Thread(target=take, args=(rank,)) for rank in range(len(found))]
        threads += [threading.Thread(target=self.publish, args=(rank, version)) for rank in range(len(self.publishers))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    def publish(self, rank: int, version: int) -> None:
        """Publish what a rank owns."""
        engine = cast("TrainEngine", Weights(float(version), rank, self.owners))
        self.publishers[rank].publish(engine, version=version)


@pytest.mark.parametrize("kind", ["bucket", "patch"])
@pytest.mark.parametrize(
    ("actors", "receivers"), [("a", "aaa"), ("a", "bb"), ("aa", "abbb"), ("ab", "abab"), ("aab", "bccacb")]
)
def test_weights_arrive_over_relays(actors: str, receivers: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLINF_TIMEOUT_SECONDS", "20")
    hosts = Hosts(actors, receivers, WeightSyncerConfig(type=kind, bucket=CFG.bucket))
    for version in (1, 2):
        hosts.crossed.clear()
        assert hosts.sync(version) == [dict.fromkeys(SIZES, float(version))] * len(receivers)
        model = sum(4 * -(-size // 16) * 16 + 8 for size in SIZES.values()) * (1.1 if kind == "patch" else 1)
        # Of each owner's part, every node but its own gets one copy.
        others = len(set(receivers) - set(actors))
        if len(set(actors)) == 1:
            assert sum(hosts.crossed.values()) <= model * others
            assert max(hosts.crossed.values(), default=0) <= model


def test_what_a_relay_left_of_a_broken_update_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLINF_TIMEOUT_SECONDS", "0.5")
    hosts = Hosts("a", "bb")
    publish = hosts.publishers[0]._syncer.publish

    def break_off(index: int, *args: Any) -> None:
        if index == 0:
            publish(index, *args)

    with monkeypatch.context() as broken:
        broken.setattr(hosts.publishers[0]._syncer, "publish", break_off)
        assert hosts.sync(1) == [None, None]
    hosts.office.waiting.clear()
    assert hosts.sync(2) == [dict.fromkeys(SIZES, 2.0)] * 2

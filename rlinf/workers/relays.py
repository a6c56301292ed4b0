"""Who passes weights on, so that each link between nodes carries them once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlinf.hybrid_engines.weights.bucket import Receiver


def plan_relays(own_node: str, nodes: Mapping[str, Sequence[str]]) -> dict[Receiver, Receiver]:
    """Return from which other receiver a receiver takes the weights; one that is not listed takes them from the owner.

    On each node but the owner's, the first receiver hands them to the others of its node, whose memory it shares, and
    to the first of the next node.

    Args:
        own_node: Node of the owner.
        nodes: Node of each rank, by the names of the receiving groups.
    """
    first_of: dict[str, Receiver] = {}
    relays: dict[Receiver, Receiver] = {}
    for group_name, ranks in nodes.items():
        for rank, node in enumerate(ranks):
            receiver = (group_name, rank)
            if node == own_node:
                continue
            if node in first_of:
                relays[receiver] = first_of[node]
                continue
            if first_of:
                relays[receiver] = next(reversed(first_of.values()))
            first_of[node] = receiver
    return relays

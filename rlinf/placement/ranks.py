"""Ranges of ranks as users write and read them: ``"0-3,5"``."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rlinf.errors import PlacementError

# Nine digits are more than any cluster has, and keep a slip of the keyboard from becoming a huge number.
_RANGE = re.compile(r"([0-9]{1,9})(?:\s*-\s*([0-9]{1,9}))?")


def parse_range(text: str) -> tuple[int, int] | None:
    """Parse ``"4"`` or ``"4-7"``.

    Args:
        text: The range; blanks around its parts are ignored.

    Returns:
        First and last rank, both inclusive (the last may be below the first: the caller words that error), or None when
        the text is not a range.
    """
    match = _RANGE.fullmatch(text.strip())
    if match is None:
        return None
    first = int(match.group(1))
    return first, first if match.group(2) is None else int(match.group(2))


def format_ranks(ranks: Iterable[int]) -> str:
    """Return ranks as ascending ranges: ``[0, 1, 2, 5]`` becomes ``"0-2,5"``."""
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def parse_node_ranks(value: str | int, num_nodes: int, *, path: str = "node_ranks") -> list[int]:
    """Parse the ``node_ranks`` of a node group or of an environment configuration.

    Args:
        value: ``"0-3,5"``, a single rank, or ``"all"``.
        num_nodes: Nodes in the cluster.
        path: Config path that error messages quote.

    Returns:
        Cluster ranks of the nodes, ascending.

    Raises:
        PlacementError: Not a list of ranges, not ascending and unique, or beyond the cluster's nodes.
    """
    if isinstance(value, str) and value.strip() == "all":
        return list(range(num_nodes))
    text = str(value)
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise PlacementError(f'{path}: {value!r} is not a list of node ranks; write "0-3,5", 4 or all.')
    ranks: list[int] = []
    for part in text.split(","):
        bounds = parse_range(part)
        if bounds is None:
            raise PlacementError(
                f"{path}: '{part.strip()}' in '{text}' is not a range of node ranks; write \"0-3,5\", 4 or all."
            )
        first, last = bounds
        if last < first or (ranks and first <= ranks[-1]):
            raise PlacementError(
                f"{path}: '{part.strip()}' in '{text}' breaks the order; node ranks must be ascending and unique."
            )
        if last >= num_nodes:
            raise PlacementError(
                f"{path}: '{part.strip()}' in '{text}' goes beyond the cluster's {num_nodes} node(s), ranks "
                f"0-{num_nodes - 1}; lower it or raise cluster.num_nodes."
            )
        ranks.extend(range(first, last + 1))
    return ranks

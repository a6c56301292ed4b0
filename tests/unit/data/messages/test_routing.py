import pytest

from rlinf.data.messages.routing import by_rank, destinations, rank_of, sources


@pytest.mark.parametrize(("num_sources", "num_destinations"), [(1, 1), (4, 1), (1, 4), (4, 2), (2, 4), (6, 3)])
def test_both_sides_agree_and_keep_the_global_order(num_sources: int, num_destinations: int) -> None:
    # Every source holds the rows of one contiguous shard; each destination must end up with one, in order.
    rows_per_source = 12 // num_sources
    mail = {}
    for source in range(num_sources):
        route = destinations(source, num_sources, num_destinations)
        rows = list(range(source * rows_per_source, (source + 1) * rows_per_source))
        size = len(rows) // route.parts
        for part, peer in enumerate(route.peers):
            mail[source, peer] = rows[part * size : (part + 1) * size]
    received = [
        [row for peer in sources(rank, num_sources, num_destinations).peers for row in mail.pop((peer, rank))]
        for rank in range(num_destinations)
    ]
    assert not mail
    assert [row for rows in received for row in rows] == list(range(12))
    assert {len(rows) for rows in received} == {12 // num_destinations}


def test_every_group_of_responses_has_one_reward_rank() -> None:
    assert by_rank([7, 2, 4], 3) == {1: [7, 4], 2: [2]}
    assert [rank_of(group_id, 3) for group_id in (7, 2, 4, 0)] == [1, 2, 1, 0]

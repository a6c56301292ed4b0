"""Seeds depend on every part, and on nothing else."""

from __future__ import annotations

from rlinf.utils.seeding import derive_seed


def test_a_seed_is_the_same_in_every_process_and_version() -> None:
    assert derive_seed(0, "rollout", 3, "actions", 7) == derive_seed(0, "rollout", 3, "actions", 7)
    assert derive_seed(1) == 54721782


def test_every_part_and_its_place_count() -> None:
    seeds = {derive_seed(*parts) for parts in [(1, 2), (2, 1), (12,), (1, "2", ""), ("1", 23), (12, 3)]}
    assert len(seeds) == 6
    assert all(0 <= seed < 2**31 for seed in seeds)

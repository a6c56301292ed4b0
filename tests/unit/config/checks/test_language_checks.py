"""Algorithms of language models whose keys contradict each other."""

from __future__ import annotations

import pytest
from reasoning_problems import problems


@pytest.mark.parametrize(
    ("overrides", "path", "remedy"),
    [
        (
            ["algorithm.recompute_logprobs=false", "algorithm.importance_correction={level: token}"],
            "algorithm.recompute_logprobs",
            "algorithm.recompute_logprobs=true",
        ),
        (["algorithm.importance_correction={lower_bound: 1.5}"], "algorithm.importance_correction", "lower_bound=0.5"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_mistake_names_its_key_and_its_remedy(overrides: list[str], path: str, remedy: str) -> None:
    found = problems(*overrides)
    assert any(line.startswith(f"{path}: ") and remedy in line for line in found), found

"""The diagrams of the documentation are what the code draws, and show what runs do."""

from __future__ import annotations

import pytest
from repository_tree import ROOT

from toolkits.docs import diagrams


def test_the_committed_diagrams_are_what_the_script_draws() -> None:
    assert diagrams.find_differences() == [], "run: python toolkits/docs/diagrams.py"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_diagram_is_on_a_page(language: str) -> None:
    pages = "".join(
        (ROOT / "docs" / f"source-{language}" / "concepts" / f"{name}.md").read_text() for name in ("flow", "modes")
    )
    assert [name for name in diagrams.DIAGRAMS if f"diagrams/{name}.svg)" not in pages] == []


def test_rollouts_begin_as_far_ahead_as_the_threshold_allows() -> None:
    for threshold in (0, 1, 2):
        line = diagrams.Timeline(threshold, rollout=1.0, training=3.0)
        line.play(6)
        for step, start, _, version in line.rollouts:
            assert version >= step - 1 - threshold
            # A rollout waits for the weights that it needs, and for the one before it.
            needed = [end for number, _, end in line.updates if number == step - 1 - threshold]
            before = [end for number, _, end, _ in line.rollouts if number == step - 1]
            assert start == max([0.0, *needed, *before])


def test_a_placement_has_a_cell_for_each_component_and_gpu() -> None:
    drawn = diagrams.draw_placement(
        ["cluster.component_placement={actor: 0, rollout: 1, env: '1:0-1'}", "actor.micro_batch_size=256"], 2
    )
    assert [drawn.count(f'class="{name}"') for name in ("actor", "rollout", "env", "free")] == [1, 1, 1, 3]
    assert ">0, 1<" in drawn

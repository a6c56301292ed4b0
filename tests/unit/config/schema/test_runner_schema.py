"""The length of a run."""

from __future__ import annotations

from rlinf.config.schema.runner import RunnerConfig


def test_a_run_makes_its_steps_or_else_its_epochs() -> None:
    assert RunnerConfig(max_epochs=7).total_steps == 7
    assert RunnerConfig(max_epochs=7, max_steps=3).total_steps == 3

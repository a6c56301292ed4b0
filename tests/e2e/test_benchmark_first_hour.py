"""The first-hour benchmark sees the first message before the first step, and the first step before the end."""

import pytest

from benchmarks.first_hour import measure_first_step


@pytest.mark.slow
def test_the_first_step_is_seen_while_the_run_goes_on() -> None:
    small = ["env.train.max_steps_per_rollout_epoch=32", "actor.global_batch_size=128", "actor.micro_batch_size=128"]
    marks = measure_first_step(overrides=small)
    assert 0 < marks["first_message_seconds"] < marks["first_step_seconds"] < marks["end_seconds"]


def test_a_run_that_fails_is_told_with_what_it_said() -> None:
    with pytest.raises(RuntimeError, match=r"(?s)ended with 1 .*actor\.no_such_key"):
        measure_first_step(overrides=["+actor.no_such_key=1"])

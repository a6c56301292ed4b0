"""Recipes reach what the README says of them; minutes each."""

import pytest

from tests.e2e.conftest import read_metrics

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_sac_swings_up_the_pendulum_within_15000_environment_steps(start_run, tmp_path, seed):
    keys = (f"actor.seed={seed}", f"env.train.seed={seed}", f"runner.logger.log_path={tmp_path}")
    run = start_run("gym_pendulum_sac_mlp", *keys)
    assert run.wait(timeout=1000) == 0, run.output[-4000:]
    last = read_metrics(tmp_path / "gym_pendulum_sac_mlp")[-1]
    assert last["train/replay_size"] <= 15_000  # one transition for each environment step
    assert last["eval/return"] >= -200

"""The reward group as part of a run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import TINY, read_metrics

pytestmark = pytest.mark.timeout(400)
RECIPE = "gym_cartpole_ppo_mlp"
ENV_REWARD = "reward={rewards: {own: {reward_type: env}}}"


@pytest.fixture(scope="module")
def run_recipe(train: Callable[..., Any]) -> Callable[..., list[dict[Any, Any]]]:
    return lambda *overrides: read_metrics(train(RECIPE, *TINY, *overrides))


@pytest.fixture(scope="module")
def plain(run_recipe: Callable[..., list[dict[Any, Any]]]) -> list[dict[Any, Any]]:
    """What a run without a reward group measures."""
    return run_recipe()


def learned(records: list[dict[Any, Any]]) -> list[dict[Any, Any]]:
    return [{k: v for k, v in record.items() if k.startswith(("train/", "eval/", "rollout/"))} for record in records]


@pytest.mark.parametrize(
    "placement",
    [
        ("cluster.component_placement.reward=0",),
        (
            "cluster.cpu_slots_per_node=2",
            "cluster.component_placement={actor: 0, rollout: 0, env: 0, reward: 0-1}",
            "rollout.pipeline_stage_num=2",
        ),
    ],
    ids=["one", "two"],
)
def test_the_environments_own_reward_is_the_same_through_the_group(
    run_recipe: Callable[..., list[dict[Any, Any]]], plain: Any, placement: tuple[str, ...]
) -> None:
    records = run_recipe(ENV_REWARD, *placement)
    assert records[-1]["env/reward/own"] == pytest.approx(0.05)  # env.train.reward_coef: 1 for each step
    if len(placement) == 1:
        assert learned(records) == learned(plain)


def test_env_ranks_that_collect_the_trajectories_have_them_rewarded(
    run_recipe: Callable[..., list[dict[Any, Any]]],
) -> None:
    decoupled = (
        "runner.enable_decoupled_mode=true",
        "cluster.cpu_slots_per_node=2",
        "cluster.component_placement={actor: 0, rollout: 0, env: 0-1}",
        "rollout.pipeline_stage_num=2",
    )
    rewarded = run_recipe(*decoupled, ENV_REWARD, "+cluster.component_placement.reward=0")
    assert rewarded[-1]["env/reward/own"] == pytest.approx(0.05)
    assert learned(rewarded) == learned(run_recipe(*decoupled))


def test_a_service_that_is_not_there_ends_the_run(
    start_run: Callable[..., Any], one_node: None, tmp_path: Path
) -> None:
    judge = "{reward_type: api, url: 'http://127.0.0.1:9/score', obs_keys: [states], max_retries: 0}"
    run = start_run(
        RECIPE,
        *TINY,
        f"reward={{rewards: {{judge: {judge}}}}}",
        "cluster.component_placement.reward=0",
        f"runner.logger.log_path={tmp_path}",
        env={"RAY_ADDRESS": one_node},
    )
    assert run.wait() == 1, run.output[-4000:]
    for text in ("RewardError", "http://127.0.0.1:9/score", "attempt 1 of 1", "RewardGroup"):
        assert text in run.output, run.output[-4000:]
    assert not run.survivors()

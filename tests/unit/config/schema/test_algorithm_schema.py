"""What algorithms need is read off their sections."""

from __future__ import annotations

import pytest
from reasoning_problems import RECIPE

from rlinf.config import load_recipe, validate_cfg
from rlinf.config.schema.algorithm import ActorLossConfig, DemoBufferConfig, SftLossConfig


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], False),
        (["algorithm.kl_beta=0.1"], True),
        (["+algorithm.kl_in_reward={beta: 0.1}", "algorithm.adv_type=reinpp"], True),
    ],
)
def test_a_reference_is_kept_where_the_loss_or_the_reward_compares_with_it(
    overrides: list[str], expected: bool
) -> None:
    algorithm = validate_cfg(load_recipe(RECIPE, overrides)).algorithm
    assert algorithm.needs_reference == expected


def test_losses_compare_with_a_reference_only_by_a_weight() -> None:
    assert not ActorLossConfig().needs_reference
    assert ActorLossConfig(kl_beta=0.1).needs_reference
    assert not SftLossConfig().needs_reference


def test_logits_are_divided_by_the_temperature_that_responses_were_sampled_at() -> None:
    overrides = ["algorithm.sampling_params.temperature=0.6"]
    assert validate_cfg(load_recipe(RECIPE, overrides)).algorithm.training_temperature == 0.6
    assert validate_cfg(load_recipe("tiny_math_sft", overrides)).algorithm.training_temperature == 1.0


def test_groups_are_replaced_where_more_than_one_batch_may_be_generated() -> None:
    overrides = ["algorithm.max_num_gen_batches=2", "data.gen_batch_size=512"]
    assert validate_cfg(load_recipe(RECIPE, overrides)).algorithm.replaces_groups
    assert not validate_cfg(load_recipe(RECIPE)).algorithm.replaces_groups


def test_a_demonstration_buffer_needs_its_files_where_it_loads_them() -> None:
    assert DemoBufferConfig(load_path="demo").required_files() == {"load_path": "demo"}

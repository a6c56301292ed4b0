"""Misspelt names of metrics are refused before a run; what only a run can know is left to it."""

import pytest

from rlinf.config import load_recipe, validate_cfg
from rlinf.config.metric_names import eval_metric_names
from rlinf.config.schema.root import RLinfConfig
from rlinf.data.messages.responses import RewardedGroup
from rlinf.errors import ConfigError
from rlinf.telemetry.responses import evaluation_metrics
from tests.unit.data.messages.response_samples import Sample


def recipe(name: str, *overrides: str) -> RLinfConfig:
    return validate_cfg(load_recipe(name, ["~runner.stop_at", *overrides]))


@pytest.mark.parametrize(
    ("name", "override", "guess"),
    [
        ("tiny_math_grpo", "+runner.stop_at={eval/acuracy: 1}", "eval/accuracy"),
        ("tiny_math_grpo", "+runner.stop_at={accuracy: 1}", "eval/accuracy"),
        ("tiny_math_grpo", "runner.keep_best=eval/respons_length", "eval/response_length"),
        ("tiny_math_sft", "+runner.stop_at={eval/token_acuracy: 1}", "eval/token_accuracy"),
    ],
)
def test_a_slip_is_refused_with_its_path_and_the_name_that_was_meant(name: str, override: str, guess: str) -> None:
    path = "runner.keep_best" if "keep_best" in override else "runner.stop_at."
    with pytest.raises(ConfigError) as error:
        recipe(name, override)
    assert path in str(error.value)
    assert f"Did you mean '{guess}'?" in str(error.value)


@pytest.mark.parametrize(
    ("name", "override"),
    [
        ("gym_mountain_car_rlpd_mlp", "runner.keep_best=eval/success_once/push the button"),
        ("gym_mountain_car_rlpd_mlp", "runner.keep_best=eval/success_once/a"),
        ("gym_mountain_car_rlpd_mlp", "runner.keep_best=eval/return_smoothed"),
        ("gym_mountain_car_rlpd_mlp", "runner.keep_best=env/return"),
        ("gym_mountain_car_rlpd_mlp", "runner.keep_best=train/critic_loss"),
        ("tiny_math_grpo", "runner.keep_best=rollout/reward"),
    ],
)
def test_metrics_of_tasks_of_training_and_of_plug_ins_are_left_to_the_run(name: str, override: str) -> None:
    cfg = validate_cfg(load_recipe(name, [override, "runner.val_check_interval=1"]))
    assert cfg.runner.keep_best in override


@pytest.mark.parametrize("keys", [(), ("runner.val_samples=4",), ("runner.val_samples=4", "runner.val_pass_at=[2, 3]")])
def test_the_names_are_those_that_an_evaluation_of_responses_produces(keys: tuple[str, ...]) -> None:
    cfg = recipe("tiny_math_grpo", *keys)
    group = RewardedGroup.of([Sample().response] * cfg.runner.val_samples)
    assert sorted(evaluation_metrics([group], pass_at=cfg.runner.val_pass_at)) == sorted(eval_metric_names(cfg))


def test_several_sets_have_names_of_their_own() -> None:
    cfg = recipe("tiny_math_grpo", "data.val_data_paths=[a/easy.jsonl, a/hard.jsonl]")
    assert {"eval/accuracy", "eval/easy/accuracy", "eval/hard/reward"} <= set(eval_metric_names(cfg))

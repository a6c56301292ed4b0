"""Keys of data collection that contradict others are told apart, each with its remedy."""

import pytest

from rlinf.config import load_recipe, validate_cfg
from rlinf.errors import ConfigError

RECIPE = "metaworld_reach_ppo_mlp"


@pytest.mark.parametrize(
    ("overrides", "remedy"),
    [
        (["env.train.data_collection.fps=5"], "env.train.data_collection.fps: received 5; not used without enabled"),
        (
            ["env.train.data_collection={enabled: true, policy: sample}"],
            "env.train.data_collection.policy: received 'sample'; not used in training",
        ),
        (
            ["env.train.data_collection.enabled=true", "runner.only_eval=true"],
            "plays env.eval alone. Move it to env.eval.data_collection",
        ),
        (["env.eval.data_collection.enabled=true"], "collect_data.sh"),
        (["env.eval.data_collection.only_success=true"], "only_success: received True; not used without enabled"),
        (["env.eval.data_collection.export_format=pickle"], "LeRobot format: remove it"),
        (
            [
                "runner.only_eval=true",
                "env.eval.data_collection={enabled: true, policy: operator}",
                "env.eval.wrappers=[{name: intervention, intervener: {intervener_type: keyboard}}]",
            ],
            "known of robots alone, and env_type is metaworld",
        ),
    ],
)
def test_contradictions_name_their_remedy(overrides: list[str], remedy: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate_cfg(load_recipe(RECIPE, overrides))
    assert remedy in str(caught.value)


def test_scripts_look_at_every_observation_also_where_the_model_acts_in_chunks() -> None:
    collecting = ["runner.only_eval=true", "env.eval.data_collection.enabled=true", "actor.model.num_action_chunks=5"]
    for policy, expected in (("metaworld", 1), ("greedy", 5)):
        cfg = validate_cfg(load_recipe(RECIPE, [*collecting, f"env.eval.data_collection.policy={policy}"]))
        assert (cfg.actions_per_chunk("eval"), cfg.actions_per_chunk("train")) == (expected, 5)


def test_what_collect_data_sets_is_valid() -> None:
    overrides = ["runner.only_eval=true", "env.eval.data_collection.enabled=true"]
    assert validate_cfg(load_recipe(RECIPE, overrides)).env.eval.data_collection.policy == "greedy"

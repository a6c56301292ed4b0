"""Keys of data collection that contradict others are told apart, each with its remedy."""

import pytest

from rlinf.config import load_recipe, validate_cfg
from rlinf.errors import ConfigError

RECIPE = "metaworld_reach_ppo_mlp"


@pytest.mark.parametrize(
    ("overrides", "remedy"),
    [
        (["env.train.data_collection.fps=5"], "env.train.data_collection: not used"),
        (["env.eval.data_collection.enabled=true"], "collect_data.sh"),
        (["env.eval.data_collection.only_success=true"], "only_success: received True; not used without enabled"),
        (["env.eval.data_collection.export_format=pickle"], "LeRobot format: remove it"),
        (
            [
                "runner.only_eval=true",
                "env.eval.data_collection={enabled: true, policy: metaworld}",
                "actor.model.num_action_chunks=5",
            ],
            "num_action_chunks is 5. Set that to 1",
        ),
    ],
)
def test_contradictions_name_their_remedy(overrides: list[str], remedy: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate_cfg(load_recipe(RECIPE, overrides))
    assert remedy in str(caught.value)


def test_what_collect_data_sets_is_valid() -> None:
    overrides = ["runner.only_eval=true", "env.eval.data_collection.enabled=true"]
    assert validate_cfg(load_recipe(RECIPE, overrides)).env.eval.data_collection.policy == "greedy"

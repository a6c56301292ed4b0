"""``task_type: collect``: a recipe without actor and algorithm, and what contradicts it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlinf.config import load_recipe, validate_cfg
from rlinf.config.schema.model import NoModelConfig
from rlinf.config.schema.root import CollectConfig
from rlinf.config.validate import plan_run
from rlinf.errors import ConfigError

RECIPE = "realworld_franka_dummy_rlpd_mlp"
WITHOUT_LEARNING = (
    "~actor",
    "~algorithm",
    "~env.train",
    "runner.task_type=collect",
    "runner.val_check_interval=-1",
    "runner.only_eval=true",
    "~cluster.component_placement",
    "+cluster.component_placement={rollout: 0, env: {node_group: franka, placement: all}}",
    "env.eval.data_collection={enabled: true, policy: operator}",
)
OPERATOR = "env.eval.wrappers=[{name: intervention, intervener: {intervener_type: keyboard}}]"


def collect(*overrides: str) -> CollectConfig:
    cfg = validate_cfg(load_recipe(RECIPE, [*WITHOUT_LEARNING, *overrides]))
    assert isinstance(cfg, CollectConfig)
    return cfg


def test_a_recipe_that_only_collects_needs_no_actor_and_no_algorithm() -> None:
    cfg = collect(OPERATOR, "actor.seed=7")
    assert cfg.actor.seed == 7
    assert plan_run(cfg).cfg == cfg
    assert set(cfg.group_names) == {"rollout", "env"}


@pytest.mark.parametrize(
    ("overrides", "remedy"),
    [
        ((), "env.eval.data_collection.policy: received 'operator', and there is none"),
        (("env.eval.data_collection.policy=greedy",), "env.eval.data_collection.policy: received 'greedy'"),
        (("runner.only_eval=false",), "examples/embodiment/collect_data.sh, which sets both"),
        ((OPERATOR, "env.eval.data_collection.enabled=false"), "collect_data.sh, which sets both"),
        ((OPERATOR, "actor.model={model_type: mlp_policy}"), "actor.model: not used by task_type=collect"),
        ((OPERATOR, "env.train={max_episode_steps: 5, env_type: none}"), "env.train: not used by task_type=collect"),
        ((OPERATOR, "data={format: lerobot, path: x}"), "data: not used by task_type=collect"),
        ((OPERATOR, "reward={rewards: {env: {reward_type: env}}}"), "reward: not used by task_type=collect"),
        ((OPERATOR, "runner.enable_decoupled_mode=true"), "enable_decoupled_mode: received True; not used"),
        (
            (
                OPERATOR,
                "env.eval.target_ee_pose=null",
                "env.eval.data_collection.only_success=true",
            ),
            "no episode is ever successful. Set env.eval.success_key=space",
        ),
        (("~env.eval",), "env.eval: missing; task_type=collect plays its episodes"),
    ],
)
def test_contradictions_name_their_remedy(overrides: tuple[str, ...], remedy: str) -> None:
    with pytest.raises(ConfigError) as caught:
        collect(*overrides)
    assert remedy in str(caught.value)


def test_other_tasks_need_a_model() -> None:
    cfg = validate_cfg(load_recipe("gym_pendulum_bc_mlp"))
    with pytest.raises(ConfigError, match=r"actor.model.model_type: received none; task_type=offline"):
        validate_cfg(replace(cfg, actor=replace(cfg.actor, model=NoModelConfig())))

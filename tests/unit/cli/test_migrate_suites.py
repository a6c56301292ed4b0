"""Published suites of tasks, which environments here have under other keys."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from rlinf.cli.migrate_recipe import migrate_recipe
from rlinf.config import validate_cfg

PUBLISHED = """
cluster: {num_nodes: 1, component_placement: {"actor,env,rollout": 0}}
runner: {task_type: embodied, max_epochs: 3, val_check_interval: 2}
algorithm: {adv_type: gae, loss_type: actor_critic, group_size: 1, gamma: 0.9, gae_lambda: 0.9}
env:
  train: {total_num_envs: 4, max_episode_steps: 8, max_steps_per_rollout_epoch: 8}
  eval: {total_num_envs: 4, max_episode_steps: 8, max_steps_per_rollout_epoch: 8}
actor:
  training_backend: fsdp
  global_batch_size: 16
  micro_batch_size: 16
  model: {model_type: mlp_policy, obs_dim: 7, action_dim: 4, add_value_head: true}
  optim: {lr: 3.0e-4, value_lr: 1.0e-3}
critic: {use_critic_model: false}
"""


def published_suites(env_type: str, train: str, evaluation: str) -> dict[str, Any]:
    """Return a recipe of a published simulator, by its suites of tasks."""
    published: dict[str, Any] = yaml.safe_load(PUBLISHED)
    for name, suite in (("train", train), ("eval", evaluation)):
        section = published["env"][name]
        section.update(env_type=env_type, task_suite_name=suite, use_rel_reward=True, use_fixed_reset_state_ids=True)
        section["init_params"] = {"camera_heights": 480, "camera_widths": 480}
    return published


@pytest.mark.parametrize(
    ("train", "evaluation", "ours"),
    [("metaworld_50", "metaworld_50", ("mt50", "mt50")), ("metaworld_45_ind", "metaworld_45_ood", ("ml45", "ml45"))],
)
def test_metaworld_names_tasks_by_start_states_and_rewards_success_as_published(
    train: str, evaluation: str, ours: tuple[str, str]
) -> None:
    result = migrate_recipe(published_suites("metaworld", train, evaluation))
    assert result.outcome == "complete", result
    cfg = validate_cfg(result.recipe)
    for section, name in zip((cfg.env.train, cfg.env.eval), ours, strict=True):
        assert (section.task_name, section.task_per_episode, section.task_sentences) == (name, True, "paper")
        assert (section.num_settle_steps, section.reward_shaping, section.image_size) == (16, False, 480)
        assert section.use_rel_reward
        assert section.use_fixed_reset_state_ids
    assert cfg.env.eval.task_split == ("test" if evaluation == "metaworld_45_ood" else "train")
    assert cfg.env.train.task_split == "train"


@pytest.mark.parametrize(
    ("suite", "scene", "outcome"),
    [("calvin_d", "D", "complete"), ("calvin_abc", "ABC", "reduced"), ("calvin_abcd", "ABCD", "reduced")],
)
def test_calvin_has_the_published_tables_and_no_limit_for_a_task(suite: str, scene: str, outcome: str) -> None:
    result = migrate_recipe(published_suites("calvin", suite, "calvin_d"))
    assert result.outcome == outcome, result
    assert all("one sentence of CALVIN's evaluation" in why for _, why in result.lost)
    cfg = validate_cfg(result.recipe)
    assert (cfg.env.train.scene, cfg.env.eval.scene) == (scene, "D")
    for section in (cfg.env.train, cfg.env.eval):
        assert (section.max_task_steps, section.joint_states, section.image_size) == (None, False, 200)
        # A task is rewarded once, and a group begins from ever new chains.
        assert not section.use_rel_reward
        assert not section.use_fixed_reset_state_ids

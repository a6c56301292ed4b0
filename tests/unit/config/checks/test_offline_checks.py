"""What an offline recipe needs, and what means nothing to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rlinf.config import build_config, to_dict, validate_cfg
from rlinf.config.schema.data import MinariDataConfig
from rlinf.config.schema.env import NoEnvConfig
from rlinf.errors import ConfigError

BC = {
    "runner": {"task_type": "offline"},
    "data": {"format": "minari", "path": "somewhere"},
    "algorithm": {"adv_type": "embodied_bc", "loss_type": "embodied_bc"},
    "env.train": "DELETE",
    "actor.model.add_value_head": False,
}
IQL = BC | {
    "algorithm": {"adv_type": "offline_iql", "loss_type": "offline_iql"},
    "actor.model.add_value_head": True,
    "actor.model.add_q_head": True,
}

LEROBOT = {"format": "lerobot", "path": "somewhere"}
SFT = BC | {"algorithm": {"adv_type": "embodied_sft", "loss_type": "embodied_sft"}, "data": LEROBOT}

DAGGER = {
    "algorithm": {
        "adv_type": "embodied_dagger",
        "loss_type": "embodied_dagger",
        "expert": {"expert_type": "scripted", "policy": "metaworld"},
    },
    "actor.model.add_value_head": False,
}
CHUNKS = DAGGER | {"actor.model.num_action_chunks": 5}
OPERATOR = {
    "name": "intervention",
    "intervener": {"intervener_type": "scripted", "policy": "metaworld", "takeover_probability": 0.5},
}


def test_a_script_labels_where_it_sees_what_it_labels(recipe: Callable[..., dict[str, Any]]) -> None:
    """One action for an observation follows from what the policy sees; those within a chunk from what it meets."""
    cfg = validate_cfg(recipe(CHUNKS))
    assert cfg.labelled_in_env is cfg.algorithm.loss
    expert = {"expert_type": "policy", "ckpt_path": "x"}
    for changes in (DAGGER, CHUNKS | {"algorithm.expert": expert}, {}):
        assert validate_cfg(recipe(changes)).labelled_in_env is None
    # With one action at a time both work as they did.
    assert validate_cfg(recipe(DAGGER | {"algorithm.takeover_distance": 0.3, "env.train.wrappers": [OPERATOR]}))


def test_dagger_rolls_out_and_may_have_an_expert_of_another_model(recipe: Callable[..., dict[str, Any]]) -> None:
    assert validate_cfg(recipe(DAGGER)).data is None
    model = {"model_type": "mlp_policy", "obs_dim": 4, "action_dim": 2, "discrete": True, "add_value_head": True}
    expert = {"expert_type": "policy", "ckpt_path": "x", "model": model}
    cfg = validate_cfg(recipe(DAGGER | {"algorithm.expert": expert}))
    assert cfg.algorithm.loss.expert.model.add_value_head
    assert build_config(to_dict(cfg)) == cfg


@pytest.mark.parametrize(
    ("key", "path", "remedy"),
    [
        ({}, "ckpt_path", "has random weights without it"),
        ({"model_path": "/p"}, "model_path", "is not read from a folder"),
    ],
)
def test_a_policy_is_an_expert_with_weights(
    recipe: Callable[..., dict[str, Any]], key: dict[str, str], path: str, remedy: str
) -> None:
    with pytest.raises(ConfigError, match=rf"algorithm\.expert\.{path}: .*{remedy}"):
        validate_cfg(recipe(DAGGER | {"algorithm.expert": {"expert_type": "policy"} | key}))


@pytest.mark.parametrize("changes", [BC, IQL, BC | {"env.eval": "DELETE"}])
def test_a_run_without_training_environments_is_valid_and_reversible(
    recipe: Callable[..., dict[str, Any]], changes: dict[str, Any]
) -> None:
    cfg = validate_cfg(recipe(changes))
    assert isinstance(cfg.env.train, NoEnvConfig)
    assert isinstance(cfg.data, MinariDataConfig)
    assert build_config(to_dict(cfg)) == cfg


@pytest.mark.parametrize(
    ("changes", "path", "remedy"),
    [
        ({key: value for key, value in BC.items() if key != "data"}, "data", "Add data.format and data.path"),
        (BC | {"data.format": "minary"}, "data.format", "Did you mean 'minari'"),
        (BC | {"data.state_keys": "x"}, "data.state_keys", "list of"),
        (BC | {"data": {"format": "d4rl", "path": "x", "state_keys": []}}, "data.state_keys", "format=minari"),
        (BC | {"runner": {}}, "runner.task_type", "learns from recorded data. Set runner.task_type=offline"),
        ({"runner": {"task_type": "offline"}}, "runner.task_type", "learns from rollouts"),
        ({"data": {"format": "minari", "path": "x"}}, "data", "Remove the section, or set actor.sft_loss_weight"),
        ({"actor.sft_batch_size": 8}, "actor.sft_batch_size", "without actor.sft_loss_weight"),
        ({"actor.sft_loss_weight": 0.1}, "actor.sft_loss_weight", "model_type=mlp_policy has no supervised loss"),
        (BC | {"actor.sft_loss_weight": 0.1}, "actor.sft_loss_weight", "on-policy losses such as actor_critic"),
        (DAGGER | {"actor.sft_loss_weight": 0.1}, "actor.sft_loss_weight", "on-policy losses such as actor_critic"),
        ({"env.train": "DELETE"}, "env.train", "Add the section"),
        (BC | {"env.train": {"env_type": "none", "seed": 3}}, "env.train", "Remove it"),
        ({key: value for key, value in BC.items() if key != "env.train"}, "env.train", "Remove it"),
        (BC | {"env.eval": {"env_type": "none"}}, "env.eval.env_type", "evaluation needs environments"),
        (BC | {"algorithm.adv_type": "gae"}, "algorithm.adv_type", "Set algorithm.adv_type=embodied_bc"),
        (BC | {"algorithm.logprob_type": "token_level"}, "algorithm.logprob_type", "not used by loss_type=embodied_bc"),
        (BC | {"actor.model.add_q_head": True}, "actor.model.add_q_head", "does not train Q heads"),
        (BC | {"actor.model.add_value_head": True}, "actor.model.add_value_head", "not used by loss_type=embodied_bc"),
        (BC | {"actor.optim": {"critic_warmup_steps": 3}}, "actor.optim.critic_warmup_steps", "not used by"),
        (
            BC | {"algorithm.imitation_loss": "mse", "actor.model.discrete": True},
            "algorithm.imitation_loss",
            "Set it to nll",
        ),
        (SFT, "actor.model.model_type", "Choose one, or algorithm.loss_type=embodied_bc"),
        (SFT | {"data": {"format": "minari", "path": "x"}}, "data.format", "Set data.format=lerobot"),
        (SFT | {"data": LEROBOT | {"reward_coef": 2.0}}, "data.reward_coef", "not used by loss_type=embodied_sft"),
        (BC | {"data": LEROBOT | {"weight": 2.0}}, "data.weight", "not used by loss_type=embodied_bc"),
        (
            BC | {"data": LEROBOT | {"mixture": [{"path": "x"}]}},
            "data.mixture",
            "not used by loss_type=embodied_bc",
        ),
        (
            BC | {"data": LEROBOT | {"augmentation": {"crop_area": 0.0}}},
            "data.augmentation.crop_area",
            "0",
        ),
        (DAGGER | {"runner": {"task_type": "offline"}}, "runner.task_type", "learns from rollouts"),
        (
            DAGGER | {"algorithm.expert.expert_type": "script"},
            "algorithm.expert.expert_type",
            "Did you mean 'scripted'",
        ),
        (DAGGER | {"algorithm.expert.ckpt_path": "x"}, "algorithm.expert.ckpt_path", "expert_type=policy"),
        (
            CHUNKS | {"algorithm.takeover_distance": 0.3},
            "algorithm.takeover_distance",
            "Set algorithm.beta, or let the script take over within chunks: algorithm.loss_type=embodied_hgdagger",
        ),
        (CHUNKS | {"env.train.wrappers": [OPERATOR]}, "env.train.wrappers", "Remove the wrapper"),
        (
            DAGGER | {"algorithm.takeover_distance": 0.3, "algorithm.beta": 0.5},
            "algorithm.beta",
            "with algorithm.takeover_distance",
        ),
        (IQL | {"algorithm.expectile": 1.0}, "algorithm.expectile", "(0, 1)"),
        (IQL | {"algorithm.imitation_loss": "nll"}, "algorithm.imitation_loss", "loss_type=embodied_bc"),
        (IQL | {"actor.model.add_value_head": False}, "actor.model.add_value_head", "add_value_head=true"),
        (IQL | {"actor.model.q_head_type": "crossq"}, "actor.model.q_head_type", "Set it to default"),
    ],
)
def test_a_mistake_names_its_key_and_the_remedy(
    recipe: Callable[..., dict[str, Any]], changes: dict[str, Any], path: str, remedy: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        validate_cfg(recipe(changes))
    lines = [line for line in str(caught.value).splitlines() if line.startswith(f"  - {path}:")]
    assert any(remedy in line for line in lines), str(caught.value)

"""``task_type: value``: what a recipe that judges frames needs, and what contradicts it."""

from __future__ import annotations

from typing import Any

import pytest

from rlinf.config import load_recipe, validate_cfg
from rlinf.config.metric_names import eval_metric_names
from rlinf.config.schema.root import ValueConfig
from rlinf.config.schema.value import RecapValueModelConfig, SteamValueLossConfig
from rlinf.errors import ConfigError

RECAP: dict[str, Any] = {
    "cluster": {"num_nodes": 1, "component_placement": {"actor": 0}},
    "runner": {"task_type": "value", "max_steps": 2},
    "data": {"path": ".", "type": "rollout", "advantage_tag": "q30"},
    "algorithm": {"loss_type": "recap_value"},
    "actor": {
        "model": {"model_type": "recap_value_model", "model_path": "models/pi0"},
        "global_batch_size": 32,
        "micro_batch_size": 8,
    },
}
STEAM: dict[str, Any] = {
    **RECAP,
    "algorithm": {"loss_type": "steam_value", "k": 8},
    "actor": {**RECAP["actor"], "model": {"model_type": "steam_value_model", "model_path": "x", "num_bins": 4}},
}


def changed(recipe: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return a recipe with some keys, given as dotted paths, set."""
    result: dict[str, Any] = {key: value for key, value in recipe.items()}
    for path, value in changes.items():
        *parents, last = path.split(".")
        section = result
        for name in parents:
            section[name] = dict(section.get(name, {}))
            section = section[name]
        section[last] = value
    return result


def test_a_recipe_needs_no_environment_and_no_rollout() -> None:
    cfg = validate_cfg(RECAP)
    assert isinstance(cfg, ValueConfig)
    assert isinstance(cfg.actor.model, RecapValueModelConfig)
    assert cfg.group_names == {"actor": "ActorGroup"}
    assert cfg.learner == "value"
    assert eval_metric_names(cfg) == ["eval/loss", "eval/error", "eval/rank_correlation"]
    assert cfg.data.required_files() == {"path": "."}
    steam = validate_cfg(changed(STEAM, {"actor.model.num_bins": 16}))
    assert isinstance(steam.algorithm.loss, SteamValueLossConfig)


def test_a_classifier_needs_no_model_folder() -> None:
    cfg = validate_cfg(SUCCESS)
    assert eval_metric_names(cfg)[2:] == ["eval/accuracy", "eval/precision", "eval/recall"]
    told = validate_cfg(changed(SUCCESS, {"actor.model.words": ["go"], "algorithm.wrong_sentence_share": 0.5}))
    assert eval_metric_names(told)[5:] == ["eval/wrong_sentences_refused"]
    assert cfg.actor.model.image_size == [64, 64]
    assert cfg.actor.model.output_size == 1


def test_all_data_sets_are_looked_for() -> None:
    entries = {"data.mixture": [{"path": "a"}], "data.val": [{"path": "b"}], "runner.val_check_interval": 1}
    cfg = validate_cfg(changed(RECAP, entries))
    assert cfg.data.required_files() == {"path": ".", "mixture[0].path": "a", "val[0].path": "b"}
    assert [source.path for source in cfg.data.sources] == [".", "a"]


SUCCESS: dict[str, Any] = {
    **RECAP,
    "algorithm": {"loss_type": "success"},
    "actor": {**RECAP["actor"], "model": {"model_type": "success_classifier"}},
}
PROBLEMS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (RECAP, {"algorithm.loss_type": "actor"}, "algorithm.loss_type: received actor; task_type=value"),
    (RECAP, {"algorithm.adv_type": "gae"}, "algorithm.adv_type: received gae; recorded frames have none"),
    (RECAP, {"actor.model.num_bins": 1}, "actor.model.num_bins: received 1; a distribution has 2"),
    (RECAP, {"actor.model.model_type": "mlp_policy"}, "a model of another kind of recipe"),
    (RECAP, {"actor.model.model_type": "steam_value_model"}, "model_type=steam_value_model learns by steam_value"),
    (RECAP, {"actor.micro_batch_size": 12}, "multiple of micro_batch_size 12 x 1 actor rank(s) = 12. Set it to 36"),
    (RECAP, {"actor.training_backend": "megatron"}, "trained by FSDP. Set it to fsdp"),
    (RECAP, {"actor.optim": {"lr_scheduler": "cosine"}}, "actor.optim.total_training_steps: missing"),
    (RECAP, {"algorithm.group_size": 4}, "algorithm.group_size: received 4; not used by task_type=value"),
    (RECAP, {"actor.sft_loss_weight": 1.0}, "actor.sft_loss_weight: received 1.0; not used"),
    (RECAP, {"actor.model.num_action_chunks": 5}, "actor.model.num_action_chunks: received 5; not used"),
    (RECAP, {"actor.optim": {"critic_warmup_steps": 5}}, "critic_warmup_steps: received 5; not used"),
    (RECAP, {"weight_syncer": {"type": "patch"}}, "weight_syncer: received"),
    (RECAP, {"runner.dump_steps": [1]}, "runner.dump_steps: received [1]; not used"),
    (RECAP, {"data.advantage_tag": "a/b"}, "data.advantage_tag: received 'a/b'; it is part of a file's name"),
    (
        RECAP,
        {"data.max_episodes": 3},
        "data.max_episodes: received 3; labels of the name data.advantage_tag are of all",
    ),
    (RECAP, {"data.advantage_tag": ""}, "data.advantage_tag: received ''; it is part of a file's name"),
    (RECAP, {"data.advantage_tag": None, "algorithm.positive_quantile": 0.1}, "not used without data.advantage_tag"),
    (RECAP, {"runner.val_check_interval": 1}, "data.val: missing; the run evaluates"),
    (RECAP, {"data.val": [{"path": "b"}]}, "not used while nothing evaluates"),
    (RECAP, {"runner.stop_at": {"eval/loss": 1.0}}, "it needs evaluations"),
    (RECAP, {"runner.keep_best": "eval/rank_correlation"}, "it needs evaluations"),
    (RECAP, {"runner.only_eval": True}, "runner.ckpt_path: missing; only_eval=true judges by a trained model"),
    (
        RECAP,
        {"runner.only_eval": True, "runner.ckpt_path": "x", "data.advantage_tag": None},
        "there is nothing to do. Name data sets in data.val",
    ),
    (RECAP, {"algorithm.k": 4}, "algorithm.k: not used by loss_type=recap_value (it belongs to loss_type=steam_value)"),
    (SUCCESS, {"algorithm.loss_type": "recap_value"}, "model_type=success_classifier learns by success"),
    (SUCCESS, {"actor.model.image_size": [64]}, "actor.model.image_size: received [64]; allowed: height and width"),
    (
        SUCCESS,
        {"actor.model.words": ["go", "Red", "a b"]},
        "actor.model.words: received ['Red', 'a b']; allowed: single",
    ),
    (SUCCESS, {"actor.model.words": ["go", "go"]}, "actor.model.words: received ['go', 'go']; allowed"),
    (SUCCESS, {"algorithm.wrong_sentence_share": 0.5}, "wrong_sentence_share: received 0.5; not used without actor.mo"),
    (STEAM, {"actor.model.num_bins": 5}, "must be even and divide 2 x algorithm.k 8 = 16 distances. Set it to 16"),
    (STEAM, {"actor.model.num_bins": 6}, "must be even and divide"),
    (STEAM, {"actor.model.model_type": "recap_value_model"}, "model_type=recap_value_model learns by recap_value"),
    (STEAM, {"algorithm.positive_threshold": 0.3}, "positive_threshold: received 0.3; not used by label_mode=quantile"),
    (
        STEAM,
        {"algorithm.label_mode": "threshold", "algorithm.expert_quantile": 0.5},
        "expert_quantile: received 0.5; not used by label_mode=threshold",
    ),
    (STEAM, {"algorithm.length_scale_percentile": 101}, "allowed: a number in (0, 100]. Set it to 90"),
    (STEAM, {"data.advantage_tag": None, "algorithm.rollout_quantile": 0.1}, "not used without data.advantage_tag"),
]


@pytest.mark.parametrize(("recipe", "changes", "text"), PROBLEMS)
def test_contradictions_name_their_remedy(recipe: dict[str, Any], changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate_cfg(changed(recipe, changes))
    assert text in str(caught.value)


def test_labelling_alone_needs_a_checkpoint_only() -> None:
    validate_cfg(changed(RECAP, {"runner.only_eval": True, "runner.ckpt_path": "x"}))
    validate_cfg(changed(RECAP, {"runner.only_eval": True, "runner.resume_dir": "auto"}))


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        (
            ["~actor.model", "+actor.model={model_type: recap_value_model, model_path: x}"],
            "received recap_value_model, which judges frames; environments need a policy",
        ),
        (["algorithm.loss_type=recap_value"], "by which a model learns to judge frames. Set runner.task_type=value"),
    ],
)
def test_other_recipes_have_nothing_that_judges(overrides: list[str], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate_cfg(load_recipe("metaworld_mt3_sft_openpi_tiny", overrides))
    assert text in str(caught.value)

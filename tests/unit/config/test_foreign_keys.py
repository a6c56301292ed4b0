"""Names of other frameworks are translated, and suggestions lead to keys that the recipe may have."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from rlinf.config import foreign_keys, load_recipe, validate_cfg
from rlinf.config.registries import advantages, envs, losses
from rlinf.config.sections import known_paths
from rlinf.errors import ConfigError

GUESTS = Path(foreign_keys.__file__).parents[1] / "envs" / "guests"
EMBODIED, TEXT, SAC = "gym_cartpole_ppo_mlp", "tiny_math_grpo", "gym_pendulum_sac_mlp"


def told(recipe: str, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        validate_cfg(load_recipe(recipe, overrides))
    return str(caught.value)


def line_of(text: str, path: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(f"  - {path}:"))


@pytest.mark.parametrize(
    ("recipe", "override", "key"),
    [
        (EMBODIED, "learning_rate=1e-3", "actor.optim.lr"),
        (EMBODIED, "actor.optim.learning_rate=1e-3", "actor.optim.lr"),
        (EMBODIED, "algorithm.ent_coef=0.01", "algorithm.entropy_bonus"),
        (EMBODIED, "algorithm.vf_coef=0.5", "algorithm.value_loss_coef"),
        (EMBODIED, "total_timesteps=100000", "runner.max_epochs"),
        (EMBODIED, "n_envs=8", "env.train.total_num_envs"),
        (EMBODIED, "algorithm.clip_range=0.2", "algorithm.clip_ratio_low"),
        (EMBODIED, "algorithm.name=ppo", "algorithm.adv_type"),
        (SAC, "algorithm.buffer_size=1000", "algorithm.replay_buffer.capacity"),
        (TEXT, "num_generations=8", "algorithm.group_size"),
        (TEXT, "algorithm.kl_coef=0.01", "algorithm.kl_beta"),
        (TEXT, "actor_rollout_ref.rollout.n=8", "algorithm.group_size"),
        (TEXT, "trainer.total_epochs=8", "runner.max_epochs"),
        (TEXT, "data.max_response_length=512", "algorithm.sampling_params.max_new_tokens"),
    ],
)
def test_names_of_other_frameworks_are_translated(recipe: str, override: str, key: str) -> None:
    path = override.partition("=")[0]
    line = line_of(told(recipe, override), path.partition(".")[0] if path.startswith(("actor_r", "trainer")) else path)
    assert key in line
    assert "Known" not in line


@pytest.mark.parametrize(
    ("override", "names"),
    [
        ("algorithm.loss_type=ppo", ("loss_type=actor_critic", "adv_type=gae")),
        ("algorithm.loss_type=SAC", ("loss_type=embodied_sac", "adv_type=embodied_sac")),
        ("algorithm.adv_type=reinforce++", ("adv_type=reinpp",)),
        ("env.eval.env_type=isaaclab", ("env_type=guest with adapter=isaaclab", "unproven")),
        ("actor.model.model_type=cma", ("no network for model_type=cma", "adapter=habitat", "unproven")),
    ],
)
def test_choices_of_other_frameworks_are_translated(override: str, names: tuple[str, ...]) -> None:
    text = told(EMBODIED, override)
    assert all(name in text for name in names)


def test_translations_name_what_exists() -> None:
    known = {re.sub(r"\[\]|<name>\.", "", path) for path in known_paths()} | {"env.train.init_params.id"}
    known |= {path.replace("env.train", "env.eval") for path in known}
    texts = [*foreign_keys._NAMES_ELSEWHERE.values(), *foreign_keys._PATHS_ELSEWHERE.values()]
    named = {
        path
        for text in texts
        for path in re.findall(r"\b(?:actor|algorithm|cluster|data|env|rollout|runner)\.[a-z_.]+[a-z]", text)
    }
    # Keys of verl that the translation of its sections names.
    verl = {"actor.ppo_mini_batch_size", "actor.ppo_epochs", "actor.kl_loss_coef", "rollout.n", "rollout.name"}
    assert named - known <= verl | {"rollout.temperature"}
    for (discriminator, _), text in foreign_keys._VALUES_ELSEWHERE.items():
        choices = dict(re.findall(r"(\w+_type)=(\w+)", text))
        assert discriminator in choices
        assert choices.get("loss_type", "actor") in losses.configs
        assert choices.get("adv_type", "gae") in advantages.configs
        assert choices.get("env_type", "guest") in envs.configs
        for adapter in re.findall(r"adapter=(\w+)", text):
            assert (GUESTS / f"{adapter}.py").is_file()


def put(recipe: dict[str, Any], path: str, value: str) -> None:
    """Write a value into a plain recipe, through whatever stands in its way."""
    *sections, key = path.split(".")
    for section in sections:
        if not isinstance(recipe.get(section), dict):
            recipe[section] = {}
        recipe = recipe[section]
    recipe[key] = value


def problems(recipe: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        validate_cfg(recipe)
    return str(caught.value)


@pytest.mark.parametrize("name", [EMBODIED, TEXT, "tiny_math_sft", SAC])
def test_suggestions_do_not_lead_to_further_unknown_keys(name: str) -> None:
    recipe = OmegaConf.to_container(load_recipe(name), resolve=True)
    assert isinstance(recipe, dict)
    for key in {path.rsplit(".", 1)[-1] for path in known_paths()} - set(recipe["runner"]["logger"]):
        put(recipe, f"weight_syncer.bucket.{key}", "@")
    found = re.findall(r"- weight_syncer\.bucket\.([^:]+): unknown key\. Did you mean '([^']+)'", problems(recipe))
    suggested = dict(found)
    assert "seed" in suggested
    recipe = OmegaConf.to_container(load_recipe(name), resolve=True)
    assert isinstance(recipe, dict)
    # What is suggested stays what the recipe chooses.
    for path in {path for path in suggested.values() if not path.endswith(("_type", "_backend", ".format"))}:
        if set("[<") & set(path):
            continue
        # Deeper keys stay where a shorter path is a section.
        if not isinstance(recipe.get(path), dict) and not any(p.startswith(f"{path}.") for p in suggested.values()):
            put(recipe, path, "@")
    again = problems(recipe)
    assert not re.findall(r"(.*): (?:unknown key|unknown section|not used)", again), again


def test_a_seed_is_the_actors() -> None:
    assert "seed: unknown key: write actor.seed" in told(EMBODIED, "seed=3")
    assert "seed: unknown key: write actor.seed" in told(TEXT, "seed=3")
    assert "Did you mean 'actor.seed'?" in told(EMBODIED, "data.seed=3")


def test_what_a_plugin_may_register_is_told_with_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RLINF_EXT_MODULE", raising=False)
    assert "name its module in RLINF_EXT_MODULE" in told(EMBODIED, "env.train.env_type=point")
    assert "RLINF_EXT_MODULE" not in told(EMBODIED, "env.train.env_type=gymnasum"), "a slip of the pen"


FSDP_KEYS = {
    "strategy": ("fsdp", None),
    "sharding_strategy": ("shard_grad_op", None),
    "hybrid_shard_size": ("2", "sharding_strategy"),
    "gradient_checkpointing": ("true", None),
    "cpu_offload": ("true", None),
    "offload_pin_memory": ("false", None),
    "reshard_after_forward": ("false", None),
    "enable_gradient_accumulation": ("false", None),
    "forward_prefetch": ("true", None),
    "mixed_precision.param_dtype": ("bf16", None),
    "mixed_precision.reduce_dtype": ("fp32", None),
    "mixed_precision.buffer_dtype": ("bf16", "buffers keep their own precision"),
    "gradient_checkpointing_use_reentrant": ("false", "never reentrant"),
    "backward_prefetch": ("pre", "always gathered"),
    "limit_all_gathers": ("true", "limits them by itself"),
    "use_orig_params": ("false", "original parameters"),
    "use_liger_kernel": ("true", "without all logits"),
    "amp_autocast.enabled": ("false", "mixed_precision.param_dtype"),
    "amp_autocast.precision": ("bf16", "mixed_precision.param_dtype"),
    "grad_scaler.enabled": ("false", "wherever mixed_precision.param_dtype is fp16"),
    "grad_scaler.init_scale": ("1024", "wherever mixed_precision.param_dtype is fp16"),
    "grad_scaler.growth_interval": ("100", "wherever mixed_precision.param_dtype is fp16"),
    "save_full_model_weights": ("true", "written by shards"),
}


@pytest.mark.parametrize("key", FSDP_KEYS)
def test_every_published_key_of_sharding_is_honoured_or_refused_with_the_reason(key: str) -> None:
    value, reason = FSDP_KEYS[key]
    override = f"actor.fsdp_config.{key}={value}"
    if reason is None:
        validate_cfg(load_recipe(TEXT, [override]))
    else:
        assert reason in told(TEXT, override)

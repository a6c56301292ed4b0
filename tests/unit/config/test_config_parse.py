"""Parsing is strict about kinds, lenient about nothing but integers for numbers, and reversible."""

from __future__ import annotations

import dataclasses
import operator
import re
import subprocess
import sys

import pytest
from omegaconf import OmegaConf

from rlinf.config import build_config, to_dict, validate_cfg
from rlinf.config.registries import envs, inference_backends, losses, metric_backends, task_types, train_engines
from rlinf.config.schema.algorithm import GAEConfig, LossConfig
from rlinf.config.schema.base import PositiveInt
from rlinf.config.schema.cluster import ComponentPlacementConfig
from rlinf.config.schema.env import EnvConfig, GymnasiumEnvConfig
from rlinf.config.schema.model import MLPPolicyConfig
from rlinf.config.schema.root import EmbodiedConfig
from rlinf.config.validate import RULES, register_rule
from rlinf.errors import ConfigError
from rlinf.registry import Registration


def test_discriminators_choose_the_dataclasses(recipe):
    cfg = build_config(recipe({"algorithm.gamma": 0.9, "algorithm.value_clip": 0.2}))
    assert type(cfg.env.train) is GymnasiumEnvConfig
    assert type(cfg.actor.model) is MLPPolicyConfig
    assert cfg.algorithm.advantage == GAEConfig(gamma=0.9)
    assert cfg.algorithm.loss.value_clip == 0.2


def test_discriminators_are_case_insensitive(recipe):
    cfg = build_config(recipe({"algorithm.adv_type": "GAE", "env.train.env_type": "Gymnasium"}))
    assert cfg.algorithm.adv_type == "gae"
    assert cfg.env.train.env_type == "gymnasium"


def test_integer_is_accepted_as_number_and_becomes_one(recipe):
    lr = build_config(recipe({"actor.optim": {"lr": 1}})).actor.optim.lr
    assert isinstance(lr, float)
    assert lr == 1.0


def test_empty_section_takes_its_defaults(recipe):
    assert build_config(recipe({"rollout": None})) == build_config(recipe())


def test_placement_takes_ranks_strings_and_the_long_form(recipe):
    rules = {"actor": 0, "rollout": "0:0-1", "env": {"node_group": "node", "placement": "0"}}
    parsed = build_config(recipe({"cluster.component_placement": rules})).cluster.component_placement
    assert parsed == {
        "actor": 0,
        "rollout": "0:0-1",
        "env": ComponentPlacementConfig(node_group="node", placement="0"),
    }


def test_interpolations_are_resolved(recipe):
    cfg = OmegaConf.create(recipe({"env.train.seed": "${actor.global_batch_size}"}))
    assert build_config(cfg).env.train.seed == 400


def test_unresolvable_interpolation_names_its_key(recipe):
    with pytest.raises(ConfigError, match=r"env\.train\.seed: .*actor\.nothing"):
        build_config(OmegaConf.create(recipe({"env.train.seed": "${actor.nothing}"})))


@pytest.mark.parametrize("source", [3, None, "recipe"])
def test_what_is_no_mapping_is_refused(source):
    with pytest.raises(ConfigError, match="allowed: a mapping"):
        build_config(source)


def test_to_dict_is_plain_flat_and_reversible(recipe):
    rules = {"actor,rollout": 0, "env": {"node_group": "node", "placement": "0"}}
    cfg = validate_cfg(recipe({"algorithm.gamma": 0.9, "cluster.component_placement": rules}))
    plain = to_dict(cfg)
    assert plain["algorithm"]["gamma"] == 0.9
    assert not {"advantage", "loss"} & plain["algorithm"].keys()
    assert plain["cluster"]["component_placement"]["env"] == {"node_group": "node", "placement": "0"}
    assert build_config(plain) == cfg
    assert validate_cfg(OmegaConf.create(plain)) == cfg


def test_to_dict_shares_nothing_with_the_tree(recipe):
    cfg = build_config(recipe())
    to_dict(cfg)["env"]["train"]["init_params"]["id"] = "changed"
    assert cfg.env.train.init_params == {"id": "CartPole-v1"}


def test_typed_tree_is_checked_again(recipe):
    cfg = build_config(recipe())
    broken = dataclasses.replace(cfg, actor=dataclasses.replace(cfg.actor, micro_batch_size=-1))
    with pytest.raises(ConfigError, match=r"actor\.micro_batch_size: received -1"):
        validate_cfg(broken)
    assert validate_cfg(cfg) == cfg


def test_registered_kinds_from_outside_are_parsed_with_their_own_keys(recipe, monkeypatch):
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class RopeEnvConfig(EnvConfig):
        rope_length_centimetres: PositiveInt

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class RopeLossConfig(LossConfig):
        friction: float = 0.5

    monkeypatch.setitem(envs._entries, "rope", Registration(config=RopeEnvConfig))
    monkeypatch.setitem(losses._entries, "rope", Registration(config=RopeLossConfig))
    changes = {
        "env.train.env_type": "rope",
        "env.train.rope_length_centimetres": 7,
        "env.train.init_params": "DELETE",
        "algorithm.loss_type": "rope",
        "algorithm.friction": 1,
    }
    cfg = validate_cfg(recipe(changes))
    assert cfg.env.train.rope_length_centimetres == 7
    assert cfg.algorithm.loss == RopeLossConfig(friction=1.0)
    with pytest.raises(ConfigError, match="it belongs to loss_type=rope"):
        build_config(recipe({"algorithm.friction": 1}))


@pytest.mark.parametrize(
    ("registry", "key", "value", "hint"),
    [
        (train_engines, "actor.training_backend", "pipeline", "one of fsdp, pipeline. Did you mean 'pipeline'?"),
        (inference_backends, "rollout.rollout_backend", "compiled", "one of compiled, huggingface. Did you mean"),
        (metric_backends, "runner.logger.logger_backends", ["textfile"], "swanlab, tensorboard, textfile, wandb"),
    ],
)
def test_engines_and_backends_from_outside_are_named_in_recipes(recipe, monkeypatch, registry, key, value, hint):
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    name = value[0] if isinstance(value, list) else value
    misspelt = [name[:-1]] if isinstance(value, list) else name[:-1]
    with pytest.raises(ConfigError, match="allowed: "):
        build_config(recipe({key: value}))
    registry.register(name, "my_package:Mine")
    section, _, field = key.rpartition(".")
    assert getattr(operator.attrgetter(section)(build_config(recipe({key: value}))), field) == value
    with pytest.raises(ConfigError, match=re.escape(hint)):
        build_config(recipe({key: misspelt}))


def test_rules_from_outside_hold_for_a_kind_of_recipe_and_those_derived_from_it(recipe, monkeypatch):
    monkeypatch.setattr("rlinf.config.validate.RULES", dict(RULES))
    monkeypatch.setattr(task_types, "_entries", dict(task_types._entries))

    @register_rule(EmbodiedConfig)
    def check_name(cfg, world, problems):
        problems.add("runner.logger.experiment_name", f"received {cfg.runner.logger.experiment_name}")

    task_types.register(
        "mine", config=dataclasses.make_dataclass("MineConfig", [], bases=(EmbodiedConfig,), frozen=True)
    )
    for task in ("embodied", "mine"):
        with pytest.raises(ConfigError, match=r"has 1 problem:\n.*experiment_name: received"):
            validate_cfg(recipe({"runner.task_type": task}))


def test_config_imports_neither_torch_nor_ray(tmp_path):
    script = (
        "import sys\n"
        "from rlinf.config import build_config, validate_cfg, load_recipe, SupportedModel, to_dict\n"
        "validate_cfg(load_recipe('gym_cartpole_ppo_mlp'))\n"
        "SupportedModel.MLP_POLICY\n"
        "print(sorted({'torch', 'ray', 'gymnasium', 'mujoco'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

"""A recipe becomes a typed tree and comes back as it was."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from rlinf.config import build_config, to_dict, validate_cfg
from rlinf.errors import ConfigError


def test_interpolations_are_resolved(recipe: Callable[..., dict[str, Any]]) -> None:
    cfg = OmegaConf.create(recipe({"env.train.seed": "${actor.global_batch_size}"}))
    assert build_config(cfg).env.train.seed == 400


def test_unresolvable_interpolation_names_its_key(recipe: Callable[..., dict[str, Any]]) -> None:
    with pytest.raises(ConfigError, match=r"env\.train\.seed: .*actor\.nothing"):
        build_config(OmegaConf.create(recipe({"env.train.seed": "${actor.nothing}"})))


@pytest.mark.parametrize("source", [3, None, "recipe"])
def test_what_is_no_mapping_is_refused(source: int | str | None) -> None:
    with pytest.raises(ConfigError, match="allowed: a mapping"):
        build_config(source)


def test_to_dict_is_plain_flat_and_reversible(recipe: Callable[..., dict[str, Any]]) -> None:
    rules = {"actor,rollout": 0, "env": {"node_group": "node", "placement": "0"}}
    cfg = validate_cfg(recipe({"algorithm.gamma": 0.9, "cluster.component_placement": rules}))
    plain = to_dict(cfg)
    assert plain["algorithm"]["gamma"] == 0.9
    assert not {"advantage", "loss"} & plain["algorithm"].keys()
    assert plain["cluster"]["component_placement"]["env"] == {"node_group": "node", "placement": "0"}
    assert build_config(plain) == cfg
    assert validate_cfg(OmegaConf.create(plain)) == cfg


def test_to_dict_shares_nothing_with_the_tree(recipe: Callable[..., dict[str, Any]]) -> None:
    cfg = build_config(recipe())
    to_dict(cfg)["env"]["train"]["init_params"]["id"] = "changed"
    assert cfg.env.train.init_params == {"id": "CartPole-v1"}


def test_config_imports_neither_torch_nor_ray(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from rlinf.config import build_config, validate_cfg, load_recipe, SupportedModel, to_dict\n"
        "validate_cfg(load_recipe('gym_cartpole_ppo_mlp'))\n"
        "SupportedModel.MLP_POLICY\n"
        "print(sorted({'torch', 'ray', 'gymnasium', 'mujoco'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

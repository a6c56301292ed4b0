"""Checkpoints whose grippers say the opposite of what the environment hears are refused, in the suites too."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlinf.config import load_recipe, validate_cfg
from rlinf.config.schema.env import EnvConfig
from rlinf.config.schema.root import EmbodiedConfig
from rlinf.errors import ConfigError
from rlinf.workers.rollout.conventions import check_conventions

SUITE = Path(__file__).parents[4] / "evaluations" / "libero" / "libero_object_eval.yaml"
OPENPI = [
    "model@actor.model=openpi",
    "actor.model.variant=pi0",
    "actor.model.norm_scheme=mean_std",
    "actor.model.horizon=10",
    "actor.model.num_action_chunks=8",
]
UNIT = {"min": [-1.0] * 6 + [0.0], "max": [1.0] * 7}
NATIVE = {"min": [-1.0] * 7, "max": [1.0] * 7}


def checkpoint(folder: Path, action: dict[str, Any]) -> str:
    """Write what a checkpoint's folder says of its data."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"norm_stats": {"libero_object_no_noops": {"action": action}}}))
    return str(folder)


def suite(path: str, *overrides: str) -> EmbodiedConfig:
    cfg = validate_cfg(load_recipe(str(SUITE), [f"actor.model.model_path={path}", *overrides]))
    assert isinstance(cfg, EmbodiedConfig)
    return cfg


def test_openpi_in_the_suite_of_openvla_is_refused_until_it_is_heard(tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "pi", {"mean": [0.0] * 7, "std": [0.5] * 6 + [1.0]})
    with pytest.raises(ConfigError, match=r"env\.eval\.action_convention: received rlds; .* with -1 or 1.* to native"):
        check_conventions(suite(path, *OPENPI))
    check_conventions(suite(path, *OPENPI, "env.eval.action_convention=native"))


def test_the_suite_is_openvlas(tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "oft", UNIT)
    check_conventions(suite(path))
    with pytest.raises(ConfigError, match=r"received native; .* with 0 \(closed\) or 1 \(open\).* to rlds"):
        check_conventions(suite(path, "env.eval.action_convention=native"))


def test_what_learns_is_checked_and_what_is_not_stepped_is_not(tmp_path: Path) -> None:
    cfg = suite(checkpoint(tmp_path / "oft", UNIT))
    assert cfg.env.train.action_convention == "native"
    with pytest.raises(ConfigError, match=r"env\.train\.action_convention: received native"):
        check_conventions(replace(cfg, runner=replace(cfg.runner, only_eval=False)))


def test_environments_without_a_choice_are_left_alone(tmp_path: Path) -> None:
    cfg = suite(checkpoint(tmp_path / "oft", UNIT))
    env = EnvConfig(env_type="robosuite", total_num_envs=1, max_episode_steps=1, max_steps_per_rollout_epoch=1)
    check_conventions(replace(cfg, env=replace(cfg.env, eval=env)))
    check_conventions(replace(cfg, env=replace(cfg.env, eval=None)))

"""A policy that learned from images of one kind is not shown others: data sets and policies say how they look."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlinf.config import load_recipe, validate_cfg
from rlinf.config.schema.root import EmbodiedConfig
from rlinf.data.datasets.lerobot import LeRobotDataset
from rlinf.data.datasets.lerobot.format import LeRobotEpisode
from rlinf.data.datasets.lerobot.writer import LeRobotWriter, WriterOptions, merge_datasets
from rlinf.runners.rendering import RENDERING_FILE, rendering_differences
from toolkits.vla.write_statistics import write_rendering

LIGHT = {"env_type": "langpick", "image_size": 64, "render_quality": "light"}


def recipe(name: str, *overrides: str) -> EmbodiedConfig:
    cfg = validate_cfg(load_recipe(name, list(overrides)))
    assert isinstance(cfg, EmbodiedConfig)
    return cfg


def told(cfg: EmbodiedConfig) -> list[str]:
    return [str(error).partition(";")[0] for error in rendering_differences(cfg)]


def write(root: Path, rendering: dict[str, Any] | None) -> Path:
    with LeRobotWriter(root, WriterOptions(fps=10, rendering=rendering)) as writer:
        numbers = np.zeros((2, 4), np.float32)
        writer.add(LeRobotEpisode({"action": numbers, "observation.state": numbers}, "pick up the red cube"))
    return root


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    folder = tmp_path / "policy"
    folder.mkdir()
    write_rendering(folder, LIGHT)
    return folder


@pytest.mark.parametrize(
    ("override", "errors"),
    [
        ("env.eval.env_type=langpick", []),
        ("+env.eval.render_quality=full", ["env.eval.render_quality: received 'full'"]),
        ("+env.train.image_size=32", ["env.train.image_size: received 32"]),
    ],
)
def test_a_policy_is_shown_images_as_it_has_learned_from(policy: Path, override: str, errors: list[str]) -> None:
    cfg = recipe("langpick_grpo_openpi_tiny", f"actor.model.model_path={policy}", override)
    assert told(cfg) == errors


def test_demonstrations_are_collected_in_any_way(policy: Path) -> None:
    keys = ["+env.eval.render_quality=full", "runner.only_eval=true", "actor.model.num_action_chunks=1"]
    keys += [f"+env.eval.data_collection.{key}" for key in ("enabled=true", "policy=langpick")]
    cfg = recipe("langpick_grpo_openpi_tiny", f"actor.model.model_path={policy}", *keys)
    assert told(cfg) == []


def test_a_data_set_is_compared_with_what_the_policy_is_evaluated_on(tmp_path: Path) -> None:
    parts = [write(tmp_path / f"part {number}", LIGHT) for number in range(2)]
    merge_datasets(parts, tmp_path / "merged", WriterOptions(fps=10, rendering=LIGHT))
    assert LeRobotDataset(tmp_path / "merged").info.rendering == LIGHT
    keys = [f"data.path={tmp_path / 'merged'}", f"actor.model.model_path={tmp_path}"]
    assert told(recipe("langpick_sft_openpi_tiny", *keys)) == []
    assert told(recipe("langpick_sft_openpi_tiny", *keys, "+env.eval.render_quality=full")) == [
        "env.eval.render_quality: received 'full'"
    ]


@pytest.mark.parametrize("rendering", [None, {**LIGHT, "env_type": "frankasim"}])
def test_what_says_nothing_of_the_environment_is_not_compared(tmp_path: Path, rendering: dict[str, Any] | None) -> None:
    keys = [f"data.path={write(tmp_path / 'data', rendering)}", "+env.eval.render_quality=full"]
    assert told(recipe("langpick_sft_openpi_tiny", *keys, f"actor.model.model_path={tmp_path}")) == []


def test_a_policy_says_what_its_last_demonstrations_say(policy: Path) -> None:
    assert json.loads((policy / RENDERING_FILE).read_text(encoding="utf-8")) == LIGHT
    write_rendering(policy, None)
    assert not (policy / RENDERING_FILE).exists()

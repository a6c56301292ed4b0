"""Sections name the packages and files that they need."""

from __future__ import annotations

import pytest

from rlinf.config.schema.base import ConfigSection
from rlinf.config.schema.data import D4RLDataConfig, LeRobotDataConfig, MinariDataConfig
from rlinf.config.schema.env import DataCollectionConfig, GymnasiumEnvConfig, VideoConfig
from rlinf.config.schema.expert import PolicyExpertConfig
from rlinf.config.schema.model import CausalLMConfig


def gymnasium(module: str | None) -> GymnasiumEnvConfig:
    sizes = {"total_num_envs": 1, "max_episode_steps": 1, "max_steps_per_rollout_epoch": 1}
    return GymnasiumEnvConfig(env_type="gymnasium", init_params={}, import_module=module, **sizes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("section", "packages"),
    [
        (ConfigSection(), ()),
        (MinariDataConfig(format="minari", path="p"), ("h5py",)),
        (D4RLDataConfig(format="d4rl", path="p"), ("h5py",)),
        (LeRobotDataConfig(format="lerobot", path="p"), ("pyarrow",)),
        (VideoConfig(), ()),
        (VideoConfig(save_video=True), ("imageio", "imageio_ffmpeg")),
        (DataCollectionConfig(use_videos=True), ()),
        (DataCollectionConfig(enabled=True), ("pyarrow",)),
        (DataCollectionConfig(enabled=True, use_videos=True), ("pyarrow", "imageio_ffmpeg")),
        (gymnasium(None), ()),
        (gymnasium("robots.tasks"), ("robots",)),
        (CausalLMConfig(model_type="causal_lm", model_path="p"), ("transformers",)),
        (CausalLMConfig(model_type="causal_lm", model_path="p", is_lora=True), ("transformers", "peft")),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, ConfigSection) else None,
)
def test_packages_follow_from_what_the_section_says(section: ConfigSection, packages: tuple[str, ...]) -> None:
    assert section.required_packages() == packages


def test_files_are_named_by_the_key_that_names_them() -> None:
    model = CausalLMConfig(model_type="causal_lm", model_path="p")
    expert = PolicyExpertConfig(expert_type="policy", ckpt_path="weights", model=model)
    assert expert.required_files() == {"ckpt_path": "weights"}
    assert MinariDataConfig(format="minari", path="p").required_files() == {"path": "p"}
    assert ConfigSection().required_files() == {}

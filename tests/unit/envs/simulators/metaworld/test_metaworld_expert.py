"""What Meta-World's experts solve, and what they have to see."""

import pytest
import torch
from builtin_configs import metaworld_config

from rlinf.config.registries import scripted_policies
from rlinf.config.schema.env import MetaWorldEnvConfig
from rlinf.envs import make_vector_env
from rlinf.errors import ConfigError


@pytest.mark.metaworld
@pytest.mark.parametrize("task", ["reach-v3", "drawer-close-v3"])
def test_the_expert_of_metaworld_solves_its_tasks(task: str) -> None:
    cfg = MetaWorldEnvConfig(
        env_type="metaworld",
        task_name=task,
        total_num_envs=2,
        max_episode_steps=120,
        max_steps_per_rollout_epoch=120,
        auto_reset=False,
    )
    expert = scripted_policies.get("metaworld")(cfg)
    with make_vector_env(cfg, num_envs=2) as env:
        obs = env.reset(0)
        episodes = ()
        while len(episodes) < 2:
            action = expert(obs)
            assert action.shape == (2, 1, 4)
            assert action.dtype == torch.float32
            step = env.chunk_step(action)
            obs, episodes = step.obs, episodes + step.episodes
    assert [episode["success_once"] for episode in episodes] == [1.0, 1.0]


def test_the_expert_is_not_told_two_tasks_alike() -> None:
    with pytest.raises(ConfigError, match=r"two of them alike. Set task_sentences: own"):
        scripted_policies.get("metaworld")(metaworld_config(task_sentences="paper"))


def test_with_images_the_expert_reads_what_they_hide() -> None:
    pytest.importorskip("metaworld")
    with pytest.raises(ConfigError, match=r"image_size=16 hides. Set show_objects: true"):
        scripted_policies.get("metaworld")(metaworld_config(image_size=16))
    expert = scripted_policies.get("metaworld")(metaworld_config(image_size=16, show_objects=True))
    state = torch.rand(2, 39, generator=torch.Generator().manual_seed(0))
    obs = {"states": state, "task_descriptions": ["Push the drawer closed."] * 2}
    hidden = {**obs, "states": state[:, :4], "objects": state}
    assert torch.equal(expert(hidden), expert(obs))

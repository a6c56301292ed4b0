"""``env_type: libero`` keeps the rules of environments; the expert puts objects into the basket."""

import sys

import pytest
import torch
from libero_configs import libero_config, needs_assets

from rlinf.config.schema.env import GuestConfig
from rlinf.envs import make_vector_env
from rlinf.envs.conformance import check_vector_env
from rlinf.envs.scripted import make_scripted_policy
from rlinf.errors import ConfigError


def test_missing_assets_are_named_before_anything_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mujoco")
    with pytest.raises(ConfigError, match="holds no scenes"):
        make_vector_env(libero_config(assets_path="/nowhere"), num_envs=2)


@pytest.mark.libero
def test_tasks_and_start_states_conform() -> None:
    needs_assets()
    cfg = libero_config(task_id_filter=[1], show_objects=True)
    with make_vector_env(cfg, num_envs=2) as env:
        assert env.observation_space["wrist_images"].shape == (32, 32, 3)
        check_vector_env(env, rebuild=lambda: make_vector_env(cfg, num_envs=2))


@pytest.mark.libero
@pytest.mark.parametrize(("task", "convention"), [(0, "native"), (1, "rlds")])
def test_the_expert_puts_the_object_into_the_basket(task: int, convention: str) -> None:
    needs_assets()
    cfg = libero_config(
        task_id_filter=[task],
        total_num_envs=1,
        group_size=1,
        max_episode_steps=280,
        max_steps_per_rollout_epoch=280,
        auto_reset=False,
        use_ordered_reset_state_ids=True,
        show_objects=True,
        image_size=16,
        action_convention=convention,
    )
    expert = make_scripted_policy("libero_object", cfg)
    with make_vector_env(cfg, num_envs=1) as env:
        obs, episodes = env.reset(0), list[dict[str, float]]()
        while not episodes:
            step = env.chunk_step(expert(obs).expand(-1, 2, -1))
            obs, episodes = step.obs, list(step.episodes)
    assert episodes[0]["success_once"] == 1.0
    assert episodes[0]["return"] == 1.0


@pytest.mark.libero
def test_actions_of_openvlas_data_sets_turn_the_gripper_round() -> None:
    needs_assets()
    openings = {}
    for convention, gripper in (("rlds", 0.0), ("native", 1.0), ("rlds", 1.0)):
        cfg = libero_config(task_id_filter=[0], total_num_envs=1, group_size=1, action_convention=convention)
        with make_vector_env(cfg, num_envs=1) as env:
            env.reset(0)
            step = env.chunk_step(torch.tensor([[[0.0] * 6 + [gripper]]]).expand(1, 4, 7))
            openings[convention, gripper] = float(step.obs["states"][0, 6] - step.obs["states"][0, 7])
    assert openings["rlds", 0.0] == openings["native", 1.0] < openings["rlds", 1.0] - 0.01


@pytest.mark.libero
@pytest.mark.timeout(600)
def test_a_guest_plays_the_same_bit_for_bit() -> None:
    needs_assets()
    actions = torch.rand(4, 2, 3, 7, generator=torch.Generator().manual_seed(1)) * 2 - 1
    seen = []
    for guest in (None, GuestConfig(python=sys.executable)):
        cfg = libero_config(task_id_filter=[0, 1], group_size=1, num_settle_steps=2, guest=guest)
        with make_vector_env(cfg, num_envs=2) as env:
            steps = [env.reset(5), *(env.chunk_step(chunk).obs for chunk in actions)]
            seen.append((env.versions(), steps))
    assert seen[0][0] == seen[1][0]
    assert "assets_sha256" in seen[0][0]
    for own, guests in zip(seen[0][1], seen[1][1], strict=True):
        assert own["task_descriptions"] == guests["task_descriptions"]
        for key in ("states", "main_images", "wrist_images"):
            assert torch.equal(own[key], guests[key]), key

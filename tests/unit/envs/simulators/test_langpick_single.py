"""Scenes of the three cubes: what a seed decides, the reward, and how images are rendered."""

import numpy as np
import pytest
import torch
from langpick_configs import langpick_config

from rlinf.envs import make_vector_env
from rlinf.envs.simulators.langpick_single import COLOURS, LangPickSingleEnv


def langpick(**kwargs: bool | float) -> LangPickSingleEnv:
    options = {"is_light": True, "shows_objects": True, "random_hand": False, "disturbance": 0.0, **kwargs}
    return LangPickSingleEnv(image_size=64, **options)


def test_cubes_have_their_colours_and_their_distance() -> None:
    env = langpick()
    for seed in range(10):
        row = env.observe(env.reset(seed))
        places = row["objects"].reshape(3, 3)[:, :2]
        gaps = np.linalg.norm(places[:, None] - places[None], axis=-1)[np.triu_indices(3, 1)]
        assert gaps.min() >= 0.08
        pixels = row["main_images"].reshape(-1, 3).astype(int)
        for channel in range(len(COLOURS)):
            others = pixels[:, [other for other in range(3) if other != channel]]
            assert (pixels[:, channel] > others.max(1) + 60).sum() >= 8, (seed, COLOURS[channel])
    env.close()


def test_the_camera_shows_the_right_of_the_arm_on_the_right() -> None:
    env = langpick()
    row = env.observe(env.reset(0))
    pixels = row["main_images"].astype(int)
    columns = [
        np.argwhere(pixels[..., channel] > np.delete(pixels, channel, -1).max(-1) + 60)[:, 1].mean()
        for channel in range(3)
    ]
    sides = row["objects"].reshape(3, 3)[:, 1]
    assert np.array_equal(np.argsort(columns), np.argsort(sides))
    env.close()


def test_random_hands_start_elsewhere_and_at_rest() -> None:
    env = langpick(random_hand=True)
    hands = []
    for seed in range(6):
        before = env.observe(env.reset(seed))["states"]
        env.step(np.array([0.0, 0.0, 0.0, 1.0]))
        after = env.observe(None)["states"]
        assert np.abs(after - before)[:3].max() < 0.004
        hands.append(before[:3])
    assert np.ptp(np.stack(hands), axis=0).min() > 0.08
    env.close()


def test_disturbances_move_the_hand_and_are_named_by_the_seed() -> None:
    still = np.array([0.0, 0.0, 0.0, 1.0])
    env = langpick(disturbance=1.0)
    paths = []
    for _ in range(2):
        env.reset(3)
        for _ in range(4):
            env.step(still)
        paths.append(env.observe(None)["states"])
    assert np.array_equal(*paths)
    home = langpick()
    home.reset(3)
    for _ in range(4):
        home.step(still)
    assert np.abs(paths[0] - home.observe(None)["states"])[:3].max() > 0.02


def test_light_images_show_the_same_scene_without_shadows() -> None:
    light, full = langpick(), langpick(is_light=False)
    images = [env.observe(env.reset(1))["main_images"].astype(int) for env in (light, full)]
    assert 0 < np.abs(images[0] - images[1]).mean() < 20
    light.close(), full.close()


def test_only_the_end_of_a_chunk_is_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    observe = LangPickSingleEnv.observe
    monkeypatch.setattr(LangPickSingleEnv, "observe", lambda self, raw: looks.append(0) or observe(self, raw))
    with make_vector_env(langpick_config(total_num_envs=1, group_size=1), num_envs=1) as env:
        env.reset(0)
        env.chunk_step(torch.zeros(1, 5, 4))
    assert len(looks) == 2  # after the reset, after the chunk


def test_rewards_rise_on_the_way_to_success() -> None:
    env = langpick()
    rewards = []
    for height in (0.0, 0.03, 0.06):
        env.reset(0)
        target = env._cubes[env._target]
        joint = env._arm.model.body(target).jntadr[0]
        address = env._arm.model.jnt_qposadr[joint]
        env._arm.data.qpos[address + 2] += height + 0.005
        _, reward, terminated, truncated, success = env.step(np.array([0.0, 0.0, 0.0, 1.0]))
        rewards.append(reward)
        assert terminated == success
        assert not truncated
    assert rewards == sorted(rewards)
    env.close()

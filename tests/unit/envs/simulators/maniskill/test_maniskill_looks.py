"""A task with cameras is looked at late, shows its whole state beside them, and no contacts of an earlier episode."""

import numpy as np
import torch
from maniskill_fake import FakeManiSkill

from rlinf.envs.simulators.maniskill.maniskill_looks import look_late, untouched, whole_state


def test_steps_and_resets_render_nothing() -> None:
    env = FakeManiSkill(2)
    look_late(env)
    before = env.num_looks
    raw = env.reset(seed=[0, 1])[0]
    assert set(raw) == set(env.step(np.zeros((2, 2), np.float32))[0]) == {"agent", "extra", "info"}
    assert env.get_obs()["info"]["elapsed_steps"].tolist() == [1, 1]
    assert env.num_looks == before


def test_the_whole_state_has_what_images_alone_show_and_the_mode_stays() -> None:
    env = FakeManiSkill(2)
    look_late(env)
    raw = env.reset(seed=[0, 1])[0]
    assert "touches" not in raw["extra"]
    found = whole_state(env, {"touches": torch.tensor([True, False])})
    assert found["extra"]["touches"].tolist() == [True, False]
    assert (env._obs_mode, env.obs_mode_struct.state_dict) == ("rgb", False)


def test_rows_that_begin_touch_nothing_and_the_others_what_they_did() -> None:
    env = FakeManiSkill(3)
    env.scene.impulses = torch.ones(3, 3)
    with untouched(env, np.array([0, 2])):
        assert env.get_info()["touches"].tolist() == [False, True, False]
    assert env.get_info()["touches"].tolist() == [True, True, True]

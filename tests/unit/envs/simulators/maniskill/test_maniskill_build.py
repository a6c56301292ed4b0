"""What a ManiSkill task is built with and how it is shown, without ManiSkill."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from maniskill_fake import FakeManiSkill

from rlinf.envs.simulators.maniskill import maniskill_build
from rlinf.envs.simulators.maniskill.maniskill_build import ManiSkillTask, flatten, make_params, space_of
from rlinf.envs.simulators.maniskill.maniskill_looks import look_late
from rlinf.errors import EnvironmentFailure


def test_nested_observations_are_flattened_in_the_order_of_their_keys() -> None:
    raw = {
        "agent": {"qpos": torch.tensor([[1.0, 2.0], [3.0, 4.0]]), "controller": {}},
        "extra": {"grasped": torch.tensor([True, False])},
    }
    flat = flatten(raw)
    assert flat.dtype == np.float32
    assert flat.tolist() == [[1, 2, 1], [3, 4, 0]]


def test_what_is_flattened_does_not_change_with_the_simulator() -> None:
    tensor = torch.zeros(2, 3)
    flat = flatten(tensor)
    tensor += 1
    assert not flat.any()


def test_a_batch_is_shown_row_by_row() -> None:
    env = FakeManiSkill(3)
    raw = env.reset(seed=[1, 2, 3])[0]
    obs = ManiSkillTask(env, cameras={"main_images": "base", "hand_images": "hand"}, shows_objects=True).observe(raw)
    assert env.num_looks == 3, "one of the reset, which another reset at its making has, too, and one of observe"
    assert list(obs) == ["task_descriptions", "objects", "states", "main_images", "hand_images"]
    assert obs["states"][:, :2].tolist() == env.qpos.tolist()
    assert obs["objects"].tolist() == env.goal.tolist()
    assert obs["task_descriptions"] == env.get_language_instruction()
    assert (obs["hand_images"] == obs["main_images"] + 1).all()
    assert "objects" not in ManiSkillTask(env).observe(raw)
    space = space_of(obs)
    assert space["main_images"] == spaces.Box(0, 255, (2, 3, 3), np.uint8)
    assert space["states"].shape == (7,)
    assert isinstance(space["task_descriptions"], spaces.Text)


class PlainManiSkill(FakeManiSkill):
    """A task that does not say what its objects are."""

    @property
    def get_objects(self) -> Any:  # type: ignore[override]
        raise AttributeError


def test_of_a_task_that_does_not_say_what_its_objects_are_the_whole_state_is_shown_beside_the_images() -> None:
    env = PlainManiSkill(2)
    look_late(env)
    raw = env.reset(seed=[1, 2])[0]
    obs = ManiSkillTask(env, cameras={"main_images": "base"}, shows_objects=True).observe(raw)
    assert obs["objects"].shape == (2, obs["states"].shape[1] + 1)
    assert np.array_equal(obs["objects"][:, :-1], obs["states"])


def test_one_sentence_is_that_of_all_rows_and_may_be_empty() -> None:
    env = FakeManiSkill(2)
    raw = torch.zeros(2, 3)
    assert ManiSkillTask(env, description="go").observe(raw)["task_descriptions"] == ["go", "go"]
    assert ManiSkillTask(env, description="").observe(raw)["task_descriptions"] == ["", ""]


def test_arguments_follow_from_the_place_of_the_simulation() -> None:
    own = {"id": "PushCube-v1", "sim_backend": "cpu"}
    assert make_params(own, sim_backend="cpu", renders=False) == {
        "obs_mode": "state",
        "render_backend": "none",
        "sim_backend": "physx_cpu",
    }
    assert make_params({"obs_mode": "rgb", "sim_backend": "gpu"}, sim_backend="gpu", renders=True) == {
        "obs_mode": "rgb",
        "render_backend": "gpu",
        "reconfiguration_freq": 0,
        "sim_backend": "physx_cuda",
    }
    assert make_params({"render_backend": "cpu"}, sim_backend="gpu", renders=True)["render_backend"] == "cpu"


@pytest.mark.parametrize(("text", "error"), [("vk::Instance: failed", EnvironmentFailure), ("no such", RuntimeError)])
def test_a_missing_driver_names_the_command(text: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def make(env_id: str, **params: object) -> object:
        raise RuntimeError(text)

    monkeypatch.setattr(maniskill_build, "gymnasium", SimpleNamespace(make=make))
    with pytest.raises(error, match=text) as caught:
        maniskill_build._make("PushCube-v1")
    assert error is RuntimeError or "install.sh embodied --env maniskill" in str(caught.value)

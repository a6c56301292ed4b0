"""ManiSkill's environments in one simulation: against a stand-in for it, and where it is installed against itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from maniskill_configs import PUSH_CUBE, PUT_ON_PLATE, maniskill_config
from maniskill_fake import FakeManiSkill

from rlinf.config.schema.env import ManiSkillEnvConfig, VideoConfig
from rlinf.data.messages.embodied import Observation
from rlinf.envs import make_vector_env
from rlinf.envs.base import VectorEnv
from rlinf.envs.conformance import check_vector_env, sample_actions
from rlinf.envs.simulators.maniskill import maniskill_batch
from rlinf.envs.simulators.maniskill.maniskill_batch import ManiSkillBatchEnv
from rlinf.envs.simulators.maniskill.maniskill_build import ManiSkillTask
from rlinf.envs.simulators.maniskill.maniskill_looks import look_late
from rlinf.errors import ConfigError

CAMERAS = {"main_images": "base", "hand_images": "hand"}
BATCH = {"total_num_envs": 4, "group_size": 2, "sim_backend": "gpu"}


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> list[FakeManiSkill]:
    """Have batches made of the stand-in, on a machine that seems to have a GPU; return those that were built."""
    built: list[FakeManiSkill] = []

    def build(*, num_envs: int, **keys: Any) -> ManiSkillTask:
        built.append(FakeManiSkill(num_envs))
        look_late(built[-1])
        return ManiSkillTask(built[-1], keys["task_description"], CAMERAS, shows_objects=keys["show_objects"])

    monkeypatch.setattr(maniskill_batch, "build_task", build)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    return built


def test_the_stand_in_conforms(fakes: list[FakeManiSkill]) -> None:
    with make_vector_env(maniskill_config(**BATCH, show_objects=True), num_envs=4) as env:
        assert isinstance(env, ManiSkillBatchEnv)
        assert set(env.observation_space) == {"states", "objects", "task_descriptions", *CAMERAS}
        assert env.observation_space["main_images"].shape == (2, 3, 3)
        assert env.observation_space["states"].shape == (8 - 1,)
        check_vector_env(env)
        assert not env.is_restorable
    assert fakes[0].is_closed


def test_images_are_rendered_once_in_a_chunk_and_where_episodes_end(fakes: list[FakeManiSkill]) -> None:
    with make_vector_env(maniskill_config(**{**BATCH, "max_episode_steps": 5}), num_envs=4) as env:
        env.reset(0)
        before = fakes[0].num_looks
        step = env.chunk_step(torch.zeros(4, 3, 2))
        assert fakes[0].num_looks == before + 1
        assert torch.equal(step.obs["states"][:, :2], fakes[0].qpos)
        step = env.chunk_step(torch.zeros(4, 4, 2))  # all are cut off by the second action, and begin again
        assert fakes[0].num_looks == before + 3
        assert step.executed.sum() == 8
        assert torch.equal(step.obs["states"][:, :2], fakes[0].qpos)


def test_a_start_state_follows_from_its_seed_alone(fakes: list[FakeManiSkill]) -> None:
    cfg = maniskill_config(**BATCH)
    with make_vector_env(cfg, num_envs=4) as env, make_vector_env(cfg, num_envs=1) as alone:
        env.reset(0)
        together = env.restart(np.arange(4), np.array([11, 5, 5, 7]))
        for row, seed in enumerate([11, 5, 5, 7]):
            other = env.restart(np.array([(row + 1) % 4]), np.array([seed]))
            single = alone.restart(np.array([0]), np.array([seed]))
            for shown in (other, single):
                assert torch.equal(shown["states"][0], together["states"][row])
                assert shown["task_descriptions"][0] == together["task_descriptions"][row]
    assert not torch.equal(together["states"][0], together["states"][1])


def test_rows_at_rest_get_zeros_and_are_not_reported(fakes: list[FakeManiSkill]) -> None:
    cfg = maniskill_config(**BATCH, auto_reset=False, max_episode_steps=20, max_steps_per_rollout_epoch=40)
    with make_vector_env(cfg, num_envs=4) as env:
        env.reset(0)
        active = np.array([True, False, True, False])
        chosen = np.ones((4, 2), np.float32)
        result = env.step(chosen, active)
        assert chosen.all(), "the request keeps its actions"
        assert fakes[0].last_action.tolist() == [[1, 1], [0, 0], [1, 1], [0, 0]]
        assert result.rewards.tolist() == fakes[0].qpos.sum(1).tolist()
        # To the right until success, in different steps: the last action reaches those that go on.
        step = env.chunk_step(torch.ones(4, 12, 2))
        assert 0 < step.executed[:, -1].sum() < 4
        assert torch.equal(fakes[0].last_action, step.executed[:, -1:].float().expand(4, 2))
        assert all(metrics["success_once"] for metrics in step.episodes)
        rested = env.chunk_step(torch.ones(4, 9, 2))
    assert not rested.executed[step.terminations.any(1)].any()


def test_observations_keep_their_memory(fakes: list[FakeManiSkill]) -> None:
    with make_vector_env(maniskill_config(**BATCH), num_envs=4) as env:
        env.reset(0)
        first = env.chunk_step(torch.ones(4, 1, 2)).obs["states"]
        kept = first.clone()
        env.chunk_step(torch.ones(4, 1, 2))
    assert torch.equal(first, kept)


def test_a_task_without_success_reports_none(fakes: list[FakeManiSkill]) -> None:
    with make_vector_env(maniskill_config(**BATCH), num_envs=4) as env:
        env.reset(0)
        fakes[0].has_success = False
        assert not env.step(np.zeros((4, 2), np.float32), np.ones(4, np.bool_)).infos
        fakes[0].has_success = True
        assert set(env.step(np.zeros((4, 2), np.float32), np.ones(4, np.bool_)).infos) == {"success"}


def test_videos_show_the_rows_that_are_recorded(fakes: list[FakeManiSkill], tmp_path: Path) -> None:
    video = VideoConfig(save_video=True, video_base_dir=str(tmp_path))
    with make_vector_env(maniskill_config(**BATCH, video_cfg=video), num_envs=4) as env:
        frames = env.render_idx([1, 3])
        assert frames is not None
        assert [int(frame.max()) for frame in frames] == [1, 3]
        assert frames[0].shape == (32, 48, 3)


@pytest.mark.parametrize("num_recorded", [0, 2])
def test_the_simulation_is_built_as_the_section_says(
    num_recorded: int, fakes: list[FakeManiSkill], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    received: dict[str, Any] = {}

    def build(**keys: Any) -> ManiSkillTask:
        received.update(keys)
        return ManiSkillTask(FakeManiSkill(4), "go", {})

    monkeypatch.setattr(maniskill_batch, "build_task", build)
    video = VideoConfig(save_video=num_recorded > 0, video_base_dir=str(tmp_path))
    make_vector_env(maniskill_config(**BATCH, video_cfg=video, task_description="go"), num_envs=4).close()
    assert received == {
        "num_envs": 4,
        "sim_backend": "gpu",
        "render": num_recorded > 0,
        "init_params": PUSH_CUBE,
        "task_description": "go",
        "show_objects": False,
        "render_quality": None,
    }


def test_without_cuda_the_worker_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=r"env\.\*\.sim_backend: received gpu; .*no CUDA device.*or set it to cpu"):
        make_vector_env(maniskill_config(**BATCH), num_envs=4)


def _rollout(env: VectorEnv, num_chunks: int) -> list[Any]:
    """Return what is seen in episodes from start to end, and over it."""
    seen: list[Any] = [env.reset(3)]
    for number in range(num_chunks):
        actions = sample_actions(env.action_space, num_envs=1, num_chunks=3, seed=number)
        step = env.chunk_step(actions)
        seen += [step.obs, step.final_obs or {}, {"rewards": step.rewards, "ends": step.terminations}]
        seen += [{"metrics": [repr(metrics) for metrics in step.episodes]}]
    return seen


def _assert_same(first: Observation, second: Observation) -> None:
    assert list(first) == list(second)
    for key, value in first.items():
        if isinstance(value, torch.Tensor):
            assert value.dtype == second[key].dtype
            assert torch.equal(value, second[key]), key
        else:
            assert value == second[key]


@pytest.mark.maniskill
@pytest.mark.parametrize(
    ("params", "keys"),
    [
        (PUSH_CUBE, {}),
        ({"id": "PickCube-v1", "control_mode": "pd_joint_delta_pos"}, {}),
        ({**PUSH_CUBE, "obs_mode": "rgb", "sensor_configs": {"width": 16, "height": 16}}, {}),
        ({"id": "PickCube-v1", "obs_mode": "state_dict"}, {"task_description": "pick it"}),
        ({**PUT_ON_PLATE, "obs_mode": "rgb", "sensor_configs": {"width": 16, "height": 16}}, {"show_objects": True}),
    ],
)
def test_a_batch_of_one_on_the_cpu_is_the_single_simulation_bit_for_bit(
    params: dict[str, Any], keys: dict[str, Any]
) -> None:
    cfg = maniskill_config(init_params=params, total_num_envs=1, group_size=1, **keys)
    with make_vector_env(cfg, num_envs=1) as single, ManiSkillBatchEnv(cfg, num_envs=1) as batch:
        assert batch.observation_space == single.observation_space
        assert batch.action_space == single.action_space
        for first, second in zip(_rollout(single, 5), _rollout(batch, 5), strict=True):
            _assert_same(first, second)


@pytest.mark.maniskill
@pytest.mark.parametrize("params", [PUSH_CUBE, PUT_ON_PLATE])
def test_a_batch_of_one_on_the_cpu_conforms(params: dict[str, Any]) -> None:
    cfg = maniskill_config(init_params=params, total_num_envs=1, group_size=1)
    with ManiSkillBatchEnv(cfg, num_envs=1) as env:
        check_vector_env(env)


@pytest.mark.gpu
@pytest.mark.maniskill
@pytest.mark.parametrize(
    "params",
    [{"id": "PickCube-v1", "control_mode": "pd_ee_delta_pos"}, PUT_ON_PLATE, {**PUT_ON_PLATE, "obs_mode": "rgb"}],
)
def test_eight_on_a_gpu_conform(params: dict[str, Any]) -> None:
    cfg: ManiSkillEnvConfig = maniskill_config(init_params=params, total_num_envs=8, sim_backend="gpu")
    with make_vector_env(cfg, num_envs=8) as env:
        assert isinstance(env, ManiSkillBatchEnv)
        check_vector_env(env)

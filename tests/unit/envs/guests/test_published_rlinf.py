"""The adapter makes the calls that the published environment classes take, as a transcript of them says.

The stand-ins below have the signatures of the published classes: those that know single rows and those that do not,
with one observation for each action and with the last one alone.
"""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlinf.config.schema.env import GuestConfig, GuestEnvConfig
from rlinf.envs.guest_process import GuestProcess, GuestSetup, made_by_guest
from rlinf.envs.process_pool import ProcessPool
from rlinf.envs.raw_chunk import ChunkRequest, EpisodeRule
from rlinf.envs.simulators.guest_env import GuestEnv
from rlinf.envs.single_env import SingleEnvSpec
from rlinf.errors import EnvironmentFailure

ENVIRONMENTS = """
import json, os
import numpy as np

def note(*entry):
    with open(os.environ["TRANSCRIPT"], "a") as file:
        file.write(json.dumps(entry) + "\\n")

class Base:
    shows = 1
    def __init__(self, cfg, num_envs, seed_offset, total_num_processes, worker_info, record_metrics=True):
        note("init", cfg.env_type, cfg.group_size, cfg.max_episode_steps, cfg.use_rel_reward, cfg.auto_reset,
             cfg.task_config.task_name, cfg.video_cfg.save_video, num_envs, seed_offset, total_num_processes)
        note("rewards", cfg.ignore_terminations, cfg.is_eval, cfg.reward_coef, cfg.use_fixed_reset_state_ids)
        self.num_envs, self.cfg, self.seed_offset = num_envs, cfg, seed_offset
        self.use_fixed_reset_state_ids = cfg.use_fixed_reset_state_ids
        self._generator = np.random.default_rng(0)
        self.is_start = False
        self.update_reset_state_ids()
    def update_reset_state_ids(self):
        if self.use_fixed_reset_state_ids and hasattr(self, "reset_state_ids"):
            return
        groups = self._generator.integers(0, 1000, self.num_envs // self.cfg.group_size)
        self.reset_state_ids = np.repeat(groups, self.cfg.group_size)
    def obs(self, step):
        images = np.full((self.num_envs, 2, 2, 3), step, np.uint8)
        states = np.stack([self.reset_state_ids, np.full(self.num_envs, step)], 1).astype(np.float64)
        return {"main_images": images, "wrist_images": None, "states": states,
                "task_descriptions": ["lift the pot"] * self.num_envs}
    def chunk_step(self, actions):
        note("chunk_step", np.asarray(actions).tolist())
        steps = actions.shape[1]
        done = np.zeros((self.num_envs, steps), bool)
        done[0, min(1, steps - 1)] = True
        infos = [{"episode": {"success_once": done[:, : step + 1].any(1)}} for step in range(steps)]
        seen = [self.obs(step + 1) for step in range(steps)]
        return seen[-self.shows:], done.astype(np.float64), done, np.zeros_like(done), infos[-self.shows:]

class Rows(Base):
    shows = 99
    def reset(self, env_idx=None, env_seeds=None):
        note("reset", None if env_idx is None else list(map(int, env_idx)), bool(self.is_start))
        return self.obs(0), {}

class Whole(Base):
    def reset(self):
        note("reset", None, bool(self.is_start))
        return self.obs(0), {}

def get_env_cls(env_type, env_cfg=None):
    return {"robotwin": Rows, "behavior": Whole}[env_type]
"""
ACTION_UTILS = """
def prepare_actions(raw_chunk_actions, env_type, model_type, num_action_chunks, action_dim, action_scale=1.0,
                    policy="widowx_bridge", wm_env_type=None, env_cfg=None):
    assert (num_action_chunks, action_dim) == raw_chunk_actions.shape[1:]
    return raw_chunk_actions * (2 if model_type == "openvla_oft" else 1)
"""


@pytest.fixture
def published(tmp_path: Path) -> dict[str, str]:
    """Return the variables of a guest that has the stand-ins for the published package."""
    package = tmp_path / "site" / "rlinf" / "envs"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("")
    (package / "__init__.py").write_text(ENVIRONMENTS)
    (package / "action_utils.py").write_text(ACTION_UTILS)
    return {"PYTHONPATH": str(tmp_path / "site"), "TRANSCRIPT": str(tmp_path / "transcript")}


def transcript(variables: dict[str, str]) -> list[list[Any]]:
    return [json.loads(line) for line in Path(variables["TRANSCRIPT"]).read_text().splitlines()]


def pool(variables: dict[str, str], env_type: str = "robotwin", **section: Any) -> ProcessPool:
    params = {
        "env_type": env_type,
        "action_dim": 2,
        "model_type": "openvla_oft",
        "policy_setup": None,
        "task_config": {"task_name": "lift_pot"},
        **section,
    }
    spec = SingleEnvSpec(
        env_type="guest",
        factory=made_by_guest,
        kwargs={"init_params": params, "episode": {"group_size": 2, "max_episode_steps": 9}},
        first_env=4,
        num_envs=4,
    )
    setup = GuestSetup(python=sys.executable, adapter="published_rlinf", env_vars=variables)
    return ProcessPool(spec, 1, process=partial(GuestProcess, setup=setup))


def chunk(guests: ProcessPool, num_steps: int = 3, *, next_seeds: Any = None) -> Any:
    guests.send_chunk(
        ChunkRequest(
            actions=np.arange(4 * num_steps * 2, dtype=np.float32).reshape(4, num_steps, 2),
            active=np.ones(4, np.bool_),
            steps=np.zeros(4, np.int64),
            next_seeds=next_seeds,
            rule=EpisodeRule(max_episode_steps=99, ignore_terminations=False),
        )
    )
    return guests.recv_chunk()


def test_the_calls_are_those_that_published_classes_take(published: dict[str, str]) -> None:
    guests = pool(published)
    guests.reset(np.arange(4), np.full(4, 7))
    done = chunk(guests, next_seeds=np.arange(4))
    guests.close()
    init, _, *calls = transcript(published)
    assert init == ["init", "robotwin", 2, 9, False, False, "lift_pot", False, 4, 4, 1]
    assert [call[:3] for call in calls if call[0] == "reset"] == [
        ["reset", None, True],
        ["reset", None, True],
        ["reset", [0], True],
    ]
    # What prepare_actions of the package made of them.
    assert calls[2][1][0] == [[0.0, 2.0], [4.0, 6.0], [8.0, 10.0]]
    assert done.executed.tolist() == [[True, True, False], [True] * 3, [True] * 3, [True] * 3]
    assert done.rewards.tolist() == [[0, 1, 0], [0] * 3, [0] * 3, [0] * 3]
    assert done.successes.tolist() == [[False, True, False], [False] * 3, [False] * 3, [False] * 3]
    assert done.final_obs["states"][:, 1].tolist() == [2]
    assert done.obs["states"][:, 1].tolist() == [0, 3, 3, 3]
    assert done.obs["task_descriptions"] == ["lift the pot"] * 4
    assert guests.spaces.observation["main_images"].shape == (2, 2, 3)
    assert guests.spaces.action.shape == (2,)


def test_a_seed_names_the_start_states_of_all_groups(published: dict[str, str]) -> None:
    guests = pool(published)
    first, other, again = (guests.reset(np.arange(4), np.full(4, seed)).obs["states"][:, 0] for seed in (7, 8, 7))
    guests.close()
    assert first[0] == first[1] != first[2] == first[3]
    assert first.tolist() == again.tolist() != other.tolist()


def test_one_observation_for_a_chunk_is_the_last(published: dict[str, str]) -> None:
    guests = pool(published, "behavior")
    guests.reset(np.arange(4), np.full(4, 7))
    done = chunk(guests)
    assert done.final_obs["states"][:, 1].tolist() == [3]
    assert done.successes.tolist() == [[False] * 3] * 4, "what is known at the end says nothing of the step before"
    with pytest.raises(EnvironmentFailure, match=r"Whole cannot reset some.*auto_reset: false"):
        guests.reset(np.array([1]), np.array([7]))


def test_a_recipes_section_reaches_the_published_class(published: dict[str, str]) -> None:
    cfg = GuestEnvConfig(
        env_type="guest",
        adapter="published_rlinf",
        guest=GuestConfig(python=sys.executable, env_vars=published),
        init_params={"env_type": "robotwin", "action_dim": 2, "task_config": {"task_name": "lift_pot"}},
        total_num_envs=4,
        group_size=2,
        max_episode_steps=5,
        max_steps_per_rollout_epoch=5,
        auto_reset=False,
        use_rel_reward=True,
    )
    with GuestEnv(cfg, num_envs=4) as env:
        assert env.reset(3)["states"].shape == (4, 2)
    assert transcript(published)[0] == ["init", "robotwin", 2, 5, False, False, "lift_pot", False, 4, 0, 1]


def test_a_published_section_does_not_have_the_guest_reset_and_shape_rewards_as_well(published: dict[str, str]) -> None:
    shaping: dict[str, Any] = {"auto_reset": True, "ignore_terminations": True, "is_eval": True, "reward_coef": 5.0}
    shaping |= {"use_fixed_reset_state_ids": False, "use_rel_reward": True, "video_cfg": {"save_video": True}}
    guests = pool(published, **shaping)
    guests.reset(np.arange(4), np.full(4, 7))
    guests.close()
    init, rewards, *_ = transcript(published)
    assert init == ["init", "robotwin", 2, 9, False, False, "lift_pot", False, 4, 4, 1]
    assert rewards == ["rewards", False, False, 1.0, True]

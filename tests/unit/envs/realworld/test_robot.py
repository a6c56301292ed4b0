"""A robot of any kind acts, reports and shows what its driver says; wrong drivers are noticed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rlinf.config.registries import scripted_policies
from rlinf.config.schema.intervention import ClientIntervenerConfig, InterventionConfig
from rlinf.config.schema.realworld import RobotEnvConfig
from rlinf.envs import make_vector_env
from rlinf.envs.base import VectorEnv
from rlinf.envs.interveners import Situation
from rlinf.envs.realworld.client import connections
from rlinf.envs.realworld.dummy_robot import DummyRobot
from rlinf.envs.realworld.robot import RobotSingleEnv
from rlinf.envs.realworld.robot_device import ClientIntervener
from rlinf.errors import ConfigError, EnvironmentFailure

DUMMY = "rlinf.envs.realworld.dummy_robot:DummyRobot"
HERE = "tests.unit.envs.realworld.test_robot"
BOTH = {"type": "Robot", "node_rank": 0, "left": "10.0.0.2", "right": "10.0.0.3"}


class Short(DummyRobot):
    """Reports less than it should."""

    def state(self) -> Any:
        return super().state()[:-1]


class Small(DummyRobot):
    """Shows smaller images than it should."""

    def frames(self) -> list[Any]:
        return [frame[1:] for frame in super().frames()]


class Unattended(DummyRobot):
    """Its operator does not act."""

    def operator_action(self) -> Any:
        return None


class Prompt(DummyRobot):
    """Its time passes while it waits, and while it goes to its start."""

    def reset(self, seed: int) -> None:
        super().reset(seed)
        self.time += 7.0

    def act(self, action: Any) -> None:
        super().act(action)
        self.last_action = action


class Slow(DummyRobot):
    """Its time passes by itself, faster than actions come."""

    def act(self, action: Any) -> None:
        super().act(action)
        self.time += 0.3


class Tuned(DummyRobot):
    """Takes an argument of its own."""

    def __init__(self, *, gain: float, **described: Any) -> None:
        super().__init__(**described)
        self.gain = gain


def make_config(**keys: Any) -> RobotEnvConfig:
    defaults: dict[str, Any] = {
        "env_type": "robot",
        "client": DUMMY,
        "state_dim": 6,
        "action_dim": 4,
        "total_num_envs": 1,
        "max_episode_steps": 15,
        "max_steps_per_rollout_epoch": 15,
        "image_size": 8,
        "auto_reset": False,
    }
    return RobotEnvConfig(**{**defaults, **keys})


def play(env: VectorEnv, actions: torch.Tensor) -> tuple[Any, list[dict[str, float]]]:
    env.reset(0)
    episodes: list[dict[str, float]] = []
    step: Any = None
    while not episodes:
        step = env.chunk_step(actions)
        episodes += step.episodes
    return step, episodes


@pytest.mark.parametrize("num_cameras", [0, 1, 3])
def test_it_shows_what_its_driver_says(num_cameras: int) -> None:
    with make_vector_env(make_config(num_cameras=num_cameras, total_num_envs=2), num_envs=2) as env:
        obs = env.reset(0)
    assert obs["states"].shape == (2, 6)
    assert (obs["states"][0] != obs["states"][1]).any()
    assert ("main_images" in obs) == (num_cameras > 0)
    assert ("extra_view_images" in obs) == (num_cameras > 1)
    if num_cameras > 1:
        assert obs["extra_view_images"].shape == (2, num_cameras - 1, 8, 8, 3)


def test_actions_move_it_within_their_bounds() -> None:
    with make_vector_env(make_config(num_cameras=0), num_envs=1) as env:
        first = env.reset(0)["states"][0, :4]
        step = env.chunk_step(torch.tensor([[[0.5, -0.5, 7.0, 0.0]]]))
    moved = step.obs["states"][0, :4] - first
    expected = (first + torch.tensor([0.05, -0.05, 0.1, 0.0])).clamp(-1, 1) - first
    assert torch.allclose(moved, expected, atol=1e-6)
    assert float(step.rewards[0, 0]) == pytest.approx(-float(step.obs["states"][0, :4].abs().max()), abs=1e-6)


def test_an_operator_at_the_robots_own_device_solves_the_task() -> None:
    wrapper = InterventionConfig(name="intervention", intervener=ClientIntervenerConfig(intervener_type="client"))
    cfg = make_config(wrappers=[wrapper])
    with make_vector_env(cfg, num_envs=1, hardware=[BOTH]) as env:
        step, episodes = play(env, scripted_policies.get("operator")(cfg)({"states": torch.zeros(1, 6)}))
    assert episodes[0]["success_once"] == 1.0
    assert step.intervene_flag.all()


def test_a_robot_without_an_operator_rests() -> None:
    cfg = make_config(client=f"{HERE}:Unattended", num_cameras=0)
    intervener = ClientIntervener(ClientIntervenerConfig(intervener_type="client"), env=cfg, row=0)
    with make_vector_env(cfg, num_envs=1) as env:
        assert intervener.act(Situation(env.reset(0), torch.zeros(4), 0.0, 0)) is None


def test_an_operator_needs_one_robot_whose_driver_reads_a_device() -> None:
    cfg = make_config()
    intervener = ClientIntervener(ClientIntervenerConfig(intervener_type="client"), env=cfg, row=0)
    with pytest.raises(ConfigError, match=r"operator_action\(\); env_type=robot drives 0"):
        intervener.act(Situation({}, torch.zeros(4), 0.0, 0))
    with pytest.raises(ConfigError, match="drives one environment"):
        ClientIntervener(ClientIntervenerConfig(intervener_type="client"), env=cfg, row=1)


def test_training_and_evaluation_share_a_declared_robot() -> None:
    train = make_vector_env(make_config(), num_envs=1, hardware=[BOTH])
    evaluation = make_vector_env(make_config(), num_envs=1, hardware=[BOTH])
    assert len(connections.clients()) == 1
    train.close()
    assert len(connections.clients()) == 1
    evaluation.close()
    assert connections.clients() == []


def test_a_driver_gets_its_parameters() -> None:
    with make_vector_env(make_config(client=f"{HERE}:Tuned", client_params={"gain": 2.5}), num_envs=1):
        assert [client.gain for client in connections.clients()] == [2.5]
    with pytest.raises(ConfigError, match=r"env\.\*\.client_params: received gain; allowed for '.*DummyRobot': none"):
        make_vector_env(make_config(client_params={"gain": 2.5}), num_envs=1)


def test_a_worker_drives_one_robot() -> None:
    with pytest.raises(ConfigError, match="it has 2 robots and 1 environments"):
        make_vector_env(make_config(), num_envs=1, hardware=[BOTH, {**BOTH, "left": "10.0.0.4"}])


@pytest.mark.parametrize(
    ("driver", "text"),
    [("Short", r"a state of shape \[5\]; expected \[6\]"), ("Small", r"expected 1 of uint8 \[8, 8, 3\]")],
)
def test_drivers_that_report_something_else_are_noticed(driver: str, text: str) -> None:
    cfg = make_config(client=f"{HERE}:{driver}")
    with make_vector_env(cfg, num_envs=1) as env, pytest.raises(EnvironmentFailure, match=text):
        env.reset(0)


@pytest.mark.parametrize(("driver", "seconds"), [("Prompt", 0.1), ("Slow", 0.4)])
def test_an_action_gets_its_time(driver: str, seconds: float) -> None:
    with make_vector_env(make_config(client=f"{HERE}:{driver}", num_cameras=0), num_envs=1) as env:
        env.reset(0)
        before = connections.clients()[0].time
        env.chunk_step(torch.zeros(1, 1, 4))
        assert connections.clients()[0].time - before == pytest.approx(seconds)


def test_drivers_get_no_action_beyond_the_bounds() -> None:
    with make_vector_env(make_config(client=f"{HERE}:Prompt", num_cameras=0), num_envs=1) as env:
        env.reset(0)
        env.chunk_step(torch.tensor([[[0.5, -9.0, 7.0, 0.0]]]))
        assert connections.clients()[0].last_action.tolist() == [0.5, -1.0, 1.0, 0.0]


def test_the_time_of_each_episodes_first_action_begins_with_the_episode() -> None:
    with make_vector_env(make_config(client=f"{HERE}:Prompt", num_cameras=0), num_envs=1) as env:
        for seed in range(2):
            env.reset(seed)
            robot = connections.clients()[0]
            before = robot.time
            robot.time += 0.04  # the policy chooses an action
            env.chunk_step(torch.zeros(1, 1, 4))
            assert robot.time - before == pytest.approx(0.1)


@pytest.mark.parametrize("num_cameras", [0, 1, 3])
def test_its_spaces_contain_what_it_shows(num_cameras: int) -> None:
    env = RobotSingleEnv(cfg=make_config(num_cameras=num_cameras), robot={}, render=False)
    row = env.observe(env.reset(0))
    env.close()
    del row["task_descriptions"]
    assert {*row, "task_descriptions"} == set(env.observation_space.keys())
    assert all(value in env.observation_space[name] for name, value in row.items())


def test_images_are_the_drivers() -> None:
    with make_vector_env(make_config(num_cameras=2), num_envs=1) as env:
        obs = env.reset(3)
        joints = connections.clients()[0].joints
    assert int(obs["main_images"].unique()) == round(255 * float(np.abs(joints).mean()))

"""People at devices, from their keys and pushes to what is learned from and to a data set, on an arm's stand-in."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from rlinf.config.schema.env import DataCollectionConfig
from rlinf.config.schema.intervention import (
    InterventionConfig,
    KeyboardIntervenerConfig,
    SpaceMouseIntervenerConfig,
)
from rlinf.config.schema.model import MLPPolicyConfig
from rlinf.config.schema.realworld import RealWorldEnvConfig
from rlinf.data.datasets.lerobot import LeRobotDataset, check_dataset
from rlinf.data.messages.embodied import Trajectory
from rlinf.data.replay.buffer import ReplayBuffer, Transitions
from rlinf.envs import make_vector_env
from rlinf.envs.interveners import Situation
from rlinf.models import get_model
from rlinf.workers.rollout.collector import FeedbackReader, TrajectoryCollector
from tests.unit.envs.interveners.spacemouse_package import Device, make_package

CHUNK, CHUNKS = 4, 3
# Before which of the first episode's actions the operator does what: the second chunk is shared by both.
PUSH, LET_GO, SUCCESS = 5, 7, 9
MOTION = [0.5, 0.0, 0.0, 0.0, 0.0, 0.0]


class Listener:
    """Stands for the keyboard of ``pynput``, of which the interveners and the marks each make one."""

    made: list["Listener"] = []

    def __init__(self, on_press: Any, on_release: Any = None) -> None:
        self.on_press, self.on_release = on_press, on_release
        Listener.made.append(self)

    def start(self) -> None: ...

    def stop(self) -> None: ...

    @staticmethod
    def send(event: str, key: Any) -> None:
        for listener in Listener.made:
            call = getattr(listener, event)
            if call is not None:
                call(key)


@pytest.fixture(autouse=True)
def keyboard(monkeypatch: pytest.MonkeyPatch) -> None:
    package: Any = ModuleType("pynput")
    module: Any = ModuleType("pynput.keyboard")
    module.Listener, Listener.made = Listener, []
    monkeypatch.setitem(sys.modules, "pynput", package)
    monkeypatch.setitem(sys.modules, "pynput.keyboard", module)


def by_keyboard(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Callable[[int], None]]:
    """Return the intervener's keys, and what the person does before an action."""
    del monkeypatch
    key = SimpleNamespace(char="w")

    def do(number: int) -> None:
        if number in {PUSH, LET_GO}:
            Listener.send("on_press" if number == PUSH else "on_release", key)

    return KeyboardIntervenerConfig(intervener_type="keyboard", speed=0.5), do


def by_spacemouse(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Callable[[int], None]]:
    """As ``by_keyboard``; the device sends many reports between two actions."""
    device = Device()
    monkeypatch.setitem(sys.modules, "pyspacemouse", make_package(device))

    def do(number: int) -> None:
        if number not in {PUSH, LET_GO}:
            return
        for share in np.linspace(0.0, 0.5, 20) if number == PUSH else np.linspace(0.5, 0.0, 20):
            device.push(x=float(share))
        limit = time.monotonic() + 10.0
        while device.reports and time.monotonic() < limit:
            time.sleep(0.001)
        time.sleep(0.02)

    return SpaceMouseIntervenerConfig(intervener_type="spacemouse"), do


@pytest.mark.parametrize("device", [by_keyboard, by_spacemouse])
def test_what_an_operator_does_is_learned_from_and_recorded(
    device: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    intervener, do = device(monkeypatch)
    trajectory, executed, shown = play(config(intervener, tmp_path), do)
    flags = trajectory.intervened[:, 0].tolist()
    assert flags == [[False] * 4, [False, True, True, False], [False] * 4]
    assert executed == 9  # the third chunk ends with the operator's mark

    replay = ReplayBuffer(100)
    replay.add(Transitions.from_trajectory(trajectory, gamma=0.9))
    stored = replay.contents()
    assert stored.lengths.tolist() == [4, 4, 1]
    assert stored.terminated.tolist() == [False, False, True]
    assert stored.rewards.tolist() == [0.0, 0.0, 1.0]
    assert stored.actions[1, 1:3].tolist() == [MOTION, MOTION]

    root = tmp_path / "part_000000_step_000001"
    check_dataset(root)
    dataset = LeRobotDataset(root)
    assert (dataset.num_episodes, dataset.num_frames) == (1, 9)
    taken = torch.cat([actions[:length] for actions, length in zip(stored.actions, stored.lengths, strict=True)])
    np.testing.assert_array_equal(dataset.column("action"), taken.numpy())
    acts = dataset.column("complementary_info.is_intervention").ravel().tolist()
    assert acts == [flag for chunk in flags for flag in chunk][:9]
    assert dataset.column("next.success").ravel().tolist() == [False] * 8 + [True]
    # What the policy acted on is what was recorded, chunk by chunk; and the arm went where the operator pushed it.
    states = dataset.column("observation.state")
    np.testing.assert_array_equal(states[::CHUNK], shown)
    assert states[7, 0] - states[5, 0] == pytest.approx(2 * 0.5 * 0.02, abs=1e-4)


def config(intervener: Any, folder: Path) -> RealWorldEnvConfig:
    return RealWorldEnvConfig(
        env_type="realworld",
        is_dummy=True,
        total_num_envs=1,
        max_episode_steps=50,
        max_steps_per_rollout_epoch=CHUNK * CHUNKS,
        image_size=None,
        no_gripper=True,
        success_key="space",
        wrappers=[InterventionConfig(name="intervention", intervener=intervener)],
        data_collection=DataCollectionConfig(enabled=True, save_dir=str(folder), only_success=True),
    )


def play(cfg: RealWorldEnvConfig, do: Callable[[int], None]) -> tuple[Trajectory, int, Any]:
    """Play one rollout epoch as the workers do; return it, the actions executed, and what the policy acted on."""
    model = MLPPolicyConfig(
        model_type="mlp_policy", obs_dim=19, action_dim=6, num_action_chunks=CHUNK, add_q_head=True, hidden_dims=[8]
    )
    torch.manual_seed(0)
    policy, generator = get_model(model), torch.Generator().manual_seed(0)
    reader, collector = FeedbackReader(policy, bootstrap_always=False, records_next=True), TrajectoryCollector()
    shown, executed = [], 0
    with make_vector_env(cfg, num_envs=1) as env:
        (wrapper,) = env._wrappers
        (person,) = wrapper.interveners  # type: ignore[attr-defined]
        act = person.act

        def watch(situation: Situation) -> Any:
            do(situation.step)
            if situation.step == SUCCESS - 1:
                Listener.send("on_press", SimpleNamespace(name="space"))
            return act(situation)

        person.act = watch
        env.begin_step(1)
        obs = env.reset(0)
        for _ in range(CHUNKS):
            shown.append(obs["states"][0].numpy())
            actions, output = policy.predict_action_batch(obs, mode="train", generator=generator)
            collector.add_decision(output, version=0)
            step = env.chunk_step(actions)
            collector.add_result(step, reader.read(step, acted_on=obs, values=False))
            executed += int(step.executed.sum())
            obs = step.obs
        env.publish_collection()
    ids = torch.zeros(1, dtype=torch.int64)
    return collector.finish(env_ids=ids, group_ids=ids), executed, np.stack(shown)

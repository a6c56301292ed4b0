"""What a worker holds is released at its end, whatever else fails there."""

import types
from pathlib import Path
from typing import Any

import pytest

from rlinf.config import load_recipe, validate_cfg
from rlinf.config.schema.reward import RewardConfig
from rlinf.config.schema.root import RLinfConfig
from rlinf.scheduler import Worker
from rlinf.workers.actor.actor_worker import ActorWorker
from rlinf.workers.env import env_worker
from rlinf.workers.env.env_worker import EnvWorker
from rlinf.workers.inference.logprob_worker import LogprobWorker
from rlinf.workers.reward.reward_worker import RewardWorker, WeightedRewards
from rlinf.workers.rollout.generation_worker import GenerationWorker


@pytest.fixture(scope="module")
def robot() -> RLinfConfig:
    return validate_cfg(load_recipe("gym_cartpole_ppo_mlp", []))


@pytest.fixture(scope="module")
def text() -> RLinfConfig:
    return validate_cfg(
        load_recipe(
            "tiny_math_grpo",
            ["+inference={}", "cluster.component_placement={actor: 0, rollout: 0, reward: 0, inference: 0}"],
        )
    )


class Noted(Worker):
    def __init__(self) -> None:
        super().__init__()
        self.closed = []

    def hold(self, name: str, fails: bool = False) -> None:
        self.at_shutdown(lambda: self.close_one(name, fails))

    def close_one(self, name: str, fails: bool) -> None:
        self.closed.append(name)
        if fails:
            raise OSError(f"{name} fails")

    def on_shutdown(self) -> None:
        self.close_one("own", fails=True)


def test_all_is_closed_newest_first_though_some_fail() -> None:
    worker = Noted()
    for name, fails in (("a", False), ("b", True), ("c", False)):
        worker.hold(name, fails)
    with pytest.raises(OSError, match="b fails"):
        worker._shut_down()
    assert worker.closed == ["own", "c", "b", "a"]
    with pytest.raises(OSError, match="own fails"):
        worker._shut_down()
    assert worker.closed == ["own", "c", "b", "a", "own"], "each is released once"


def test_workers_that_were_never_initialised_end_quietly(robot: RLinfConfig, text: RLinfConfig) -> None:
    ActorWorker(robot, {"RolloutGroup": 1}, 1)._shut_down()
    EnvWorker(robot, 1, 1)._shut_down()
    RewardWorker(robot, 1)._shut_down()
    for worker in (ActorWorker(text, {}), LogprobWorker(text), RewardWorker(text), GenerationWorker(text)):
        worker._shut_down()


class Env:
    """An environment whose closing fails where its first index is 0."""

    def __init__(self, first: int) -> None:
        self.first, self.is_open = first, True

    def close(self) -> None:
        self.is_open = False
        if self.first == 0:
            raise OSError("the simulator has gone")


def test_an_environment_that_cannot_be_closed_keeps_no_other_open(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def make(cfg: Any, *, num_envs: Any, first_env: Any, hardware: Any) -> Any:
        made.append(Env(first_env))
        return made[-1]

    monkeypatch.setattr(env_worker, "make_vector_env", make)
    monkeypatch.setattr(env_worker, "sizes_of", lambda env: None)
    monkeypatch.setattr(env_worker, "check_sizes", lambda *sizes: None)
    cfg = validate_cfg(load_recipe("gym_cartpole_ppo_mlp", ["rollout.pipeline_stage_num=2"]))
    worker = EnvWorker(cfg, 1, 1)
    for mode in ("train", "eval"):
        worker._envs(mode)
    with pytest.raises(OSError, match="simulator"):
        worker._shut_down()
    assert len(made) == 3
    assert not any(env.is_open for env in made)


def test_a_reward_that_cannot_be_closed_keeps_no_other_open() -> None:
    made = {name: Env(first) for name, first in (("a", 0), ("b", 1), ("c", 2))}
    rewards = WeightedRewards(RewardConfig())
    rewards.rewards = made
    with pytest.raises(OSError, match="simulator"):
        rewards.close()
    assert not any(reward.is_open for reward in made.values())


@pytest.mark.parametrize("offloads", [True, False])
def test_saving_leaves_the_device_as_it_was_found(robot: RLinfConfig, tmp_path: Path, offloads: bool) -> None:
    calls = []
    actor = ActorWorker(robot, {"RolloutGroup": 1}, 1)
    actor.cfg = types.SimpleNamespace(
        actor=types.SimpleNamespace(enable_offload=offloads), runner=types.SimpleNamespace(async_save=False)
    )
    actor.engine = types.SimpleNamespace(onload=lambda: calls.append("onload"), offload=lambda: calls.append("offload"))
    actor.learner = types.SimpleNamespace(save=lambda path, in_background: calls.append(path))
    actor.save_checkpoint(str(tmp_path))
    assert calls == ["onload", tmp_path, *(["offload"] if offloads else [])]

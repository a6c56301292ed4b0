"""An env worker's training episodes: carried from step to step, saved as they were after a step, and continued."""

from pathlib import Path
from typing import Any

import pytest
import torch

from rlinf.config import load_recipe, validate_cfg
from rlinf.data.messages.embodied import ChunkStep
from rlinf.envs.conformance import sample_actions
from rlinf.workers.env.env_worker import EnvWorker

SMALL = (
    "env.train.total_num_envs=8",
    "env.train.max_steps_per_rollout_epoch=16",
    "actor.global_batch_size=128",
    "actor.micro_batch_size=32",
    "runner.logger.logger_backends=[]",
)


class StandInPolicy:
    """A policy whose actions depend on step, epoch, stage and number alone; keeps what it is shown."""

    def __init__(self, space: Any, num_envs: int, num_chunks: int = 1) -> None:
        self.space, self.num_envs, self.num_chunks = space, num_envs, num_chunks
        self.shown: list[ChunkStep] = []
        self.fails_at: int | None = None

    def begin_epoch(self, mode: str, *, step: int, epoch: int) -> None:
        self.seed = 1000 * step + 100 * epoch

    def send(self, stage: int, chunk: ChunkStep, *, is_last: bool) -> None:
        self.shown.append(chunk)

    def receive(self, stage: int) -> torch.Tensor:
        self.seed += 1
        if self.seed == self.fails_at:
            raise ConnectionError("the rollout rank is gone")
        return sample_actions(self.space, num_envs=self.num_envs, num_chunks=self.num_chunks, seed=self.seed)

    def end_epoch(self) -> None:
        """Nothing is collected."""

    def end_rollout(self, step: int) -> None:
        """No one waits."""


def make_worker(*overrides: str) -> EnvWorker:
    cfg: Any = validate_cfg(load_recipe("gym_cartpole_ppo_mlp", [*SMALL, *overrides]))
    worker = EnvWorker(cfg, num_rollout_workers=1, num_actor_workers=1)
    worker.init_worker()
    stages = worker._envs("train")
    worker.policy = StandInPolicy(stages[0].action_space, stages[0].num_envs)  # type: ignore[assignment]
    return worker


def shown_by(worker: EnvWorker) -> list[ChunkStep]:
    assert isinstance(worker.policy, StandInPolicy)
    return worker.policy.shown


def assert_same(first: list[ChunkStep], second: list[ChunkStep]) -> None:
    assert len(first) == len(second) > 0
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one.obs["states"], other.obs["states"])
        assert torch.equal(one.terminations, other.terminations)


@pytest.mark.parametrize("keys", [(), ("rollout.pipeline_stage_num=2", "env.train.rollout_epoch=2")])
def test_a_resumed_worker_goes_on_as_an_undisturbed_one(tmp_path: Path, keys: tuple[str, ...]) -> None:
    undisturbed, saved, resumed = make_worker(*keys), make_worker(*keys), make_worker(*keys)
    for step in (1, 2, 3):
        undisturbed.interact(step=step)
    # Step 2 is saved when the rollout of step 3 has been begun, as after an interrupt, and given up.
    for step in (1, 2):
        saved.interact(step=step)
    assert isinstance(saved.policy, StandInPolicy)
    saved.policy.fails_at = 3005
    with pytest.raises(ConnectionError):
        saved.interact(step=3)
    saved.save_episodes(str(tmp_path), step=2)
    assert resumed.load_episodes(str(tmp_path), step=2) is None
    metrics = resumed.interact(step=3)
    assert_same(shown_by(resumed), shown_by(undisturbed)[-len(shown_by(resumed)) :])
    again = make_worker(*keys)
    for step in (1, 2):
        again.interact(step=step)
    assert again.interact(step=3) == metrics
    for worker in (undisturbed, saved, resumed, again):
        worker.on_shutdown()


def test_saving_leaves_the_episodes_as_they_are(tmp_path: Path) -> None:
    saving, undisturbed = make_worker(), make_worker()
    for step in (1, 2, 3):
        for worker in (saving, undisturbed):
            worker.interact(step=step, restart=step == 1)
        saving.save_episodes(str(tmp_path / str(step)), step=step)
    assert_same(shown_by(saving), shown_by(undisturbed))
    assert int(saving.stages["train"][0].episode_steps.max()) > 16


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        (("env.train.total_num_envs=16",), "env.train.total_num_envs=8; it is 16 now"),
        (("rollout.pipeline_stage_num=2",), "rollout.pipeline_stage_num=1; it is 2 now"),
        (("env.train.max_episode_steps=100",), "env.train.max_episode_steps=500; it is 100 now"),
        (("+env.train.init_params.sutton_barto_reward=true",), "env.train.init_params"),
    ],
)
def test_a_state_of_another_setup_is_refused_with_the_key(tmp_path: Path, keys: tuple[str, ...], reason: str) -> None:
    worker, other = make_worker(), make_worker(*keys)
    worker.interact(step=1)
    worker.save_episodes(str(tmp_path), step=1)
    said = other.load_episodes(str(tmp_path), step=1)
    assert said is not None
    assert reason in said
    other.interact(step=2)


def test_keys_that_decide_nothing_within_an_episode_may_change(tmp_path: Path) -> None:
    worker = make_worker()
    other = make_worker("env.train.seed=7", "env.train.max_steps_per_rollout_epoch=32", "env.train.num_env_processes=2")
    worker.interact(step=1)
    worker.save_episodes(str(tmp_path), step=1)
    assert other.load_episodes(str(tmp_path), step=1) is None
    other.on_shutdown()


def test_a_checkpoint_without_episodes_is_told(tmp_path: Path) -> None:
    reason = make_worker().load_episodes(str(tmp_path / "env"), step=1)
    assert reason is not None
    assert "none of env rank 0" in reason


@pytest.mark.parametrize(
    "key", ["auto_reset=false", "use_fixed_reset_state_ids=true", "use_ordered_reset_state_ids=true"]
)
def test_nothing_is_kept_where_every_rollout_epoch_begins_anew(tmp_path: Path, key: str) -> None:
    worker = make_worker(f"env.train.{key}", "env.eval.use_ordered_reset_state_ids=false")
    worker.interact(step=1)
    worker.save_episodes(str(tmp_path / "env"), step=1)
    assert not (tmp_path / "env").exists()
    assert worker.load_episodes(str(tmp_path / "env"), step=1) is None


def test_only_the_last_states_are_kept(tmp_path: Path) -> None:
    worker = make_worker()
    for step in range(1, 6):
        worker.interact(step=step)
    for step in range(1, 6):
        worker.save_episodes(str(tmp_path / str(step)), step=step)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["4", "5"]


@pytest.mark.parametrize(("chunk", "beta", "share"), [(5, 1.0, 0.25), (5, 0.0, 0.0), (1, 1.0, None)])
def test_a_script_labels_where_it_trains_and_acts_as_the_step_says(chunk: int, beta: float, share: Any) -> None:
    pytest.importorskip("metaworld")
    keys = (f"actor.model.num_action_chunks={chunk}", f"algorithm.beta={beta}", "runner.logger.logger_backends=[]")
    keys += ("env.train.total_num_envs=16", "env.eval.total_num_envs=2", "algorithm.beta_decay=0.5")
    cfg: Any = validate_cfg(load_recipe("metaworld_reach_dagger_mlp", keys))
    worker = EnvWorker(cfg, num_rollout_workers=1, num_actor_workers=1)
    worker.init_worker()
    (train,), (evaluation,) = worker._envs("train"), worker._envs("eval")
    worker.policy = StandInPolicy(train.action_space, train.num_envs, num_chunks=chunk)  # type: ignore[assignment]
    worker.interact(step=3)
    steps = shown_by(worker)[1:]
    assert len(steps) == 100 // chunk
    if share is None:
        assert all(step.expert_action is None for step in steps)
    else:
        flags = torch.cat([step.intervene_flag for step in steps])  # type: ignore[misc]
        assert flags.float().mean().item() == pytest.approx(share, abs=0.08)
        assert all(step.expert_action is not None for step in steps)
    evaluation.reset(0)
    actions = sample_actions(evaluation.action_space, num_envs=2, num_chunks=chunk, seed=0)
    assert evaluation.chunk_step(actions).expert_action is None

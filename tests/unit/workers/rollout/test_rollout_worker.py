"""What the rollout worker samples, with which weights, and what the actor receives of it."""

import weakref
from typing import Any

import pytest
import torch

from rlinf.config import load_recipe, validate_cfg
from rlinf.config.schema.root import RLinfConfig
from rlinf.data.messages.embodied import ChunkStep
from rlinf.errors import CommTimeoutError
from rlinf.models import get_policy
from rlinf.workers.rollout import rollout_worker
from rlinf.workers.rollout.rollout_worker import MultiStepRolloutWorker
from rlinf.workers.streams import TRAJECTORIES, WEIGHTS, step_tag
from tests.unit.hybrid_engines.packing import pack_weights
from tests.unit.workers.on_device import on_device
from tests.unit.workers.post_office import PostOffice

CHUNKS = 3
ENVS = 4
OBS = {"gym_cartpole_ppo_mlp": 4, "gym_pendulum_ppo_mlp": 3}
KEYS = (
    *(
        f"env.{mode}.{key}={CHUNKS}"
        for mode in ("train", "eval")
        for key in ("max_steps_per_rollout_epoch", "max_episode_steps")
    ),
    "actor.global_batch_size=4",
    "actor.micro_batch_size=4",
)


def recipe(*overrides: str, name: str = "gym_cartpole_ppo_mlp") -> RLinfConfig:
    return validate_cfg(
        load_recipe(name, [f"env.train.total_num_envs={ENVS}", f"env.eval.total_num_envs={ENVS}", *KEYS, *overrides])
    )


def observation(number: int, *, envs: int = ENVS) -> dict[str, torch.Tensor]:
    """Return the same observations for the same number."""
    return {"states": torch.randn(envs, 4, generator=torch.Generator().manual_seed(number))}


def step(number: int, *, envs: int = ENVS, truncated: Any = ()) -> ChunkStep:
    """Return what environments report after their chunk of a number; 0 is the first observation."""
    width = 1 if number % (CHUNKS + 1) else 0
    flags = torch.zeros(envs, width, dtype=torch.bool)
    truncations = flags.clone()
    truncations[list(truncated)] = True
    return ChunkStep(
        obs=observation(number, envs=envs),
        rewards=torch.full((envs, width), float(number)),
        terminations=flags,
        truncations=truncations,
        executed=~flags,
        final_obs=observation(100 + number, envs=len(truncated)) if truncated else None,
        final_ids=torch.tensor(truncated) if truncated else None,
    )


class World:
    """A rollout rank whose environments report the same whatever it does."""

    def __init__(
        self,
        *overrides: str,
        rank: int = 0,
        world_size: int = 1,
        env_workers: int = 1,
        name: str = "gym_cartpole_ppo_mlp",
    ) -> None:
        torch.manual_seed(0)
        self.cfg = recipe(*overrides, name=name)
        self.policy = get_policy(self.cfg.actor.model)
        for parameter in self.policy.parameters():
            # Freshly built policies choose nearly at random, and value nearly everything 0.
            torch.nn.init.normal_(parameter, std=0.5)
        self.office, self.rank, self.env_workers = PostOffice(), rank, env_workers
        self.envs = ENVS // max(env_workers, world_size)
        self.worker = self.office.wire(
            MultiStepRolloutWorker, self.cfg, env_workers, 1, group="RolloutGroup", rank=rank, world_size=world_size
        )
        self.worker.init_worker()

    def publish(self, version: int, shift: float = 0.0) -> None:
        weights = {name: value + shift for name, value in self.policy.state_dict().items()}
        manifest, buckets = pack_weights(weights.items(), version=version, bucket_bytes=1 << 20)
        for message in (manifest, *buckets):
            self.office.post(("ActorGroup", 0), ("RolloutGroup", self.rank), WEIGHTS, message)

    def report(self, mode: str = "train", *, epochs: int = 1, truncated: Any = ()) -> None:
        """Let the environments report whole rollout epochs."""
        for number in range(epochs * (CHUNKS + 1)):
            for peer in self.worker.env_route.peers:
                ended = truncated if number % (CHUNKS + 1) == 1 else ()
                message = step(number % (CHUNKS + 1), envs=self.envs, truncated=ended)
                self.office.post(("EnvGroup", peer), ("RolloutGroup", self.rank), step_tag(mode, 0), message)

    def actions(self, mode: str = "train", peer: int = 0) -> torch.Tensor:
        return torch.stack(self.office.sent(("RolloutGroup", self.rank), ("EnvGroup", peer), step_tag(mode, 0)))

    def trajectories(self) -> list[Any]:
        return self.office.sent(("RolloutGroup", self.rank), ("ActorGroup", 0), TRAJECTORIES)

    def generate(self, number: int, *, epochs: int = 1, truncated: Any = ()) -> list[Any]:
        self.report(epochs=epochs, truncated=truncated)
        self.worker.generate(step=number)
        return self.trajectories()


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLINF_TIMEOUT_SECONDS", "0.2")


def test_what_is_sampled_depends_on_step_epoch_and_rank_and_on_nothing_else() -> None:
    def sample(number: int, rank: int = 0) -> tuple[Any, Any]:
        world = World("env.train.rollout_epoch=2", rank=rank, world_size=2, env_workers=2)
        world.publish(number - 1)
        first, second = (t.forward_inputs["action"].flatten().tolist() for t in world.generate(number, epochs=2))
        assert first != second, "two rollout epochs of a step"
        return first, second

    base = sample(3)
    assert sample(3) == base
    assert sample(2)[0] not in base
    assert sample(3, rank=1) != base


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("name", ["gym_cartpole_ppo_mlp", "gym_pendulum_ppo_mlp"])
def test_any_number_of_ranks_samples_the_same_actions(name: str, stages: int) -> None:
    def sample(world_size: int) -> torch.Tensor:
        keys = (f"rollout.pipeline_stage_num={stages}",)
        worlds = [World(*keys, rank=rank, world_size=world_size, name=name) for rank in range(world_size)]
        generators = [world.worker._slot_generator("train", "actions", 1, 0) for world in worlds]
        obs = {"states": torch.randn(ENVS // stages, OBS[name], generator=torch.Generator().manual_seed(0))}
        parts = [{"states": rows} for rows in obs["states"].chunk(world_size)]
        chosen = [
            torch.cat(
                [worlds[0].policy.predict_action_batch(part, mode="train", generator=generator)[0] for _ in "ab"], 1
            )
            for part, generator in zip(parts, generators, strict=True)
        ]
        return torch.cat(chosen)

    together = sample(1)
    assert together.unique().numel() > 1
    torch.testing.assert_close(sample(2), together)


def test_evaluation_takes_the_most_likely_actions() -> None:
    world = World()
    world.publish(0)
    world.worker.sync_model_from_actor(version=0)
    world.report("eval")
    world.worker.evaluate()
    taken = world.actions("eval")
    for number in range(CHUNKS):
        greedy, _ = world.policy.predict_action_batch(observation(number), mode="eval")
        assert torch.equal(taken[number], greedy)
    assert world.trajectories() == []


def test_layers_are_compiled_as_the_recipe_says(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, Any]] = []
    monkeypatch.setattr(rollout_worker, "compile_layers", lambda *arguments: asked.append(arguments))
    world = World()
    assert asked == [(world.worker.model, world.worker.cfg.rollout)]


def test_every_row_of_a_trajectory_is_about_its_own_chunk() -> None:
    world = World("algorithm.bootstrap_type=standard")
    world.publish(0)
    (trajectory,) = world.generate(1, truncated=(1, 3))
    assert torch.equal(trajectory.rewards[:, 0, 0], torch.tensor([1.0, 2.0, 3.0]))
    values = torch.stack([world.policy.predict_values(observation(number)) for number in range(CHUNKS + 1)])
    torch.testing.assert_close(trajectory.values, values)
    torch.testing.assert_close(trajectory.forward_inputs["states"][2], observation(2)["states"])
    finals = world.policy.predict_values(observation(101, envs=2))
    torch.testing.assert_close(trajectory.final_values[0, [1, 3]], finals)
    assert not trajectory.final_values[0, [0, 2]].any()
    assert not trajectory.final_values[1:].any()
    assert trajectory.versions.tolist() == [[0] * ENVS] * CHUNKS
    sampled = trajectory.forward_inputs["action"].view(CHUNKS, ENVS)
    assert torch.equal(world.actions().view(CHUNKS, ENVS).to(sampled.dtype), sampled)


def test_the_device_holds_no_chunk_but_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    worlds = World(), World()
    model = worlds[1].worker.model
    chunks: list[weakref.ref[torch.Tensor]] = []
    alive = []

    def act(*args: Any, original: Any = model.predict_action_batch, **keys: Any) -> Any:
        alive.append([chunk() is not None for chunk in chunks])
        actions, output = original(*args, **keys)
        output = output.map(on_device)
        chunks.append(weakref.ref(output.forward_inputs["states"]))
        return actions, output

    monkeypatch.setattr(model, "predict_action_batch", act)
    for world in worlds:
        world.publish(0)
    (expected,), (trajectory,) = (world.generate(1) for world in worlds)
    assert [chunk for number, states in enumerate(alive) for chunk in states[: number - 1]] == [False]
    for name, rows in expected.forward_inputs.items():
        assert torch.equal(trajectory.forward_inputs[name], rows)


def test_environments_and_groups_are_numbered_over_ranks_and_epochs() -> None:
    world = World("env.train.rollout_epoch=2", "env.train.group_size=2", rank=1, world_size=2, env_workers=2)
    world.publish(0)
    first, second = world.generate(1, epochs=2)
    assert (first.env_ids.tolist(), second.env_ids.tolist()) == ([2, 3], [6, 7])
    assert (first.group_ids.tolist(), second.group_ids.tolist()) == ([1, 1], [3, 3])


def test_one_rank_serves_several_env_workers_in_their_order() -> None:
    world = World(env_workers=2)
    world.publish(0)
    (trajectory,) = world.generate(1)
    assert trajectory.env_ids.tolist() == [0, 1, 2, 3]
    halves = [world.actions(peer=peer).view(CHUNKS, 2) for peer in range(2)]
    sampled = trajectory.forward_inputs["action"].view(CHUNKS, ENVS)
    assert torch.equal(torch.cat(halves, 1).to(sampled.dtype), sampled)


def test_several_ranks_share_one_env_worker() -> None:
    world = World(rank=1, world_size=2, env_workers=1)
    world.publish(0)
    (trajectory,) = world.generate(1)
    assert trajectory.env_ids.tolist() == [2, 3]


def test_a_rollout_begins_with_the_weights_of_the_step_before() -> None:
    world = World()
    world.publish(0)
    world.generate(1)
    with pytest.raises(CommTimeoutError):
        world.generate(2)
    world.publish(1, shift=0.3)
    world.worker.generate(step=2)
    (trajectory,) = world.trajectories()
    assert trajectory.versions.unique().tolist() == [1]
    shifted = get_policy(world.cfg.actor.model)
    shifted.load_state_dict({name: value + 0.3 for name, value in world.policy.state_dict().items()})
    torch.testing.assert_close(trajectory.values[0], shifted.predict_values(observation(0)))


def test_with_staleness_a_rollout_begins_that_many_versions_earlier_and_not_more() -> None:
    world = World(name="gym_cartpole_async_ppo_mlp")
    assert world.cfg.algorithm.staleness_threshold == 1
    world.publish(0)
    world.generate(1)
    (trajectory,) = world.generate(2)
    assert trajectory.versions.unique().tolist() == [0]
    with pytest.raises(CommTimeoutError):
        world.generate(3)

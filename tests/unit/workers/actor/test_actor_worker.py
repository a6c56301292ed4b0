"""After the first sync an actor sends what it trains, and rollouts act with the weights that it has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rlinf.config import load_recipe, validate_cfg
from rlinf.config.schema.vla import PiConfig
from rlinf.errors import WeightSyncError
from rlinf.hybrid_engines.weights.bucket import Manifest
from rlinf.workers.actor.actor_worker import ActorWorker
from rlinf.workers.rollout.rollout_worker import MultiStepRolloutWorker
from rlinf.workers.streams import WEIGHTS
from tests.unit.workers.post_office import PostOffice
from toolkits.vla.make_tiny import TinyShape, write_tiny_pi

pytest.importorskip("transformers")
LORA = ("actor.model.is_lora=true", "actor.model.lora_rank=2")
KINDS: dict[str, tuple[str, ...]] = {
    "adapters": LORA,
    "adapters in halves": (*LORA, "rollout.model.precision=bf16"),
    "sharded adapters": (*LORA, "actor.fsdp_config.sharding_strategy=full_shard"),
    "frozen parts": ("actor.model.freeze=[vision,projector,language]",),
}
OBS = {
    "main_images": torch.arange(3 * 16 * 16 * 3).remainder(255).to(torch.uint8).view(3, 16, 16, 3),
    "states": torch.tensor([[0.1, -0.2], [0.5, 0.9], [-2.0, 0.0]]),
    "task_descriptions": ["reach the green disc"] * 3,
}


class Office(PostOffice):
    """Keeps what was sent last."""

    def __init__(self) -> None:
        super().__init__()
        self.update: list[Any] = []

    def post(self, source: Any, target: Any, tag: Any, message: Any) -> None:
        self.update = [message] if isinstance(message, Manifest) else [*self.update, message]
        super().post(source, target, tag, message)


class World:
    """An actor rank, and a rollout rank that gets its weights."""

    def __init__(self, folder: Path, *keys: str) -> None:
        if not (folder / "config.json").exists():
            cfg = PiConfig(model_type="openpi", model_path="", variant="pi0", action_dim=2, state_dim=2, horizon=6)
            shape = TinyShape(image_size=16, patch_size=8, action_dim=2, state_dim=2, words=("reach the green disc",))
            write_tiny_pi(folder, shape, cfg)
        overrides = (f"actor.model.model_path={folder}", "env.train.image_size=16", *keys)
        self.cfg = validate_cfg(load_recipe("pixel_reach_ppo_openpi_tiny", list(overrides)))
        self.office = Office()
        self.actor = self.office.wire(ActorWorker, self.cfg, {self.cfg.rollout.group_name: 1}, group="ActorGroup")
        self.actor.init_worker()
        self.version = -1
        self.launch_rollout()

    @property
    def model(self) -> Any:
        return self.actor.engine.model

    def launch_rollout(self) -> None:
        self.office.waiting.clear()  # what a former one waits for
        self.rollout = self.office.wire(MultiStepRolloutWorker, self.cfg, 1, 1, group="RolloutGroup")
        self.rollout.init_worker()

    def train(self) -> None:
        """Change what an optimizer would, and what policies keep in buffers."""
        generator = torch.Generator().manual_seed(self.version + 9)
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        with torch.no_grad():
            for tensor in (*trained, *self.model.buffers()):
                local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
                if local.is_floating_point():
                    local.add_(0.03 * torch.randn(local.shape, generator=generator))

    def send(self, *, is_partial: bool) -> Manifest:
        """Send the present weights; return what is announced."""
        self.version += 1
        self.actor.sync_model_to_rollout(version=self.version, is_partial=is_partial)
        manifest: Manifest = self.office.update[0]
        return manifest

    def sync(self, *, is_partial: bool) -> Manifest:
        """Send the present weights, and receive them."""
        manifest = self.send(is_partial=is_partial)
        self.rollout.sync_model_from_actor(version=self.version)
        return manifest

    def check(self) -> None:
        """Check that the rollout has the actor's weights, and acts as the actor evaluates."""
        found, expected = self.rollout.model.state_dict(), dict(self.actor.engine.export_weights("merged"))
        assert found.keys() == expected.keys()
        for name, tensor in expected.items():
            assert torch.equal(found[name], tensor.to(found[name].dtype)), name
        generator = torch.Generator().manual_seed(0)
        _, report = self.rollout.model.predict_action_batch(OBS, mode="train", generator=generator)
        evaluation = self.model(forward_inputs=report.forward_inputs)
        if self.cfg.rollout.model.precision is None:
            torch.testing.assert_close(evaluation.logprobs, report.logprobs, atol=1e-5, rtol=1e-4)


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLINF_TIMEOUT_SECONDS", "2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tiny_pi")


@pytest.mark.parametrize("keys", KINDS.values(), ids=KINDS)
def test_after_the_first_sync_what_is_trained_is_sent_alone(folder: Path, keys: tuple[str, ...]) -> None:
    if LORA[0] in keys:
        pytest.importorskip("peft")
    world = World(folder, *keys)
    world.train()
    whole = world.sync(is_partial=False)
    world.check()
    frozen = {name for name, parameter in world.model.named_parameters() if not parameter.requires_grad}
    trained = {name for name in world.model.state_dict() if name not in frozen}
    assert {entry.name for entry in whole.entries} == trained | frozen
    for _ in range(3):
        world.train()
        part = world.sync(is_partial=True)
        assert ({entry.name for entry in part.entries}, set(part.left_out)) == (trained, frozen)
        assert sum(part.bucket_sizes) < 0.35 * sum(whole.bucket_sizes)
        world.check()


def test_a_rollout_that_is_launched_again_gets_all_weights(folder: Path) -> None:
    pytest.importorskip("peft")
    world = World(folder, *KINDS["adapters"])
    world.sync(is_partial=False)
    world.launch_rollout()
    world.train()
    with pytest.raises(WeightSyncError, match=r"does not have the weights that stay as they are\. Send all weights"):
        world.sync(is_partial=True)
    assert world.rollout.weights.version == -1
    world.sync(is_partial=False)
    world.check()
    # So does one that only now takes what was sent while it began.
    world.launch_rollout()
    for is_partial in (True, False, True, True):
        world.train()
        world.send(is_partial=is_partial)
    world.rollout.weights.take_arrived()
    world.check()


def test_where_all_is_trained_every_update_is_complete(folder: Path) -> None:
    world = World(folder)
    whole, part = (world.sync(is_partial=is_partial) for is_partial in (False, True))
    assert not part.is_partial
    assert whole.entries == part.entries
    world.check()


def test_an_actor_that_trains_something_else_is_found_out(folder: Path) -> None:
    world = World(folder, *KINDS["frozen parts"])
    world.sync(is_partial=False)
    other = World(folder, *KINDS["adapters"])
    other.version = world.version
    manifest = other.send(is_partial=True)
    assert manifest.is_partial
    for message in other.office.update:
        world.office.post(("ActorGroup", 0), ("RolloutGroup", 0), WEIGHTS, message)
    with pytest.raises(WeightSyncError, match=r"left out included, do not match the model: .*unexpected \[.*lora_A"):
        world.rollout.sync_model_from_actor(version=other.version)
    world.check()

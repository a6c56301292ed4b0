"""Records of observations: images at the model's size, states in its units, and errors that name the key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rlinf.data.messages.embodied import CROPPED
from rlinf.errors import EnvironmentFailure
from rlinf.models.vla.image_resizing import center_crop, resize
from tests.unit.models.vla.vla_policies import observations, random_policy

pytest.importorskip("transformers")


def test_images_of_the_models_size_are_kept_and_others_resized(tmp_path: Path) -> None:
    policy = random_policy("oft", tmp_path, image_keys=["wrist_images", "main_images"])
    obs = observations()
    record = policy.inputs.record(obs, policy.device)
    assert torch.equal(record["images.main_images"], obs["main_images"])
    large = observations(40)
    record = policy.inputs.record(large, policy.device)
    assert torch.equal(record["images.wrist_images"], resize(large["wrist_images"], 28, "lanczos3"))
    cropped = random_policy("oft", tmp_path, center_crop=True, image_resize="bicubic")
    record = cropped.inputs.record(large, policy.device)
    resized = resize(large["main_images"], 28, "bicubic")
    assert torch.equal(record["images.main_images"], center_crop(resized, 0.9))
    # Fine-tuning has cropped them already.
    record = cropped.inputs.record(large | {CROPPED: torch.ones(3, dtype=torch.bool)}, policy.device)
    assert torch.equal(record["images.main_images"], resized)


def test_images_are_seen_in_their_order(tmp_path: Path) -> None:
    keys = [["main_images", "wrist_images"], ["wrist_images", "main_images"]]
    one, other = (random_policy("oft", tmp_path, image_keys=order) for order in keys)
    seen = [policy.see(policy.inputs.record(observations(), policy.device)) for policy in (one, other)]
    assert seen[0].shape == (3, 8, 32)
    torch.testing.assert_close(seen[0].roll(4, 1), seen[1])


@pytest.mark.parametrize("state_dim", [2, None])
def test_states_are_normalised_and_cut_off(state_dim: int | None, tmp_path: Path) -> None:
    policy = random_policy("oft", tmp_path, use_proprio=True, state_dim=state_dim)
    record = policy.inputs.record(observations(), policy.device)
    torch.testing.assert_close(record["state"], observations()["states"].clamp(-1, 1), atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"main_images": None}, r"image_keys must name uint8 \[B, H, W, 3\]; received no such key for 'main_images'"),
        ({"main_images": torch.zeros(3, 28, 28, 3)}, r"received torch.float32 \[3, 28, 28, 3\]"),
        ({"task_descriptions": None}, "needs B sentences"),
        ({"states": None}, r"the model reads float32 \[B, 2\].*received no such key"),
        (
            {"states": torch.zeros(3, 4)},
            r"the model reads float32 \[B, 2\], .* received torch.float32 \[3, 4\]",
        ),
    ],
)
def test_an_environment_that_shows_something_else_is_an_error(change: Any, words: str, tmp_path: Path) -> None:
    policy = random_policy("oft", tmp_path, use_proprio=True, state_dim=2)
    obs = {name: value for name, value in (observations() | change).items() if value is not None}
    with pytest.raises(EnvironmentFailure, match=words):
        policy.predict_action_batch(obs, mode="eval")


def test_layers_are_sharded_and_recomputed_as_units(tmp_path: Path) -> None:
    policy = random_policy("oft", tmp_path, add_value_head=True)
    called: list[torch.nn.Module] = []
    for unit in policy.shard_units():
        unit.register_forward_hook(lambda module, *_: called.append(module))
    policy.predict_action_batch(observations(), mode="eval")
    assert set(called) == set(policy.shard_units())
    assert set(policy.recompute_units()) < set(policy.shard_units())

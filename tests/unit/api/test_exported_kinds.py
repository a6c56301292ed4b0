"""Every kind of policy that acts on states or images can be exported, for batches of any size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import rlinf
from rlinf.api.policy_export import export_policy
from rlinf.errors import ConfigError
from tests.unit.api.saved_policies import save_policy

STATES = ("actor.model.obs_dim=3", "actor.model.action_dim=1")
IMAGES = ("actor.model.obs_dim=2", "actor.model.action_dim=2", "actor.model.image_size=[48,48]")
KINDS: dict[str, tuple[str, ...]] = {
    "gym_pendulum_ppo_mlp": STATES,
    "gym_pendulum_sac_mlp": STATES,
    "gym_pendulum_crossq_mlp": STATES,
    "gym_pendulum_td3_mlp": STATES,
    "gym_pendulum_iql_mlp": STATES,
    "gym_pendulum_nft_flow": STATES,
    "gym_pendulum_sac_flow": STATES,
    "pixel_reach_ppo_cnn": IMAGES,
    "pixel_reach_sac_flow_cnn": IMAGES,
}


def test_a_model_that_cannot_be_followed_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_policy(tmp_path)
    policy = rlinf.load_policy(tmp_path)
    predict = policy.model.predict_action_batch

    def by_length(obs: Any, **keys: Any) -> Any:
        actions, report = predict(obs, **keys)
        return actions * torch.arange(len(actions)).sum(), report

    monkeypatch.setattr(policy.model, "predict_action_batch", by_length)
    with pytest.raises(ConfigError, match=r"model_type=mlp_policy cannot be exported: .* Constraints violated .*len"):
        export_policy(policy, tmp_path / "policy.pt2")


@pytest.mark.parametrize("recipe", KINDS)
def test_a_program_acts_as_the_policy(recipe: str, tmp_path: Path) -> None:
    save_policy(tmp_path, recipe, *(f"++{override}" for override in KINDS[recipe]))
    policy = rlinf.load_policy(tmp_path)
    shapes = export_policy(policy, tmp_path / "policy.pt2")
    program = torch.export.load(tmp_path / "policy.pt2").module()
    generator = torch.Generator().manual_seed(0)
    for size in (1, 5):
        obs = {
            name: torch.randint(0, 256, (size, *shape), generator=generator, dtype=torch.uint8)
            if len(shape) == 3
            else torch.randn(size, *shape, generator=generator)
            for name, shape in shapes.items()
        }
        expected = torch.from_numpy(policy.predict(obs)).view(size, -1)
        torch.testing.assert_close(program(*obs.values()).view(size, -1), expected, rtol=0, atol=1e-5)
        assert size == 1 or len(expected.unique(dim=0)) == size, "actions depend on what is seen"

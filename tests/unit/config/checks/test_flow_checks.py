"""A flow policy whose noise does not fit the loss is refused, with what to set instead."""

from collections.abc import Callable
from typing import Any

import pytest

from rlinf.config.validate import validate_cfg
from rlinf.errors import ConfigError

FLOW = {
    "actor.model": {"model_type": "flow_policy", "obs_dim": 4, "action_dim": 2, "add_value_head": True},
}
SAC = {
    "algorithm": {"adv_type": "embodied_sac", "loss_type": "embodied_sac"},
    "actor.model.add_value_head": False,
    "actor.model.add_q_head": True,
    "actor.model.noise_method": "flow_noise",
}
NFT = {"algorithm": {"adv_type": "gae", "loss_type": "embodied_nft"}, "actor.model.noise_method": "flow_ode"}
METHOD, LEVEL = "actor.model.noise_method", "actor.model.noise_level"
PROBLEMS = [
    ({METHOD: "flow_ode"}, METHOD, "flow_sde or flow_noise"),
    (SAC | {METHOD: "flow_sde"}, METHOD, "actor.model.noise_method=flow_noise"),
    ({METHOD: "flow_ode", LEVEL: 0.1}, LEVEL, "by noise_method=flow_ode"),
    ({METHOD: "flow_noise", LEVEL: 9.0}, LEVEL, "Set it to 0.2"),
    ({"algorithm.entropy_bonus": 0.1}, "algorithm.entropy_bonus", "noise_method=flow_noise"),
    (NFT | {METHOD: "flow_noise"}, METHOD, "actor.model.noise_method=flow_ode"),
    ({"algorithm": NFT["algorithm"], "actor.model.model_type": "mlp_policy"}, "actor.model.model_type", "flow_policy"),
    (NFT | {"actor.model.add_value_head": False}, "actor.model.add_value_head", "adv_type=gae needs values"),
    (NFT | {"algorithm.logprob_type": "token_level"}, "algorithm.logprob_type", "by loss_type=embodied_nft"),
    (
        NFT | {"actor.model.add_value_head": False, "algorithm.value_loss_coef": 0.1, "algorithm.adv_type": "raw"},
        "algorithm.value_loss_coef",
        "without actor.model.add_value_head",
    ),
    ({"actor.model.discrete": True}, "actor.model.discrete", "model_type=mlp_policy"),
]


@pytest.mark.parametrize(("changes", "path", "remedy"), PROBLEMS, ids=lambda value: str(value)[:60])
def test_what_does_not_fit_is_located_and_mended(
    recipe: Callable[..., dict[str, Any]], changes: dict[str, Any], path: str, remedy: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        validate_cfg(recipe(FLOW | changes))
    line = next(text for text in str(caught.value).splitlines() if text.removeprefix("  - ").startswith(f"{path}:"))
    assert remedy in line


@pytest.mark.parametrize(
    "changes",
    [
        {},
        SAC,
        NFT,
        NFT | {"algorithm.reward_type": "action_level"},
        {METHOD: "flow_noise", "algorithm.entropy_bonus": 0.1},
    ],
    ids=["ppo", "sac", "nft", "actions", "entropy"],
)
def test_what_fits_passes(recipe: Callable[..., dict[str, Any]], changes: dict[str, Any]) -> None:
    validate_cfg(recipe(FLOW | changes))

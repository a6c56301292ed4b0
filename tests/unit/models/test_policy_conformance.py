"""``check_policy`` accepts the policies that ship, and names the rule that another one breaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from rlinf.config.schema.model import CNNPolicyConfig, FlowPolicyConfig, MLPPolicyConfig, StatePolicyConfig
from rlinf.data.messages.embodied import PolicyOutput
from rlinf.errors import ConformanceError
from rlinf.models import check_policy, get_policy
from rlinf.models.base_policy import PolicyEvaluation
from rlinf.models.control.mlp_policy import MLPPolicy
from rlinf.models.policy_conformance import check_evaluation, check_output

DISCRETE = MLPPolicyConfig(model_type="mlp_policy", obs_dim=4, action_dim=3, discrete=True, add_value_head=True)
GAUSSIAN = replace(DISCRETE, discrete=False, num_action_chunks=2)
OBS = {"states": torch.linspace(-1, 1, 20).reshape(5, 4)}
B = 5


@pytest.mark.parametrize(
    "cfg",
    [
        DISCRETE,
        replace(DISCRETE, num_action_chunks=2),
        GAUSSIAN,
        replace(GAUSSIAN, add_value_head=False, normalize_obs=True),
        FlowPolicyConfig(model_type="flow_policy", obs_dim=4, action_dim=2, add_value_head=True),
        CNNPolicyConfig(model_type="cnn_policy", image_size=[16, 16], action_dim=2, add_value_head=True),
    ],
    ids=["discrete", "discrete chunks", "gaussian chunks", "no values", "flow", "images"],
)
def test_policies_that_ship_pass(cfg: StatePolicyConfig) -> None:
    obs = OBS
    if isinstance(cfg, CNNPolicyConfig):
        obs = {"main_images": torch.arange(B * 768).reshape(B, 16, 16, 3).remainder(255).to(torch.uint8)}
    check_policy(get_policy(cfg), obs, num_action_chunks=cfg.num_action_chunks)


class Broken:
    """A policy with one method replaced."""

    def __new__(
        cls, cfg: MLPPolicyConfig = DISCRETE, *, act: Any = None, evaluate: Any = None, values: Any = None
    ) -> MLPPolicy:
        policy = get_policy(cfg)
        assert isinstance(policy, MLPPolicy)
        choose, forward, predict = policy.predict_action_batch, policy.default_forward, policy.predict_values
        if act is not None:
            policy.predict_action_batch = lambda obs, **keys: act(*choose(obs, **keys))
        if evaluate is not None:
            policy.default_forward = lambda forward_inputs: evaluate(forward(forward_inputs))
        if values is not None:
            policy.predict_values = lambda obs: values(predict(obs))
        return policy


@pytest.mark.parametrize(
    ("broken", "rule", "text"),
    [
        (
            {"act": lambda a, o: (a, replace(o, logprobs=o.logprobs.squeeze(-1)))},
            "logprobs",
            r"PolicyOutput\.logprobs: received float32 \[5, 1\]; expected float32 \[5, 1, 1\]: \[B, C, A\]",
        ),
        ({"act": lambda a, o: (a.flatten(), o)}, "actions", r"received int64 \[5\]; .*int64 \[B, C\]"),
        ({"act": lambda a, o: (a, replace(o, values=o.values.squeeze(-1)))}, "values", r"received float32 \[5\]"),
        (
            {"act": lambda a, o: (a, replace(o, forward_inputs={"gone": torch.zeros(2)}))},
            "forward-inputs",
            r"forward_inputs\['gone'\].*expected 5 rows",
        ),
        (
            {"evaluate": lambda e: replace(e, logprobs=e.logprobs.squeeze(-1))},
            "logprobs",
            r"PolicyEvaluation\.logprobs: received float32 \[5, 1\]",
        ),
        ({"evaluate": lambda e: replace(e, entropy=e.entropy.sum())}, "entropy", r"PolicyEvaluation\.entropy"),
        ({"evaluate": lambda e: replace(e, values=None)}, "values", r"PolicyEvaluation\.values is None"),
        ({"evaluate": lambda e: replace(e, logprobs=e.logprobs.detach())}, "gradients", "no gradient"),
        ({"evaluate": lambda e: replace(e, logprobs=e.logprobs + 1)}, "recompute", "other logprobs"),
        ({"values": lambda v: v.squeeze(-1)}, "values", r"predict_values\(obs\): received float32 \[5\]"),
    ],
)
def test_a_broken_rule_is_named(broken: dict[str, Callable[..., Any]], rule: str, text: str) -> None:
    with pytest.raises(ConformanceError, match=text) as caught:
        check_policy(Broken(**broken), OBS)
    assert caught.value.rule == rule


def test_draws_from_elsewhere_are_named() -> None:
    def act(actions: Any, output: Any) -> tuple[torch.Tensor, Any]:
        return torch.randint(0, 3, actions.shape), output

    torch.manual_seed(0)
    with pytest.raises(ConformanceError, match="equal generators"):
        check_policy(Broken(act=act), {"states": torch.zeros(64, 4)})


def test_shapes_of_a_rollout() -> None:
    actions = torch.zeros(B, 2, 3)
    output = PolicyOutput(torch.zeros(B, 2, 3), torch.zeros(B, 1), {"states": torch.zeros(B, 4)})
    check_output(actions, output, num_action_chunks=2)
    with pytest.raises(ConformanceError, match=r"num_action_chunks = 1"):
        check_output(actions, output, num_action_chunks=1)
    with pytest.raises(ConformanceError, match=r"expected float32 \[5, 2, 3\]"):
        check_output(actions, replace(output, logprobs=torch.zeros(B, 2, 1)), num_action_chunks=2)


def test_shapes_of_an_evaluation() -> None:
    logprobs = torch.zeros(B, 2, 3)
    evaluation = PolicyEvaluation(logprobs=logprobs, entropy=logprobs, values=torch.zeros(B, 1))
    check_evaluation(evaluation, logprobs=logprobs, values=torch.zeros(B, 1))
    check_evaluation(replace(evaluation, values=None), logprobs=logprobs)
    with pytest.raises(ConformanceError, match=r"PolicyEvaluation\.values: received float32 \[5, 1\].*\[5, 2\]"):
        check_evaluation(evaluation, logprobs=logprobs, values=torch.zeros(B, 2))

"""Checks of what a policy returns: of shapes, where they enter training, and of a policy of one's own as a whole."""

from __future__ import annotations

import torch

from rlinf.data.messages.embodied import Observation, PolicyOutput
from rlinf.errors import ConformanceError
from rlinf.models.base_policy import BasePolicy, PolicyEvaluation


def check_policy(policy: BasePolicy, obs: Observation, *, num_action_chunks: int = 1) -> None:
    """Check that a policy keeps the rules of ``BasePolicy`` that training on its own rollouts relies on.

    Args:
        policy: The policy, with a value head if it is to be trained with one.
        obs: ``B`` different observations, as its environment shows them.
        num_action_chunks: Actions per chunk (``C``).

    Raises:
        ConformanceError: The first rule found broken; its message says what was received and what is expected.
    """
    actions, output = _act(policy, obs, "train", seed=0)
    check_output(actions, output, num_action_chunks=num_action_chunks)
    again, _ = _act(policy, obs, "train", seed=0)
    _require("generator", torch.equal(actions, again), "equal generators gave different actions; sample from them.")
    greedy, _ = _act(policy, obs, "eval", seed=1)
    other, _ = _act(policy, obs, "eval", seed=2)
    _require("greedy", torch.equal(greedy, other), "mode='eval' gave two different actions for one observation.")
    if output.values is not None:
        _require_shape("values", policy.predict_values(obs), tuple(output.values.shape), "predict_values(obs)")
    _check_training(policy, output, torch.arange(len(actions)))
    _check_training(policy, output, torch.arange(1))


def check_output(actions: torch.Tensor, output: PolicyOutput, *, num_action_chunks: int) -> None:
    """Check the shapes of what ``predict_action_batch`` returned.

    Args:
        actions: float32 [B, C, A], or int64 [B, C] where they are discrete.
        output: The policy's report.
        num_action_chunks: ``C``.

    Raises:
        ConformanceError: A shape is wrong.
    """
    ranks = (3,) if actions.is_floating_point() else (2, 3)
    chunk = actions.shape[1] if actions.ndim in ranks else None
    _require(
        "actions",
        chunk == num_action_chunks,
        f"actions of predict_action_batch: received {_describe(actions)}; expected float32 [B, C, A], or int64 [B, C] "
        f"where actions are discrete, with C = num_action_chunks = {num_action_chunks}.",
    )
    size = actions.shape[2] if actions.ndim == 3 else 1
    shape: tuple[int, ...] = (len(actions), num_action_chunks, size)
    decided = output.forward_inputs.get("action")
    if decided is not None and decided.is_floating_point() and decided.ndim == 3:
        shape = tuple(decided.shape)  # a steered flow decides on noise
    _require_shape("logprobs", output.logprobs, shape, "PolicyOutput.logprobs")
    if output.values is not None:
        is_matrix = output.values.ndim == 2 and len(output.values) == len(actions)
        expected = f"expected float32 [{len(actions)}, V]: [B, V] with V = 1 or C."
        _require("values", is_matrix, f"PolicyOutput.values: received {_describe(output.values)}; {expected}")
    for name, tensor in output.forward_inputs.items():
        _require(
            "forward-inputs",
            tensor.ndim > 0 and len(tensor) == len(actions),
            f"PolicyOutput.forward_inputs['{name}']: received {_describe(tensor)}; expected {len(actions)} rows.",
        )


def check_evaluation(
    evaluation: PolicyEvaluation, *, logprobs: torch.Tensor, values: torch.Tensor | None = None
) -> None:
    """Check the shapes of what ``default_forward`` returned against those of the rollout.

    Args:
        evaluation: Of ``N`` samples.
        logprobs: [N, C, A] of the same samples, as the rollout reported them.
        values: [N, V] of the same samples; None where the rollout reported none.

    Raises:
        ConformanceError: A shape differs, or values are missing.
    """
    shape = tuple(logprobs.shape)
    _require_shape("logprobs", evaluation.logprobs, shape, "PolicyEvaluation.logprobs")
    _require_shape("entropy", evaluation.entropy, shape, "PolicyEvaluation.entropy")
    if values is not None:
        has_values = evaluation.values is not None
        _require("values", has_values, "PolicyEvaluation.values is None, but PolicyOutput.values are not.")
        assert evaluation.values is not None
        _require_shape("values", evaluation.values, tuple(values.shape), "PolicyEvaluation.values")


def _check_training(policy: BasePolicy, output: PolicyOutput, rows: torch.Tensor) -> None:
    """Check that some of the samples are evaluated as they were reported."""
    inputs = {name: tensor[rows.to(tensor.device)] for name, tensor in output.forward_inputs.items()}
    evaluation: PolicyEvaluation = policy(forward_inputs=inputs)
    logprobs = output.logprobs[rows.to(output.logprobs.device)]
    values = None if output.values is None else output.values[rows.to(output.values.device)]
    check_evaluation(evaluation, logprobs=logprobs, values=values)
    _require("gradients", evaluation.logprobs.requires_grad, "default_forward's logprobs have no gradient.")
    # Half precision rounds to about three digits.
    close = torch.allclose(evaluation.logprobs.detach().float(), logprobs.float(), rtol=1e-2, atol=1e-2)
    _require("recompute", close, "default_forward gives other logprobs than predict_action_batch at equal weights.")


def _act(policy: BasePolicy, obs: Observation, mode: str, *, seed: int) -> tuple[torch.Tensor, PolicyOutput]:
    generator = torch.Generator(policy.device).manual_seed(seed)
    return policy.predict_action_batch(obs, mode="train" if mode == "train" else "eval", generator=generator)


def _require_shape(rule: str, tensor: torch.Tensor, shape: tuple[int, ...], name: str) -> None:
    layout = "[B, V]" if rule == "values" else "[B, C, A], A = 1 where actions are discrete"
    _require(
        rule,
        tuple(tensor.shape) == shape and tensor.is_floating_point(),
        f"{name}: received {_describe(tensor)}; expected float32 {list(shape)}: {layout}.",
    )


def _describe(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _require(rule: str, condition: bool, message: str) -> None:
    if not condition:
        raise ConformanceError(rule, message)

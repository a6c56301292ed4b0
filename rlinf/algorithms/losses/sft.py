"""Supervised fine-tuning: the negative log-likelihood of given responses."""

from __future__ import annotations

from rlinf.algorithms.losses.inputs import LossInputs, LossOutput
from rlinf.algorithms.types import at_least_float32
from rlinf.config.schema.algorithm import SftLossConfig


def sft_loss(inputs: LossInputs, cfg: SftLossConfig) -> LossOutput:
    """Return -log p.

    Args:
        inputs: With ``logprobs``, and ``entropy``, which is reported.
        cfg: Not used here.

    Returns:
        The loss, with the metrics ``token_loss`` (the mean over tokens, however the loss is aggregated) and
        ``entropy``.
    """
    del cfg
    logprobs, entropy = inputs.require("logprobs", "entropy")
    loss = -at_least_float32(logprobs)
    return LossOutput(loss, {"token_loss": loss, "entropy": entropy}, name="loss")

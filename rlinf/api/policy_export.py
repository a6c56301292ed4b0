"""A policy's greedy actions as one file: a program of ``torch.export`` or an ONNX model."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from rlinf.api.policy import TrainedPolicy
from rlinf.config.schema.model import CameraPolicyConfig, StatePolicyConfig
from rlinf.errors import ConfigError
from rlinf.models.base_policy import BasePolicy
from rlinf.utils.optional import require

FORMATS = (".pt2", ".onnx")
_EXAMPLE_ROWS = 2
"""Rows of the example that is traced: a batch of 1 would be taken for a constant."""


class GreedyPolicy(nn.Module):
    """Maps observations to the actions that evaluation takes.

    Args:
        policy: The policy.
        keys: Names of its observations, in the order of the arguments.
    """

    def __init__(self, policy: BasePolicy, keys: tuple[str, ...]) -> None:
        super().__init__()
        self.policy, self.keys = policy, keys

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        """Return the actions of ``B`` observations, [B, C, A] or [B, C]: as ``BasePolicy.predict_action_batch``."""
        return self.policy.predict_action_batch(dict(zip(self.keys, tensors, strict=True)), mode="eval")[0]


def export_policy(policy: TrainedPolicy, output: Path) -> dict[str, tuple[int, ...]]:
    """Write the greedy policy, normalisation of observations included; batches may have any size.

    Args:
        policy: The policy, on the CPU.
        output: ``NAME.pt2``, which ``torch.export.load`` reads, or ``NAME.onnx``.

    Returns:
        The shapes of one observation, by name, in the order of the program's arguments.

    Raises:
        ConfigError: The ending is another one, the policy reads text, or ``torch.export`` cannot follow it.
        MissingPackageError: ONNX is not installed.
    """
    if output.suffix not in FORMATS:
        raise ConfigError(f"'{output}': the ending says the format; use one of {', '.join(FORMATS)}.")
    if not isinstance(policy.cfg.actor.model, StatePolicyConfig):
        raise ConfigError(
            f"A policy of model_type={policy.cfg.actor.model.model_type} cannot be exported: its observations hold "
            "text, or are not known. Use rlinf.load_policy."
        )
    shapes = policy.observation_shapes()
    images = policy.cfg.actor.model.image_keys if isinstance(policy.cfg.actor.model, CameraPolicyConfig) else ()
    example = tuple(
        torch.zeros(_EXAMPLE_ROWS, *shape, dtype=torch.uint8 if key in images else torch.float32)
        for key, shape in shapes.items()
    )
    module = GreedyPolicy(policy.model, tuple(shapes)).eval()
    batch = torch.export.Dim("batch")
    dynamic = ({0: batch},) * len(example)
    try:
        with torch.no_grad():
            program = torch.export.export(module, example, dynamic_shapes=(dynamic,), strict=False)
    except RuntimeError as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(
            f"A policy of model_type={policy.cfg.actor.model.model_type} cannot be exported: torch.export cannot "
            f"follow it for batches of any size: {reason} Its code must not turn tensors or their lengths (len) into "
            "Python numbers. Or use rlinf.load_policy."
        ) from error
    if output.suffix == ".pt2":
        torch.export.save(program, output)
    else:
        _write_onnx(program, output, list(shapes))
    return shapes


def _write_onnx(program: torch.export.ExportedProgram, output: Path, names: list[str]) -> None:
    for package in ("onnx", "onnxscript"):
        require(package, needed_by="rlinf export to .onnx")
    onnx_program = torch.onnx.export(program, input_names=names, output_names=["action"], dynamo=True, verbose=False)
    assert onnx_program is not None
    onnx_program.save(str(output))

"""``rlinf export``: a trained policy as one file, for programs without RLinf."""

from __future__ import annotations

import argparse
from pathlib import Path

from rlinf.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``rlinf export``."""
    parser.add_argument("run", metavar="RUN", help="folder of a run (its newest checkpoint), or a checkpoint in one")
    parser.add_argument(
        "output", type=Path, metavar="FILE", help="file to write: NAME.pt2 (torch.export) or NAME.onnx (needs onnx)"
    )


def run(args: argparse.Namespace) -> int:
    """Write the file.

    Returns:
        0.

    Raises:
        CheckpointError: There is no checkpoint.
        ConfigError: The file's name has no known ending, its folder does not exist, or it is a language model.
        MissingPackageError: onnx is not installed.
    """
    if not args.output.absolute().parent.is_dir():
        raise ConfigError(f"The folder {args.output.absolute().parent} does not exist; make it, or name another.")
    # The command's help works without torch.
    from rlinf.api.policy import load_policy
    from rlinf.api.policy_export import export_policy

    policy = load_policy(args.run)
    shapes = ", ".join(f"{name} {list(shape)}" for name, shape in export_policy(policy, args.output).items())
    print(f"{args.output}: {policy.checkpoint} takes {shapes} ({args.output.stat().st_size / 1e6:.2f} MB)")
    return 0

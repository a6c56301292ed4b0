"""The ``rlinf`` command."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

import rlinf
from rlinf.cli.arguments import parse_mixed
from rlinf.cli.errors import run_and_report

COMMANDS = {
    "train": ("rlinf.cli.recipe_commands", "train a recipe"),
    "eval": ("rlinf.cli.recipe_commands", "evaluate the policy that a recipe has trained"),
    "collect": (
        "rlinf.cli.recipe_commands",
        "play episodes by a policy and write them as a data set (LeRobot)",
    ),
    "export": ("rlinf.cli.export", "write a trained policy as one file that needs no RLinf: torch.export or ONNX"),
    "plan": ("rlinf.cli.plan", "validate a recipe offline and draw where everything runs"),
    "migrate": ("rlinf.cli.migrate", "rewrite recipes of the published system for this one"),
    "doctor": ("rlinf.cli.doctor", "show what this machine has and lacks"),
    "status": ("rlinf.cli.status", "show what every worker of a running run does and waits for"),
    "replay": ("rlinf.cli.replay", "make a train step of a run again, offline, and compare its metrics"),
    "convert": ("rlinf.cli.convert", "turn checkpoints into Hugging Face folders or adapters, and back"),
    "serve": ("rlinf.cli.serve", "serve a recipe's generation engine over HTTP"),
    "report": ("rlinf.cli.report", "write one page about a run, or about several"),
    "list": ("rlinf.cli.listing", "list what recipes can name"),
    "completion": ("rlinf.cli.completion", "print what makes a shell complete commands, recipes and keys"),
}
"""Subcommand: its module (with ``add_arguments`` and ``run``) and its line in the help."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code: 0, 1 after an error, 2 after wrong usage, 130 after Ctrl-C.

    Args:
        argv: Arguments without the program's name; None takes the process's.
    """
    arguments = sys.argv[1:] if argv is None else list(argv)
    chosen = next((text for text in arguments if not text.startswith("-")), None)
    parser = argparse.ArgumentParser(
        prog="rlinf", description="Reinforcement-learning infrastructure for embodied AI, reasoning and agents."
    )
    parser.add_argument("--version", action="version", version=f"rlinf {rlinf.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for name, (module, text) in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(module=module)
        # Only the chosen command is imported: doctor must work where the packages of the others are missing.
        if name == chosen:
            importlib.import_module(module).add_arguments(command)
    args = parse_mixed(parser, arguments)
    return run_and_report(lambda: importlib.import_module(args.module).run(args))

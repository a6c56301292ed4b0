"""Turns checkpoints into Hugging Face folders, and back; does the same as ``rlinf convert``."""

import argparse
import sys

from rlinf.cli.convert import add_arguments, run
from rlinf.cli.entry import run_and_report


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Turn checkpoints into Hugging Face folders or adapters, and back.")
    add_arguments(parser)
    args = parser.parse_args(argv)
    return run_and_report(lambda: run(args))


if __name__ == "__main__":
    sys.exit(main())

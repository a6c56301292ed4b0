"""Trains or evaluates a reasoning recipe: ``python main_grpo.py --config-name RECIPE [key=value ...]``."""

import sys

from rlinf.cli.entry import run_entry

if __name__ == "__main__":
    sys.exit(run_entry("reasoning", "rlinf.runners.launch_reasoning:launch_reasoning", asynchronous=None))

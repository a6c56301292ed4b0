"""Trains or evaluates a recipe of fine-tuning: ``python main_sft.py --config-name RECIPE [key=value ...]``."""

import sys

from rlinf.cli.entry import run_entry

if __name__ == "__main__":
    sys.exit(run_entry("sft", "rlinf.runners.launch_sft:launch_sft"))

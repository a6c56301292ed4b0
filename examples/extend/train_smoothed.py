"""Trains an embodied recipe with ``SmoothedRunner``: ``python train_smoothed.py --config-name RECIPE ...``."""

import sys

from rlinf.cli.entry import run_entry

if __name__ == "__main__":
    sys.exit(run_entry("embodied", "smoothed_runner:launch_smoothed"))

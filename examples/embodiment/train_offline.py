"""Trains or evaluates an offline recipe: ``python train_offline.py --config-name RECIPE [key=value ...]``."""

import sys

from rlinf.cli.entry import run_entry

if __name__ == "__main__":
    sys.exit(run_entry("offline", "rlinf.runners.launch:launch_offline"))

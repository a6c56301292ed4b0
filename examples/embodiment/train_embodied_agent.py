"""Trains or evaluates an embodied recipe: ``python train_embodied_agent.py --config-name RECIPE [key=value ...]``."""

import sys

from rlinf.cli.entry import run_entry

if __name__ == "__main__":
    sys.exit(run_entry("embodied", "rlinf.runners.launch:launch_embodied"))

"""Trains or evaluates an offline recipe: ``python train_offline.py --config-name RECIPE [key=value ...]``."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import needed

needed.check_packages(__file__)

from rlinf.cli.entry import run_entry

if __name__ == "__main__":
    sys.exit(run_entry("offline", "rlinf.runners.launch:launch", also=["value"]))

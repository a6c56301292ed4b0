"""Makes ``toy_envs`` importable here and in the processes of the pool, whatever pytest's import mode."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

"""The settings that are made before the simulator starts."""

from types import SimpleNamespace

gm = SimpleNamespace(HEADLESS=False, USE_GPU_DYNAMICS=True, ENABLE_TRANSITION_RULES=False)

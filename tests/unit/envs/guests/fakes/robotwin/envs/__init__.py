"""RoboTwin 2 as its adapter calls it, without a simulator: tasks are numbers that count actions."""

import os

CONFIGS_PATH = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "task_config/")

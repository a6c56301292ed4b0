"""The training loops, and what surrounds them: the run's folder, metrics, checkpoints, recovery from deaths.

``step_runner`` holds the loop; ``launch`` builds cluster, placement and worker groups for a recipe and hands them to
its runner. A new kind of task is a new runner module here and a ``TaskType`` in the registry ``task_types``. May import
everything but ``cli``, which ``task_types`` names by import path only.
"""

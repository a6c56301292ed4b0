"""The loops that a researcher reads and edits, and what they all need: a run folder, metrics, checkpoints.

``launch`` builds cluster, placement and worker groups for a recipe and hands them to its runner. A new kind of task is
a new runner module here. May import everything but ``cli``.
"""

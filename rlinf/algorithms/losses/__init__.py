"""Policy losses, one file each; see ``rlinf.algorithms.registry`` for their names.

A loss is a function of ``LossInputs`` and of its config dataclass; it returns a ``LossOutput``, the loss of each entry,
which ``objective.py`` aggregates and adds the other terms to. Metric names depend on the config alone. May import what
``rlinf.algorithms`` may; add a loss as a file here, registered in ``rlinf.config.schema.algorithm``.
"""

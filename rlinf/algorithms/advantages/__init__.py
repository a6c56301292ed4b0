"""Advantage estimators, one file each; see ``rlinf.algorithms.registry`` for their names.

An estimator is a function of ``Steps`` and of its config dataclass; it returns advantages and returns, both [S, B] and
0 at invalid steps. May import what ``rlinf.algorithms`` may; add an estimator as a file here, registered in
``rlinf.config.schema.algorithm``.
"""

"""Advantage estimators, one file each; see ``rlinf.algorithms.registry`` for their names.

Each takes keyword arguments only: time-major tensors [S, B], the fields of its config dataclass, and ``all_reduce``
where it needs all ranks. It returns advantages and returns, both [S, B] and 0 at invalid steps. May import what
``rlinf.algorithms`` may; add an estimator as a file here, registered in ``rlinf.config.schema.algorithm``.
"""

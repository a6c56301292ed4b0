"""Helpers that know neither RL nor Ray: logging, timing, optional imports, atomic files, seeds. Stays small.

May import ``rlinf.errors`` and ``rlinf.registry`` only (``placement.py`` is the one listed exception: a re-export).
"""

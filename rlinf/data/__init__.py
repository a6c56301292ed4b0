"""Messages between workers (frozen, slotted dataclasses whose docstrings state shape, dtype and meaning) and replay.

Shape legend: ``T`` chunk steps per rollout epoch, ``B`` environments, ``C`` actions per chunk, ``A`` action dimensions.
May import ``rlinf.errors``, ``rlinf.utils`` and ``rlinf.config`` only; new kinds of messages get a module of their own.
"""

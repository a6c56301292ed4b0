"""Messages between workers, replay and datasets.

Shape legend: ``T`` chunk steps per rollout epoch, ``B`` environments, ``C`` actions per chunk, ``A`` action dimensions.
May import ``rlinf.errors``, ``rlinf.utils`` and ``rlinf.config`` only; a new kind of message gets a module of
``messages``, a new format of recorded episodes one of ``datasets``.
"""

"""Where RL meets Ray: the workers that a run consists of, thin compositions of engines, environments and algorithms.

``env`` steps environments, ``rollout`` chooses actions, ``reward`` scores them, ``inference`` says how likely they
were, ``actor`` learns. May import everything but ``runners`` and ``cli``. A new kind of worker is a package of its own
here.
"""

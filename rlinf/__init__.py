"""RLinf: reinforcement-learning infrastructure for embodied AI, reasoning and agents.

The package root imports nothing heavy; take what you need from its sub-packages, whose order of layers is
``errors, registry`` < ``utils`` < ``placement`` < ``config`` < ``data`` < ``telemetry, checkpoint`` <
``algorithms, models, envs`` < ``scheduler`` < ``hybrid_engines`` < ``workers`` < ``runners`` < ``cli``.
"""

__version__ = "0.1.0"

"""How episodes are played, one workflow per file. May import what ``rlinf.agents`` may.

A workflow derives from ``RolloutWorkflow`` and is registered with its dataclass in ``rlinf.config.schema.agent``.
"""

from __future__ import annotations

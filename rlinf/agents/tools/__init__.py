"""What models may call, one tool per file. May import what ``rlinf.agents`` may.

A tool derives from ``Tool`` and is registered with its dataclass in ``rlinf.config.schema.agent``.
"""

from __future__ import annotations

"""An OpenAI-compatible server in front of the recorder, for agents that are programs of their own.

May import what ``rlinf.agents`` may. A dialect of the protocol is one file in ``dialects``.
"""

from __future__ import annotations

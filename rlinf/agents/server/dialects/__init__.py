"""The protocols that the server speaks, one dialect per file. May import what ``rlinf.agents`` may."""

from __future__ import annotations

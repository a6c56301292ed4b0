"""The Ray that the environment names."""

from __future__ import annotations

import os

VARIABLE = "RAY_ADDRESS"
"""Ray's own environment variable: an address, or ``local`` for a new Ray even where one runs."""
_NEW = "local"


def named_ray() -> str:
    """Return the address of the Ray that this process is to join; empty if the environment names none."""
    address = os.environ.get(VARIABLE, "").strip()
    return "" if address == _NEW else address


def wants_new_ray() -> bool:
    """Return whether this process is to start a Ray of its own even where one runs."""
    return os.environ.get(VARIABLE, "").strip() == _NEW

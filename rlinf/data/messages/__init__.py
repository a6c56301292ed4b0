"""Messages between workers: frozen, slotted dataclasses whose docstrings state shape, dtype and meaning."""

"""Workers that hold environments."""

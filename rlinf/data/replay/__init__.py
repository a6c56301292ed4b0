"""Transitions, the buffer that off-policy algorithms sample them from, and its segments on disk."""

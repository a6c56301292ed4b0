"""Weights in files: read by rows into the shards that need them, written one tensor at a time. Knows no model."""

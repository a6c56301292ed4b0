"""Policies of control tasks: multi-layer perceptrons, convolutions and flows on states and small camera images.

Imports what ``rlinf.models`` may; no simulator. A new one is a file here with its dataclass in
``rlinf.config.schema.model``.
"""

"""The message path between processes of a run: serialization, transport, endpoint, mailbox, pending operations.

Nothing here imports Ray, and torch is touched only where the caller has already loaded it, so that the manager and
the channel hosts stay light. A faster transport replaces ``transport.py`` and nothing else.
"""

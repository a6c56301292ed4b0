"""Search services for the tool ``retrieval``: an index of documents, and a server of Search-R1's protocol.

Imports what ``rlinf.agents`` may. A further kind of index derives from ``DocumentIndex``.
"""

"""Agents on language models: workflows that play episodes, the recorder of what is sampled, and the tools they call.

Imports ``rlinf.config``, ``rlinf.data`` and what lies above them; neither Ray nor a worker: a workflow is handed what
samples tokens. A workflow is one file in ``workflows``, a tool one file in ``tools``; their dataclasses and
registrations are in ``rlinf.config.schema.agent``.
"""

from __future__ import annotations

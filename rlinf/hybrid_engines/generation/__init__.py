"""Generation engines: prompt tokens in, response tokens and log-probabilities out, with replaceable weights.

``GenerationEngine`` is the contract; ``hf`` (transformers), ``vllm`` and ``sglang`` implement it, and
``rollout.rollout_backend`` chooses. Knows nothing of RL. A new engine is a module here, its dataclass and its
registration in ``rlinf.config.schema.generation``. May import what is below ``workers``.
"""

from __future__ import annotations

from rlinf.config.registries import generation_engines

__all__ = ["generation_engines"]

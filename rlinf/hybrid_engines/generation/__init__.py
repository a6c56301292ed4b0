"""Generation engines: prompt tokens in, response tokens and log-probabilities out, with replaceable weights.

``GenerationEngine`` is the contract; ``hf`` (transformers), ``vllm`` and ``sglang`` implement it, and
``rollout.rollout_backend`` chooses. Knows nothing of RL. A new engine is a module here, its dataclass in
``rlinf.config.schema.generation`` and a line in ``generation_engines``. May import what is below ``workers``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rlinf.registry import Registry

if TYPE_CHECKING:
    from rlinf.hybrid_engines.generation.generation_engine import GenerationEngine

generation_engines: Registry[Callable[..., GenerationEngine]] = Registry("generation engine")

generation_engines.register_lazy("hf", "rlinf.hybrid_engines.generation.hf:HFEngine")
generation_engines.register_lazy("sglang", "rlinf.hybrid_engines.generation.sglang:SGLangEngine")
generation_engines.register_lazy("vllm", "rlinf.hybrid_engines.generation.vllm:VLLMEngine")

"""A generation engine: the one of transformers, which also tells of requests that take long."""

import time
from dataclasses import dataclass
from typing import Any

from rlinf.config.schema.generation import HFGenerationConfig
from rlinf.data.messages.generation import GenerationRequest, GenerationResult
from rlinf.hybrid_engines.generation.hf import HFEngine
from rlinf.utils.logging import get_logger


@dataclass(frozen=True, kw_only=True)
class WatchedEngineConfig(HFGenerationConfig):
    """Keys of ``rollout_backend: watched``."""

    slow_seconds: float = 10.0
    """Requests that take longer are logged."""


class WatchedEngine(HFEngine):
    """Generates as ``hf`` does, and watches the time."""

    def __init__(self, cfg: Any, **arguments: Any) -> None:
        super().__init__(cfg, **arguments)
        self.slow_seconds = cfg.slow_seconds
        self.num_slow = 0

    async def generate(self, request: GenerationRequest) -> GenerationResult:
        started = time.monotonic()
        result = await super().generate(request)
        seconds = time.monotonic() - started
        if seconds > self.slow_seconds:
            self.num_slow += 1
            get_logger("watched_engine").warning("Request %s took %.1f s.", request.request_id, seconds)
        return result

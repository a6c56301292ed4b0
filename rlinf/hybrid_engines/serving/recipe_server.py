"""Runs a server of the engine that a recipe describes, until the process is interrupted."""

from __future__ import annotations

import asyncio
import signal

import torch

from rlinf.config.schema.root import LanguageConfig
from rlinf.hybrid_engines.generation.from_recipe import build_engine
from rlinf.hybrid_engines.serving.engine_server import EngineServer
from rlinf.utils.logging import get_logger


def serve_recipe(
    cfg: LanguageConfig, *, host: str, port: int, device: torch.device, rank: int = 0, token: str = ""
) -> None:
    """Serve until SIGINT or SIGTERM; see ``EngineServer``.

    Args:
        cfg: The recipe; it has a section ``rollout``.
        host: Address to listen on.
        port: Port; 0 chooses a free one.
        device: Where the engine computes.
        rank: Number of this server, where there are several: each samples requests without a seed in its own way.
        token: That clients must send; empty lets in any.

    Raises:
        EngineError: The engine cannot start.
        OSError: The port is taken.
    """
    asyncio.run(_serve(cfg, host=host, port=port, device=device, rank=rank, token=token))


async def _serve(cfg: LanguageConfig, *, host: str, port: int, device: torch.device, rank: int, token: str) -> None:
    assert cfg.rollout is not None
    description: dict[str, object] = {
        "rollout_backend": cfg.rollout.rollout_backend,
        "model_path": cfg.actor.model.model_path,
        "max_context_tokens": cfg.max_context_tokens,
    }
    engine = await asyncio.to_thread(build_engine, cfg, device=device, rank=rank)
    server = EngineServer(engine, description=description, token=token)
    interrupted = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, interrupted.set)
    logger = get_logger(__name__)
    try:
        url = await server.start(host, port)
        logger.info(f"{url}: loading the engine ({cfg.rollout.rollout_backend}, {cfg.actor.model.model_path})")
        await server.load()
        logger.info(f"{url}: ready")
        await interrupted.wait()
    finally:
        await server.close()

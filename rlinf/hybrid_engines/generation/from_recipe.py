"""The generation engine that a recipe describes."""

from __future__ import annotations

import torch

from rlinf.config.schema.root import LanguageConfig
from rlinf.hybrid_engines.generation import generation_engines
from rlinf.hybrid_engines.generation.generation_engine import GenerationEngine
from rlinf.models.language.model_path import find_model_folder
from rlinf.utils.seeding import derive_seed


def build_engine(
    cfg: LanguageConfig, *, device: torch.device, rank: int, returns_routes: bool = False
) -> GenerationEngine:
    """Build the engine of a rollout rank or of a server; downloads the model where the recipe names one of a hub.

    Args:
        cfg: The recipe; it has a section ``rollout``.
        device: Where to compute.
        rank: Of the engine: each samples requests without a seed in a way of its own.
        returns_routes: Whether completions have ``routes``; only of a section without a ``routes_obstacle``.
    """
    assert cfg.rollout is not None
    engine: GenerationEngine = generation_engines.get(cfg.rollout.rollout_backend)(
        cfg.rollout,
        model_path=find_model_folder(cfg.actor.model.model_path),
        device=device,
        precision=cfg.engine_precision,
        seed=derive_seed(cfg.actor.seed, "rollout", rank),
        max_context_tokens=cfg.max_context_tokens,
        **({"returns_routes": True} if returns_routes else {}),
    )
    return engine

"""The placement classes under the path that user scripts import them from; they live in ``rlinf.placement``."""

from rlinf.placement import (
    ComponentPlacement,
    HybridComponentPlacement,
    ModelParallelComponentPlacement,
    PlacementMode,
)

__all__ = ["ComponentPlacement", "HybridComponentPlacement", "ModelParallelComponentPlacement", "PlacementMode"]

"""Recipes of placements."""

from types import SimpleNamespace

from rlinf.config.schema.cluster import ComponentPlacementConfig


def recipe(**rules: str | dict[str, str] | ComponentPlacementConfig) -> SimpleNamespace:
    return SimpleNamespace(cluster=SimpleNamespace(component_placement=rules))

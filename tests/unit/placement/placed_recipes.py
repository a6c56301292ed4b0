"""Recipes of placements."""

from types import SimpleNamespace


def recipe(**rules):
    return SimpleNamespace(cluster=SimpleNamespace(component_placement=rules))

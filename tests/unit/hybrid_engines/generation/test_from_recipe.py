"""An engine is built of what its recipe says, whichever backend that is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rlinf.config import load_recipe, validate_cfg
from rlinf.config.schema.root import LanguageConfig
from rlinf.errors import ConfigError
from rlinf.hybrid_engines.generation import from_recipe
from rlinf.hybrid_engines.generation.from_recipe import build_engine

CPU = torch.device("cpu")


def recipe(folder: Path, *overrides: str) -> LanguageConfig:
    """Return a recipe whose model is in a folder."""
    cfg = validate_cfg(load_recipe("tiny_math_grpo", [f"actor.model.model_path={folder}", *overrides]))
    assert isinstance(cfg, LanguageConfig)
    return cfg


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any, dict[str, Any]]]:
    """Return what engines are built of: the backend's name, its section and its arguments."""
    calls: list[tuple[str, Any, dict[str, Any]]] = []

    def get(name: str) -> Any:
        return lambda section, **arguments: calls.append((name, section, arguments))

    monkeypatch.setattr(from_recipe, "generation_engines", SimpleNamespace(get=get))
    return calls


def test_an_engine_gets_what_its_recipe_says(built: list[Any], tmp_path: Path) -> None:
    keys = (
        "rollout.model.precision=bf16",
        "rollout.max_running_requests=7",
        "algorithm.sampling_params.max_new_tokens=9",
    )
    cfg = recipe(tmp_path, *keys)
    build_engine(cfg, device=torch.device("meta"), rank=1)
    ((name, section, arguments),) = built
    assert (name, section.max_running_requests) == ("hf", 7)
    assert arguments["device"] == torch.device("meta")
    assert arguments["model_path"] == tmp_path
    assert arguments["precision"] == "bf16"
    assert arguments["max_context_tokens"] == cfg.max_context_tokens
    assert "returns_routes" not in arguments, "engines of others need not know it"
    build_engine(cfg, device=torch.device("meta"), rank=1, returns_routes=True)
    assert built[1][2]["returns_routes"] is True


def test_the_engine_computes_as_the_actor_does_unless_told_otherwise(built: list[Any], tmp_path: Path) -> None:
    build_engine(recipe(tmp_path, "actor.model.precision=fp16"), device=CPU, rank=0)
    assert built[0][2]["precision"] == "fp16"


def test_every_rank_and_run_samples_in_its_own_way(built: list[Any], tmp_path: Path) -> None:
    runs = [recipe(tmp_path, f"actor.seed={seed}") for seed in (1, 2)]
    for _ in range(2):
        for cfg in runs:
            for rank in range(3):
                build_engine(cfg, device=CPU, rank=rank)
    seeds = [arguments["seed"] for _, _, arguments in built]
    assert len(set(seeds)) == 6
    assert seeds[:6] == seeds[6:], "the same run samples the same again"


def test_a_backend_is_chosen_by_its_name(built: list[Any], tmp_path: Path) -> None:
    build_engine(recipe(tmp_path, "rollout.rollout_backend=vllm"), device=CPU, rank=0)
    assert built[0][0] == "vllm"


def test_a_model_that_is_nowhere_is_named(built: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = recipe(tmp_path)
    tmp_path.rmdir()
    with pytest.raises(ConfigError, match=rf"actor\.model\.model_path: there is no folder '{tmp_path}'"):
        build_engine(cfg, device=CPU, rank=0)
    assert not built

"""The registry: one record per name, lazy targets, configs beside them, errors that say what there is."""

from __future__ import annotations

import gc
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from rlinf.config import registries
from rlinf.errors import RegistryError
from rlinf.registry import Registry, closest, paused_collection


@dataclass(frozen=True, kw_only=True)
class BaseConfig:
    """Keys of every engine."""


@dataclass(frozen=True, kw_only=True)
class FastConfig(BaseConfig):
    """Keys of one."""


def fast() -> str:
    """An engine."""
    return "fast"


@pytest.fixture
def engines() -> Registry[object]:
    return Registry("engine", config=BaseConfig)


def test_a_name_has_its_target_and_its_config_in_any_case(engines: Registry[object]) -> None:
    engines.register("Fast", fast, config=FastConfig)
    assert engines.get("FAST") is fast
    assert engines.configs.get("fast") is FastConfig
    assert list(engines) == engines.names() == list(engines.configs) == ["fast"]
    assert "fAst" in engines
    assert "fAst" in engines.configs


def test_without_a_config_a_name_takes_the_base(engines: Registry[object]) -> None:
    engines.register("fast", fast)
    assert engines.configs.get("fast") is BaseConfig
    keyless: Registry[object] = Registry("engine")
    keyless.register("fast", fast)
    assert keyless.configs.names() == []
    with pytest.raises(RegistryError, match="Unknown engine 'fast'"):
        keyless.configs.get("fast")


def test_it_is_a_decorator_too(engines: Registry[object]) -> None:
    @engines.register("slow", config=FastConfig)
    def slow() -> str:
        return "slow"

    assert engines.get("slow") is slow
    assert engines.configs.get("slow") is FastConfig
    assert engines.register("slow")(slow) is slow


def test_a_path_is_imported_when_it_is_needed_and_may_register_itself(
    engines: Registry[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lazy_engine.py").write_text("def build():\n    return 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    engines.register("lazy", "lazy_engine:build", config=FastConfig)
    assert "lazy" in engines
    assert "lazy_engine" not in sys.modules
    build = engines.get("lazy")
    assert build.__name__ == "build"  # type: ignore[attr-defined]
    assert engines.register("lazy")(build) is build
    engines.register("lazy", "lazy_engine:build")
    assert engines.get("lazy") is build
    monkeypatch.delitem(sys.modules, "lazy_engine")


def test_target_and_config_may_come_one_after_the_other(engines: Registry[object]) -> None:
    engines.configs.register("fast", FastConfig)
    assert engines.names() == []
    assert engines.configs.names() == ["fast"]
    with pytest.raises(RegistryError, match="Unknown engine 'fast'"):
        engines.get("fast")
    engines.register("fast", fast)
    assert (engines.get("fast"), engines.configs.get("fast")) == (fast, FastConfig)


@pytest.mark.parametrize(("target", "config"), [(len, None), ("a.b:c", None), (None, BaseConfig), (len, FastConfig)])
def test_a_name_that_is_taken_is_refused_and_stays(
    engines: Registry[object], target: object, config: type[BaseConfig] | None
) -> None:
    engines.register("fast", fast, config=FastConfig)
    with pytest.raises(RegistryError, match="engine 'fast' is already registered; choose another name"):
        engines.register("FAST", target, config=config)
    assert (engines.get("fast"), engines.configs.get("fast")) == (fast, FastConfig)


def test_an_unknown_name_lists_the_known_ones_and_the_closest(engines: Registry[object]) -> None:
    with pytest.raises(RegistryError, match=r"Unknown engine 'x'\. Registered: none\."):
        engines.get("x")
    engines.register("fast", fast)
    engines.register("other", len)
    for table in (engines, engines.configs):
        with pytest.raises(RegistryError, match=r"'Fats'\. Did you mean 'fast'\? Registered: fast, other\."):
            table.get("Fats")
    assert closest("fats", ["fast", "other"]) == "fast"


@pytest.mark.parametrize("kind", registries.__all__)
def test_every_built_in_is_where_its_record_says(kind: str) -> None:
    registry: Registry[object] = getattr(registries, kind)
    assert all(registry.get(name) is not None for name in registry)
    assert {*registry, *registry.configs}


def test_collection_pauses_and_goes_on_as_it_was() -> None:
    with paused_collection():
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    with paused_collection():
        pass
    was_enabled = gc.isenabled()
    gc.enable()
    assert not was_enabled

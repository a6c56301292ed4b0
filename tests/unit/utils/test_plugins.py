"""Plug-ins are loaded once, from a variable or an entry point, and their faults are errors."""

from __future__ import annotations

import importlib.metadata
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from rlinf.errors import ConfigError
from rlinf.utils import plugins
from rlinf.utils.plugins import load_plugins


@pytest.fixture
def write_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    monkeypatch.setattr(plugins, "_loaded", set())
    monkeypatch.syspath_prepend(tmp_path)

    def write(source: str, name: str = "rope_plugin") -> None:
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(source))
        monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.setenv("RLINF_EXT_MODULE", name)

    return write


def test_register_is_called_once(write_plugin: Callable[..., None]) -> None:
    write_plugin("calls = []\ndef register():\n    calls.append(1)\n")
    load_plugins()
    load_plugins()
    assert sys.modules["rope_plugin"].calls == [1]


def test_missing_module_is_an_error_that_names_the_variable(
    write_plugin: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "_loaded", set())
    monkeypatch.setenv("RLINF_EXT_MODULE", "no_such_plugin")
    with pytest.raises(ConfigError, match=r"RLINF_EXT_MODULE=no_such_plugin: cannot be imported.*PYTHONPATH"):
        load_plugins()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import no_such_package_at_all\n", "no_such_package_at_all"),
        ("value = 3\n", r"has no function register\(\)"),
        ("def register():\n    raise ValueError('boom')\n", "ValueError: boom"),
    ],
)
def test_faulty_plugin_is_an_error(write_plugin: Callable[..., None], source: str, message: str) -> None:
    write_plugin(source)
    with pytest.raises(ConfigError, match=message):
        load_plugins()


def test_failed_plugin_is_tried_again(write_plugin: Callable[..., None]) -> None:
    write_plugin("value = 3\n")
    for _ in range(2):
        with pytest.raises(ConfigError):
            load_plugins()


@pytest.mark.parametrize("target", ["rope_plugin", "rope_plugin:register"])
def test_entry_points_name_a_module_or_its_function(
    write_plugin: Callable[..., None], monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    write_plugin("calls = []\ndef register():\n    calls.append(1)\n")
    monkeypatch.delenv("RLINF_EXT_MODULE")
    entry = importlib.metadata.EntryPoint(name="rope", value=target, group="rlinf.plugins")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda *, group: [entry] * (group == entry.group))
    load_plugins()
    assert sys.modules["rope_plugin"].calls == [1]


def test_plugin_can_add_an_environment_that_recipes_name(
    write_plugin: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rlinf.config import build_config
    from rlinf.config.registries import envs

    monkeypatch.setattr(envs, "_entries", dict(envs._entries))
    write_plugin(
        """
        from rlinf.config.registries import envs
        from rlinf.config.schema.env import EnvConfig

        def register():
            envs.register("rope", config=EnvConfig)
        """
    )
    with pytest.raises(ConfigError) as caught:
        build_config({"env": {"train": {"env_type": "rop"}}})
    assert "Did you mean 'rope'?" in str(caught.value)

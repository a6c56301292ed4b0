"""A keyboard whose keys are held by the test."""

import sys
from types import ModuleType

import pytest
from held_keys import Listener


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    package, module = ModuleType("pynput"), ModuleType("pynput.keyboard")
    module.Listener = Listener  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pynput", package)
    monkeypatch.setitem(sys.modules, "pynput.keyboard", module)

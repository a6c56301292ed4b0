"""What holds for every unit test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rlinf.config import registries


@pytest.fixture(autouse=True)
def registered_names_end_with_their_test() -> Iterator[None]:
    """Let no test meet the environments, rewards or losses that another has registered."""
    known = {name: getattr(registries, name) for name in registries.__all__}
    before = {name: dict(registry._entries) for name, registry in known.items()}
    yield
    for name, registry in known.items():
        registry._entries = before[name]

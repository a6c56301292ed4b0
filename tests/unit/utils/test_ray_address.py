"""The environment names a Ray, asks for a new one, or leaves the choice."""

from __future__ import annotations

import pytest

from rlinf.utils.ray_address import VARIABLE, named_ray, wants_new_ray


@pytest.mark.parametrize(
    ("value", "address", "new"),
    [(None, "", False), ("", "", False), (" 10.0.0.1:6379 ", "10.0.0.1:6379", False), ("local", "", True)],
)
def test_local_is_no_address_but_asks_for_a_new_ray(
    monkeypatch: pytest.MonkeyPatch, value: str | None, address: str, new: bool
) -> None:
    if value is None:
        monkeypatch.delenv(VARIABLE, raising=False)
    else:
        monkeypatch.setenv(VARIABLE, value)
    assert (named_ray(), wants_new_ray()) == (address, new)

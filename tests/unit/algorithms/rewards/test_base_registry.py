"""Registration and look-up of rule rewards."""

from __future__ import annotations

import pytest

from rlinf.algorithms.rewards import get_reward_class, register_reward
from rlinf.config.registries import rewards
from rlinf.errors import RegistryError


def test_rewards_register_by_call_and_by_decorator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewards, "_entries", dict(rewards._entries))

    class Length:
        pass

    @register_reward("Exact")
    class Exact:
        pass

    register_reward("length", Length)
    assert get_reward_class("LENGTH") is Length
    assert get_reward_class("exact") is Exact
    with pytest.raises(RegistryError, match="Did you mean 'length'"):
        get_reward_class("lenght")
    with pytest.raises(RegistryError, match="already registered"):
        register_reward("length", Exact)

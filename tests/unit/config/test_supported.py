"""``SupportedModel`` shows the registry, however it grows."""

from __future__ import annotations

import pytest

from rlinf.config import SupportedModel, get_supported_model
from rlinf.config.registries import models
from rlinf.config.schema.model import ModelConfig
from rlinf.errors import RegistryError
from rlinf.registry import Registration


def test_members_by_attribute_call_and_lookup_are_equal() -> None:
    assert SupportedModel.MLP_POLICY == SupportedModel("MLP_Policy") == get_supported_model("mlp_policy")
    assert SupportedModel.MLP_POLICY.value == "mlp_policy"
    assert SupportedModel.MLP_POLICY.name == "MLP_POLICY"
    assert "mlp_policy" in SupportedModel
    assert SupportedModel.MLP_POLICY in list(SupportedModel)
    assert len(SupportedModel) == len(models.names())


def test_unknown_members_list_the_known_ones() -> None:
    with pytest.raises(RegistryError, match="Did you mean 'mlp_policy'"):
        get_supported_model("mlp_polcy")
    with pytest.raises(AttributeError, match="MLP_POLICY"):
        _ = SupportedModel.NOTHING


def test_registering_a_model_extends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        models._entries, "qwen2.6", Registration("rlinf.models.control.mlp_policy:build_mlp_policy", ModelConfig)
    )
    assert SupportedModel.QWEN2_6 == "qwen2.6"

"""The models a recipe can name, as an enumeration that grows with the registry."""

from __future__ import annotations

from rlinf.config.registries import models
from rlinf.utils.enumeration import RegistryEnum, RegistryMember

SupportedModel = RegistryEnum("SupportedModel", models)
"""Every registered model: ``SupportedModel.MLP_POLICY``, ``SupportedModel("mlp_policy")``, iteration, ``in``."""


def get_supported_model(model_type: str) -> RegistryMember:
    """Return the member of ``SupportedModel`` called ``model_type``, in any case.

    Raises:
        RegistryError: No such model is registered; the message lists those that are and the closest one.
    """
    return SupportedModel(model_type)

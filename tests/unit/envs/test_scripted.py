import pytest

from rlinf.config.registries import scripted_policies
from rlinf.errors import RegistryError


def test_unknown_scripted_policies_are_told() -> None:
    with pytest.raises(RegistryError, match="metaworld"):
        scripted_policies.get("metawrld")

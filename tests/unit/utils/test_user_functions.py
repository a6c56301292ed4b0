"""Functions that recipes name."""

from __future__ import annotations

import math

import pytest

from rlinf.errors import ConfigError
from rlinf.utils.user_functions import import_function


def test_a_function_is_imported_by_its_path() -> None:
    assert import_function("math:gcd", "a.key") is math.gcd


@pytest.mark.parametrize("path", ["math:no_such", "no_such_module:f", "math", ":f", "math:pi"])
def test_anything_else_names_the_key_and_the_remedy(path: str) -> None:
    with pytest.raises(ConfigError, match=rf"a\.key: received '{path}'; it .*(Write package\.module|Name a function)"):
        import_function(path, "a.key")

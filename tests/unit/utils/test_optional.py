"""Optional packages: imported where they are, named with their command where they are not."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from rlinf.errors import MissingPackageError
from rlinf.utils.optional import install_command, is_installed, require


def test_what_is_installed_is_imported() -> None:
    assert require("json", needed_by="this") is json
    assert is_installed("json")
    assert not is_installed("no_such_package")


@pytest.mark.parametrize(
    ("module", "command"),
    [
        ("h5py", "pip install 'rlinf[offline]'"),
        ("imageio.v3", "pip install 'rlinf[video]'"),
        ("robots.arm", "pip install robots"),
    ],
)
def test_a_submodule_is_installed_by_the_command_of_its_package(module: str, command: str) -> None:
    assert install_command(module) == command


def test_what_is_missing_is_named_with_who_needs_it_and_the_interpreter() -> None:
    with pytest.raises(MissingPackageError) as caught:
        require("no_such_package", needed_by="env_type=moon", install="make moon")
    message = str(caught.value)
    assert message.startswith("env_type=moon needs the package 'no_such_package'")
    assert sys.executable in message
    assert message.endswith("Install it with: make moon")


def test_the_package_that_a_package_lacks_is_the_one_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "half_there.py").write_text("import no_such_package\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingPackageError, match="needs the package 'no_such_package'"):
        require("half_there", needed_by="this")

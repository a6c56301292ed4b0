"""A folder of a model that is not there, with what to do."""

from pathlib import Path

import pytest

from rlinf.errors import ConfigError
from rlinf.models import get_model
from tests.unit.models.tiny_language_models import tiny_config


def test_a_missing_folder_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"actor\.model\.model_path: there is no folder.*hf download"):
        get_model(tiny_config(tmp_path / "absent"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ConfigError, match="HF_HUB_OFFLINE forbids"):
        get_model(tiny_config("Qwen/Qwen2.5-1.5B"))
    with pytest.raises(ConfigError, match=r"transformers cannot load"):
        get_model(tiny_config(tmp_path))

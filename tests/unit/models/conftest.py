"""A tiny language model, and what transformers computes."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit.models.tiny_language_models import save_tiny


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("tiny")
    return folder, save_tiny(folder, tie_word_embeddings=request.param).double()

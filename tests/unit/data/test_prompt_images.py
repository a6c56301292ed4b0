"""Images of rows: what columns hold, how many tokens they take, and what is no image."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from rlinf.data import prompt_images
from rlinf.data.prompt_images import ImageProcessor, as_image_bytes
from rlinf.errors import DatasetError
from tests.unit.models.tiny_vision_models import make_tiny_vision_model, picture


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_vision_model(tmp_path_factory.mktemp("model"), num_layers=1)


@pytest.mark.parametrize("size", [(112, 112), (111, 113), (97, 60), (29, 200), (500, 500)])
def test_an_image_takes_as_many_tokens_as_its_patches_make(folder: Path, size: tuple[int, int]) -> None:
    processor, image = ImageProcessor(str(folder)), picture(2, size=size)
    patches = processor.patches(image)
    time, height, width = patches.grid
    assert patches.pixels.shape == (time * height * width, 3 * 2 * 14 * 14)
    assert patches.num_tokens == (height // 2) * (width // 2)
    expanded = processor.expand([5, processor.token_id, 6], (image,))
    assert expanded == (5, *[processor.token_id] * patches.num_tokens, 6)


def test_placeholders_are_those_of_the_images(folder: Path) -> None:
    processor = ImageProcessor(str(folder))
    one, wide = picture(1), picture(1, size=(140, 90))
    token = processor.token_id
    counts = [processor.patches(image).num_tokens for image in (wide, one)]
    assert processor.expand([token, 5, token], (wide, one)) == (*[token] * counts[0], 5, *[token] * counts[1])
    for prompt in ([5], [token, token]):
        with pytest.raises(DatasetError, match=r"placeholder\(s\).*apply_chat_template=true"):
            processor.expand(prompt, (one,))


def test_columns_of_files_paths_and_decoded_images_are_the_same_image(tmp_path: Path) -> None:
    data = picture(3)
    (tmp_path / "a.png").write_bytes(data)
    decoded = Image.open(io.BytesIO(data))
    values: list[Any] = [data, str(tmp_path / "a.png"), {"bytes": data, "path": "a.png"}, {"path": f"{tmp_path}/a.png"}]
    assert all(as_image_bytes(value) == (data,) for value in values)
    assert as_image_bytes([data, data]) == (data, data)
    (found,) = as_image_bytes(decoded)
    assert Image.open(io.BytesIO(found)).tobytes() == decoded.tobytes()
    for value, problem in ((7, "received int"), (f"{tmp_path}/b.png", "there is no image")):
        with pytest.raises(DatasetError, match=problem):
            as_image_bytes(value)


def test_what_is_no_image_or_no_model_with_images_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="an image of 3 bytes cannot be read"):
        ImageProcessor(str(folder)).patches(b"abc")
    with pytest.raises(DatasetError, match=r"actor\.model\.model_path.*Qwen2\.5-VL"):
        ImageProcessor(str(tmp_path))


def test_patches_are_kept_within_a_bound(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    processor = ImageProcessor(str(folder))
    first, second = picture(1), picture(2)
    kept = processor.patches(first)
    assert processor.patches(first) is kept
    monkeypatch.setattr(prompt_images, "_MAX_CACHED_BYTES", kept.pixels.nbytes)
    processor.patches(second)
    assert processor.patches(first) is not kept

"""Where images lie in sequences: rows of features, and M-RoPE positions, worked out by hand."""

from __future__ import annotations

import pytest
import torch

from rlinf.data.prompt_images import ImageProcessor
from rlinf.models.language.vision_inputs import ImageInputs
from tests.unit.models.tiny_vision_models import make_tiny_vision_model, picture

PIXELS = 3 * 2 * 14 * 14


@pytest.fixture(scope="module")
def processor(tmp_path_factory: pytest.TempPathFactory) -> ImageProcessor:
    return ImageProcessor(str(make_tiny_vision_model(tmp_path_factory.mktemp("model"), num_layers=1)))


def test_text_goes_on_behind_the_longer_side_of_an_image(processor: ImageProcessor) -> None:
    image = picture(1, size=(84, 56))  # 3 x 2 tokens
    ids = processor.expand([5, 6, processor.token_id, 7, 8], (image,))
    (found,) = ImageInputs.of([torch.tensor(ids)], [(image,)], processor).sequences
    assert found.rows.tolist() == [-1, -1, 0, 1, 2, 3, 4, 5, -1, -1]
    assert found.positions.tolist() == [
        [0, 1, 2, 2, 2, 2, 2, 2, 5, 6],
        [0, 1, 2, 2, 2, 3, 3, 3, 5, 6],
        [0, 1, 2, 3, 4, 2, 3, 4, 5, 6],
    ]


def test_equal_images_are_computed_once(processor: ImageProcessor) -> None:
    one, other = picture(1), picture(2)
    ids = [torch.tensor(processor.expand([processor.token_id], (image,))) for image in (one, other, one)]
    inputs = ImageInputs.of(ids, [(one,), (other,), (one,)], processor)
    assert inputs.grids.tolist() == [[1, 8, 8]] * 2
    assert len(inputs.pixels) == 2 * 64
    assert torch.equal(inputs.sequences[0].rows, inputs.sequences[2].rows)
    assert inputs.sequences[1].rows.tolist() == list(range(16, 32))


def test_without_images_there_is_a_blank_one_that_no_token_sees(processor: ImageProcessor) -> None:
    inputs = ImageInputs.of([torch.tensor([5, 6])], [()], processor)
    assert inputs.pixels.shape == (4, PIXELS)
    assert inputs.grids.tolist() == [[1, 2, 2]]
    assert inputs.sequences[0].rows.tolist() == [-1, -1]
    assert inputs.sequences[0].positions.tolist() == [[0, 1]] * 3

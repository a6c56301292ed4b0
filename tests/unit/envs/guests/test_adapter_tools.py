"""Options are checked, packages may be missing, and arrays are copies of images the right way up."""

import sys
from typing import Any

import numpy as np
import pytest
import torch

from rlinf.envs.guests.adapter_tools import as_array, as_image, import_simulator, pick, with_options


@with_options
def make(*, render: bool, task: str, speed: float = 0.5) -> tuple[Any, ...]:
    """Build nothing."""
    return render, task, speed


def test_options_reach_the_adapter_and_others_are_named_with_those_that_there_are() -> None:
    assert make(render=True, task="walk") == (True, "walk", 0.5)
    text = r"init_params: adapter test_adapter_tools has no sped and requires task; it takes task, speed$"
    with pytest.raises(ValueError, match=text):
        make(render=True, sped=1.0)


def test_arrays_are_copies_of_tensors_and_of_arrays() -> None:
    tensor, array = torch.ones(2, requires_grad=True), np.ones(2)
    copies = as_array(tensor), as_array(array)
    with torch.no_grad():
        tensor[:] = 7
    array[:] = 7
    assert [copy.tolist() for copy in copies] == [[1, 1], [1, 1]]


def test_images_have_three_channels_and_their_first_row_on_top() -> None:
    image = torch.arange(24, dtype=torch.uint8).reshape(2, 3, 4)
    assert as_image(image).tolist() == image[..., :3].tolist()
    flipped = as_image(image, upside_down=True)
    assert flipped.tolist() == image.flip(0)[..., :3].tolist()
    assert flipped.flags.c_contiguous
    batch = torch.stack([image, image + 100])
    assert as_image(batch, upside_down=True).tolist() == batch.flip(1)[..., :3].tolist()


@pytest.mark.parametrize(
    "image", [np.ones((2, 2, 3), np.float32), np.ones((2, 3), np.uint8), np.ones((3, 2, 2), np.uint8)]
)
def test_what_is_no_image_is_refused(image: Any) -> None:
    with pytest.raises(ValueError, match=rf"uint8 \[H, W, 3\]; received {image.dtype}"):
        as_image(image)


def test_what_is_not_there_is_named() -> None:
    assert pick({"front": 1}, "front", "cameras") == 1
    with pytest.raises(ValueError, match="cameras: there is no 'back'; there are front, top"):
        pick({"front": 1, "top": 2}, "back", "cameras")
    assert import_simulator("json", "it is here") is sys.modules["json"]
    with pytest.raises(ImportError, match=rf"'no_simulator' cannot be imported by {sys.executable} .*; build it first"):
        import_simulator("no_simulator", "build it first")

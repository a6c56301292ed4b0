"""Prompts are the published sentences, padded behind their first token."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlinf.errors import ConfigError
from rlinf.models.vla.action_prompts import OpenVLAPrompts, openvla_prompt
from toolkits.vla.make_tiny import TinyShape, write_tokenizer

pytest.importorskip("transformers")
TASKS = ["Pick up the CUBE", "stop"]


def test_the_task_is_written_in_lower_case() -> None:
    assert openvla_prompt("Pick up the CUBE") == "In: What action should the robot take to pick up the cube?\nOut:"


def test_padding_stands_behind_the_first_token(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, TinyShape(words=TASKS))
    prompts = OpenVLAPrompts(tmp_path, 24)
    ids, mask = prompts.encode(TASKS)
    lengths = mask.sum(1).tolist()
    assert lengths[0] == lengths[1] + 3
    for row, length in zip(range(2), lengths, strict=True):
        assert mask[row].tolist() == [True, *[False] * (24 - length), *[True] * (length - 1)]
    assert ids[:, 0].tolist() == [1, 1]
    empty_word = 4
    assert ids[:, -1].tolist() == [empty_word, empty_word]
    assert prompts.eos_token_id == 2


def test_a_prompt_that_is_too_long_says_how_long(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, TinyShape(words=TASKS))
    with pytest.raises(ConfigError, match="max_prompt_length: received 10; .* Set it to 18 or more"):
        OpenVLAPrompts(tmp_path, 10).encode(TASKS)

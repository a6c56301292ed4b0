"""What a column of messages may be."""

from __future__ import annotations

import pytest

from rlinf.data.datasets.text_rows import Place, as_messages
from rlinf.errors import DatasetError


def test_keys_that_only_other_messages_of_a_table_have_are_left_out() -> None:
    messages = [{"role": "user", "content": "hi", "name": None}, {"role": "user", "content": "", "name": "x"}]
    found = as_messages(messages, option="data.prompt_key", where=Place("row 0"))
    assert found == [{"role": "user", "content": "hi"}, {"role": "user", "content": "", "name": "x"}]


@pytest.mark.parametrize("content", [3, ["hi"], {"role": "user"}])
def test_anything_else_is_refused_by_the_name_of_its_option(content: int | list[str] | dict[str, str]) -> None:
    with pytest.raises(DatasetError, match=r"data\.prompt_key: received \w+ in row 0"):
        as_messages(content, option="data.prompt_key", where=Place("row 0"))

"""Paths and numbers of files."""

from rlinf.data.datasets.lerobot.format import place


def test_a_folder_has_a_thousand_files() -> None:
    assert place(999) == {"chunk_index": 0, "file_index": 999}
    assert place(2001) == {"chunk_index": 2, "file_index": 1}

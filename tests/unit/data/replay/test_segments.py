import json
from pathlib import Path

import pytest
import torch

from rlinf.data.replay.segments import MANIFEST, Manifest, SegmentFolder, find_folders, read_numbered, row_bytes
from rlinf.errors import DatasetError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of the rows 3 to 9 in segments of four, of which those from 4 on count."""
    segments = SegmentFolder(tmp_path / "saved", 4)
    rows = {"x": torch.arange(3.0, 10.0).view(-1, 1), "flag": torch.arange(3, 10) % 2 == 0}
    segments.write(3, {name: tensor[:1] for name, tensor in rows.items()})
    segments.write(4, {name: tensor[1:5] for name, tensor in rows.items()})
    segments.write(8, {name: tensor[5:] for name, tensor in rows.items()})
    segments.commit(4, 10, rows)
    return tmp_path / "saved"


def test_rows_keep_their_numbers_types_and_shapes(folder: Path) -> None:
    parts = list(read_numbered(folder))
    assert [numbers.tolist() for _, numbers in parts] == [[4, 5, 6, 7], [8, 9]]
    for rows, numbers in parts:
        assert torch.equal(rows["x"], numbers.float().view(-1, 1))
        assert torch.equal(rows["flag"], numbers % 2 == 0)
    record = json.loads((folder / MANIFEST).read_text())
    assert record["format"] == 1
    assert record["tensors"] == {"flag": {"dtype": "bool", "shape": []}, "x": {"dtype": "float32", "shape": [1]}}
    assert row_bytes(parts[0][0]) == 5


def test_a_longer_segment_replaces_a_shorter_one_once_it_is_listed(folder: Path) -> None:
    segments = SegmentFolder(folder, 4)
    former = Manifest.read(folder).segments
    for segment in former:
        segments.adopt(folder, segment)
    assert segments.has_whole(1)
    assert not segments.has_whole(2)
    segments.write(8, {"x": torch.arange(8.0, 12.0).view(-1, 1), "flag": torch.zeros(4, dtype=torch.bool)})
    # Until the new manifest is there the old one is true.
    assert [len(numbers) for _, numbers in read_numbered(folder)] == [4, 2]
    segments.commit(4, 12, next(read_numbered(folder))[0])
    assert [len(numbers) for _, numbers in read_numbered(folder)] == [4, 4]
    assert not (folder / former[-1].file).exists()


def test_damage_is_found(folder: Path) -> None:
    file = folder / Manifest.read(folder).segments[1].file
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(DatasetError, match="damaged"):
        list(read_numbered(folder))
    file.unlink()
    with pytest.raises(DatasetError, match="cannot be read"):
        list(read_numbered(folder))


def test_what_is_no_saved_replay_is_told(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"rank_\*"):
        find_folders(tmp_path)
    with pytest.raises(DatasetError, match="no saved replay"):
        Manifest.read(tmp_path)
    (folder / MANIFEST).write_text(json.dumps({"format": 7}))
    with pytest.raises(DatasetError, match="format 7"):
        Manifest.read(folder)
    (folder / MANIFEST).write_text("{")
    with pytest.raises(DatasetError, match="cannot be read"):
        Manifest.read(folder)


def test_a_folder_may_begin_in_the_middle_of_a_segment(folder: Path) -> None:
    manifest = Manifest.read(folder)
    Manifest(6, 9, manifest.segment_rows, manifest.tensors, manifest.segments).write(folder)
    parts = list(read_numbered(folder))
    assert [numbers.tolist() for _, numbers in parts] == [[6, 7], [8]]
    for rows, numbers in parts:
        assert torch.equal(rows["x"], numbers.float().view(-1, 1))


def test_parts_come_in_the_order_of_their_ranks(folder: Path, tmp_path: Path) -> None:
    for rank in (10, 2, 0, 1):
        part = tmp_path / "parts" / f"rank_{rank}"
        part.mkdir(parents=True)
        (part / MANIFEST).write_text((folder / MANIFEST).read_text())
    assert [part.name for part in find_folders(tmp_path / "parts")] == ["rank_0", "rank_1", "rank_2", "rank_10"]

"""Merging and splitting keep every transition, and the scripts do what the functions do."""

import importlib.util
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlinf.data.replay.buffer import ReplayBuffer, Transitions
from rlinf.data.replay.segments import RowWriter, find_folders, read_numbered
from rlinf.data.replay.tools import describe_replay, merge_replays, split_replay
from rlinf.errors import DatasetError

TOOLKITS = Path(__file__).parents[4] / "toolkits" / "replay_buffer"


def saved(folder: Path, numbers: range, dim: int = 1) -> Path:
    rows = torch.tensor(list(numbers), dtype=torch.float32)
    replay = ReplayBuffer(1000, segment_bytes=100)
    replay.add(
        Transitions(
            inputs={"states": rows.unsqueeze(1).expand(-1, dim)},
            actions=rows.view(-1, 1, 1),
            rewards=rows,
            next_inputs={"states": rows.unsqueeze(1).expand(-1, dim) + 1},
            terminated=rows % 10 == 9,
            lengths=torch.ones(len(rows), dtype=torch.int64),
        )
    )
    replay.save(folder)
    return folder


def rewards(folder: Path) -> list[Any]:
    content = ReplayBuffer.open(folder).contents()
    return [] if content is None else content.rewards.tolist()


def script(name: str, *arguments: Path | str | int) -> Any:
    spec = importlib.util.spec_from_file_location(f"replay_{name}", TOOLKITS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main([str(argument) for argument in arguments])


@settings(max_examples=15, deadline=None)
@given(sizes=st.lists(st.integers(0, 20), min_size=1, max_size=3), share=st.floats(0, 1), seed=st.integers(0, 3))
def test_merging_and_splitting_lose_and_double_nothing(sizes: Any, share: Any, seed: int) -> None:
    with TemporaryDirectory() as name:
        root, start, sources = Path(name), 0, []
        for number, size in enumerate(sizes):
            sources.append(saved(root / f"source_{number}", range(start, start + size)))
            start += size
        assert merge_replays(sources, root / "merged") == start
        assert rewards(root / "merged") == list(range(start))
        parts = [root / "a", root / "b"]
        counts = split_replay(root / "merged", parts, [share, 1 - share], seed=seed)
        first, second = map(rewards, parts)
        assert [len(first), len(second)] == counts
        assert abs(counts[0] - start * share) <= 0.5 + 1e-6
        assert first == sorted(first)
        assert sorted(first + second) == list(range(start))


@pytest.mark.parametrize("pieces", [[1] * 10, [10], [3, 0, 7], [4, 4, 2]])
def test_rows_are_written_in_segments_however_they_come(pieces: list[int], tmp_path: Path) -> None:
    with RowWriter(tmp_path / "rows", segment_bytes=16) as writer:
        start = 0
        for count in pieces:
            writer.add({"x": torch.arange(start, start + count, dtype=torch.float32)})
            start += count
    parts = list(read_numbered(tmp_path / "rows"))
    assert [len(numbers) for _, numbers in parts] == [4, 4, 2]
    assert torch.cat([rows["x"] for rows, _ in parts]).tolist() == list(range(10))
    assert list(tmp_path.iterdir()) == [tmp_path / "rows"]


def test_a_description_is_of_all_parts(tmp_path: Path) -> None:
    for rank in range(2):
        saved(tmp_path / f"rank_{rank}", range(20 * rank, 20 * rank + 20))
    found = describe_replay(tmp_path)
    assert (found.parts, found.transitions, found.terminated) == (2, 40, 4)
    assert (found.reward_min, found.reward_mean, found.reward_max) == (0, 19.5, 39)
    assert found.tensors["inputs.states"] == {"dtype": "float32", "shape": [1]}
    assert found.bytes == sum(f.stat().st_size for part in find_folders(tmp_path) for f in part.glob("*.safetensors"))


def test_a_deal_is_at_random_and_named_by_its_seed(tmp_path: Path) -> None:
    source = saved(tmp_path / "source", range(40))  # several segments

    def first_part(name: str, seed: int) -> list[Any]:
        parts = [tmp_path / f"{name}_a", tmp_path / f"{name}_b"]
        assert split_replay(source, parts, [0.5, 0.5], seed=seed) == [20, 20]
        return rewards(parts[0])

    dealt = first_part("first", 0)
    assert dealt not in (list(range(20)), list(range(20, 40)))
    assert first_part("again", 0) == dealt
    assert first_part("other", 1) != dealt


def test_what_does_not_fit_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    sources = [saved(tmp_path / "a", range(3)), saved(tmp_path / "b", range(3), dim=2)]
    with pytest.raises(DatasetError, match="different tensors"):
        merge_replays(sources, tmp_path / "merged")
    with pytest.raises(DatasetError, match="exists"):
        merge_replays(sources[:1], tmp_path / "b")
    with pytest.raises(DatasetError, match="shares"):
        split_replay(sources[0], [tmp_path / "x"], [0.5])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_the_scripts_merge_describe_and_split(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sources = [saved(tmp_path / "a", range(6)), saved(tmp_path / "b", range(6, 10))]
    merged = tmp_path / "merged"
    assert script("merge", *sources, "--output", merged) == 0
    assert script("describe", merged) == 0
    assert script("split", merged, f"{tmp_path}/train=0.7", f"{tmp_path}/val=0.3", "--seed", 1) == 0
    output = capsys.readouterr().out
    for line in (f"{merged}: 10 transitions", "mean 4.5", "1 terminated", "train: 7 transitions", "val: 3 transitions"):
        assert line in output
    assert sorted(rewards(tmp_path / "train") + rewards(tmp_path / "val")) == list(range(10))
    assert script("split", merged, "train") == 1
    assert "FOLDER=SHARE" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["describe", "merge", "split"])
def test_the_scripts_explain_themselves(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        script(name, "--help")
    assert ended.value.code == 0
    assert "usage:" in capsys.readouterr().out

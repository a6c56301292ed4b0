"""A checkpoint from elsewhere never runs code: it is loaded, or refused by a typed error that names the part."""

import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.optim
from torch import nn
from torch.distributed.checkpoint import metadata as layout

import rlinf
from rlinf.errors import CheckpointError, ConfigError
from rlinf.hybrid_engines.train import state
from rlinf.hybrid_engines.train.chunks import write_state
from rlinf.hybrid_engines.train.safe_reader import read_metadata
from rlinf.models.control.success_classifier import SuccessClassifier
from rlinf.workers.actor.off_policy_learner import _read


class Mark:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def __reduce__(self) -> tuple[Callable[..., None], tuple[str]]:
        return os.mkdir, (self.folder,)


EXTRA = {"count": 3, "scaler": {"scale": 2.0, "names": ["a"], "none": None}}


def parts(seed: int) -> tuple[nn.Sequential, list[torch.optim.AdamW]]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.5 / (seed + 1))
    model(torch.randn(5, 3)).pow(2).sum().backward()
    optimizer.step()
    return model, [optimizer]


@pytest.fixture
def checkpoint(tmp_path: Path) -> tuple[Path, nn.Sequential]:
    """The folder of a checkpoint, and the model that is in it."""
    model, optimizers = parts(0)
    write_state(tmp_path / "actor", state.training_state(model, optimizers, EXTRA))
    return tmp_path / "actor", model


def assert_refused(folder: Path, load: Callable[[], None] | Callable[[], dict[str, Any]], *expected: str) -> None:
    with pytest.raises(CheckpointError) as error:
        load()
    assert not folder.exists(), "code ran"
    for part in (*expected, "run code"):
        assert part in str(error.value)
    assert "does not fit this recipe" not in str(error.value)


def test_what_was_saved_comes_back(checkpoint: tuple[Path, nn.Sequential]) -> None:
    folder, saved = checkpoint
    model, optimizers = parts(1)
    extra = state.load(folder, model, optimizers, {"count": 0, "scaler": {"scale": 0.0, "names": [], "none": 1}})
    assert extra == EXTRA
    assert optimizers[0].param_groups[0]["lr"] == 0.25, "settings are the recipe's"
    for name, tensor in saved.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor)


@pytest.mark.parametrize("load", ["load", "load_weights"])
@pytest.mark.parametrize("place", ["whole", "planner_data", "storage_meta"])
def test_metadata_that_would_run_code_is_refused(
    checkpoint: tuple[Path, nn.Sequential], tmp_path: Path, load: str, place: str
) -> None:
    folder, _ = checkpoint
    mark = Mark(tmp_path / "code_ran")
    found = mark
    if place != "whole":
        found = pickle.loads((folder / ".metadata").read_bytes())
        setattr(found, place, mark)
    (folder / ".metadata").write_bytes(pickle.dumps(found))
    model, optimizers = parts(1)
    calls = {
        "load": lambda: state.load(folder, model, optimizers, dict(EXTRA)),
        "load_weights": lambda: state.load_weights(folder, model),
    }
    assert_refused(tmp_path / "code_ran", calls[load], str(folder / ".metadata"), "posix.mkdir")


@pytest.mark.parametrize("name", ["eval", "exec", "getattr", "__import__"])
def test_builtins_are_no_metadata(checkpoint: tuple[Path, nn.Sequential], tmp_path: Path, name: str) -> None:
    folder, _ = checkpoint
    (folder / ".metadata").write_bytes(f"cbuiltins\n{name}\n.".encode())
    assert_refused(tmp_path / "x", lambda: state.load_weights(folder, parts(1)[0]), f"builtins.{name}")


def test_a_pickle_of_something_else_or_a_torn_one_is_refused(checkpoint: tuple[Path, nn.Sequential]) -> None:
    folder, _ = checkpoint
    whole = (folder / ".metadata").read_bytes()
    for content in (pickle.dumps({"a": 1}), pickle.dumps(layout.StorageMeta()), whole[: len(whole) // 2], b""):
        (folder / ".metadata").write_bytes(content)
        with pytest.raises(CheckpointError, match=r"^'.*\.metadata' of the checkpoint is not loaded"):
            state.load_weights(folder, parts(1)[0])
        with pytest.raises(CheckpointError, match=r"^'.*\.metadata' of the checkpoint is not loaded"):
            read_metadata(folder / ".metadata")


def test_a_value_that_would_run_code_is_refused(checkpoint: tuple[Path, nn.Sequential], tmp_path: Path) -> None:
    folder, _ = checkpoint
    model, optimizers = parts(1)
    write_state(folder, state.training_state(model, optimizers, {**EXTRA, "count": Mark(tmp_path / "code_ran")}))
    assert_refused(
        tmp_path / "code_ran", lambda: state.load(folder, model, optimizers, dict(EXTRA)), "value 'extra.count'"
    )


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_a_file_of_weights_that_would_run_code_or_is_none_is_refused(tmp_path: Path, suffix: str) -> None:
    path, model = tmp_path / f"w{suffix}", parts(0)[0]
    torch.save(Mark(tmp_path / "code_ran"), path)
    assert_refused(tmp_path / "code_ran", lambda: state.load_weights(path, model), str(path))
    for content in (b"", b"text", pickle.dumps([1])):
        path.write_bytes(content)
        assert_refused(tmp_path / "code_ran", lambda: state.load_weights(path, model), str(path))


def test_the_other_files_that_hold_tensors_are_refused_likewise(tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    torch.save(Mark(tmp_path / "code_ran"), path)
    for content in (path.read_bytes(), b"", b"text", pickle.dumps([1])):
        path.write_bytes(content)
        assert_refused(tmp_path / "code_ran", lambda: _read(path), str(path))
        with pytest.raises(ConfigError, match="holds no classifier"):
            SuccessClassifier.load(path)
    assert not (tmp_path / "code_ran").exists()


def test_no_other_file_is_unpickled_anywhere() -> None:
    loads = re.compile(r"torch\.load\((?![^\n]*weights_only=True)|pickle\.load\(|allow_pickle=True|weights_only=False")
    root = Path(rlinf.__file__).parent
    found = [str(path) for path in root.rglob("*.py") if loads.search(path.read_text())]
    assert found == []

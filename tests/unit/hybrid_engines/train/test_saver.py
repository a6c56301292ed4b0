"""Checkpoints that engines write while they train on, killed at any byte: the former one stands."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.filesystem import FileSystem

from rlinf.checkpoint import CheckpointManager
from rlinf.config.schema.model import MLPPolicyConfig
from rlinf.config.schema.train import FSDPConfig, OptimConfig
from rlinf.errors import CheckpointError
from rlinf.hybrid_engines.train.chunks import _Writer
from rlinf.hybrid_engines.train.fsdp import FSDPEngine
from rlinf.hybrid_engines.train.train_engine import Pass
from rlinf.models import get_model
from tests.unit.hybrid_engines.train.rank_processes import outcomes, run_ranks

MODEL = MLPPolicyConfig(model_type="mlp_policy", obs_dim=5, action_dim=2, hidden_dims=[16], add_value_head=True)
NUM_KILLS, NUM_KILLS_LONG = 4, 50
SEED = 20260


def make_engine(rank: int = 0, world_size: int = 1, strategy: str = "full_shard") -> FSDPEngine:
    torch.manual_seed(0)
    return FSDPEngine(
        get_model(MODEL),
        optim=OptimConfig(lr=1e-2),
        fsdp=FSDPConfig(sharding_strategy=strategy),  # type: ignore[arg-type]
        precision="fp32",
        device=torch.device("cpu"),
        rank=rank,
        world_size=world_size,
    )


def loss(model: Any, inputs: Any) -> Any:
    evaluation = model(forward_inputs=inputs)
    value = evaluation.values.square().mean() - evaluation.logprobs.mean()
    return value, {"loss": torch.stack([value.detach(), torch.ones(())])}


def train(engine: FSDPEngine, steps: int = 1) -> None:
    generator = torch.Generator().manual_seed(1)
    shapes = {"states": (8, 5), "action": (8, 1, 2)}
    batch = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    for _ in range(steps):
        engine.forward_backward([batch], Pass.whole(loss))
        engine.step()


def state_of(engine: FSDPEngine) -> dict[str, torch.Tensor]:
    """Return weights and moments, whole."""
    found = {name: tensor.clone() for name, tensor in engine.export_weights()}
    for index, entry in enumerate(engine.optimizers["policy"].adam.state.values()):
        for name, value in entry.items():
            full = value.full_tensor() if hasattr(value, "full_tensor") else value
            found[f"{index}.{name}"] = full.clone()
    return found


@contextlib.contextmanager
def held_up(gate: Path) -> Iterator[None]:
    """Let nothing be written before a file exists."""
    write = _Writer.write_data

    def late(self: Any, *arguments: Any) -> Any:
        while not gate.exists():
            time.sleep(0.01)
        return write(self, *arguments)

    _Writer.write_data = late  # type: ignore[method-assign]
    try:
        yield
    finally:
        _Writer.write_data = write  # type: ignore[method-assign]


def save_and_train_on(rank: int, folder: Path) -> tuple[list[bool], dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    engine = make_engine(rank, 2)
    train(engine)
    saved = state_of(engine)
    # Rank 1 is late, of which rank 0 knows nothing by itself.
    gate = folder / "gate"
    with held_up(gate) if rank == 1 else contextlib.nullcontext():
        engine.save(folder / "actor", in_background=True)
        train(engine)
        finished = [engine.finish_save(wait=False)]
        gate.touch()
        finished += [engine.finish_save(), engine.finish_save(wait=False)]
    other = make_engine(rank, 2)
    other.load(folder / "actor")
    return finished, saved, state_of(other)


def test_a_checkpoint_in_the_background_is_of_the_moment_when_it_was_begun(tmp_path: Path) -> None:
    for finished, saved, loaded in run_ranks(2, save_and_train_on, tmp_path):
        assert finished == [False, True, True]
        assert saved.keys() == loaded.keys()
        for name, tensor in saved.items():
            assert torch.equal(loaded[name], tensor), name


@pytest.mark.parametrize("then", ["save", "finish"])
def test_a_failed_write_is_an_error_at_the_next_save_or_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    engine = make_engine()

    def fail(*_: Any) -> Any:
        raise OSError("the cable was pulled")

    with monkeypatch.context() as patch:
        patch.setattr(_Writer, "write_data", fail)
        engine.save(tmp_path / "1", in_background=True)
        time.sleep(0.2)
    with pytest.raises(CheckpointError, match=r"/1' cannot be written: the cable was pulled"):
        engine.save(tmp_path / "2") if then == "save" else engine.finish_save()
    assert not (tmp_path / "1" / ".metadata").exists()
    engine.save(tmp_path / "3", in_background=True)
    assert engine.finish_save()
    engine.load(tmp_path / "3")


class Deadly:
    """A file of which a process writes, or reads, so many bytes and is killed."""

    def __init__(self, file: Any, budget: list[int]) -> None:
        self._file, self._budget = file, budget

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, data: Any) -> int:
        data = bytes(data)
        if len(data) >= self._budget[0]:
            self._file.write(data[: self._budget[0]])
            self._file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        self._budget[0] -= len(data)
        return int(self._file.write(data))

    def read(self, size: int = -1) -> bytes:
        data = bytes(self._file.read(size))
        if len(data) >= self._budget[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        self._budget[0] -= len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def kill_after(num_bytes: int) -> None:
    """Let this process be killed when it has written or read so many bytes of checkpoints."""
    budget, create = [num_bytes], FileSystem.create_stream

    @contextlib.contextmanager
    def deadly(self: Any, path: Any, mode: str) -> Iterator[Any]:
        with create(self, path, mode) as file:
            yield Deadly(file, budget)

    FileSystem.create_stream = deadly  # type: ignore[method-assign,assignment]


def save_twice(rank: int, root: Path, num_bytes: int | None, in_background: bool) -> dict[str, torch.Tensor]:
    """Write checkpoints of steps 1 and 2; during the second, rank 0 is killed after so many bytes."""
    engine, manager = make_engine(rank, 2), CheckpointManager(root)
    states = []
    for step in (1, 2):
        train(engine)
        states.append(state_of(engine))
        folder = [str(manager.begin(step))] if rank == 0 else [""]
        torch.distributed.broadcast_object_list(folder)
        if step == 2 and num_bytes is not None and rank == 0:
            torch.save(states[0], root / "first.pt")
            kill_after(num_bytes)
        engine.save(Path(folder[0]) / "actor", in_background=in_background)
        train(engine)
        engine.finish_save()
        if rank == 0:
            manager.commit(step, {}, required=["actor"])
    return states[0]


def load_and_be_killed(rank: int, folder: Path, num_bytes: int) -> None:
    engine = make_engine(rank, 1, "no_shard")
    kill_after(num_bytes)
    engine.load(folder / "actor")


def load(rank: int, folder: Path) -> dict[str, torch.Tensor]:
    engine = make_engine(rank, 1, "no_shard")
    engine.load(folder / "actor")
    return state_of(engine)


@pytest.mark.parametrize("in_background", [False, True])
def test_killed_at_any_byte_of_a_save_or_a_load_the_former_checkpoint_stands(
    tmp_path: Path, in_background: bool, request: pytest.FixtureRequest
) -> None:
    run_ranks(2, save_twice, tmp_path / "whole", None, in_background)
    actor = tmp_path / "whole" / "global_step_2" / "actor"
    size = sum(path.stat().st_size for path in (actor / "__0_0.distcp", actor / ".metadata"))
    draw = random.Random(f"{SEED} {in_background}")
    kills = NUM_KILLS_LONG if request.config.getoption("--long") else NUM_KILLS
    for number in range(kills):
        root = tmp_path / str(number)
        killed_at = draw.randrange(size)
        killed, other = outcomes(2, save_twice, root, killed_at, in_background)
        assert killed == (False, "died"), f"rank 0 wrote fewer than {killed_at} of {size} bytes"
        assert not other[0], "a rank goes on without the one that was killed"
        assert (CheckpointManager(root).resolve("auto") or Path()).name == "global_step_1"
        if number % 3 == 0:
            _check(root, draw)


def _check(root: Path, draw: random.Random) -> None:
    """A load that is killed as well changes nothing: then the checkpoint is loaded."""
    folder = root / "global_step_1"
    size = (folder / "actor" / "__1_0.distcp").stat().st_size
    assert outcomes(1, load_and_be_killed, folder, draw.randrange(size)) == [(False, "died")]
    (loaded,) = run_ranks(1, load, folder)
    for name, tensor in torch.load(root / "first.pt", weights_only=True).items():
        assert torch.equal(loaded[name], tensor), name

"""Tensors that are spread over ranks in any way are written once, and read back in any other way."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from rlinf.errors import CheckpointError
from rlinf.hybrid_engines.train import state
from rlinf.hybrid_engines.train.chunks import (
    Chunk,
    ChunkedTensor,
    State,
    moment_key,
    plan_write,
    read_state,
    value_key,
    weight_key,
    write_state,
)
from tests.unit.hybrid_engines.train.rank_processes import outcomes, run_ranks

ROWS, COLUMNS = 6, 4
Q, K = torch.arange(24.0).view(ROWS, COLUMNS), torch.arange(100.0, 108.0).view(2, COLUMNS)
DOWN, NORM = torch.arange(200.0, 224.0).view(ROWS, COLUMNS), torch.arange(300.0, 304.0)
STEP = moment_key("q", "step")


def fused_on(rank: int) -> tuple[State, torch.Tensor]:
    """Return what a tensor-parallel rank of two has, and its fused matrix, whose rows are three of q and one of k."""
    fused = torch.cat([Q[3 * rank : 3 * rank + 3], K[rank : rank + 1]])
    parts: State = {
        weight_key("q"): ChunkedTensor((ROWS, COLUMNS), [Chunk((3 * rank, 0), fused[:3])]),
        weight_key("k"): ChunkedTensor((2, COLUMNS), [Chunk((rank, 0), fused[3:])]),
        weight_key("down"): ChunkedTensor((ROWS, COLUMNS), [Chunk((0, 2 * rank), DOWN[:, 2 * rank : 2 * rank + 2])]),
        weight_key("norm"): ChunkedTensor.of(NORM.clone()),
        STEP: ChunkedTensor.of(torch.tensor(7.0)),
        value_key("num_steps"): 5,
    }
    if rank == 1:
        parts[weight_key("last_stage")] = ChunkedTensor.of(torch.ones(3, dtype=torch.bfloat16))
    return parts, fused


def write_fused(rank: int, folder: Path) -> None:
    write_state(folder, fused_on(rank)[0])


def read_fused(rank: int, folder: Path) -> tuple[torch.Tensor, torch.Tensor, dict[str, Any]]:
    parts, fused = fused_on(rank)
    fused.zero_()
    down = torch.zeros(ROWS, 2)
    parts[weight_key("down")] = ChunkedTensor((ROWS, COLUMNS), [Chunk((0, 2 * rank), down)])
    return fused, down, read_state(folder, parts)


def test_parts_of_two_ranks_are_whole_tensors_for_one(tmp_path: Path) -> None:
    run_ranks(2, write_fused, tmp_path)
    whole = {"q": torch.zeros(6, 4), "k": torch.zeros(2, 4), "down": torch.zeros(6, 4), "norm": torch.zeros(4)}
    last = torch.zeros(3)
    wanted: State = {weight_key(name): ChunkedTensor.of(tensor) for name, tensor in whole.items()}
    step = torch.zeros(())
    wanted |= {weight_key("last_stage"): ChunkedTensor.of(last), STEP: ChunkedTensor.of(step)}
    assert read_state(tmp_path, wanted | {value_key("num_steps"): None}) == {value_key("num_steps"): 5}
    for name, expected in {"q": Q, "k": K, "down": DOWN, "norm": NORM}.items():
        assert torch.equal(whole[name], expected), name
    assert torch.equal(last, torch.ones(3)), "read into another precision"
    assert step == 7


def test_whole_tensors_of_one_rank_are_parts_for_two(tmp_path: Path) -> None:
    tensors = {"q": Q, "k": K, "down": DOWN, "norm": NORM, "last_stage": torch.ones(3)}
    content: State = {weight_key(name): ChunkedTensor.of(tensor) for name, tensor in tensors.items()}
    write_state(tmp_path, content | {STEP: ChunkedTensor.of(torch.tensor(7.0)), value_key("num_steps"): 5})
    for rank, (fused, down, values) in enumerate(run_ranks(2, read_fused, tmp_path)):
        assert torch.equal(fused, torch.cat([Q[3 * rank : 3 * rank + 3], K[rank : rank + 1]]))
        assert torch.equal(down, DOWN[:, 2 * rank : 2 * rank + 2])
        assert values == {value_key("num_steps"): 5}


def write_and_read_rows(rank: int, folder: Path) -> torch.Tensor:
    mesh = init_device_mesh("cpu", (2,))
    sharded = distribute_tensor(torch.arange(10.0).view(5, 2), mesh, [Shard(0)])
    write_state(folder, {weight_key("w"): ChunkedTensor.of(sharded)})
    sharded.zero_()
    read_state(folder, {weight_key("w"): ChunkedTensor.of(sharded)})
    return sharded.to_local()


def test_sharded_tensors_are_chunks_of_rows_however_uneven(tmp_path: Path) -> None:
    upper, lower = run_ranks(2, write_and_read_rows, tmp_path)
    assert torch.equal(torch.cat([upper, lower]), torch.arange(10.0).view(5, 2))
    whole = torch.zeros(5, 2)
    read_state(tmp_path, {weight_key("w"): ChunkedTensor.of(whole)})
    assert torch.equal(whole, torch.arange(10.0).view(5, 2))


def write_wrongly(rank: int, folder: Path, how: str) -> None:
    own = {"gap": {0: (0, 2), 1: (3, 4)}, "overlap": {0: (0, 3), 1: (2, 4)}, "outside": {0: (0, 2), 1: (2, 5)}}
    begin, end = own[how][rank]
    write_state(folder, {weight_key("w"): ChunkedTensor((4,), [Chunk((begin,), torch.ones(end - begin))])})


@pytest.mark.parametrize("how", ["gap", "overlap", "outside"])
def test_chunks_that_do_not_make_up_a_tensor_are_refused_on_all_ranks(tmp_path: Path, how: str) -> None:
    for is_ok, message in outcomes(2, write_wrongly, tmp_path, how):
        assert not is_ok
        assert message.startswith(f"CheckpointError: The checkpoint in '{tmp_path}' cannot be written")
        assert "model.w" in message


def write_and_fail(rank: int, folder: Path, in_background: bool) -> None:
    pending = plan_write(folder, fused_on(rank)[0])
    if rank == 1:
        pending._writer.path = folder / "nowhere"
    (pending.start if in_background else pending.write)()
    pending.finish()


@pytest.mark.parametrize("in_background", [False, True])
def test_what_one_rank_cannot_write_is_an_error_on_all_and_no_checkpoint(tmp_path: Path, in_background: bool) -> None:
    for is_ok, message in outcomes(2, write_and_fail, tmp_path, in_background):
        assert not is_ok
        assert message.startswith(f"CheckpointError: The checkpoint in '{tmp_path}' cannot be written")
        assert "nowhere" in message
    assert not (tmp_path / ".metadata").exists()


def test_copies_are_written_in_the_background_while_the_originals_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight, moment = torch.arange(5.0), torch.arange(5.0, 10.0)
    content: State = {
        weight_key("w"): ChunkedTensor.of(weight),
        moment_key("w", "exp_avg"): ChunkedTensor.of(moment),
        value_key("num_steps"): 1,
    }
    pending, changed = plan_write(tmp_path, content), threading.Event()
    write = pending._writer.write_data

    def write_later(*arguments: Any) -> Any:
        changed.wait()
        return write(*arguments)

    monkeypatch.setattr(pending._writer, "write_data", write_later)
    pending.start()
    weight.fill_(-1)
    moment.fill_(-1)
    changed.set()
    pending.finish()
    assert read_state(tmp_path, content) == {value_key("num_steps"): 1}
    assert weight.tolist() == [0, 1, 2, 3, 4]
    assert moment.tolist() == [5, 6, 7, 8, 9]


def test_what_a_checkpoint_lacks_is_named(tmp_path: Path) -> None:
    write_state(tmp_path, {weight_key("w"): ChunkedTensor.of(torch.ones(2)), value_key("n"): 1})
    for wanted, named in (
        ({moment_key("w", "exp_avg"): ChunkedTensor.of(torch.ones(2))}, "optimizer.state.w.exp_avg"),
        ({weight_key("w"): ChunkedTensor.of(torch.ones(3))}, "model.w"),
        ({value_key("n"): ChunkedTensor.of(torch.ones(2))}, "extra.n"),
        ({weight_key("w"): None}, "model.w"),
    ):
        with pytest.raises(CheckpointError, match=rf"does not fit.*{named}"):
            read_state(tmp_path, wanted)
    with pytest.raises(CheckpointError, match="no distributed checkpoint"):
        read_state(tmp_path / "nowhere", {})


def test_a_chunk_without_entries_is_none_but_a_tensor_without_entries_is_kept(tmp_path: Path) -> None:
    rows = ChunkedTensor((2, 3), [Chunk((0, 0), torch.ones(2, 3)), Chunk((2, 0), torch.ones(0, 3))])
    content: State = {weight_key("w"): rows, weight_key("empty"): ChunkedTensor.of(torch.ones(0, 3))}
    write_state(tmp_path, content)
    read_state(tmp_path, content)


def trained(seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 4))
    # Tied, as the embeddings of many language models are.
    model.append(nn.Linear(4, 4, bias=False))
    model[3].weight = model[2].weight
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.randn(5, 3)).pow(2).sum().backward()
    optimizer.step()
    return model, optimizer


def test_checkpoints_that_torch_wrote_from_modules_and_optimizers_still_load(tmp_path: Path) -> None:
    model, optimizer = trained(0)
    model_state, optimizer_state = get_state_dict(model, [optimizer])
    extra = {"num_steps": 1, "scaler": {"scale": 2.0}}
    content = {"model": model_state, "optimizer": optimizer_state, "extra": extra}
    dcp_save(content, checkpoint_id=str(tmp_path))
    fresh, other = trained(1)
    assert state.load(tmp_path, fresh, [other], {"num_steps": 0, "scaler.scale": 0}) == {
        "num_steps": 1,
        "scaler.scale": 2.0,
    }
    for name, tensor in model.state_dict().items():
        assert torch.equal(fresh.state_dict()[name], tensor), name
    for mine, expected in zip(fresh.parameters(), model.parameters(), strict=True):
        for moment, value in optimizer.state[expected].items():
            assert torch.equal(other.state[mine][moment], value), moment


def test_moments_that_are_still_to_come_are_those_of_a_first_step(tmp_path: Path) -> None:
    model, optimizer = trained(0)
    fresh = torch.optim.AdamW(model.parameters(), lr=0.1)
    write_state(tmp_path, state.training_state(model, [fresh], {}))
    state.load(tmp_path, model, [optimizer], {})
    for parameter in model.parameters():
        kept = optimizer.state[parameter]
        assert kept["step"] == 0
        assert not kept["exp_avg"].any()
        assert not kept["exp_avg_sq"].any()

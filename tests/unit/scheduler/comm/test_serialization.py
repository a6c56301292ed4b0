"""Objects of all kinds through frames."""

import dataclasses
import pickle
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from rlinf.scheduler.comm import serialization
from rlinf.scheduler.comm.serialization import decode, encode, fill_tensor, tensor_bytes


@dataclasses.dataclass(frozen=True)
class Sample:
    obs: torch.Tensor
    name: str


def travel(item: torch.Tensor | bytes | bytearray | list[torch.Tensor] | dict[Any, Any]) -> Any:
    """Copy the frames, as a transport does, to unaligned memory."""
    frames = []
    for frame in encode(item):
        data = memoryview(frame).cast("B")
        room = bytearray(len(data) + 1)
        room[1:] = data
        frames.append(memoryview(room)[1:])
    return decode(frames)


TENSORS = {
    "plain": torch.arange(12.0).reshape(3, 4),
    "transposed": torch.arange(12).reshape(3, 4).T,
    "sliced": torch.arange(20)[::3],
    "zero-size": torch.empty(0, 5),
    "scalar": torch.tensor(3.5),
    "bfloat16": torch.randn(4, 3).to(torch.bfloat16),
    "bool": torch.tensor([True, False]),
    "complex": torch.randn(3, dtype=torch.complex64).conj(),
    "uint8": torch.arange(9, dtype=torch.uint8),
    "expanded": torch.ones(1, 3).expand(4, 3),
}


@pytest.mark.parametrize("kind", TENSORS)
def test_tensors(kind: str) -> None:
    tensor = TENSORS[kind]
    back = travel(tensor)
    assert back.dtype == tensor.dtype
    assert torch.equal(back, tensor)
    if back.numel():
        back.zero_()


def test_nests_with_closures_and_bytes() -> None:
    offset = 3
    item = {
        "data": Sample(torch.ones(2), "x"),
        "f": lambda value: value + offset,
        "raw": b"y" * 2_000_000,
        "list": [(torch.zeros(1), np.arange(5)), None],
        3: {torch.float32},
    }
    back = travel(item)
    assert back["f"](1) == 4
    assert back["raw"] == item["raw"]
    assert torch.equal(back["data"].obs, torch.ones(2))
    assert back["list"][0][1].tolist() == [0, 1, 2, 3, 4]


def test_large_tensors_do_not_go_through_the_pickle() -> None:
    frames = encode({"t": torch.zeros(100_000)})
    assert len(frames) == 2
    assert len(frames[0]) < 1000


BESIDE = {
    "bytes": bytes(range(256)) * 1000,
    "bytearray": bytearray(range(256)) * 1000,
    "array": np.arange(100_000),
    "every other": np.arange(200_000)[::2],
    "transposed": np.arange(120_000).reshape(300, 400).T,
    "reversed": np.arange(100_000.0)[::-1],
}


@pytest.mark.parametrize("nested", [False, True], ids=["alone", "nested"])
@pytest.mark.parametrize("kind", BESIDE)
def test_large_bytes_and_arrays_do_not_go_through_the_pickle(kind: str, nested: bool) -> None:
    item = BESIDE[kind]
    frames = encode({"deep": [Sample(item, "x")]} if nested else item)
    assert len(frames) == 2
    assert len(frames[0]) < 1000
    back = travel({"deep": [Sample(item, "x")]} if nested else item)
    back = back["deep"][0].obs if nested else back
    assert type(back) is type(item)
    assert np.array_equal(back, item) if isinstance(item, np.ndarray) else back == item


def test_small_bytes_stay_in_the_pickle() -> None:
    for item in (b"x" * 1000, bytearray(1000), {"a": [b"y" * 1000]}):
        assert len(encode(item)) == 1
        assert travel(item) == item


def test_the_same_large_bytes_twice_travel_once_and_stay_one() -> None:
    first, second, other = bytearray(100_000), b"x" * 100_000, b"x" * 100_000
    item = [first, second, {"again": (first, second)}, other]
    assert sum(memoryview(frame).nbytes for frame in encode(item)) < 301_000
    back = travel(item)
    assert back == item
    back[2]["again"][0][0] = 7
    assert back[0][0] == 7
    assert back[1] is back[2]["again"][1]


def test_received_bytes_belong_to_the_receiver() -> None:
    data = bytearray(100_000)
    frames = encode(data)
    back = decode(frames)
    data[0] = 1
    back[1] = 2
    assert (back[0], data[1]) == (0, 0)


def test_large_bytes_next_to_a_closure_and_tensors() -> None:
    offset = 3
    item = [b"z" * 100_000, torch.arange(30_000), lambda value: value + offset, np.ones((300, 400))[:, ::2]]
    back = travel(item)
    assert back[0] == item[0]
    assert torch.equal(back[1], item[1])
    assert back[2](1) == 4
    assert np.array_equal(back[3], item[3])


def test_received_arrays_are_writable() -> None:
    back = travel({"t": torch.zeros(3), "a": np.zeros(3), "odd": np.zeros((4, 4))[:, 1]})
    for value in back.values():
        value[0] = 1
        assert value[0] == 1


def test_gradients_do_not_travel_but_parameters_stay_parameters() -> None:
    layer = torch.nn.Linear(2, 1)
    back = travel({"p": layer.weight, "out": layer(torch.ones(1, 2))})
    assert isinstance(back["p"], torch.nn.Parameter)
    assert back["p"].requires_grad
    assert not back["out"].requires_grad


def test_the_same_tensor_twice_stays_one() -> None:
    tensor = torch.zeros(2)
    first, second = travel([tensor, tensor])
    first[0] = 1
    assert second[0] == 1


def test_what_cannot_be_pickled_raises_before_anything_is_written() -> None:
    with pytest.raises((TypeError, pickle.PicklingError)):
        encode({"t": torch.zeros(3), "lock": __import__("threading").Lock()})


def test_tensor_bytes_fill_a_tensor_of_the_same_size() -> None:
    source = torch.randn(3, 4).T
    target = torch.zeros(4, 3)
    fill_tensor(target, bytes(tensor_bytes(source)))
    assert torch.equal(target, source)
    with pytest.raises(ValueError, match="48 bytes"):
        fill_tensor(torch.zeros(5), bytes(tensor_bytes(source)))


@dataclasses.dataclass(frozen=True)
class Labelled:
    """A message that travels often."""

    plain_fields: ClassVar[tuple[str, ...]] = ("label",)

    number: int
    label: Any


class Derived(Labelled):
    """It says nothing of its own fields."""


def pickler_of(item: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Any]:
    """Return which pickler writes an object, and the object that is read: Python's function, the plain one, or ours."""
    used = ["pickle"]

    def noting(made: type[Any], name: str) -> type[Any]:
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            used.append(name)
            made.__init__(self, *args, **kwargs)

        return type(name, (made,), {"__init__": init})

    for name in ("_PlainPickler", "_Pickler"):
        monkeypatch.setattr(serialization, name, noting(getattr(serialization, name), name))
    frames = encode(item)
    return used[-1], decode(frames)


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (Labelled(1, "a"), "pickle"),
        ((Labelled(1, {"a": [2]}), {"key": "b"}), "_Pickler"),
        ((Labelled(1, {"a": 2}), {"key": "b"}), "pickle"),
        (Labelled(1, np.arange(3)), "_PlainPickler"),
        (Labelled(1, Sample), "_Pickler"),
        (Derived(1, "a"), "_Pickler"),
        (((1, "a"), {}), "pickle"),
        ((1, (2, (3, (4,)))), "_Pickler"),
        ((torch.ones(2), 1), "_PlainPickler"),
        ((b"x" * (1 << 16),), "_Pickler"),
    ],
)
def test_the_pickler_is_chosen_by_what_a_message_may_hold(
    item: Any, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    used, back = pickler_of(item, monkeypatch)
    assert used == expected
    if expected == "pickle":
        assert back == item

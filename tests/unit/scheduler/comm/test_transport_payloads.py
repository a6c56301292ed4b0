"""Any nest of data, over every way that bytes can travel: what arrives is equal, and belongs to the receiver."""

import dataclasses
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlinf.scheduler.comm import segment_pool
from rlinf.scheduler.comm.endpoint import Endpoint
from rlinf.scheduler.comm.serialization import decode, encode
from rlinf.scheduler.comm.transport import new_keys, remove_socket_folder

KEYS = new_keys()


@dataclasses.dataclass
class Pair:
    left: object
    right: object


class Link:
    """Two endpoints and the last message that the second has received."""

    def __init__(self, namespace: str, *, remote: bool = False, relayed: bool = False) -> None:
        nodes = ("n0", "n1") if remote else ("n0", "n0")
        listen = "127.0.0.1" if remote else None
        made = [Endpoint(namespace=namespace, node_id=node, keys=KEYS, listen_ip=listen) for node in nodes]
        self.first, self.second = made
        self.endpoints = made
        self.received = []
        self.arrived = threading.Event()
        if relayed:
            relay = Endpoint(namespace=namespace, node_id="n0", keys=KEYS, listen_ip=listen)
            relay.keep_shared()
            relay.serve("data", lambda call: relay.notify(self.second.info, "data", (), call.frames))
            made.append(relay)
        self.target = made[-1].info
        self.second.serve("data", self._receive)

    def _receive(self, call: Any) -> None:
        self.received.append(call.frames)
        self.arrived.set()

    def travel(self, item: dict[str, Any] | torch.Tensor) -> Any:
        self.first.notify(self.target, "data", (), encode(item))
        assert self.arrived.wait(30)
        self.arrived.clear()
        return decode(self.received.pop())

    def close(self) -> None:
        for endpoint in self.endpoints:
            endpoint.close()


@pytest.fixture(scope="module", params=["shared memory", "file", "stream", "tcp", "relay"])
def link(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Link]:
    namespace = uuid.uuid4().hex[:8]
    made = Link(namespace, remote=request.param == "tcp", relayed=request.param == "relay")
    bases = {"file": [tmp_path_factory.mktemp("segments")], "stream": [tmp_path_factory.mktemp("x") / "missing"]}
    for endpoint in made.endpoints:
        endpoint.segments = segment_pool.SegmentPool(namespace, endpoint.info.uid, bases.get(request.param))
    yield made
    made.close()
    remove_socket_folder(namespace)


DTYPES = [torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool, torch.bfloat16, torch.complex64]
SHAPES = [(), (0,), (0, 5), (1,), (3, 4), (7, 5, 3), (2, 9000), (300, 257)]


def tensor(dtype: torch.dtype, shape: tuple[int, ...], layout: Any) -> torch.Tensor:
    count = int(np.prod(shape))
    made = (torch.arange(count) % 251).to(dtype).reshape(shape)
    if layout == "transposed":
        return made.mT if made.dim() >= 2 else made
    if layout == "sliced":
        return made[::2] if made.dim() else made
    if layout == "expanded":
        return made.unsqueeze(0).expand(2, *shape)
    if layout == "conjugated":
        return made.conj()
    return made


def array(dtype: Any, shape: tuple[int, ...], kind: Any) -> Any:
    made = (np.arange(int(np.prod(shape))) % 251).astype(dtype).reshape(shape)
    if kind == "read-only":
        made.flags.writeable = False
    if kind == "reversed":
        return made[::-1] if made.ndim else made
    return np.asfortranarray(made) if kind == "fortran" else made


tensors = st.builds(
    tensor,
    st.sampled_from(DTYPES),
    st.sampled_from(SHAPES),
    st.sampled_from(["plain", "transposed", "sliced", "expanded", "conjugated"]),
)
arrays = st.builds(
    array,
    st.sampled_from(["f4", "i8", "u1", "?", "c8", "u2"]),
    st.sampled_from(SHAPES),
    st.sampled_from(["plain", "read-only", "reversed", "fortran"]),
)
plain = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=8))
blobs = st.sampled_from([0, 1, 63, 4096, 65535, 65536, 200_001]).map(lambda size: bytes([size % 256]) * size)
functions = st.integers(0, 5).map(lambda offset: lambda value: value + offset)
leaves = st.one_of(tensors, arrays, plain, blobs, functions)
nests = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=4), inner, max_size=4),
        st.builds(Pair, inner, inner),
    ),
    max_leaves=8,
)


def assert_same(got: Any, sent: tuple[object, object]) -> None:
    assert type(got) is type(sent)
    if isinstance(sent, torch.Tensor):
        assert (got.dtype, got.shape) == (sent.dtype, sent.shape)
        assert torch.equal(got, sent)
    elif isinstance(sent, np.ndarray):
        assert (got.dtype, got.shape) == (sent.dtype, sent.shape)
        assert np.array_equal(got, sent)
    elif isinstance(sent, dict):
        assert list(got) == list(sent)
        for name, value in sent.items():
            assert_same(got[name], value)
    elif isinstance(sent, (list, tuple)):
        assert len(got) == len(sent)
        for one, other in zip(got, sent, strict=True):
            assert_same(one, other)
    elif isinstance(sent, Pair):
        assert_same((got.left, got.right), (sent.left, sent.right))
    elif callable(sent):
        assert got(1) == sent(1)
    else:
        assert got == sent


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(item=nests)
def test_any_nest_arrives_equal(link: Link, item: object) -> None:
    assert_same(link.travel(item), item)


def test_large_bytes_next_to_a_closure(link: Link) -> None:
    offset = 3
    item = {"raw": b"y" * 10_000_000, "f": lambda value: value + offset, "t": torch.ones(100_000)}
    back = link.travel(item)
    assert back["raw"] == item["raw"]
    assert back["f"](1) == 4
    assert torch.equal(back["t"], item["t"])


@pytest.mark.parametrize("size", [10, 50_000])
def test_what_arrives_can_be_written_to_and_changes_nothing_else(link: Link, size: int) -> None:
    sent = torch.zeros(size)
    first, second = link.travel(sent), link.travel(sent)
    first.fill_(7)
    assert not sent.any()
    assert not second.any()
    assert torch.equal(first, torch.full((size,), 7.0))


@pytest.mark.parametrize("size", [10, 50_000, 1_000_000])
def test_the_sender_may_change_its_memory_once_it_has_sent_it(link: Link, size: int) -> None:
    buffer = torch.zeros(size)
    for value in range(5):
        buffer.fill_(value)
        link.first.notify(link.target, "data", (), encode(buffer))
    buffer.fill_(-1)
    got = []
    while len(got) < 5:
        assert link.arrived.wait(30)
        link.arrived.clear()
        while link.received:
            got.append(decode(link.received.pop(0)))
    assert [tensor.unique().tolist() for tensor in got] == [[0.0], [1.0], [2.0], [3.0], [4.0]]

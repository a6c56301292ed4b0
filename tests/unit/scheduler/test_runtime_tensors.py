"""send_tensor and recv_tensor: what arrives is what was sent, or an error says how the two sides differ."""

import uuid
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
import torch

from rlinf.errors import PayloadError
from rlinf.scheduler.address import RunSpec, WorkerAddress, WorkerInfo
from rlinf.scheduler.comm.device_transfers import CollectiveGroupOptions
from rlinf.scheduler.comm.transport import new_keys, remove_socket_folder
from rlinf.scheduler.messaging import Messenger
from rlinf.scheduler.runtime import Runtime, current_runtime, enter_runtime, leave_runtime

ME = WorkerAddress("me", 0, 1)


@pytest.fixture(scope="module")
def messenger() -> Iterator[Messenger]:
    """One that sends to itself."""
    spec = RunSpec(uuid.uuid4().hex[:8], new_keys(), spans_nodes=False, log_dir=None)
    runtime = Runtime(spec, node_id="n0", node_ip="127.0.0.1", label="me")
    # What the manager answers.
    info = WorkerInfo(ME, 0, 0, "", 0, (), (), runtime.endpoint.info)
    runtime.outbox._source, runtime.outbox._name = ME, ("me", 0)
    runtime.outbox._lookup = lambda group, rank, wait: _finished(info)
    enter_runtime(runtime)
    yield Messenger(ME)
    leave_runtime(runtime)
    remove_socket_folder(spec.namespace)


def _finished(value: WorkerInfo) -> Future[Any]:
    future = Future()
    future.set_result(value)
    return future


def travel(
    messenger: Messenger, sent: torch.Tensor, into: torch.Tensor | torch.nn.Parameter
) -> torch.Tensor | torch.nn.Parameter:
    messenger.send_tensor(sent, "me", 0, tag=None, timeout=20).wait()
    messenger.recv_tensor(into, "me", 0, tag=None, timeout=20).wait()
    return into


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (300, 301)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
def test_what_arrives_is_what_was_sent(messenger: Messenger, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    sent = (torch.rand(shape) * 100).to(dtype)
    assert torch.equal(travel(messenger, sent, torch.zeros(shape, dtype=dtype)), sent)


def test_layouts_in_memory_may_differ(messenger: Messenger) -> None:
    sent = torch.arange(200_000.0).reshape(400, 500).T
    into = torch.zeros(1000, 800)[::2, ::2]
    assert torch.equal(travel(messenger, sent, into), sent)


def test_a_parameter_is_filled_in_place(messenger: Messenger) -> None:
    parameter = torch.nn.Parameter(torch.zeros(3))
    travel(messenger, torch.ones(3, requires_grad=True), parameter)
    assert parameter.tolist() == [1, 1, 1]
    assert parameter.is_leaf


@pytest.mark.parametrize(
    ("sent", "into"),
    [
        (torch.zeros(2, 3, dtype=torch.float16), torch.zeros(2, 3, dtype=torch.bfloat16)),
        (torch.zeros(6, dtype=torch.float32), torch.zeros(6, dtype=torch.int32)),
        (torch.zeros(2, 3), torch.zeros(3, 2)),
        (torch.zeros(6), torch.zeros(2, 3)),
        (torch.zeros(6), torch.zeros(5)),
        (torch.zeros(100_000), torch.zeros(50_000, dtype=torch.float64)),
    ],
)
def test_another_dtype_or_shape_is_an_error_and_changes_nothing(
    messenger: Messenger, sent: torch.Tensor, into: torch.Tensor
) -> None:
    before = into.clone().add_(7)
    into.add_(7)
    with pytest.raises(PayloadError) as caught:
        travel(messenger, sent + 1, into)
    for tensor in (sent, into):
        assert f"{tuple(tensor.shape)} {tensor.dtype}" in str(caught.value)
    assert torch.equal(into, before)


ODD = {
    "sparse": (torch.eye(3).to_sparse(), "sparse_coo"),
    "csr": (torch.eye(3).to_sparse_csr(), "sparse_csr"),
    "nested": (torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "nested"),
    "jagged": (torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged), "nested"),
    "quantized": (torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), "quantized"),
    "meta": (torch.zeros(3, device="meta"), "meta"),
}


@pytest.mark.parametrize("kind", ODD)
def test_tensors_that_are_not_dense_are_refused_on_either_side(messenger: Messenger, kind: str) -> None:
    tensor, word = ODD[kind]
    with pytest.raises(PayloadError, match=rf"send_tensor at me:0 .*{word}.*send and recv"):
        messenger.send_tensor(tensor, "me", 0, tag=None, timeout=20)
    messenger.send_tensor(torch.ones(3, dtype=torch.int8), "me", 0, tag=None, timeout=20).wait()
    with pytest.raises(PayloadError, match=rf"recv_tensor at me:0 .*{word}"):
        messenger.recv_tensor(tensor, "me", 0, tag=None, timeout=20)
    into = torch.zeros(3, dtype=torch.int8)
    messenger.recv_tensor(into, "me", 0, tag=None, timeout=20).wait()
    assert into.tolist() == [1, 1, 1], "the refused receive has taken nothing"


def test_options_reach_what_parks_tensors(messenger: Messenger, monkeypatch: pytest.MonkeyPatch) -> None:
    messenger.send("so that the receiver is known", "me", 0, tag=None, timeout=20).wait()
    asked: list[Any] = []
    monkeypatch.setattr(current_runtime().devices, "parker", lambda _, options=None: asked.append(options))
    options = CollectiveGroupOptions(accel_max_ctas=2)
    messenger.send(1, "me", 0, tag=None, timeout=20, options=options).wait()
    messenger.send_tensor(torch.ones(3), "me", 0, tag=None, timeout=20, options=options).wait()
    messenger.send(1, "me", 0, tag=None, timeout=20).wait()
    assert asked == [options, options, None]

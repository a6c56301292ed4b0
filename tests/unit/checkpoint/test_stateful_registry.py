import random
from collections import OrderedDict, deque

import numpy as np
import pytest

from rlinf.checkpoint import RngState, StatefulRegistry
from rlinf.errors import CheckpointError

torch = pytest.importorskip("torch")


class Box:
    def __init__(self, value=None):
        self.value = value

    def state_dict(self):
        return {"value": self.value}

    def load_state_dict(self, state_dict):
        self.value = state_dict["value"]


def registry(**objects):
    result = StatefulRegistry()
    for name, stateful in objects.items():
        result.register(name, stateful)
    return result


def test_states_come_back_into_the_same_objects(tmp_path):
    value = {
        "tensor": torch.arange(3),
        "array": np.arange(4, dtype=np.uint8).reshape(2, 2),
        "text": np.array(["ab"]),
        "bytes": np.array([b"ab"]),
        "when": np.array(["2020-01-01"], dtype="datetime64[D]"),
        "scalar": np.float32(1.5),
        "nest": [(1, 2.5, None), OrderedDict(a=[1, 2]), {"b"}],
        3: True,
    }
    saved = registry(a=Box(value), counter=Box(7))
    saved.save(tmp_path / "state.pt")
    a, counter = Box(), Box()
    registry(a=a, counter=counter).load(tmp_path / "state.pt")
    assert counter.value == 7
    assert torch.equal(a.value["tensor"], value["tensor"])
    for name in ("array", "text", "bytes", "when"):
        assert np.array_equal(a.value[name], value[name])
        assert a.value[name].dtype == value[name].dtype
    assert a.value["nest"] == value["nest"]
    assert a.value["scalar"] == value["scalar"]
    assert a.value[3] is True


def test_an_optimizer_continues_as_if_undisturbed(tmp_path):
    def train(model, optimizer, steps):
        for step in range(steps):
            optimizer.zero_grad()
            (model(torch.full((1, 2), float(step + 1))) ** 2).sum().backward()
            optimizer.step()

    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    train(model, optimizer, 3)
    registry(model=model, optimizer=optimizer).save(tmp_path / "s")
    train(model, optimizer, 3)
    other = torch.nn.Linear(2, 1)
    other_optimizer = torch.optim.Adam(other.parameters(), lr=0.5)
    registry(model=other, optimizer=other_optimizer).load(tmp_path / "s")
    train(other, other_optimizer, 3)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def test_missing_and_unexpected_names_are_refused_before_anything_changes(tmp_path):
    registry(weights=Box(1), ema=Box(2)).save(tmp_path / "s")
    weights, replay = Box("old"), Box("old")
    with pytest.raises(CheckpointError, match=r"no state for replay.*ema.*ckpt_path"):
        registry(weights=weights, replay=replay).load(tmp_path / "s")
    with pytest.raises(CheckpointError, match=r"state for ema, which"):
        registry(weights=weights).load(tmp_path / "s")
    assert weights.value == replay.value == "old"


def test_an_object_that_refuses_its_state_is_named(tmp_path):
    registry(model=torch.nn.Linear(2, 1)).save(tmp_path / "s")
    with pytest.raises(CheckpointError, match=r"(?s)'model' does not fit: .*size mismatch") as error:
        registry(model=torch.nn.Linear(3, 1)).load(tmp_path / "s")
    assert isinstance(error.value.__cause__, RuntimeError)


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"x": [1, object()]}, r"thing\.value\.x\[1\]"),
        (lambda: 0, r"thing\.value"),
        (deque([1]), r"thing\.value is a collections\.deque"),
        (np.array([object()]), "thing"),
    ],
)
def test_what_could_not_be_loaded_is_refused_when_saving(tmp_path, value, where):
    with pytest.raises(CheckpointError, match=where):
        registry(thing=Box(value)).save(tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_a_file_that_would_run_code_or_is_torn_is_refused(tmp_path):
    ran = []

    class Evil:
        def __reduce__(self):
            return (ran.append, (1,))

    torch.save({"format": 1, "states": {"a": {"value": Box()}}}, tmp_path / "evil")
    with pytest.raises(CheckpointError, match="cannot be read"):
        registry(a=Box()).load(tmp_path / "evil")
    registry(a=Box(1)).save(tmp_path / "torn")
    (tmp_path / "torn").write_bytes((tmp_path / "torn").read_bytes()[:100])
    for name in ("torn", "absent"):
        with pytest.raises(CheckpointError, match=rf"{name} cannot be read.*auto"):
            registry(a=Box()).load(tmp_path / name)
    assert ran == []


def test_registering_twice_or_something_without_state_is_refused():
    states = registry(a=Box())
    with pytest.raises(CheckpointError, match="'a' is registered twice"):
        states.register("a", Box())
    with pytest.raises(CheckpointError, match=r"'b' is a int.*state_dict"):
        registry(b=3)
    assert registry(x=Box(), a=Box()).names() == ["x", "a"]


def draws(generators):
    return [
        random.random(),
        float(np.random.normal()),
        float(torch.randn(())),
        generators["python"].random(),
        float(generators["numpy"].normal()),
        float(torch.randn((), generator=generators["torch"])),
    ]


def test_random_streams_continue_where_they_were(tmp_path):
    def make(seed):
        return {
            "python": random.Random(seed),
            "numpy": np.random.default_rng(seed),
            "torch": torch.Generator().manual_seed(seed),
        }

    generators = make(1)
    # An odd number of normal draws leaves a cached second value in the generators that produce pairs.
    draws(generators)
    random.gauss(0, 1)
    states = registry(rng=RngState(generators))
    states.save(tmp_path / "rng")
    expected = [random.gauss(0, 1), *draws(generators), *draws(generators)]
    others = make(2)
    draws(others)
    registry(rng=RngState(others)).load(tmp_path / "rng")
    assert [random.gauss(0, 1), *draws(others), *draws(others)] == expected


def test_other_named_generators_are_refused():
    state = RngState({"env": random.Random(0)}).state_dict()
    with pytest.raises(CheckpointError, match=r"env.*noise"):
        RngState({"noise": random.Random(0)}).load_state_dict(state)
    with pytest.raises(CheckpointError, match="'x' is a int"):
        RngState({"x": 3})


def test_cuda_states_without_a_device_are_warned_about(caplog):
    if torch.cuda.is_available():
        pytest.skip("has a CUDA device")
    state = RngState().state_dict()
    RngState().load_state_dict({**state, "cuda": [torch.zeros(16, dtype=torch.uint8)]})
    assert "CUDA" in caplog.text

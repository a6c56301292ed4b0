import itertools
import math
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlinf.errors import MetricError
from rlinf.telemetry.metrics import Metric, MetricAccumulator, finalize, merge_metrics


def test_mean_is_over_all_samples_and_not_of_the_last_or_of_the_ranks_means() -> None:
    first, second = MetricAccumulator(), MetricAccumulator()
    first.add("train/loss", 10.0, count=1)
    first.add("train/loss", 2.0, count=2)
    second.add("train/loss", 0.0, count=5)
    assert first.finalize() == {"train/loss": 4.0}
    assert finalize(merge_metrics([first.triples(), second.triples()])) == {"train/loss": 1.5}


def test_a_rank_may_lack_a_key_or_everything() -> None:
    merged = merge_metrics([{"a": Metric(4.0, 2)}, None, {}, {"b": Metric(3.0, 1, "max")}, {"a": (2.0, 1)}])
    assert finalize(merged) == {"a": 2.0, "b": 3.0}


@pytest.mark.parametrize(("reducer", "expected"), [("mean", 2.0), ("sum", 6.0), ("max", 4.0), ("min", -1.0)])
def test_reducers(reducer: str, expected: float) -> None:
    accumulator = MetricAccumulator()
    for value in (3.0, -1.0, 4.0):
        accumulator.add("x", value, reducer=reducer)
    assert accumulator.finalize() == {"x": expected}


@given(
    st.lists(st.lists(st.tuples(st.integers(-50, 50), st.integers(0, 5)), max_size=4), min_size=1, max_size=4),
    st.sampled_from(["mean", "sum", "max", "min"]),
)
def test_how_samples_are_spread_over_ranks_makes_no_difference(ranks: Any, reducer: Any) -> None:
    spread = []
    together = MetricAccumulator()
    for samples in ranks:
        accumulator = MetricAccumulator()
        for value, count in samples:
            accumulator.add("x", value, count, reducer)
            together.add("x", value, count, reducer)
        spread.append(accumulator.triples())
    assert merge_metrics(spread) == together.triples()


def test_a_key_without_samples_is_nan_and_does_not_disturb_the_others() -> None:
    empty = MetricAccumulator()
    empty.add("loss", 0.0, 0)
    empty.add("peak", 0.0, 0, "max")
    assert all(math.isnan(value) for value in empty.finalize().values())
    merged = merge_metrics([empty.triples(), {"loss": (6.0, 3), "peak": Metric(-5.0, 1, "max")}])
    assert finalize(merged) == {"loss": 2.0, "peak": -5.0}


@pytest.mark.parametrize("reducer", ["mean", "sum", "max", "min"])
def test_nan_shows_in_whatever_order_it_comes(reducer: str) -> None:
    for order in itertools.permutations([1.0, math.nan, 2.0]):
        merged = merge_metrics([{"x": Metric(value, 1, reducer)} for value in order])
        assert math.isnan(merged["x"].value())


def test_two_reducers_for_one_name_are_refused_with_the_name() -> None:
    accumulator = MetricAccumulator()
    accumulator.add("train/kl", 1.0)
    with pytest.raises(MetricError, match=r"train/kl.*mean.*max"):
        accumulator.add("train/kl", 1.0, reducer="max")
    with pytest.raises(MetricError, match="train/kl"):
        merge_metrics([{"train/kl": Metric(1.0, 1, "sum")}, {"train/kl": Metric(1.0, 1)}])


@pytest.mark.parametrize("bad", ["text", None, np.zeros(2), (1.0, 2.0, "mean", 4), (1.0, 1, "median")])
def test_what_is_not_one_number_is_refused_with_the_name(
    bad: str | np.ndarray | tuple[float | str, ...] | None,
) -> None:
    with pytest.raises(MetricError, match="train/x"):
        MetricAccumulator().update({"train/x": bad})


def test_negative_and_nan_counts_are_refused() -> None:
    for count in (-1, math.nan):
        accumulator = MetricAccumulator()
        accumulator.add("x", 1.0, count)
        with pytest.raises(MetricError, match="count"):
            accumulator.triples()


def test_pop_starts_again_and_triples_does_not() -> None:
    accumulator = MetricAccumulator()
    accumulator.add("x", 1.0)
    assert accumulator.triples() == accumulator.triples()
    assert accumulator.pop() == {"x": Metric(1.0, 1.0)}
    assert accumulator.pop() == {}
    accumulator.add("x", 1.0, reducer="max")
    assert accumulator.finalize() == {"x": 1.0}


def test_tensors_are_copied_detached_and_exact_beyond_float32() -> None:
    torch = pytest.importorskip("torch")
    accumulator = MetricAccumulator()
    running = torch.zeros(())
    parameter = torch.nn.Parameter(torch.tensor([2.0]))
    accumulator.add("loss", parameter * 3, torch.tensor(2))
    accumulator.add("running", running)
    running += 100
    accumulator.update(
        {"tokens": (torch.tensor(2**24 + 1), torch.tensor(1), "sum"), "half": torch.tensor(0.5).bfloat16()}
    )
    assert accumulator.finalize() == {"loss": 3.0, "running": 0.0, "tokens": 2.0**24 + 1, "half": 0.5}
    with pytest.raises(MetricError, match=r"\[3\]"):
        accumulator.add("loss", torch.zeros(3))


def test_triples_travel_between_processes() -> None:
    metric = Metric(1.5, 3.0, "min")
    assert pickle.loads(pickle.dumps(metric)) == metric


def test_telemetry_and_checkpoint_load_neither_torch_nor_ray() -> None:
    code = (
        "import sys; import rlinf.telemetry.metrics, rlinf.telemetry.logger, rlinf.telemetry.console, "
        "rlinf.telemetry.rundir, rlinf.checkpoint.checkpoint_manager, rlinf.utils.files, rlinf.utils.timing; "
        "rlinf.telemetry.metrics.MetricAccumulator().add('x', 1); "
        "print([m for m in ('torch', 'ray') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"

"""Metrics that can be merged without lying: each is a (sum, count, reducer) triple until the moment it is shown.

A mean of per-rank means, or the last micro-batch's value, is wrong as soon as ranks or micro-batches differ in size;
a triple keeps what is needed to merge in any order. Ranks may measure different things: merging takes the union of
keys.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, SupportsFloat, TypeAlias, cast, get_args

from rlinf.errors import MetricError

Reducer = Literal["mean", "sum", "max", "min"]
_REDUCERS: tuple[str, ...] = get_args(Reducer)

Number: TypeAlias = SupportsFloat
"""A Python number, a NumPy scalar or a tensor with one element."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric, mergeable.

    Attributes:
        total: Sum of the samples for ``mean`` and ``sum``; the extreme sample for ``max`` and ``min``.
        count: How many samples ``total`` covers; 0 means that nothing was measured.
        reducer: How samples become one number.
    """

    total: float
    count: float
    reducer: Reducer = "mean"

    def merge(self, other: Metric, *, name: str = "metric") -> Metric:
        """Return the metric over the samples of both.

        Args:
            other: The other part.
            name: What to call the metric in an error.

        Raises:
            MetricError: The two use different reducers.
        """
        if self.reducer != other.reducer:
            raise MetricError(
                f"metric '{name}' was added with reducer={self.reducer} and with reducer={other.reducer}; use one of "
                "them everywhere, or two names"
            )
        if other.count == 0:
            return self
        if self.count == 0:
            return other
        return Metric(_combine(self.total, other.total, self.reducer), self.count + other.count, self.reducer)

    def value(self) -> float:
        """Return the number to show; NaN when nothing was measured."""
        if self.count == 0:
            return 0.0 if self.reducer == "sum" else math.nan
        return self.total / self.count if self.reducer == "mean" else self.total


class MetricAccumulator:
    """Adds up samples on one rank.

    Tensors are kept where they are, detached, and fetched together when the triples are read, so that adding a
    metric in the middle of a step never waits for the device.
    """

    def __init__(self) -> None:
        self._parts: dict[str, list[tuple[Number, Number]]] = {}
        self._reducers: dict[str, Reducer] = {}

    def add(self, name: str, value: Number, count: Number = 1, reducer: Reducer = "mean") -> None:
        """Add samples of one metric.

        Args:
            name: Metric name with its prefix, for example ``train/policy_loss``.
            value: Sum over ``count`` samples (with the default count the sample itself); for ``max`` and ``min`` their
                extreme. A number or a tensor with one element.
            count: How many samples ``value`` covers, or their total weight; 0 adds the key without a sample.
            reducer: How samples become one number; the same for every sample of a name.

        Raises:
            MetricError: An unknown reducer, a reducer that differs from the name's earlier one, or not one number.
        """
        if reducer not in _REDUCERS:
            raise MetricError(f"metric '{name}': reducer '{reducer}' is unknown; use one of {', '.join(_REDUCERS)}")
        known = self._reducers.setdefault(name, reducer)
        # Metric.merge holds the rule and its message.
        Metric(0.0, 0, known).merge(Metric(0.0, 0, reducer), name=name)
        self._parts.setdefault(name, []).append((_hold(name, value), _hold(name, count)))

    def update(self, metrics: Mapping[str, Any], reducer: Reducer = "mean") -> None:
        """Add several metrics at once.

        Args:
            metrics: By name: one number, a pair (sum, count), a triple (sum, count, reducer) or a ``Metric``.
            reducer: For the entries that do not carry their own.

        Raises:
            MetricError: An entry is none of these.
        """
        for name, entry in metrics.items():
            self.add(name, *_unpack(name, entry, reducer))

    def triples(self) -> dict[str, Metric]:
        """Return one mergeable triple per name; this waits for the device where tensors were added."""
        numbers = iter(_fetch([number for parts in self._parts.values() for pair in parts for number in pair]))
        result: dict[str, Metric] = {}
        for name, parts in self._parts.items():
            reducer = self._reducers[name]
            metric = Metric(0.0, 0.0, reducer)
            for _ in parts:
                total, count = next(numbers), next(numbers)
                metric = metric.merge(Metric(total, _checked_count(name, count), reducer), name=name)
            # Long lists of parts are folded, so that a second reading does not cost as much.
            result[name] = metric
            self._parts[name] = [(metric.total, metric.count)]
        return result

    def pop(self) -> dict[str, Metric]:
        """Return the triples and start again with nothing."""
        result = self.triples()
        self._parts.clear()
        self._reducers.clear()
        return result

    def finalize(self) -> dict[str, float]:
        """Return one number per name, for this rank alone."""
        return finalize(self.triples())


def merge_metrics(ranks: Iterable[Mapping[str, Any] | None]) -> dict[str, Metric]:
    """Merge metrics over ranks (or steps, or micro-batches) by the union of their keys.

    Args:
        ranks: One mapping a rank: by name a ``Metric``, a pair (sum, count), a triple (sum, count, reducer) or a
            number. A rank may lack keys; None stands for a rank that measured nothing.

    Returns:
        One triple per name, names in the order they are first met.

    Raises:
        MetricError: Ranks disagree about a metric's reducer.
    """
    result: dict[str, Metric] = {}
    for metrics in ranks:
        accumulator = MetricAccumulator()
        accumulator.update(metrics or {})
        for name, metric in accumulator.triples().items():
            result[name] = result[name].merge(metric, name=name) if name in result else metric
    return result


def finalize(metrics: Mapping[str, Metric]) -> dict[str, float]:
    """Turn merged triples into the numbers to log.

    Args:
        metrics: By name.

    Returns:
        One number per name; NaN for a metric that has a key and no sample.
    """
    return {name: metric.value() for name, metric in metrics.items()}


def _combine(a: float, b: float, reducer: Reducer) -> float:
    if reducer in {"mean", "sum"}:
        return a + b
    # Python's max and min drop a NaN or keep it depending on the order of their arguments; a NaN must always show.
    if math.isnan(a) or math.isnan(b):
        return math.nan
    return max(a, b) if reducer == "max" else min(a, b)


def _unpack(name: str, entry: Any, reducer: Reducer) -> tuple[Number, Number, Reducer]:
    if isinstance(entry, Metric):
        return entry.total, entry.count, entry.reducer
    if not isinstance(entry, (tuple, list)):
        return entry, 1, reducer
    if len(entry) not in {2, 3}:
        raise MetricError(
            f"metric '{name}': got {len(entry)} values; use a number, (sum, count) or (sum, count, reducer)"
        )
    return entry[0], entry[1], cast("Reducer", entry[2]) if len(entry) == 3 else reducer


def _is_tensor(value: object) -> bool:
    # Without torch in the process there is no tensor, and this module never is the one that imports it.
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _hold(name: str, value: Number) -> Number:
    """Check that it is one number; detach tensors, turn everything else into a float."""
    if _is_tensor(value):
        tensor = cast("Any", value)
        if tensor.numel() != 1:
            raise MetricError(f"metric '{name}': got a tensor of shape {list(tensor.shape)}; add its sum and its count")
        # A copy: the caller may go on adding to its tensor in place.
        return cast("Number", tensor.detach().clone().reshape(()))
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise MetricError(
            f"metric '{name}': got {type(value).__name__}; use a number or a tensor with one element"
        ) from error


def _fetch(numbers: list[Number]) -> list[float]:
    """Convert to floats with one transfer a device."""
    result = [0.0 if _is_tensor(number) else float(number) for number in numbers]
    by_device: dict[str, list[int]] = {}
    for index, number in enumerate(numbers):
        if _is_tensor(number):
            by_device.setdefault(str(cast("Any", number).device), []).append(index)
    for device, indices in by_device.items():
        torch = sys.modules["torch"]
        # Counts of tokens outgrow float32; Apple's devices have nothing wider.
        dtype = torch.float32 if device.startswith("mps") else torch.float64
        stacked = torch.stack([cast("Any", numbers[index]).to(dtype) for index in indices])
        for index, value in zip(indices, stacked.tolist(), strict=True):
            result[index] = value
    return result


def _checked_count(name: str, count: float) -> float:
    if not count >= 0:
        raise MetricError(f"metric '{name}': count is {count}; it must be 0 or more")
    return count

"""What an evaluation found: one record per episode, their means, and how sure those are."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from rich import box
from rich.table import Table
from rich.text import Text

from rlinf.telemetry.panels import format_number
from rlinf.utils.files import write_atomic

# Two-sided 95 % of a normal distribution.
_Z = 1.959964


@dataclass(frozen=True, slots=True, order=True)
class EvalEpisode:
    """One episode of an evaluation.

    Attributes:
        epoch: Rollout epoch in which it ended.
        env: Global index of its environment.
        number: Episodes that this environment ended before in the epoch.
        task: Description of its task; empty where the environment has none.
        metrics: ``success_once``, ``return`` and the like, by name.
        start: Reset-state id that it began from; None in records of versions that did not write it.
    """

    epoch: int
    env: int
    number: int
    task: str = ""
    metrics: dict[str, float] = field(default_factory=dict, compare=False)
    start: int | None = field(default=None, compare=False)


def mean_metrics(episodes: Sequence[EvalEpisode]) -> dict[str, float]:
    """Return ``eval/<name>``, the mean over the episodes that report the name; with several tasks also for each task.

    Where any episode reports success, those that do not have failed: some environments only say when they succeed.

    Args:
        episodes: Of all ranks.
    """
    result: dict[str, float] = {}
    episodes = [_with_success(episode) for episode in episodes] if _report_success(episodes) else episodes
    by_task = _by_task(episodes)
    for task, members in {"": list(episodes), **(by_task if len(by_task) > 1 else {})}.items():
        names = dict.fromkeys(name for episode in members for name in episode.metrics)
        for name in names if not task else [name for name in names if name == "success_once"]:
            values = [episode.metrics[name] for episode in members if name in episode.metrics]
            result[f"eval/{name}/{task}" if task else f"eval/{name}"] = math.fsum(values) / len(values)
    return result


def _report_success(episodes: Sequence[EvalEpisode]) -> bool:
    return any("success_once" in episode.metrics for episode in episodes)


def _with_success(episode: EvalEpisode) -> EvalEpisode:
    return replace(episode, metrics={"success_once": 0.0, "success_at_end": 0.0, **episode.metrics})


def success_interval(successes: float, count: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of a success rate (Wilson, 1927): sensible also at 0 and at 1.

    Args:
        successes: Episodes that succeeded.
        count: Episodes, at least 1.
    """
    rate, z2 = successes / count, _Z**2
    centre = (rate + z2 / (2 * count)) / (1 + z2 / count)
    half = _Z * math.sqrt(rate * (1 - rate) / count + z2 / (4 * count**2)) / (1 + z2 / count)
    return max(0.0, centre - half), min(1.0, centre + half)


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and half the width of its 95 % confidence interval (normal approximation; NaN for one value)."""
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, math.nan
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, _Z * math.sqrt(variance / len(values))


def evaluation_table(episodes: Sequence[EvalEpisode]) -> Table:
    """Return a row for each task and one for all, with 95 % confidence intervals.

    Args:
        episodes: Of all ranks, one at least.
    """
    table = Table(box=box.SIMPLE, title=Text("evaluation, with 95 % confidence"), title_justify="left")
    table.add_column("task", overflow="fold")
    has_success = _report_success(episodes)
    has_score = all("normalized_score" in episode.metrics for episode in episodes)
    scores = ("score",) if has_score else ()
    for column in ("episodes", *(("success",) if has_success else ()), "return", *scores, "length"):
        table.add_column(column, justify="right")
    by_task = _by_task(episodes)
    for task, members in by_task.items() if len(by_task) > 1 else ():
        table.add_row(*_cells(task, members, has_success=has_success))
    if len(by_task) > 1:
        table.add_section()
    name = "all" if len(by_task) > 1 else next(iter(by_task)) or "all"
    table.add_row(*_cells(name, episodes, has_success=has_success))
    return table


def write_episodes(path: Path, episodes: Iterable[EvalEpisode]) -> None:
    """Write one JSON line per episode."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, "".join(json.dumps(asdict(episode)) + "\n" for episode in episodes))


def _cells(task: str, episodes: Sequence[EvalEpisode], *, has_success: bool) -> list[str]:
    count = len(episodes)
    successes = math.fsum(episode.metrics.get("success_once", 0.0) for episode in episodes)
    low, high = success_interval(successes, count)
    returns, margin = mean_interval([episode.metrics["return"] for episode in episodes])
    length = math.fsum(episode.metrics["episode_len"] for episode in episodes) / count
    spread = "" if math.isnan(margin) else f" ± {format_number(margin)}"
    success = [f"{successes / count:.2f} [{low:.2f}, {high:.2f}]"] if has_success else []
    scores = [episode.metrics["normalized_score"] for episode in episodes if "normalized_score" in episode.metrics]
    score = [format_number(math.fsum(scores) / count)] if len(scores) == count else []
    return [task, str(count), *success, f"{format_number(returns)}{spread}", *score, format_number(length)]


def _by_task(episodes: Iterable[EvalEpisode]) -> dict[str, list[EvalEpisode]]:
    tasks: dict[str, list[EvalEpisode]] = {}
    for episode in episodes:
        tasks.setdefault(episode.task, []).append(episode)
    return dict(sorted(tasks.items()))

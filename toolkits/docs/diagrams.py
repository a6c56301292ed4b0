"""Draws the diagrams of the documentation from the code that plans and schedules runs.

``python toolkits/docs/diagrams.py`` writes ``docs/diagrams/*.svg``; with ``--check`` it says whether they are up to
date. Placements are those of ``plan_run``; the timelines follow the rule by which a run begins its rollouts.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.sax.saxutils import escape

from rlinf.config import load_recipe
from rlinf.config.validate import plan_run
from rlinf.runners.async_embodied_runner import AsyncEmbodiedRunner

ROOT = Path(__file__).resolve().parents[2]
FOLDER = "docs/diagrams"
RECIPE = "gym_cartpole_ppo_mlp"

STYLE = (
    "text{font:13px sans-serif;fill:#1f2328}.small{font-size:11px;fill:#57606a}.mid{text-anchor:middle}"
    ".end{text-anchor:end}.line{stroke:#8c959f;fill:none;stroke-width:1.2}.free{fill:none;stroke:#d0d7de}"
    ".env{fill:#ddf4ff;stroke:#0969da}.rollout{fill:#fff1e5;stroke:#bc4c00}.actor{fill:#dafbe1;stroke:#1a7f37}"
    ".reward{fill:#fbefff;stroke:#8250df}.head{fill:#8c959f}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.small{fill:#8b949e}.free{stroke:#30363d}"
    ".env{fill:#0c2d6b}.rollout{fill:#5a1e02}.actor{fill:#033a16}.reward{fill:#3c1e70}}"
)

# Sender, receiver and what travels, as docs/source-en/concepts/flow.md says it.
MESSAGES = (
    ("env", "rollout", "ChunkStep"),
    ("rollout", "env", "actions"),
    ("rollout", "actor", "Trajectory"),
    ("actor", "rollout", "weights"),
    ("rollout", "reward", "RewardRequest"),
    ("reward", "rollout", "rewards"),
)
SPOTS = {"env": (20, 30), "rollout": (270, 30), "actor": (520, 30), "reward": (270, 140)}
BOX = (110, 46)


def svg(width: int, height: int, title: str, parts: Sequence[str]) -> str:
    """Return the text of a file with these parts."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}</style>",
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            'orient="auto"><path class="head" d="M0 0L8 4L0 8z"/></marker></defs>',
            *parts,
            "</svg>\n",
        ]
    )


def text(x: float, y: float, words: object, style: str = "mid") -> str:
    """Return words at a place."""
    return f'<text x="{x:g}" y="{y:g}" class="{style}">{escape(str(words))}</text>'


def box(x: float, y: float, size: tuple[float, float], style: str, words: object = "") -> str:
    """Return a box, with words in its middle."""
    width, height = size
    drawn = f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" class="{style}"/>'
    return drawn if words == "" else f"{drawn}{text(x + width / 2, y + height / 2 + 4.5, words)}"


def draw_flow() -> str:
    """Draw the components of a robot run and the messages between them."""
    parts = [box(*SPOTS[name], BOX, name, name) for name in SPOTS]
    for sender, receiver, words in MESSAGES:
        (x0, y0), (x1, y1) = SPOTS[sender], SPOTS[receiver]
        if y0 == y1:
            right = x0 < x1
            y = y0 + (14 if right else 34)
            start, end = (x0 + BOX[0], x1) if right else (x0, x1 + BOX[0])
            parts.append(f'<path class="line" d="M{start} {y}H{end}" marker-end="url(#head)"/>')
            parts.append(text((start + end) / 2, y - 5 if right else y + 14, words, "mid small"))
            continue
        down = y0 < y1
        shift = -12 if down else 12
        x = x0 + BOX[0] / 2 + shift
        start, end = (y0 + BOX[1], y1) if down else (y0, y1 + BOX[1])
        parts.append(f'<path class="line" d="M{x:g} {start}V{end}" marker-end="url(#head)"/>')
        parts.append(text(x + shift / 2, (start + end) / 2 + 4, words, "end small" if down else "small"))
    return svg(650, 200, "Components of a run and what travels between them", parts)


def draw_placement(overrides: Sequence[str], accelerators: int) -> str:
    """Draw which process of each component is on which hardware rank.

    Args:
        overrides: Of the recipe.
        accelerators: GPUs of the node.
    """
    placement = plan_run(load_recipe(RECIPE, list(overrides)), accelerators_per_node=accelerators).placement
    cell, left, top = (62, 26), 80, 34
    parts = [text(left - 10, top - 10, "GPU", "end small")]
    parts += [text(left + cell[0] * (rank + 0.5), top - 10, rank, "mid small") for rank in range(accelerators)]
    for row, name in enumerate(placement.components):
        y = top + row * (cell[1] + 6)
        parts.append(text(left - 10, y + 18, name, "end"))
        held: dict[int, list[int]] = {}
        for seat in placement.get_placement(name):
            for rank in seat.local_hardware_ranks:
                held.setdefault(rank, []).append(seat.rank)
        for rank in range(accelerators):
            ranks = ", ".join(map(str, held.get(rank, [])))
            parts.append(box(left + rank * cell[0] + 2, y, (cell[0] - 4, cell[1]), name if ranks else "free", ranks))
    height = top + len(placement.components) * (cell[1] + 6) + 8
    title = "; ".join(f"{name}: {placement.get_spec(name)}" for name in placement.components)
    return svg(left + accelerators * cell[0] + 12, height, title, parts)


class Timeline(AsyncEmbodiedRunner):
    """Plays the rule of ``AsyncEmbodiedRunner`` in a time of its own, with one rollout and one train step at a time.

    Args:
        threshold: ``algorithm.staleness_threshold``.
        rollout: Seconds of a rollout.
        training: Seconds of a train step.

    Attributes:
        rollouts: (step, start, end, version of the weights at its start) of each rollout.
        updates: (step, start, end) of each train step.
    """

    def __init__(self, threshold: int, rollout: float, training: float) -> None:
        self.cfg = SimpleNamespace(algorithm=SimpleNamespace(staleness_threshold=threshold))  # type: ignore[assignment]
        self.logger = SimpleNamespace(is_anything_due=lambda step: False)  # type: ignore[assignment]
        self.groups, self.ahead, self.step = {}, {}, 0
        self.seconds, self.now = (rollout, training), 0.0
        self.rollouts: list[tuple[int, float, float, int]] = []
        self.updates: list[tuple[int, float, float]] = []

    def begin_rollout(self, step: int) -> dict[str, Any]:
        """Note when a rollout begins: now, or when the one before has ended."""
        start = max(self.now, self.rollouts[-1][2] if self.rollouts else 0.0)
        version = sum(end <= start for _, _, end in self.updates)
        self.rollouts.append((step, start, start + self.seconds[0], version))
        return {}

    def play(self, steps: int) -> None:
        """Train for a number of steps."""
        for step in range(1, steps + 1):
            self._begin_rollouts()
            ready = next(end for number, _, end, _ in self.rollouts if number == step)
            start = max(self.now, ready)
            del self.ahead[step]
            self.now, self.step = start + self.seconds[1], step
            self.updates.append((step, start, self.now))


def draw_timeline(threshold: int, *, steps: int = 4) -> str:
    """Draw when rollouts and train steps run, for a staleness threshold."""
    line = Timeline(threshold, rollout=1.0, training=1.2)
    line.play(steps)
    scale, left = 62, 80
    parts = [text(left - 10, 32, "rollout", "end"), text(left - 10, 72, "actor", "end")]
    for step, start, end, version in line.rollouts:
        if step <= steps:
            words = f"{step} (v{version})"
            parts.append(box(left + start * scale, 14, ((end - start) * scale - 2, 28), "rollout", words))
    for step, start, end in line.updates:
        parts.append(box(left + start * scale, 54, ((end - start) * scale - 2, 28), "actor", f"{step}"))
    title = f"Rollouts and train steps with staleness_threshold {threshold}; v: version of the weights at the start"
    return svg(int(left + (1.0 + 1.2) * steps * scale + 12), 94, title, parts)


DIAGRAMS: dict[str, Callable[[], str]] = {
    "flow": draw_flow,
    "placement_collocated": lambda: draw_placement(
        ["cluster.component_placement={actor: all, rollout: all, env: all}", "actor.micro_batch_size=128"], 4
    ),
    "placement_disaggregated": lambda: draw_placement(
        ["cluster.component_placement={actor: 0-1, rollout: 2-3, env: '2-3:0-3'}", "actor.micro_batch_size=256"], 4
    ),
    "timeline_synchronous": lambda: draw_timeline(0),
    "timeline_asynchronous": lambda: draw_timeline(1),
}
"""Files of the folder, without their endings, and what draws them."""


def find_differences() -> list[str]:
    """Return the files that are not as they would be drawn now."""
    wanted = {f"{name}.svg": draw() for name, draw in DIAGRAMS.items()}
    found = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / FOLDER).glob("*.svg")}
    return sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))


def main() -> int:
    """Write the diagrams, or say whether they are up to date: 1 where they are not."""
    parser = argparse.ArgumentParser(description="Draw the diagrams of the documentation.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a diagram is out of date")
    check = parser.parse_args().check
    os.chdir(ROOT)
    differences = find_differences()
    if check and differences:
        print(f"{', '.join(differences)}: out of date. Run: python toolkits/docs/diagrams.py", file=sys.stderr)
        return 1
    for name in differences:
        path = ROOT / FOLDER / name
        if path.stem in DIAGRAMS:
            path.write_text(DIAGRAMS[path.stem](), encoding="utf-8")
        else:
            path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())

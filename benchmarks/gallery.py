"""The gallery of recipes: what each teaches, on what, in how many minutes, what it reached, and its learning curve.

Made from the committed files in ``benchmarks/results/learning`` and the recipes' own first lines, so that no number is
copied by hand; recipes without results are listed behind the others. The same files always give the same pages and
plots. A test compares them with the committed ones.

    python benchmarks/gallery.py
    python benchmarks/gallery.py --check
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

REPO = Path(__file__).resolve().parents[1]
RESULTS = REPO / "benchmarks" / "results" / "learning"
TEXTS = REPO / "benchmarks" / "gallery_texts.json"
"""The words of the pages in each language; for Chinese also what each recipe teaches."""

PAGES = {"en": "docs/source-en/gallery.md", "zh": "docs/source-zh/gallery.md"}
PLOTS = "docs/gallery"

METRICS = ("eval/val/accuracy", "eval/accuracy", "eval/success_once", "eval/return", "eval/token_accuracy")
"""What a recipe is judged by: the first that it measures; a success only where the task has one."""

Curve = list[tuple[int, float]]


@dataclass(frozen=True)
class Exhibit:
    """One recipe with the runs that were kept of it.

    Attributes:
        name: Name of the result file without its ending: the recipe's, and a suffix where it was changed.
        recipe: Name of the recipe.
        kind: Folder of ``examples/`` that holds it.
        teaches: The recipe's own first line.
        metric: What it is judged by.
        cpu_cores: Of the machine.
        seeds: One for each run.
        overrides: What was changed of the recipe besides the seed, and arguments of the program beside it.
        minutes: Wall time of each run's process.
        curves: (step, value) at each evaluation of each run.
    """

    name: str
    recipe: str
    kind: str
    teaches: str
    metric: str
    cpu_cores: int
    seeds: list[int]
    overrides: list[str]
    minutes: list[float]
    curves: list[Curve]


def load_exhibits(results: Path = RESULTS) -> list[Exhibit]:
    """Return the exhibits by kind and name.

    Raises:
        FileNotFoundError: A result belongs to a recipe that is not there any more.
    """
    exhibits = [_exhibit(path) for path in results.glob("*.json")]
    return sorted(exhibits, key=lambda exhibit: (exhibit.kind, exhibit.name))


def _exhibit(path: Path) -> Exhibit:
    report = json.loads(path.read_text(encoding="utf-8"))
    recipe, runs = report["recipe"], report["runs"]
    files = [file for file in recipe_files() if file.stem == recipe]
    if not files:
        raise FileNotFoundError(f"{path}: no recipe {recipe}.yaml under examples/*/config; remove the result with it.")
    metric = _metric(runs)
    return Exhibit(
        name=path.stem,
        recipe=recipe,
        kind=files[0].parents[1].name,
        teaches=_first_line(files[0]),
        metric=metric,
        cpu_cores=report["cpu_cores"],
        seeds=[run["seed"] for run in runs],
        overrides=[*runs[0]["overrides"], *runs[0].get("beside", [])],
        minutes=[run["process_seconds"] / 60 for run in runs],
        curves=[[(point["step"], point[metric]) for point in run["curve"] if metric in point] for run in runs],
    )


def recipe_files() -> list[Path]:
    """Return the files of all recipes by their folder and name; those of the example of a plug-in are left out."""
    files = (REPO / "examples").glob("*/config/*.yaml")
    return sorted(file for file in files if file.parents[1].name != "extend")


def _first_line(file: Path) -> str:
    return file.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")


def _metric(runs: list[dict[str, Any]]) -> str:
    points = [point for run in runs for point in run["curve"]]
    for metric in METRICS:
        values = [point[metric] for point in points if metric in point]
        if values and (metric != "eval/success_once" or any(values)):
            return metric
    raise ValueError(f"none of {', '.join(METRICS)} is in the curves; add what the recipe is judged by to METRICS.")


def number(value: float) -> str:
    """Return a number as the gallery writes it: two decimals below ten, whole from there on."""
    return f"{value:.0f}" if abs(value) >= 10 else f"{value:.2f}"


# ------------------------------------------------------------------------------------------------------- plots

WIDTH, HEIGHT, MARGIN = 200, 72, 8
LABELS = 40
"""Width in pixels that the numbers on the left take."""

STYLE = (
    "text{font:10px sans-serif;fill:#57606a}.axis{stroke:#d0d7de}.seed{fill:none;stroke-width:1.5}"
    ".s0{stroke:#0969da}.s1{stroke:#bc4c00}.s2{stroke:#1a7f37}"
    "@media(prefers-color-scheme:dark){text{fill:#8b949e}.axis{stroke:#30363d}"
    ".s0{stroke:#58a6ff}.s1{stroke:#f0883e}.s2{stroke:#3fb950}}"
)


def draw(exhibit: Exhibit) -> str:
    """Return the learning curves of all seeds as a small SVG."""
    values = [value for curve in exhibit.curves for _, value in curve]
    low, high = min(values), max(values)
    last_step = max(step for curve in exhibit.curves for step, _ in curve)
    top, bottom, left, right = MARGIN, HEIGHT - MARGIN, LABELS, WIDTH - MARGIN

    def place(step: int, value: float) -> str:
        x = left + (right - left) * step / max(last_step, 1)
        y = bottom - (bottom - top) * (value - low) / ((high - low) or 1.0)
        return f"{x:.1f},{y:.1f}"

    title = escape(f"{exhibit.name}: {exhibit.metric} over {last_step} steps, seeds {_listed(exhibit.seeds)}")
    lines = [
        f'<polyline class="seed s{index % 3}" points="{" ".join(place(*point) for point in curve)}"/>'
        for index, curve in enumerate(exhibit.curves)
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
            f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
            f"<title>{title}</title>",
            f"<style>{STYLE}</style>",
            f'<path class="axis" d="M{left} {top}V{bottom}H{right}" fill="none"/>',
            f'<text x="{left - 4}" y="{top + 6}" text-anchor="end">{number(high)}</text>',
            f'<text x="{left - 4}" y="{bottom}" text-anchor="end">{number(low)}</text>',
            *lines,
            "</svg>\n",
        ]
    )


# ---------------------------------------------------------------------------------------------------------- pages


def write_page(exhibits: list[Exhibit], language: str, texts: Mapping[str, Any]) -> str:
    """Return the gallery in one language.

    Raises:
        KeyError: ``texts`` does not say what a recipe teaches in that language.
    """
    words = texts[language]
    parts = [words["title"], words["opening"]]
    for kind, group in groupby(exhibits, key=lambda exhibit: exhibit.kind):
        rows = [_row(exhibit, language, words) for exhibit in group]
        table = "\n".join([words["header"], "|---|---|---|---|---|", *rows])
        parts += [words["kinds"][kind], words["trained_by"].format(command=texts["commands"][kind]), table]
    measured = {exhibit.recipe for exhibit in exhibits}
    rows = [
        f"| `{file.stem}` | {_teaches(file.stem, _first_line(file), language, words)} |"
        for file in recipe_files()
        if file.stem not in measured
    ]
    parts += [words["unmeasured"], "\n".join([words["unmeasured_header"], "|---|---|", *rows])]
    return "\n\n".join(parts) + "\n"


def _row(exhibit: Exhibit, language: str, words: Mapping[str, Any]) -> str:
    teaches = _teaches(exhibit.recipe, exhibit.teaches, language, words)
    name = f"`{exhibit.recipe}`" + "".join(f" `{override}`" for override in exhibit.overrides)
    reached = ", ".join(number(curve[-1][1]) for curve in exhibit.curves)
    result = words["result"].format(
        metric=words["metrics"][exhibit.metric], reached=reached, seeds=_listed(exhibit.seeds)
    )
    plot = f"![{exhibit.name}](../{Path(PLOTS).name}/{exhibit.name}.svg)"
    hardware = words["hardware"].format(cpu_cores=exhibit.cpu_cores)
    return f"| {name}<br>{plot} | {teaches} | {hardware} | {_minutes(exhibit.minutes)} | {result} |"


def _teaches(recipe: str, first_line: str, language: str, words: Mapping[str, Any]) -> str:
    teaches: str | None = first_line if language == "en" else words["teaches"].get(recipe)
    if teaches is None:
        raise KeyError(f"{TEXTS.name}: {language}.teaches has no sentence for {recipe}; add one.")
    return teaches


def _minutes(minutes: list[float]) -> str:
    shortest, longest = (f"{value:.1f}" if value < 10 else f"{value:.0f}" for value in (min(minutes), max(minutes)))
    return shortest if shortest == longest else f"{shortest} – {longest}"


def _listed(values: list[int]) -> str:
    return ", ".join(str(value) for value in values)


# ----------------------------------------------------------------------------------------------------------- files


def make_files(results: Path = RESULTS) -> dict[str, str]:
    """Return the content of every file of the gallery, by its path from the repository's root."""
    exhibits = load_exhibits(results)
    texts = json.loads(TEXTS.read_text(encoding="utf-8"))
    files = {page: write_page(exhibits, language, texts) for language, page in PAGES.items()}
    return files | {f"{PLOTS}/{exhibit.name}.svg": draw(exhibit) for exhibit in exhibits}


def find_differences(files: Mapping[str, str], root: Path = REPO) -> Iterator[str]:
    """Yield a line for each file that is missing, differs or is left over."""
    for name, content in files.items():
        path = root / name
        if not path.is_file():
            yield f"{name} is missing"
        elif path.read_text(encoding="utf-8") != content:
            yield f"{name} differs"
    yield from (f"{name} is left over" for name in _left_over(files, root))


def _left_over(files: Mapping[str, str], root: Path) -> list[str]:
    plots = (path.relative_to(root).as_posix() for path in (root / PLOTS).glob("*.svg"))
    return sorted(name for name in plots if name not in files)


def write_files(files: Mapping[str, str], root: Path = REPO) -> None:
    """Write the gallery's files and remove plots of results that are gone."""
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content, encoding="utf-8")
    for name in _left_over(files, root):
        (root / name).unlink()


def main() -> int:
    """Write the gallery, or say what is not up to date."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if something would change")
    args = parser.parse_args()
    files = make_files()
    if not args.check:
        write_files(files)
        print(f"{len(files)} files written: {', '.join(PAGES.values())} and plots in {PLOTS}/.")
        return 0
    differences = list(find_differences(files))
    for line in differences:
        print(line)
    if differences:
        print("Make them again: python benchmarks/gallery.py")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())

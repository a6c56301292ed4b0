"""The gallery is what its script makes of the committed results, and the script reads results as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from repository_tree import ROOT

from benchmarks import gallery, learning

SVG = "{http://www.w3.org/2000/svg}"


def run_of(seed: int, seconds: float, values: list[float], metric: str = "eval/return") -> dict[str, Any]:
    curve = [{"step": 10 * index, "time_seconds": index, metric: value} for index, value in enumerate(values)]
    return {"seed": seed, "overrides": [], "process_seconds": seconds, "curve": curve}


def save(folder: Path, recipe: str, runs: list[dict[str, Any]]) -> Path:
    report = {"recipe": recipe, "commit": "0", "cpu_cores": 4, "runs": runs}
    (folder / f"{recipe}.json").write_text(json.dumps(report), encoding="utf-8")
    return folder


def test_the_committed_gallery_is_what_the_script_makes() -> None:
    assert list(gallery.find_differences(gallery.make_files())) == [], "run: python benchmarks/gallery.py"


def test_every_committed_result_is_in_both_pages_with_its_plot() -> None:
    names = {path.stem for path in gallery.RESULTS.glob("*.json")}
    assert names
    for page in gallery.PAGES.values():
        text = (ROOT / page).read_text(encoding="utf-8")
        assert {name for name in names if f"gallery/{name}.svg)" not in text} == set()


def test_every_recipe_is_in_the_gallery_once_measured_or_not() -> None:
    page = gallery.make_files()[gallery.PAGES["en"]]
    measured, _, unmeasured = page.partition("## Not measured yet")
    for recipe in (file.stem for file in gallery.recipe_files()):
        assert (f"| `{recipe}`" in measured) != (f"| `{recipe}` |" in unmeasured), recipe


def test_a_row_says_hardware_minutes_results_and_seeds(tmp_path: Path) -> None:
    runs = [run_of(3, 90.0, [8.0, 123.4]), run_of(5, 720.0, [9.0, 5.678])]
    files = gallery.make_files(save(tmp_path, "gym_cartpole_ppo_mlp", runs))
    row = next(line for line in files[gallery.PAGES["en"]].splitlines() if "`gym_cartpole_ppo_mlp`" in line)
    assert row.removesuffix(" |").split(" | ")[2:] == ["4 CPU cores", "1.5 – 12", "return 123, 5.68 (seeds 3, 5)"]
    assert "4 个 CPU 核" in files[gallery.PAGES["zh"]]


@pytest.mark.parametrize(("successes", "metric"), [([0.0, 0.0], "eval/return"), ([0.0, 0.5], "eval/success_once")])
def test_a_task_without_successes_is_judged_by_its_return(successes: list[float], metric: str, tmp_path: Path) -> None:
    run = run_of(0, 60.0, [1.0, 2.0])
    for point, success in zip(run["curve"], successes, strict=True):
        point["eval/success_once"] = success
    (exhibit,) = gallery.load_exhibits(save(tmp_path, "gym_cartpole_ppo_mlp", [run]))
    assert exhibit.metric == metric


def test_a_row_names_what_was_changed_of_the_recipe_and_beside_it(tmp_path: Path) -> None:
    run = run_of(0, 60.0, [1.0]) | {"overrides": ["runner.max_epochs=9"], "beside": ["--random-feedback"]}
    exhibits = gallery.load_exhibits(save(tmp_path, "gym_cartpole_ppo_mlp", [run]))
    page = gallery.write_page(exhibits, "en", json.loads(gallery.TEXTS.read_text(encoding="utf-8")))
    assert "| `gym_cartpole_ppo_mlp` `runner.max_epochs=9` `--random-feedback`<br>" in page


def test_a_plot_has_one_line_a_seed_from_the_lowest_to_the_highest_value(tmp_path: Path) -> None:
    runs = [run_of(0, 60.0, [-20.0, -5.0, -10.0]), run_of(1, 60.0, [-15.0, -12.0])]
    (exhibit,) = gallery.load_exhibits(save(tmp_path, "gym_cartpole_ppo_mlp", runs))
    plot = ElementTree.fromstring(gallery.draw(exhibit))
    assert [text.text for text in plot.iter(f"{SVG}text")] == ["-5.00", "-20"]
    lines = [line.get("points", "").split() for line in plot.iter(f"{SVG}polyline")]
    top, bottom = gallery.MARGIN, gallery.HEIGHT - gallery.MARGIN
    left, right = gallery.LABELS, gallery.WIDTH - gallery.MARGIN
    assert lines[0][:2] == [f"{left:.1f},{bottom:.1f}", f"{(left + right) / 2:.1f},{top:.1f}"]
    assert lines[1][-1].startswith(f"{(left + right) / 2:.1f},")
    assert [len(line) for line in lines] == [3, 2]


def test_a_flat_curve_of_one_point_can_be_drawn(tmp_path: Path) -> None:
    (exhibit,) = gallery.load_exhibits(save(tmp_path, "gym_cartpole_ppo_mlp", [run_of(0, 1.0, [3.0])]))
    assert "polyline" in gallery.draw(exhibit)


def test_differences_are_named_and_written_away(tmp_path: Path) -> None:
    files = gallery.make_files()
    page, plot = gallery.PAGES["zh"], f"{gallery.PLOTS}/gym_cartpole_ppo_mlp.svg"
    gallery.write_files(files, tmp_path)
    (tmp_path / page).write_text("another", encoding="utf-8")
    (tmp_path / plot).rename(tmp_path / gallery.PLOTS / "gone.svg")
    told = [f"{page} differs", f"{plot} is missing", f"{gallery.PLOTS}/gone.svg is left over"]
    assert sorted(gallery.find_differences(files, tmp_path)) == sorted(told)
    gallery.write_files(files, tmp_path)
    assert list(gallery.find_differences(files, tmp_path)) == []


def test_a_result_whose_recipe_is_gone_or_untold_is_an_error(tmp_path: Path) -> None:
    folder = save(tmp_path, "no_such_recipe", [run_of(0, 1.0, [1.0])])
    with pytest.raises(FileNotFoundError, match=r"no recipe no_such_recipe\.yaml"):
        gallery.load_exhibits(folder)
    (folder / "no_such_recipe.json").unlink()
    save(folder, "metaworld_mt10_ppo_mlp", [run_of(0, 1.0, [1.0])])
    texts = json.loads(gallery.TEXTS.read_text(encoding="utf-8"))
    texts["zh"]["teaches"].pop("metaworld_mt10_ppo_mlp", None)
    with pytest.raises(KeyError, match="zh.teaches has no sentence for metaworld_mt10_ppo_mlp"):
        gallery.write_page(gallery.load_exhibits(folder), "zh", texts)


def test_runs_of_other_seeds_are_kept_where_nothing_else_differs(tmp_path: Path) -> None:
    path, overrides = tmp_path / "recipe.json", ["runner.max_epochs=90"]
    runs = [{"seed": 0, "overrides": overrides}, {"seed": 1, "overrides": overrides}, {"seed": 2, "overrides": []}]
    path.write_text(json.dumps({"commit": "a", "runs": runs}))
    assert learning.earlier_runs(path, "a", overrides, [1]) == runs[:1]
    assert learning.earlier_runs(path, "b", overrides, [1]) == []
    assert learning.earlier_runs(path, "a", overrides, [1], ["--more"]) == []
    assert learning.earlier_runs(tmp_path / "none.json", "a", overrides, [1]) == []

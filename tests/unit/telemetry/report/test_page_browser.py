"""The page in a browser: it draws itself, complains of nothing and asks for nothing."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlinf.telemetry.report import RunFolder, write_report
from tests.unit.telemetry.report.report_runs import (
    HOSTILE,
    add_answers,
    add_episodes,
    add_trace,
    answer,
    make_run,
    some_metrics,
)

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]
TABS = ("curves", "times", "timeline", "samples", "recipe", "history")
WAIT_SECONDS = 20.0


class Page:
    """A page that has been opened, and what the browser has noted about it.

    Args:
        driver: Selenium's.
        path: The file.
    """

    def __init__(self, driver: Any, path: Path) -> None:
        self.driver = driver
        driver.get_log("browser"), driver.get_log("performance")
        driver.get(path.as_uri())
        self.wait(lambda: self.all("[role=tab][aria-selected=true]"))

    def all(self, selector: str) -> Any:
        return self.driver.find_elements("css selector", selector)

    def one(self, selector: str) -> Any:
        (found,) = self.all(selector)
        return found

    def wait(self, condition: Callable[[], Any] | Callable[[], list[Any]] | Callable[[], bool]) -> Any:
        """Wait until a condition holds, and return what it gave."""
        end = time.monotonic() + WAIT_SECONDS
        while True:
            found = condition()
            if found:
                return found
            assert time.monotonic() < end, "the page has not become what it should be"
            time.sleep(0.05)

    def open(self, tab: str) -> Any:
        self.one(f"#tab-{tab}").click()
        return self.wait(lambda: [panel for panel in self.all(f"#panel-{tab}") if panel.is_displayed()])[0]

    def texts(self, selector: str) -> list[str]:
        return [found.text for found in self.all(selector)]

    def script(self, text: str, *arguments: Any) -> Any:
        return self.driver.execute_script(text, *arguments)

    def complaints(self) -> list[str]:
        """Return what stands in the console."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Return the addresses that were asked for, those within the page apart."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        urls = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
        return [url for url in urls if not url.startswith(("data:", "blob:"))]


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in ("--headless=new", "--window-size=1280,900", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    browser = webdriver.Chrome(options=options, service=service)
    yield browser
    browser.quit()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has everything."""
    folder = make_run(tmp_path_factory.mktemp("runs"), "everything", steps=12, overrides=["actor.optim.lr=5e-4"])
    for step in (1, 2):
        texts = {number: f"answer {step}.{number}" for number in range(40)}
        add_answers(folder, step, [answer(text, reward=n / 40, group=n) for n, text in texts.items()])
    add_answers(folder, 3, [answer(HOSTILE, prompt=HOSTILE, reference=HOSTILE)])
    add_episodes(folder, 2, 3)
    add_trace(folder)
    return folder


@pytest.fixture(scope="module")
def file(folder: Path) -> Path:
    write_report([RunFolder.read(folder)], folder / "report.html")
    return folder / "report.html"


@pytest.fixture
def page(driver: Any, file: Path) -> Page:
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    return Page(driver, file)


def test_evaluations_come_first_and_their_curves_are_drawn(page: Page) -> None:
    assert page.texts("#panel-curves summary")[:1] == ["eval2"]
    first = page.wait(lambda: page.all("article[name='eval/return'] .drawn .scatterlayer path.js-line"))
    assert len(first) == 1
    points = page.all("article[name='eval/return'] .drawn path.point")
    assert len(points) == 7


def test_curves_are_smoothed_over_the_ones_that_were_measured(page: Page) -> None:
    page.wait(lambda: page.all("article[name='env/return'] .drawn"))
    page.script(
        "const slider = document.getElementById('smoothing'); slider.value = 0.9;"
        "slider.dispatchEvent(new Event('input', {bubbles: true}))"
    )
    lines = "article[name='env/return'] .drawn path.js-line"
    assert len(page.wait(lambda: len(page.all(lines)) == 2 and page.all(lines))) == 2
    raw, smooth = page.script("return document.querySelector(\"article[name='env/return'] .plot\").data.map(d => d.y)")
    assert raw == list(range(1, 13))
    assert smooth[0] == pytest.approx(1.0)
    assert 1.0 < smooth[-1] < 12.0


def test_metrics_are_found_by_a_part_of_their_name(page: Page) -> None:
    page.one("#filter").send_keys("LOSS")
    page.wait(lambda: [card for card in page.all("article") if not card.is_displayed()])
    shown = [card.get_attribute("name") for card in page.all("article") if card.is_displayed()]
    assert shown == ["train/loss"]


@pytest.mark.parametrize("tab", TABS)
def test_a_tab_opens_its_panel_alone(page: Page, tab: str) -> None:
    panel = page.open(tab)
    assert [p.get_attribute("id") for p in page.all("[role=tabpanel]") if p.is_displayed()] == [f"panel-{tab}"]
    assert page.one(f"#tab-{tab}").get_attribute("aria-selected") == "true"
    assert panel.text.strip()


def test_tabs_are_chosen_with_the_keyboard(page: Page) -> None:
    from selenium.webdriver.common.keys import Keys

    page.one("#tab-curves").send_keys(Keys.ARROW_RIGHT)
    assert page.driver.switch_to.active_element.get_attribute("id") == "tab-times"
    page.driver.switch_to.active_element.send_keys(Keys.END)
    assert page.one("#panel-history").is_displayed()
    page.driver.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    assert page.one("#panel-curves").is_displayed()
    assert [tab.get_attribute("tabindex") for tab in page.all("[role=tab]")] == ["0"] + ["-1"] * 5


def test_times_and_the_timeline_are_drawn_when_they_are_opened(page: Page) -> None:
    page.open("times")
    page.wait(lambda: page.all("#panel-times .drawn .barlayer path"))
    assert "rollout" in page.one("#panel-times table").text
    page.open("timeline")
    page.wait(lambda: page.all("#panel-timeline .drawn .barlayer path"))
    page.script(
        "const list = document.getElementById('timeline-step'); list.value = '0';"
        "list.dispatchEvent(new Event('change'))"
    )
    page.wait(lambda: page.all("#panel-timeline [aria-label*='step 1']"))


def test_samples_are_chosen_by_step_found_and_sorted(page: Page) -> None:
    page.open("samples")

    def choose(name: str, value: str) -> None:
        page.script(
            "const list = document.getElementById(arguments[0]); list.value = arguments[1];"
            "list.dispatchEvent(new Event('change'))",
            name,
            value,
        )

    choose("sample-step", "2")
    assert "40 answers shown of 40" in page.one("#answers").text
    assert len(page.all(".sample")) == 20
    choose("order", "best")
    assert "answer 2.39" in page.all(".sample")[0].text
    page.one("#find").send_keys("2.17")
    page.wait(lambda: len(page.all(".sample")) == 1)
    assert len(page.all("#panel-samples table tbody tr")) == 4  # three episodes and their mean


def test_what_a_model_wrote_stays_text(page: Page) -> None:
    page.open("samples")
    page.wait(lambda: page.all(".sample"))
    shown = page.script("return [...document.querySelectorAll('.sample dd')].map(part => part.textContent)")
    assert shown == [HOSTILE] * 3
    assert page.script("return window.broken === undefined")
    assert page.all("img, main script") == []


def test_the_recipe_marks_what_the_command_line_asked_for(page: Page) -> None:
    page.open("recipe")
    rows = {row.find_elements("css selector", "td")[0].text: row.text for row in page.all("#keys tbody tr")}
    assert rows["actor.optim.lr"].endswith("command line")
    assert "runner.keep_checkpoints" not in rows
    page.one("#all-keys").click()
    page.wait(lambda: "runner.keep_checkpoints" in page.one("#keys").text)


def test_the_browser_complains_of_nothing_and_asks_for_nothing(page: Page, file: Path) -> None:
    for tab in TABS:
        page.open(tab)
        page.script("window.scrollTo(0, document.body.scrollHeight)")
        page.wait(lambda: page.script("return document.readyState") == "complete")
    assert page.complaints() == []
    assert [url.split("#")[0] for url in page.requests()] == [file.as_uri()]


def test_a_request_would_be_noticed_and_is_refused(page: Page) -> None:
    page.script("document.body.append(Object.assign(new Image(), {src: 'http://127.0.0.1:9/x.png'}))")
    assert "Content Security Policy" in " ".join(page.wait(page.complaints))


def test_several_runs_share_the_plots(driver: Any, folder: Path, tmp_path: Path) -> None:
    own = make_run(tmp_path, "c", metrics=lambda step: some_metrics(step) | {"train/own": 1.0})
    folders = [folder, make_run(tmp_path, "b", steps=6), own]
    write_report([RunFolder.read(each) for each in folders], tmp_path / "report.html")
    page = Page(driver, tmp_path / "report.html")
    lines = "article[name='eval/return'] .drawn path.js-line"
    page.wait(lambda: len(page.all(lines)) == 3)
    names = page.script("return document.querySelector(\"article[name='eval/return'] .plot\").data.map(d => d.name)")
    assert names == ["everything", "b", "c"]
    page.all("#panel-curves .controls input[type=checkbox]")[1].click()
    page.wait(lambda: len(page.all(lines)) == 2)
    page.open("recipe")
    assert "actor.optim.lr" in page.all("#panel-recipe table")[0].text
    page.open("times")
    page.script("const l = document.getElementById('run-times'); l.value = '1'; l.dispatchEvent(new Event('change'))")
    page.open("history")
    assert page.one("#run-history").get_attribute("value") == "1"
    assert page.complaints() == []


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_tab_is_wider_than_the_window(page: Page, width: int, scheme: str) -> None:
    metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    page.wait(lambda: page.script("return innerWidth") == width)
    for tab in TABS:
        page.open(tab)
        assert page.script("return document.documentElement.scrollWidth") <= width, tab
    ground = page.script("return getComputedStyle(document.documentElement).backgroundColor")
    assert (ground == "rgb(20, 23, 28)") == (scheme == "dark")
    assert page.complaints() == []

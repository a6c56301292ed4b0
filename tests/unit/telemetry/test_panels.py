"""Tables, lines and summaries of metrics, in terminals of any width."""

import io
import math
import re

import pytest
from rich.console import Console as RichConsole

from rlinf.telemetry.console import Console
from rlinf.telemetry.panels import LiveLine, format_duration, format_number


def test_table_is_grouped_and_fits_into_80_columns() -> None:
    metrics = {
        f"{group}/{name}": 0.123456789 for group in ("zoo", "time", "train", "eval") for name in ("loss", "b" * 60)
    }
    out = io.StringIO()
    Console(10, "demo", file=out).table({**metrics, "plain": math.nan, "train/count": 12345678.0}, 3)
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert "step 3/10" in lines[0]
    heads = [line.strip() for line in lines if re.fullmatch(r"\s*\w+/\s*", line)]
    assert heads == ["train/", "eval/", "time/", "zoo/"]
    text = "".join(re.sub(r"\s", "", line) for line in lines)
    assert text.count("0.1235") == 8
    assert "12345678" in text
    # Long names are folded, not cut off.
    assert text.count("b") == 60 * 4


def test_names_are_whole_in_tables_and_short_ones_share_rows() -> None:
    long = {"actor/dual_clip_fraction_of_samples": 0.1, "actor/tokens_per_second_per_device": 2.0}
    out = io.StringIO()
    Console(10, "demo", file=out).table({**long, "train/loss": 1.0, "train/kl": 2.0}, 1)
    assert all(name.partition("/")[2] in out.getvalue() for name in long)
    assert max(map(len, out.getvalue().splitlines())) <= 80
    out = io.StringIO()
    Console(10, "demo", file=out).table({"train/loss": 1.0, "train/kl": 2.0}, 1)
    assert any("kl" in line and "loss" in line for line in out.getvalue().splitlines())


def test_the_live_line_is_one_line_of_a_narrow_terminal() -> None:
    out = io.StringIO()
    terminal = RichConsole(file=out, width=60, force_terminal=True)
    terminal.print(LiveLine(lambda: (0.5, "step 5/10  " * 20)))
    assert len(out.getvalue().rstrip("\n").splitlines()) == 1


def test_summary_names_every_place_in_whole_lines_and_leaves_out_what_there_is_not() -> None:
    out = io.StringIO()
    long_path = "/data/" + "x" * 120
    with Console(5, "demo", file=out) as console:
        console.update(5, {})
        console.summary({"checkpoint": long_path, "video": None, "TensorBoard": "tb"}, {"eval/success_once": 0.95})
    text = out.getvalue()
    assert f"checkpoint         {long_path}\n" in text
    assert "eval/success_once  0.95" in text
    assert "video" not in text
    assert "demo: step 5/5" in text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-3.0, "-3"),
        (0.98765, "0.9877"),
        (12345.678, "12346"),
        (1e12, "1e+12"),
        (math.inf, "inf"),
        (3e-5, "3e-05"),
    ],
)
def test_format_number(value: float, text: str) -> None:
    assert format_number(value) == text


def test_format_duration() -> None:
    assert [format_duration(s) for s in (0, 59.6, 3661, 90000)] == ["0:00:00", "0:01:00", "1:01:01", "1d 01:00:00"]

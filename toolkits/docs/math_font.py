"""Makes ``docs/_static/math.woff2``, which formulas of the pages are set in: STIX Two Math, reduced to ``BLOCKS``.

MathML needs a font with a table of mathematical constants; many systems have none. The font is licensed under the SIL
Open Font License 1.1. ``python toolkits/docs/math_font.py STIXTwoMath-Regular.ttf`` needs ``fonttools`` and ``brotli``.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FONT = ROOT / "docs" / "_static" / "math.woff2"

BLOCKS = (
    range(0x20, 0x180),  # Latin
    range(0x300, 0x400),  # accents, Greek
    range(0x2010, 0x2070),  # punctuation, primes
    range(0x2100, 0x2250),  # letter-like symbols, arrows, operators
    range(0x2250, 0x2310),  # relations, brackets
    range(0x27E6, 0x27F0),  # angle brackets
    range(0x2A00, 0x2A08),  # large operators
    range(0x1D400, 0x1D800),  # italic, bold and calligraphic letters
)
"""Characters that formulas may have."""


def has_character(character: str) -> bool:
    """Return whether the font has the character of a formula."""
    return any(ord(character) in block for block in BLOCKS)


def main() -> None:
    """Reduce the font that the command line names."""
    parser = argparse.ArgumentParser(description="Make the font of the documentation's formulas.")
    parser.add_argument("font", help="STIXTwoMath-Regular.ttf")
    subset = importlib.import_module("fontTools.subset")
    options = subset.Options(flavor="woff2", layout_features=["ssty", "dtls", "flac"], notdef_outline=True)
    font = subset.load_font(parser.parse_args().font, options)
    subsetter = subset.Subsetter(options)
    subsetter.populate(unicodes=[code for block in BLOCKS for code in block])
    subsetter.subset(font)
    subset.save_font(font, str(FONT), options)


if __name__ == "__main__":
    main()

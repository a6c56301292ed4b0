"""Deals a saved replay out at random: ``python toolkits/replay_buffer/split.py REPLAY train=0.9 val=0.1``."""

import argparse
import sys
from pathlib import Path

from rlinf.cli.entry import run_and_report
from rlinf.data.replay.tools import split_replay
from rlinf.errors import DatasetError


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Deal the transitions of a saved replay out at random.")
    parser.add_argument("replay", type=Path, help="folder of a saved replay, or of its parts rank_<n>")
    parser.add_argument("part", nargs="+", help="FOLDER=SHARE; the shares add up to 1")
    parser.add_argument("--seed", type=int, default=0, help="names the deal (default 0)")
    args = parser.parse_args(argv)

    def action() -> None:
        folders, shares = zip(*map(parse_part, args.part), strict=True)
        counts = split_replay(args.replay, folders, shares, seed=args.seed)
        for folder, count in zip(folders, counts, strict=True):
            print(f"{folder}: {count} transitions")

    return run_and_report(action)


def parse_part(text: str) -> tuple[Path, float]:
    folder, _, share = text.rpartition("=")
    try:
        return Path(folder), float(share)
    except ValueError:
        raise DatasetError(f"'{text}' is not FOLDER=SHARE, for example train=0.9.") from None


if __name__ == "__main__":
    sys.exit(main())

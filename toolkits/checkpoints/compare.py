"""Compares the weights of two checkpoints or Hugging Face folders: ``python toolkits/checkpoints/compare.py A B``.

The exit status is 0 where no difference is above ``--tolerance``, else 1.
"""

import argparse
import sys
from pathlib import Path

from rlinf.cli.entry import run_and_report
from rlinf.hybrid_engines.train.compare import compare_logprobs, compare_weights


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Compare weights, tensor by tensor, and what two models compute.")
    parser.add_argument("first", type=Path, help="a checkpoint, a Hugging Face folder or a .safetensors or .pt file")
    parser.add_argument("second", type=Path, help="likewise")
    parser.add_argument("--tolerance", type=float, default=0.0, help="largest difference of an entry; default 0")
    parser.add_argument("--prompts", type=Path, metavar="FILE", help="texts, one a line: compare log-probabilities of "
                        "their tokens too, which both Hugging Face folders compute in fp32")  # fmt: skip
    parser.add_argument("--logprob-tolerance", type=float, default=1e-4, help="of a log-probability; default 1e-4")
    parser.add_argument("--all", action="store_true", help="list tensors that are equal, too")
    args = parser.parse_args(argv)

    def action() -> int:
        found = compare_weights(args.first, args.second)
        for name, difference in found.differences.items():
            if args.all or difference > args.tolerance:
                print(f"{difference:10.3e}  {name}")
        for problem in found.problems:
            print(problem)
        different = sum(difference > args.tolerance for difference in found.differences.values())
        print(f"{different} of {len(found.differences)} tensors differ by more than {args.tolerance:g}; "
              f"the largest difference is {found.largest:.3e}.")  # fmt: skip
        is_same = not different and not found.problems
        if args.prompts is not None:
            largest = compare_logprobs(args.first, args.second, args.prompts.read_text(encoding="utf-8").splitlines())
            print(f"The largest difference of a log-probability is {largest:.3e}.")
            is_same = is_same and largest <= args.logprob_tolerance
        return 0 if is_same else 1

    return run_and_report(action)


if __name__ == "__main__":
    sys.exit(main())

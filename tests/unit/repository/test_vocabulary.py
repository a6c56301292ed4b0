"""The package uses the field's words: names, docstrings, comments and messages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from repository_tree import package_files, relative

# What must not come back, and what the field says instead.
NAMES = {
    r"(Drawer|DrawnToken)": "Sampler, SampledToken",
    r"(Narrowing|Narrower|banned)": "logits processors: TokenFilter, suppressed tokens",
    r"(only_teaching|teaching_groups)": "informative_groups",
    r"(AnswerPool|Job)": "RolloutPool, RolloutRequest",
    r"(AnswerEvaluator|evaluate_answers|PassPlanner)": "LogprobWorker, compute_logprobs, MicroBatchPlanner",
    r"(Targets|TextTargets|compute_targets|compute_text_targets)": "AdvantagesAndReturns",
    r"(Bundle|bundle_sequences)": "PrefixGroup, group_by_prefix",
    r"blend": "soft_update",
    r"(num_undone|forget_drawn)": "num_unconsumed, reset",
    r"(rosters?|ledgers?|envelopes?|orphans?|bury|disown)": "group registry, reference counts, message header",
    r"(Outlook|OutcomeReader)": "PolicyFeedback, FeedbackReader",
    r"(PolicyLink|BoundLink|DecoupledLink)": "PolicyClient, pinned or pooled",
    r"Dispatch": "LoadBalancer",
    r"_?take_part": "mix_actions",
    r"_?(is_)?[Pp]ictures?": "image; of a placement: diagram",
    r"(OwnerThread|SteppingEngine|StepBackend)": "executor thread, InProcessEngine, ModelRunner",
}
PHRASES = {
    r"who(m)?ever|somebody|nobody": "name who: the caller, the operator, a rank",
    r"whatever": "any, every, independent of",
    r"for ever": "without end",
    r"so many": "this number of",
    r"what came of": "the result of",
    r"thinks? of": "log-probabilities and values of",
    r"told|tells|[Tt]ell whether": "reports, says, returns",
    r"ask_\w+|\w+\.ask|asked|asking": "request, query, submit",
    r"earns?|earned": "is rewarded with",
    r"teach(es)?": "has a learning signal",
}


def offenders(pattern: str, remedy: str) -> list[str]:
    """Return the lines of the package that hold a word."""
    word = re.compile(rf"\b({pattern})\b")
    return [
        f"{relative(path)}:{number}: {found.group()!r}; say: {remedy}"
        for path in package_files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if (found := word.search(line))
    ]


@pytest.mark.parametrize("pattern", [*NAMES, *PHRASES])
def test_a_replaced_word_does_not_come_back(pattern: str) -> None:
    found = offenders(pattern, {**NAMES, **PHRASES}[pattern])
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("line", ["class Drawer:", "    # The message is told to whoever waits."])
def test_the_gate_sees_a_planted_word(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = tmp_path / "planted.py"
    planted.write_text(f"import re\n{line}\n")
    monkeypatch.setattr(f"{__name__}.package_files", lambda: [planted])
    monkeypatch.setattr(f"{__name__}.relative", str)
    found = [offender for pattern in (*NAMES, *PHRASES) for offender in offenders(pattern, "-")]
    assert found
    assert all(offender.startswith(f"{planted}:2: ") for offender in found)

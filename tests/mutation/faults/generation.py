"""Faults of sequences that an engine generates, and of when they end."""

from __future__ import annotations

from tests.mutation.fault import Fault

SEQUENCE = "rlinf/hybrid_engines/generation/token_sequence.py"
STOP_STRINGS = ("tests/unit/hybrid_engines/generation/test_stop_strings.py",)
CONFORMANCE = "tests/unit/hybrid_engines/generation/test_engine_conformance.py"

FAULTS: list[Fault] = [
    Fault(
        "rlinf/hybrid_engines/generation/executor_thread.py",
        "            with contextlib.suppress(Exception):\n                function()\n",
        "            continue\n",
        ("tests/unit/hybrid_engines/generation/test_executor_thread.py",),
        "a request that comes at the engine's end is waited for without end",
    ),
    Fault(
        SEQUENCE,
        "len(self.decode(tail[:-1]).rstrip(_REPLACEMENT))",
        "len(self.decode(tail[:-1]))",
        STOP_STRINGS,
        "stop strings whose last bytes are spread over tokens match nothing",
    ),
    Fault(
        SEQUENCE,
        "_TOKENS_PER_CHARACTER = 4",
        "_TOKENS_PER_CHARACTER = 1",
        STOP_STRINGS,
        "stop strings are looked for in too few tokens",
    ),
    Fault(
        SEQUENCE,
        "longest = max(map(len, self.params.stop))",
        "longest = min(map(len, self.params.stop))",
        STOP_STRINGS,
        "tokens are enough for the shortest stop string only",
    ),
    Fault(
        SEQUENCE,
        "return any(text.find(stop,",
        "return all(text.find(stop,",
        STOP_STRINGS,
        "all stop strings are needed",
    ),
    Fault(
        SEQUENCE,
        "max(0, before - len(stop) + 1)) >= 0",
        "max(0, before)) >= 0",
        STOP_STRINGS,
        "a stop string must begin with the last token",
    ),
    Fault(
        SEQUENCE,
        "max(0, before - len(stop) + 1)) >= 0",
        "max(0, before - len(stop))) >= 0",
        STOP_STRINGS,
        "a stop string that was complete before the last token ends the sequence",
    ),
    Fault(
        SEQUENCE,
        "max(0, before - len(stop) + 1)) >= 0",
        "max(0, before - len(stop) + 1)) > 0",
        (f"{STOP_STRINGS[0]}::test_a_stop_string_may_begin_an_answer",),
        "a stop string at the beginning is overlooked",
    ),
    Fault(
        SEQUENCE,
        "if may_end and (token_id in self.end_ids",
        "if (token_id in self.end_ids",
        STOP_STRINGS,
        "stop strings end sequences below min_new_tokens",
    ),
    Fault(
        SEQUENCE,
        "(token_id in self.end_ids or (self.params.stop",
        "((self.params.stop",
        (f"{CONFORMANCE}::test_stop_token_ids_end_an_answer_and_stay_part_of_it",),
        "stop tokens end nothing",
    ),
]

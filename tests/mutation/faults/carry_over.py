"""Faults of groups that are trained on later than others (``algorithm.carry_over``)."""

from __future__ import annotations

from tests.mutation.fault import Fault

_TESTS = ("tests/unit/runners/test_carry_over.py",)


def _fault(file: str, before: str, after: str, what: str) -> Fault:
    return Fault(f"rlinf/{file}", before, after, _TESTS, what)


FAULTS: list[Fault] = [
    _fault(
        "runners/step_batches.py",
        "        if self._num_carried:\n",
        "        if False:\n",
        "every step waits for all its groups",
    ),
    _fault(
        "runners/step_batches.py",
        "if self._begun[number] - steps_left >= self._ahead}",
        "if False}",
        "groups that would exceed the bound are not waited for",
    ),
    _fault(
        "runners/step_batches.py",
        "if self._begun[number] - steps_left >= self._ahead}",
        "if self._begun[number] - steps_left >= 1}",
        "a larger bound gives no more time",
    ),
    _fault(
        "runners/step_batches.py",
        "        oldest = numbers[: self._size + self._num_carried]\n",
        "        oldest = numbers\n",
        "any number of groups is left for later",
    ),
    _fault(
        "runners/step_batches.py",
        "min(ahead, (steps_left - 1) * self._size)",
        "ahead",
        "more is begun than is trained on",
    ),
    _fault(
        "runners/step_batches.py",
        "        ahead = (self._ahead - 1) * self._size + self._num_carried\n",
        "        ahead = self._ahead * self._size + self._num_carried\n",
        "groups submitted ahead exceed the bound",
    ),
    _fault(
        "runners/step_batches.py", "float(newest + 1 - self._size)", "0.0", "groups that come later are not counted"
    ),
    _fault(
        "runners/rollout_pool.py",
        "        held.requests = {group: held.requests[group] for group in order}\n",
        "",
        "groups that were not trained on are discarded",
    ),
    _fault(
        "runners/rollout_pool.py",
        "required <= held.responses.keys() and len(done())",
        "len(done())",
        "a required group may be missing",
    ),
    _fault(
        "runners/language_runner.py",
        "self.num_unconsumed() + len(again)",
        "self.num_unconsumed()",
        "a resumed run trains twice",
    ),
    _fault(
        "runners/language_runner.py",
        'self._go_to(saved["position"], saved.get("again", ()))',
        'self._go_to(saved["position"])',
        "a resumed run forgets what was to come later",
    ),
    _fault(
        "runners/reasoning_runner.py",
        "        while numbers and numbers[-1] == position - 1:\n",
        "        while False:\n",
        "all that is submitted comes again before the position",
    ),
    _fault(
        "data/datasets/prompts.py",
        "self.again.popleft() if self.again else self.position",
        "self.position",
        "earlier prompts do not come again",
    ),
    _fault(
        "data/datasets/prompts.py",
        "max(self.position, number + 1)",
        "number + 1",
        "an earlier prompt moves the position back",
    ),
    _fault(
        "config/checks/text_checks.py",
        "    if not algorithm.staleness_threshold:\n        check.problem(\n            path,",
        "    if False:\n        check.problem(\n            path,",
        "nothing bounds the staleness",
    ),
    _fault(
        "config/checks/text_checks.py",
        "    if int(share * size) == 0:\n",
        "    if False:\n",
        "a share of no group is accepted",
    ),
]

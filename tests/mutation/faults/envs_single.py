"""Faults of the chunk loop of single environments."""

from __future__ import annotations

from tests.mutation.fault import Fault

_TESTS = ("tests/unit/envs/test_single_env.py",)


def _fault(file: str, before: str, after: str, what: str) -> Fault:
    return Fault(f"rlinf/envs/{file}", before, after, _TESTS, what)


FAULTS: list[Fault] = [
    _fault(
        "single_env.py",
        "num_recorded=min(max(self.num_recorded - start, 0), stop - start)",
        "num_recorded=min(self.num_recorded, stop - start)",
        "every process records its first environments",
    ),
    _fault(
        "single_env.py",
        "row_kwargs=None if self.row_kwargs is None else self.row_kwargs[start:stop]",
        "row_kwargs=self.row_kwargs",
        "every process builds the environments of the first",
    ),
    _fault(
        "single_env.py",
        "first_env=self.first_env + start,",
        "first_env=self.first_env,",
        "a failing environment is named by its place in its process",
    ),
    _fault(
        "single_env.py",
        "chunk.reports_success = chunk.reports_success or success is not None",
        "chunk.reports_success = success is not None",
        "a report of success is forgotten by the next step",
    ),
    _fault(
        "single_env.py",
        "                self._reset_row(row, int(request.next_seeds[row]))",
        "                self._reset_row(row, int(request.next_seeds[len(ended) - 1]))",
        "the next episode starts from another row's seed",
    ),
    _fault(
        "single_env.py",
        "num_steps = int(request.steps[row])\n",
        "num_steps = 0\n",
        "every chunk counts steps from 0",
    ),
]

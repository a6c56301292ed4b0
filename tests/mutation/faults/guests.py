"""Faults of simulators in interpreters of their own: messages, chunk loop, processes and the published adapter."""

from __future__ import annotations

from tests.mutation.fault import Fault

_WIRE = ("tests/unit/envs/guests/test_guest_wire.py",)
_ROWS = ("tests/unit/envs/guests/test_rows_of_guests.py",)
_PROCESS = ("tests/unit/envs/test_guest_process.py",)
_PUBLISHED = ("tests/unit/envs/guests/test_published_rlinf.py",)
_ENV = ("tests/unit/envs/simulators/test_guest_env.py",)


def _fault(file: str, before: str, after: str, tests: tuple[str, ...], what: str) -> Fault:
    return Fault(f"rlinf/envs/{file}", before, after, tests, what)


FAULTS: list[Fault] = [
    _fault("guests/guest_wire.py", "or offset + size > len(body)", "", _WIRE, "an array reaches beyond its message"),
    _fault(
        "guests/guest_wire.py",
        "if dtype.kind not in _KINDS or min([offset",
        "if min([offset",
        _WIRE,
        "arrays of objects are taken from a message",
    ),
    _fault(
        "guests/guest_wire.py",
        "offset = -(-end[0] // _ALIGNMENT) * _ALIGNMENT",
        "offset = end[0]",
        _WIRE,
        "arrays are not aligned",
    ),
    _fault(
        "guests/guest_wire.py",
        "memoryview(bytearray(message[start",
        "memoryview(bytes(message[start",
        _WIRE,
        "arrays are read-only",
    ),
    _fault(
        "guests/rows.py",
        "truncated = (truncated | (steps >= max_steps)) & ~terminated",
        "truncated = truncated | (steps >= max_steps)",
        _ROWS,
        "a step is both a termination and a truncation",
    ),
    _fault(
        "guests/rows.py",
        "terminated = terminated & (not ignores_terminations)",
        "terminated = terminated & True",
        _ROWS,
        "terminations end episodes that go on",
    ),
    _fault(
        "guests/rows.py",
        'chunk["executed"][:, column] = running',
        'chunk["executed"][:, column] = True',
        _ROWS,
        "actions after a done count as executed",
    ),
    _fault(
        "guests/rows.py",
        "            running = running & ~",
        "            running = running | ~",
        _ROWS,
        "rows go on after their episode ended",
    ),
    _fault(
        "guests/rows.py",
        'chunk["rewards"][running, column] = np.asarray(rewards)[running]',
        'chunk["rewards"][:, column] = np.asarray(rewards)',
        _ROWS,
        "rows at rest have rewards",
    ),
    _fault(
        "guests/rows.py",
        'self._reset(ended, request["next_seeds"][ended].tolist())',
        'self._reset(ended, request["next_seeds"].tolist())',
        _ROWS,
        "episodes start from seeds of other rows",
    ),
    _fault(
        "guest_process.py",
        "if name not in _HIDDEN}",
        "}",
        _PROCESS,
        "a guest imports the packages of its host",
    ),
    _fault(
        "guest_process.py", "if spoken != PROTOCOL:", "if False:", _PROCESS, "guests of another protocol are served"
    ),
    _fault(
        "guest_process.py",
        "if not self.connection.poll(self._setup.startup_timeout_seconds):",
        "if False:",
        _PROCESS,
        "the start of a guest waits without a limit",
    ),
    _fault(
        "simulators/guest_env.py",
        "named = cfg.python or os.environ.get(PYTHON_VARIABLE)",
        "named = cfg.python",
        _ENV,
        "the variable that names the interpreter has no effect",
    ),
    _fault(
        "guests/published_rlinf.py",
        "            env.use_fixed_reset_state_ids = False\n",
        "",
        _PUBLISHED,
        "every epoch starts from the states of the first",
    ),
    _fault(
        "guests/published_rlinf.py",
        "            env._generator = np.random.default_rng(seed)\n",
        "            pass\n",
        _PUBLISHED,
        "the seed does not choose the start states",
    ),
    _fault(
        "guests/published_rlinf.py",
        "len(reports) >= num_steps or column == num_steps - 1",
        "True",
        _PUBLISHED,
        "the success of the whole chunk counts for its first action",
    ),
    _fault(
        "guests/published_rlinf.py",
        "**params, **_HOST_DECIDES}",
        "**_HOST_DECIDES, **params}",
        _PUBLISHED,
        "the published class resets and shapes rewards as well",
    ),
    _fault(
        "guests/published_rlinf.py",
        "place = max(column + len(observations) - num_steps, 0)",
        "place = 0",
        _PUBLISHED,
        "every action shows the first observation of the chunk",
    ),
]

"""Faults of what a newcomer reads: metrics of success, the console and the entry scripts."""

from tests.mutation.fault import Fault

_SUCCESS = ("tests/unit/envs/test_success_reports.py",)
_CONSOLE = ("tests/unit/telemetry/test_console_output.py",)
_ENTRY = ("tests/unit/cli/test_entry.py",)

FAULTS: list[Fault] = [
    Fault(
        "rlinf/envs/episodes.py",
        "        self._reports_success |= chunk.reports_success\n",
        "        self._reports_success |= True\n",
        _SUCCESS,
        "environments without success report it as 0",
    ),
    Fault(
        "rlinf/envs/single_env.py",
        "chunk.reports_success or success is not None",
        "chunk.reports_success or bool(success)",
        _SUCCESS,
        "success is only known once there is some",
    ),
    Fault(
        "rlinf/telemetry/evaluation.py",
        "    episodes = [_with_success(episode) for episode in episodes] if _report_success(episodes) else episodes\n",
        "",
        _SUCCESS,
        "episodes that do not say that they failed are left out of the rate",
    ),
    Fault(
        "rlinf/telemetry/console.py",
        "            self._latest.pop(name, None)\n",
        "            pass\n",
        _CONSOLE,
        "the line shows the return of an earlier step",
    ),
    Fault(
        "rlinf/telemetry/panels.py",
        "    per_row = 2 if longest <= _HALF_WIDTH else 1\n",
        "    per_row = 2\n",
        _CONSOLE,
        "names of metrics are cut",
    ),
    Fault(
        "rlinf/telemetry/panels.py",
        'overflow="ellipsis", no_wrap=True',
        'overflow="fold"',
        _CONSOLE,
        "the live line wraps",
    ),
    Fault(
        "rlinf/cli/entry.py",
        '    return "=" not in argument and',
        '    return "=" in argument and',
        _ENTRY,
        "a recipe's name is taken for an override",
    ),
    Fault(
        "rlinf/scheduler/nodes.py",
        "            level = logging.INFO if waited < _LONG_SECONDS else logging.WARNING\n",
        "            level = logging.INFO\n",
        ("tests/unit/scheduler/test_node_countdown.py",),
        "a long wait for nodes is silent with --quiet",
    ),
]

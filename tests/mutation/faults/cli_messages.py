"""Faults of what a newcomer reads: metrics of success, the console and the entry scripts."""

from tests.mutation.fault import Fault

_SUCCESS = ("tests/unit/envs/test_episodes_success.py",)
_CONSOLE = ("tests/unit/telemetry/test_console.py", "tests/unit/telemetry/test_panels.py")
_ENTRY = ("tests/unit/cli/test_entry.py",)
_STATUS = ("tests/unit/scheduler/test_run_status.py",)
_RECORDS = ("tests/unit/runners/test_launch.py",)
_MISSING = ("tests/unit/examples/test_missing_packages.py",)
_SECRETS = ("tests/unit/utils/test_secrets.py",)
_FOLDER = ("tests/unit/telemetry/test_rundir.py",)
_PLAN = ("tests/unit/cli/test_main.py",)

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
        ("tests/unit/scheduler/test_nodes_countdown.py",),
        "a long wait for nodes is silent with --quiet",
    ),
    Fault(
        "rlinf/scheduler/run_status.py",
        "if name in {None, experiment}]",
        "if name is None]",
        _STATUS,
        "a run is not found by its experiment",
    ),
    Fault(
        "rlinf/scheduler/run_status.py",
        'return namespace if experiment_name is None else f"{namespace} ({experiment_name})"',
        "return namespace",
        _STATUS,
        "runs are listed without their experiments",
    ),
    Fault(
        "rlinf/runners/launch.py",
        "    logger.run_id = cluster.namespace\n",
        "",
        _RECORDS,
        "run.json does not say which run it was",
    ),
    Fault(
        "rlinf/runners/launch.py",
        "experiment_name=experiment_name)",
        "experiment_name=None)",
        _RECORDS,
        "the run does not know its experiment",
    ),
    Fault(
        "rlinf/cli/entry.py",
        'cfg.runner.task_type == "embodied" and cfg.algorithm.staleness_threshold is not None',
        "False",
        _ENTRY,
        "an asynchronous recipe is sent to the script that takes turns",
    ),
    Fault(
        "examples/reasoning/make_tiny_math.py",
        "needed.check_packages(__file__)\n",
        "",
        _MISSING,
        "a script in a foreign Python ends with a traceback",
    ),
    Fault(
        "rlinf/utils/secrets.py",
        'hides or key == "env_vars" or is_secret_key(str(key))',
        "hides or is_secret_key(str(key))",
        _SECRETS,
        "values of environment variables are shown",
    ),
    Fault(
        "rlinf/utils/secrets.py",
        'is_environment=is_environment or key == "env_vars"',
        "is_environment=is_environment",
        _SECRETS,
        "keys in environment variables are kept",
    ),
    Fault(
        "rlinf/utils/secrets.py",
        '        argument = _VARIABLE.sub(rf"\\g<kept>{HIDDEN}", argument)\n',
        "        pass\n",
        _SECRETS,
        "keys of a command line are kept",
    ),
    Fault(
        "rlinf/telemetry/rundir.py",
        "OmegaConf.create(hide_for_record(_plain(config)))",
        "OmegaConf.create(_plain(config))",
        _FOLDER,
        "config.yaml holds keys",
    ),
    Fault(
        "rlinf/telemetry/run_lock.py",
        "[hide_in_argument(part) for part in (sys.executable, *sys.argv)]",
        "[sys.executable, *sys.argv]",
        _FOLDER,
        "the lock's file holds keys",
    ),
    Fault(
        "rlinf/config/problems.py",
        "repr(hide_for_reader(value))",
        "repr(value)",
        _PLAN,
        "a key that a message cuts off is shown",
    ),
    Fault(
        "rlinf/config/recipes.py",
        "if shown == text else",
        "if text else",
        _PLAN,
        "Hydra's words quote a key",
    ),
]

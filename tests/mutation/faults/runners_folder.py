"""Faults of who works in a run's folder, what an evaluation writes, and what a worker releases at its end."""

from __future__ import annotations

from tests.mutation.fault import Fault

_LOCK = "rlinf/telemetry/run_lock.py"
_FOLDER = "rlinf/telemetry/rundir.py"
_PATHS = "rlinf/runners/output_paths.py"
_LOGGER = "rlinf/runners/run_logger.py"
_LOCK_TESTS = "tests/unit/telemetry/test_run_lock.py"
_FOLDER_TESTS = "tests/unit/telemetry/test_rundir.py"
_PATHS_TESTS = "tests/unit/runners/test_output_paths.py"
_LOGGER_TESTS = "tests/unit/runners/test_run_logger.py"
_SHUTDOWN_TESTS = "tests/unit/scheduler/test_worker_shutdown.py"

FAULTS: list[Fault] = [
    Fault(
        _PATHS,
        "if isinstance(env, NoEnvConfig) or env.video_cfg.video_base_dir is not None:",
        "if env.video_cfg.video_base_dir is not None:",
        ("tests/unit/config/test_recipes_shipped.py",),
        "the policy of a run that steps no environments cannot be loaded: what it recorded is no recipe",
    ),
    Fault(
        _LOCK,
        "fcntl.LOCK_EX | fcntl.LOCK_NB",
        "fcntl.LOCK_SH | fcntl.LOCK_NB",
        (f"{_LOCK_TESTS}::test_a_second_launch_is_refused_and_names_who_is_there",),
        "two processes share a run's folder",
    ),
    Fault(
        _LOCK,
        "        _acquire(file, folder)\n",
        "        _acquire(file, folder)\n        __import__('os').set_inheritable(file.fileno(), True)\n",
        (f"{_LOCK_TESTS}::test_the_lock_ends_with_its_process_though_a_child_lives_on",),
        "children inherit the lock",
    ),
    Fault(
        _LOCK,
        "if error.errno not in _UNSUPPORTED:",
        "if True:",
        (f"{_LOCK_TESTS}::test_a_file_system_without_locks_is_warned_about_and_the_run_goes_on",),
        "a file system without locks ends the run",
    ),
    Fault(
        _FOLDER,
        "    with locked(folder):\n",
        "    if folder:\n",
        (_LOCK_TESTS,),
        "nothing is locked",
    ),
    Fault(
        _FOLDER,
        "    if folder in _claimed:\n        yield folder\n        return\n",
        "",
        (f"{_FOLDER_TESTS}::test_what_workers_write_after_the_claim_survives_overwrite",),
        "overwriting deletes the logs of the workers that have just started",
    ),
    Fault(
        _FOLDER,
        "            _claimed.discard(folder)",
        "            pass",
        (f"{_FOLDER_TESTS}::test_a_used_folder_is_refused_with_all_three_remedies", _FOLDER_TESTS),
        "a process keeps a folder after its run",
    ),
    Fault(
        _FOLDER,
        "CHECKPOINTS_FOLDER: checkpoints.is_dir() and any(checkpoints.iterdir()),",
        "CHECKPOINTS_FOLDER: False,",
        (f"{_FOLDER_TESTS}::test_a_used_folder_is_refused_with_all_three_remedies",),
        "checkpoints are no sign of a run",
    ),
    Fault(
        _FOLDER,
        "line.strip() and not line.startswith('{\"step\": 0,')",
        "line.strip()",
        (f"{_FOLDER_TESTS}::test_a_run_that_failed_in_its_first_step_may_be_launched_again_by_the_same_command",),
        "the evaluation before the first step claims the folder",
    ),
    Fault(
        _FOLDER,
        '"resumed": bool(signs_of_run(folder)),',
        '"resumed": False,',
        (f"{_FOLDER_TESTS}::test_resume_keeps_everything_and_records_each_launch",),
        "a resumed launch is not recorded as one",
    ),
    Fault(
        _PATHS,
        "or not cfg.runner.only_eval or _has_other_weights(cfg)",
        "or True",
        (f"{_PATHS_TESTS}::test_an_evaluation_without_weights_is_refused_before_anything_is_made",),
        "an evaluation without weights evaluates random ones",
    ),
    Fault(
        _PATHS,
        "return cfg.env.eval.data_collection.is_scripted",
        "return cfg.env.eval.data_collection.enabled",
        (f"{_PATHS_TESTS}::test_collecting_with_the_model_needs_weights",),
        "episodes of an untrained policy are collected",
    ),
    Fault(
        _PATHS,
        "        overwrite=False,\n",
        "",
        (f"{_LOGGER_TESTS}::test_an_evaluation_beside_a_live_run_changes_nothing_of_it_and_has_a_report_of_its_own",),
        "an evaluation cannot be given overwrite and a checkpoint",
    ),
    Fault(
        _PATHS,
        "if cfg.runner.only_eval and experiment_folder(cfg) == run_folder(cfg):",
        "if False:",
        (_PATHS_TESTS,),
        "an evaluation writes into the training's folder",
    ),
    Fault(
        _PATHS,
        "resume_dir=None if checkpoint is None else str(checkpoint),",
        "resume_dir=cfg.runner.resume_dir,",
        (f"{_PATHS_TESTS}::test_an_evaluation_works_in_a_folder_of_its_own",),
        "auto is looked for in the evaluation's own folder",
    ),
    Fault(
        _PATHS,
        "            number += 1\n",
        "            return folder\n",
        (f"{_PATHS_TESTS}::test_an_evaluation_works_in_a_folder_of_its_own",),
        "two evaluations write into one folder",
    ),
    Fault(
        _LOGGER,
        'self._go_back_to(self.checkpoints.resolve("auto") or self.begins_at)',
        'self._go_back_to(self.checkpoints.resolve("auto"))',
        (f"{_LOGGER_TESTS}::test_a_run_without_checkpoints_of_its_own_goes_back_to_what_it_began_from",),
        "after a death the run begins anew rather than from where it was resumed",
    ),
    Fault(
        _LOGGER,
        "        if self.has_begun:\n            self.report.write()",
        "        self.report.write()",
        (f"{_LOGGER_TESTS}::test_a_run_logger_that_never_began_records_nothing",),
        "a launch that failed leaves a report",
    ),
    Fault(
        _LOGGER,
        "            if name not in produced\n",
        "            if False\n",
        (f"{_LOGGER_TESTS}::test_a_goal_that_the_first_evaluation_does_not_produce_ends_the_run_there",),
        "a misspelt goal is never reached, without a word",
    ),
    Fault(
        _LOGGER,
        "        self.goals_checked = True\n",
        "",
        (f"{_LOGGER_TESTS}::test_goals_that_are_produced_end_nothing",),
        "a later evaluation that lacks a metric ends the run",
    ),
    Fault(
        "rlinf/config/checks/metric_checks.py",
        "name not in known and not is_by_task and guess is not None",
        "name not in known and guess is not None",
        ("tests/unit/config/test_metric_names.py",),
        "metrics of single tasks are refused",
    ),
    Fault(
        "rlinf/workers/actor/actor_worker.py",
        "        yield\n        if self.cfg.actor.enable_offload:",
        "        yield\n        if False:",
        (f"{_SHUTDOWN_TESTS}::test_saving_leaves_the_device_as_it_was_found",),
        "saving leaves the model on the device",
    ),
    Fault(
        "rlinf/utils/closing.py",
        "            close_all(remaining)\n",
        "            pass\n",
        ("tests/unit/utils/test_closing.py", _SHUTDOWN_TESTS),
        "a resource that cannot be closed keeps the others open",
    ),
    Fault(
        "rlinf/workers/env/env_worker.py",
        "                self.at_shutdown(stages[-1].close)\n",
        "",
        (f"{_SHUTDOWN_TESTS}::test_an_environment_that_cannot_be_closed_keeps_no_other_open",),
        "environments are not closed",
    ),
]

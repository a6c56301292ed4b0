"""Faults of training from Python and by name: overrides, callbacks, loaded policies, exported ones, sweeps."""

from tests.mutation.fault import Fault

_CALLBACKS = ("tests/unit/runners/test_callbacks.py",)
_ASYNC = ("tests/unit/runners/test_async_embodied_runner.py",)
_POLICY = ("tests/unit/api/test_policy.py",)
_RUNS = ("tests/unit/api/test_runs.py",)
_EXPORTED_KINDS = ("tests/unit/api/test_exported_kinds.py",)
_EXPORT = ("tests/unit/api/test_policy_export.py",)
_TRAIN = ("tests/unit/cli/test_recipe_commands.py",)
_SWEEP = ("tests/unit/cli/test_sweep.py",)
_RESULTS = ("tests/unit/cli/test_sweep_results.py",)
_OVERRIDES = ("tests/unit/config/test_overrides.py",)

FAULTS: list[Fault] = [
    Fault(
        "rlinf/runners/callbacks.py",
        "        return all(answer is not False for answer in answers)\n",
        "        return all(answers)\n",
        _CALLBACKS,
        "a callback that returns nothing ends the run",
    ),
    Fault(
        "rlinf/runners/step_runner.py",
        "is_last=self.is_stopping())",
        "is_last=False)",
        _CALLBACKS,
        "a run that a callback ends has no checkpoint",
    ),
    Fault(
        "rlinf/runners/checkpoint_writer.py",
        "            (step, metrics), self.pending = self.pending, None\n            self._commit(step, metrics)\n",
        "            (step, metrics), self.pending = self.pending, None\n"
        "            self._logger.commit_checkpoint(step, metrics)\n",
        _CALLBACKS,
        "checkpoints that are written in the background are not reported",
    ),
    Fault(
        "rlinf/runners/async_embodied_runner.py",
        "        return super().is_stopping() and not self.ahead\n",
        "        return super().is_stopping()\n",
        _ASYNC,
        "a stopped run leaves rollouts behind that were begun",
    ),
    Fault(
        "rlinf/runners/run_logger.py",
        "        ends = step == self.cfg.runner.total_steps or self.stop_requested\n",
        "        ends = step == self.cfg.runner.total_steps\n",
        _ASYNC,
        "an asynchronous run goes on after a callback has ended it",
    ),
    Fault(
        "rlinf/api/policy.py",
        "    load_weights(checkpoint, model)\n",
        "",
        _POLICY,
        "a loaded policy has new weights",
    ),
    Fault(
        "rlinf/api/policy.py",
        '("eval", None) if deterministic else ("train", self._generator)',
        '("eval", None)',
        _POLICY,
        "samples are the most likely actions",
    ),
    Fault(
        "rlinf/api/policy.py",
        "        values = values[:, 0] if self.cfg.actor.model.num_action_chunks == 1 else values\n",
        "        values = values[:, 0]\n",
        _POLICY,
        "only the first action of a chunk is returned",
    ),
    Fault(
        "rlinf/api/policy.py",
        "            if got is None or tuple(got.shape[1:]) != shape:\n",
        "            if got is None:\n",
        _POLICY,
        "observations of another shape reach the network",
    ),
    Fault(
        "rlinf/api/runs.py",
        "    cfg = with_newest_weights(validate_cfg(load_recipe(str(recipe), changes, config_dir)))\n",
        "    cfg = validate_cfg(load_recipe(str(recipe), changes, config_dir))\n",
        _RUNS,
        "an evaluation from Python finds no weights",
    ),
    Fault(
        "rlinf/api/runs.py",
        "launch(cfg, callbacks=callbacks)",
        "launch(cfg)",
        _RUNS,
        "callbacks are not called",
    ),
    Fault(
        "rlinf/api/policy_export.py",
        "    dynamic = ({0: batch},) * len(example)\n",
        "    dynamic = ({},) * len(example)\n",
        _EXPORT,
        "an exported policy takes batches of one size",
    ),
    Fault(
        "rlinf/runners/output_paths.py",
        "runner.ckpt_path is not None or runner.eval_initial_policy:\n        return cfg",
        "runner.eval_initial_policy:\n        return cfg",
        _TRAIN,
        "an evaluation of given weights takes the newest checkpoint",
    ),
    Fault(
        "rlinf/cli/command_recipe.py",
        '    return cfg if command == "train" else with_newest_weights(cfg)\n',
        "    return with_newest_weights(cfg)\n",
        _TRAIN,
        "training resumes unasked",
    ),
    Fault(
        "rlinf/cli/command_recipe.py",
        '"env.eval.data_collection.enabled=true"',
        '"env.eval.data_collection.enabled=false"',
        _TRAIN,
        "rlinf collect collects nothing",
    ),
    Fault(
        "rlinf/cli/sweep.py",
        "    return 1 if any(point.failed for point in sweep.points) else 0\n",
        "    return 0\n",
        _SWEEP,
        "a failed run of a sweep is not seen in the exit code",
    ),
    Fault(
        "rlinf/cli/sweep.py",
        "        process.terminate()\n",
        "        pass\n",
        _SWEEP,
        "an interrupted sweep leaves its run behind",
    ),
    Fault(
        "rlinf/cli/sweep.py",
        'float("nan") if name is None or point.failed else',
        'float("nan") if name is None else',
        _SWEEP,
        "a search takes the numbers of failed runs",
    ),
    Fault(
        "rlinf/cli/sweep_results.py",
        '        settings = tuple(text for text in point.choice if text.partition("=")[0].lstrip("+") not in _SEEDS)\n',
        "        settings = tuple(point.choice)\n",
        _RESULTS,
        "seeds are rows of their own",
    ),
    Fault(
        "rlinf/cli/sweep_results.py",
        "_STUDENT[count - 2]",
        "_STUDENT[count - 1]",
        _RESULTS,
        "intervals are of one degree of freedom too many",
    ),
    Fault(
        "rlinf/cli/sweep_results.py",
        "if value is not None}",
        "}",
        _RESULTS,
        "values that were not finite count as the last",
    ),
    Fault(
        "rlinf/config/overrides.py",
        "if _PLAIN.fullmatch(text) and text.lower() not in _KEYWORDS:",
        "if _PLAIN.fullmatch(text):",
        _OVERRIDES,
        "the string 'true' arrives as a boolean",
    ),
    Fault(
        "rlinf/config/overrides.py",
        '.replace("\'", "\\\\\'")',
        "",
        _OVERRIDES,
        "quotes within strings end them",
    ),
    Fault(
        "rlinf/telemetry/backends.py",
        "if is_last or self._growing.get(path) == size]",
        "if True]",
        ("tests/unit/telemetry/test_backends.py",),
        "videos are sent while they are written",
    ),
    Fault(
        "rlinf/telemetry/backends.py",
        "        self._taken.update(finished)\n",
        "",
        ("tests/unit/telemetry/test_backends.py",),
        "videos are sent again and again",
    ),
    Fault(
        "rlinf/config/checks/metric_checks.py",
        'logger.wandb != WandbConfig() and "wandb" not in logger.logger_backends:',
        "False:",
        ("tests/unit/config/checks/test_metric_checks.py",),
        "keys of W&B without W&B are taken for used",
    ),
    Fault(
        "rlinf/cli/completion.py",
        'if not word.startswith("-") and "=" not in word]',
        "]",
        ("tests/unit/cli/test_completion.py",),
        "an option is taken for the recipe",
    ),
    Fault(
        "rlinf/models/control/flow_policy.py",
        "shape = (features.shape[0], *self.flow.noise_shape",
        "shape = (len(features), *self.flow.noise_shape",
        _EXPORTED_KINDS,
        "an exported flow takes batches of one size alone",
    ),
    Fault(
        "rlinf/models/control/action_flow.py",
        "time = torch.full(noise.shape[:1], step",
        "time = torch.full((len(noise),), step",
        _EXPORTED_KINDS,
        "so does one that steps from noise",
    ),
    Fault(
        "rlinf/api/policy_export.py",
        "    except RuntimeError as error:",
        "    except MemoryError as error:",
        _EXPORTED_KINDS,
        "a model that cannot be exported ends in a page of torch's own words",
    ),
]

"""Faults of checkpoints: what is published, what is deleted, and what loading may run."""

from __future__ import annotations

from tests.mutation.fault import Fault

_MANAGER = "rlinf/checkpoint/checkpoint_manager.py"
_WRITER = "rlinf/runners/checkpoint_writer.py"
_WRITER_TESTS = "tests/unit/runners/test_checkpoint_writer.py"
_SAVER_TESTS = "tests/unit/hybrid_engines/train/test_saver.py"
_FILES = "rlinf/utils/files.py"
_READER = "rlinf/hybrid_engines/train/safe_reader.py"
_CHUNKS = "rlinf/hybrid_engines/train/chunks.py"
_MANAGER_TESTS = "tests/unit/checkpoint/test_checkpoint_manager.py"
_READER_TESTS = "tests/unit/hybrid_engines/test_safe_reader.py"

FAULTS: list[Fault] = [
    Fault(
        _MANAGER,
        "return any(file.is_file() and file.stat().st_size > 0 for file in files)",
        "return path.exists()",
        (f"{_MANAGER_TESTS}::test_commit_needs_its_begin_the_workers_files_and_json",),
        "an empty folder passes for the actor's files",
    ),
    Fault(
        _MANAGER,
        "file.stat().st_size > 0 for file",
        "file.stat().st_size >= 0 for file",
        (f"{_MANAGER_TESTS}::test_commit_needs_its_begin_the_workers_files_and_json",),
        "an empty file passes for the actor's files",
    ),
    Fault(
        _MANAGER,
        """                delete_leftover(path)
            elif path.name.startswith(OLD_PREFIX)""",
        """                __import__("shutil").rmtree(path)
            elif path.name.startswith(OLD_PREFIX)""",
        (f"{_MANAGER_TESTS}::test_a_checkpoint_that_cannot_be_deleted_ends_no_save_and_costs_no_other",),
        "a deletion that failed once ends every later save",
    ),
    Fault(
        _MANAGER,
        "final = self._root / path.name.removeprefix(OLD_PREFIX)\n                if final.exists()",
        "final = self._root / path.name.removeprefix(OLD_PREFIX)\n                if True",
        (f"{_MANAGER_TESTS}::test_a_checkpoint_whose_replacement_was_interrupted_comes_back",),
        "a checkpoint whose replacement was interrupted is deleted",
    ),
    Fault(
        _MANAGER,
        "kept = {checkpoint.path for checkpoint in complete[-self._keep :]} | {committed}",
        "kept = {checkpoint.path for checkpoint in complete[: self._keep]} | {committed}",
        (f"{_MANAGER_TESTS}::test_retention_keeps_the_newest_and_the_best",),
        "the oldest checkpoints are kept",
    ),
    Fault(
        _MANAGER,
        "self._keep_best)\n            if value is not None and (best is None or value >= best[0])",
        "self._keep_best)\n            if value is not None and (best is None or value <= best[0])",
        (f"{_MANAGER_TESTS}::test_retention_keeps_the_newest_and_the_best",),
        "the worst checkpoint is kept",
    ),
    Fault(
        _MANAGER,
        '            _LOG.warning("no checkpoint is dropped, as the best is not known: %s", error)\n            return',
        "            raise error",
        (f"{_MANAGER_TESTS}::test_retention_that_cannot_tell_the_best_drops_nothing_and_ends_no_save",),
        "an unreadable old checkpoint ends the run",
    ),
    Fault(
        _MANAGER,
        '            _LOG.warning("no checkpoint is dropped, as the best is not known: %s", error)\n            return',
        "            best = None",
        (f"{_MANAGER_TESTS}::test_retention_that_cannot_tell_the_best_drops_nothing_and_ends_no_save",),
        "the best checkpoint is dropped when it cannot be told",
    ),
    Fault(
        _FILES,
        "        _warn_undeleted(folder, error)\n    else:",
        "        raise error\n    else:",
        (f"{_MANAGER_TESTS}::test_a_checkpoint_that_cannot_be_moved_away_stays_and_ends_no_save",),
        "a checkpoint that cannot be renamed ends the run",
    ),
    Fault(
        _FILES,
        "errors.append(failure[1]))",
        "(_ for _ in ()).throw(failure[1]))",
        (f"{_MANAGER_TESTS}::test_an_undeletable_file_keeps_no_other_on_the_disk",),
        "deletion stops at the first file that cannot be deleted",
    ),
    Fault(
        _FILES,
        "if errors and os.path.lexists(path):",
        "if False:",
        (f"{_MANAGER_TESTS}::test_a_checkpoint_that_cannot_be_deleted_ends_no_save_and_costs_no_other",),
        "what stays on the disk is not told",
    ),
    Fault(
        _FILES,
        "            error.filename = str(path)",
        "            pass",
        (
            "tests/unit/utils/test_files_atomic.py::test_a_file_that_does_not_fit_on_the_disk_is_named",
            "tests/unit/telemetry/test_logger.py",
        ),
        "a full disk does not name the file",
    ),
    Fault(
        _READER,
        'raise pickle.UnpicklingError(f"it names {module}.{name}, which is no part of a checkpoint\'s metadata")',
        "return super().find_class(module, name)",
        (_READER_TESTS,),
        "metadata may name anything",
    ),
    Fault(
        _READER,
        "    if not isinstance(found, layout.Metadata):",
        "    if found is None:",
        (f"{_READER_TESTS}::test_a_pickle_of_something_else_or_a_torn_one_is_refused",),
        "something else passes for metadata",
    ),
    Fault(
        _READER,
        "self.state_dict[name] = torch.load(value, weights_only=True)",
        "self.state_dict[name] = torch.load(value, weights_only=False)",
        (f"{_READER_TESTS}::test_a_value_that_would_run_code_is_refused",),
        "values that are no tensors run code",
    ),
    Fault(
        _READER,
        "            self.state_dict[name] = torch.load(value, weights_only=True)\n",
        "            torch.load(value, weights_only=True)\n",
        (f"{_READER_TESTS}::test_what_was_saved_comes_back",),
        "values that are no tensors are not restored",
    ),
    Fault(
        _CHUNKS,
        "reader, planner = SafeReader(_require_checkpoint(path)), SafePlanner()",
        "reader, planner = __import__('torch').distributed.checkpoint.FileSystemReader(path), SafePlanner()",
        (f"{_READER_TESTS}::test_metadata_that_would_run_code_is_refused",),
        "torch's own reader unpickles",
    ),
    Fault(
        _CHUNKS,
        "error if isinstance(error, CheckpointError) else refusal(error)",
        "refusal(error)",
        (f"{_READER_TESTS}::test_a_value_that_would_run_code_is_refused",),
        "a refusal is told as a recipe that does not fit",
    ),
    Fault(
        "rlinf/workers/actor/off_policy_learner.py",
        'torch.load(path, map_location="cpu", weights_only=True)',
        'torch.load(path, map_location="cpu", weights_only=False)',
        (f"{_READER_TESTS}::test_the_other_files_that_hold_tensors_are_refused_likewise",),
        "the off-policy state runs code",
    ),
    Fault(
        _WRITER,
        "            self.publish(wait=True)\n        write(",
        "            pass\n        write(",
        (_WRITER_TESTS,),
        "a checkpoint is begun while the former one is being written",
    ),
    Fault(
        _WRITER,
        "            self._logger.saved_step = step\n",
        "",
        (_WRITER_TESTS,),
        "a checkpoint that is being written is written again",
    ),
    Fault(
        _WRITER,
        "        except RLinfError as error:\n",
        "        except RLinfError as error:\n            return\n",
        (_WRITER_TESTS,),
        "a failing run loses its checkpoint without a word",
    ),
    Fault(
        "rlinf/runners/run_logger.py",
        "        self.saved_step = None if self.resume_from is None else self.resume_step\n",
        "",
        (_WRITER_TESTS,),
        "a checkpoint that was lost with its actor is not written again",
    ),
    Fault(
        "rlinf/hybrid_engines/train/saver.py",
        "        self.finish(wait=True)\n",
        "        self._pending = None\n",
        (f"{_SAVER_TESTS}::test_a_failed_write_is_an_error_at_the_next_save_or_at_the_end",),
        "a failed write is forgotten at the next save",
    ),
    Fault(
        "rlinf/hybrid_engines/train/saver.py",
        "not _on_all_ranks(self._pending.is_written)",
        "not self._pending.is_written",
        (f"{_SAVER_TESTS}::test_a_checkpoint_in_the_background_is_of_the_moment_when_it_was_begun",),
        "a rank ends a checkpoint that another one is still writing",
    ),
]

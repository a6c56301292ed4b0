"""Faults of evaluations as a product: which starts are played, what is written down, and what is compared."""

from __future__ import annotations

from tests.mutation.fault import Fault

_RUNNER_CHECKS = ("tests/unit/config/checks/test_runner_checks.py",)
_METAWORLD = ("tests/unit/envs/simulators/metaworld/test_metaworld_tasks.py",)
_VERSIONS = ("tests/unit/envs/test_versions.py",)
_RECORD = ("tests/unit/runners/test_evaluation_record.py",)
_COMPARISON = ("tests/unit/examples/test_compare_evaluations.py",)
_RENDERING = ("tests/unit/runners/test_rendering.py",)
_SUMMARY = ("tests/unit/examples/test_summarize.py",)
_WORKER = ("tests/unit/workers/env/test_env_worker_evaluation.py",)

FAULTS: list[Fault] = [
    Fault(
        "rlinf/config/checks/runner_checks.py",
        "if not 0 <= played - wanted < groups or evaluation.group_size > 1:",
        "if not 0 <= played - wanted < groups:",
        _RUNNER_CHECKS,
        "every start state is played by a whole group",
    ),
    Fault(
        "rlinf/config/checks/runner_checks.py",
        "if not 0 <= played - wanted < groups or evaluation.group_size > 1:",
        "if played < wanted:",
        _RUNNER_CHECKS,
        "start states may be played twice",
    ),
    Fault(
        "rlinf/config/checks/runner_checks.py",
        "0 <= played - wanted < groups",
        "0 <= played - wanted <= groups",
        _RUNNER_CHECKS,
        "a rollout epoch more than there are start states",
    ),
    Fault(
        "rlinf/config/schema/env.py",
        "chunks_per_episode = -(-self.max_episode_steps // (num_action_chunks * repeats))",
        "chunks_per_episode = -(-self.max_episode_steps // num_action_chunks)",
        _WORKER,
        "actions that are repeated do not make episodes shorter",
    ),
    Fault(
        "rlinf/workers/env/env_worker.py",
        "start, limit = self.env.start_of(row, number), self.env.cfg.num_start_states",
        "start, limit = int(self.env.reset_state_ids[row]), self.env.cfg.num_start_states",
        _WORKER,
        "an episode is said to begin where the next one does",
    ),
    Fault(
        "rlinf/workers/env/env_worker.py",
        "(limit is None or start < limit)",
        "(limit is None or start <= limit)",
        _WORKER,
        "an environment beyond the start states counts",
    ),
    Fault(
        "rlinf/envs/reset_states.py",
        "cfg.num_start_states > available",
        "cfg.num_start_states > available + 1",
        ("tests/unit/envs/simulators/libero/test_libero_starts.py",),
        "one start state is played twice",
    ),
    Fault(
        "rlinf/envs/simulators/metaworld/metaworld_tasks.py",
        "return SPLITS[cfg.task_name][cfg.task_split]",
        'return SPLITS[cfg.task_name]["train"]',
        _METAWORLD,
        "a policy is evaluated on the tasks that it has learned",
    ),
    Fault(
        "rlinf/envs/simulators/metaworld/metaworld_tasks.py",
        '"hand-insert-v3", "door-lock-v3", "door-unlock-v3")',
        '"hand-insert-v3", "door-lock-v3", "door-open-v3")',
        _METAWORLD,
        "training has a task that is to be kept from it",
    ),
    Fault(
        "rlinf/envs/versions.py",
        "for package in packages for name in distributions.get(package, ())",
        "for package in packages[1:] for name in distributions.get(package, ())",
        _VERSIONS,
        "a version is left out",
    ),
    Fault(
        "rlinf/envs/versions.py",
        "file.relative_to(root).as_posix()",
        "file.name",
        _VERSIONS,
        "a file that has moved is taken for the same",
    ),
    Fault(
        "rlinf/runners/evaluation_record.py",
        "rollout.model.precision or model.precision",
        "model.precision",
        _RECORD,
        "the precision of what acted is not that which is written down",
    ),
    Fault(
        "rlinf/runners/evaluation_record.py",
        "if file.suffix in _WEIGHTS",
        "if file.suffix not in _WEIGHTS",
        _RECORD,
        "weights are not what is hashed",
    ),
    Fault(
        "rlinf/runners/embodied_runner.py",
        "        if self.cfg.runner.only_eval:\n            versions",
        "        if not self.cfg.runner.only_eval:\n            versions",
        ("tests/unit/runners/test_embodied_runner.py",),
        "an evaluation does not say what it depends on",
    ),
    Fault(
        "evaluations/comparison.py",
        'SECTIONS = ("env", "model", "execution", "versions", "starts")',
        'SECTIONS = ("env", "model", "versions", "starts")',
        _COMPARISON,
        "policies that act in chunks of other lengths are compared",
    ),
    Fault(
        "evaluations/comparison.py",
        "key == name or key.startswith",
        "key.startswith(name) or key.startswith",
        _COMPARISON,
        "keys that begin alike are taken for one that may differ",
    ),
    Fault(
        "evaluations/comparison.py",
        "key not in one or key not in other or one[key] != other[key]",
        "key in one and key in other and one[key] != other[key]",
        _COMPARISON,
        "a key that one of two evaluations has alone is overlooked",
    ),
    Fault(
        "evaluations/comparison.py",
        '("env.video_cfg", "env.data_collection")',
        '("env.video_cfg", "env.data_collection", "env.disturbance")',
        _COMPARISON,
        "evaluations with and without disturbances are compared",
    ),
    Fault(
        "evaluations/summarize.py",
        'datetime.fromisoformat(_read(file)["finished_at"])',
        "file.stat().st_mtime",
        _SUMMARY,
        "a file that was copied passes for the newest evaluation",
    ),
    Fault(
        "evaluations/summarize.py",
        "json.dumps(sorted(played.items()))",
        "json.dumps(len(played))",
        _SUMMARY,
        "as many other start states pass for the same",
    ),
    Fault(
        "evaluations/summarize.py",
        "starts.own_task(episode.env // env.group_size, env.num_groups)",
        "starts.own_task(0, env.num_groups)",
        _SUMMARY,
        "all environments play the same task",
    ),
    Fault(
        "rlinf/runners/rendering.py",
        "if shown.get(key) != rendering.get(key):",
        "if key in shown and shown.get(key) == rendering.get(key):",
        _RENDERING,
        "images that look otherwise are accepted",
    ),
    Fault(
        "rlinf/runners/rendering.py",
        'rendering.get("env_type") != env.env_type',
        "False",
        _RENDERING,
        "images of another simulator are compared",
    ),
    Fault(
        "rlinf/runners/rendering.py",
        "if env is None or not _acts_by_model(env):",
        "if env is None:",
        _RENDERING,
        "new demonstrations have to look as the old ones",
    ),
    Fault(
        "rlinf/envs/episode_collector.py",
        'rendering={"env_type": env.env_type, **rendering} if rendering else None,',
        "rendering=None,",
        ("tests/unit/envs/test_episode_collector.py",),
        "a data set does not say how its images were rendered",
    ),
]

"""Faults of evaluations as a product: which starts are played, what is written down, and what is compared."""

from __future__ import annotations

from tests.mutation.fault import Fault

_RUNNER_CHECKS = ("tests/unit/config/checks/test_runner_checks.py",)
_WORKER = ("tests/unit/workers/env/test_env_worker_evaluation.py",)

FAULTS: list[Fault] = [
    Fault(
        "rlinf/config/checks/runner_checks.py",
        "if played != wanted or evaluation.group_size > 1:",
        "if played != wanted:",
        _RUNNER_CHECKS,
        "every start state is played by a whole group",
    ),
    Fault(
        "rlinf/config/checks/runner_checks.py",
        "if played != wanted or evaluation.group_size > 1:",
        "if played < wanted:",
        _RUNNER_CHECKS,
        "start states may be played twice",
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
        "start = self.env.start_of(row, number)",
        "start = int(self.env.reset_state_ids[row])",
        _WORKER,
        "an episode is said to begin where the next one does",
    ),
    Fault(
        "rlinf/envs/reset_states.py",
        "cfg.num_start_states > available",
        "cfg.num_start_states > available + 1",
        ("tests/unit/envs/simulators/libero/test_libero_starts.py",),
        "one start state is played twice",
    ),
]

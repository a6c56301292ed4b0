"""Episodes that are saved and continued, and what an evaluation counts of them."""

from tests.mutation.fault import Fault

SAVED = (
    "tests/unit/envs/test_base_saved.py",
    "tests/unit/envs/test_action_log.py",
    "tests/unit/envs/test_video_saved.py",
    "tests/unit/envs/test_episode_collector_saved.py",
    "tests/unit/envs/wrappers/test_intervention_saved.py",
)
WORKER = ("tests/unit/workers/env/test_env_worker.py",)
EVALUATION = ("tests/unit/workers/env/test_env_worker_evaluation.py",)
RUNNER = ("tests/unit/runners/test_embodied_runner.py",)
BUILTIN = (
    "tests/unit/envs/simulators/metaworld/test_metaworld_env.py",
    "tests/unit/envs/simulators/test_gymnasium_env.py",
)
TREE = ("tests/unit/checkpoint/test_tree_file.py",)

FAULTS: list[Fault] = [
    Fault(
        "rlinf/envs/action_log.py",
        "starts = longest - self.lengths\n",
        "starts = 0 * self.lengths\n",
        SAVED,
        "all rows are replayed for as many steps as the longest",
    ),
    Fault(
        "rlinf/envs/action_log.py",
        "self.lengths += executed.sum(axis=1)",
        "self.lengths += executed.shape[1]",
        SAVED,
        "actions that were not executed are replayed",
    ),
    Fault(
        "rlinf/envs/action_log.py",
        "        self.lengths[rows] = 0\n",
        "",
        SAVED,
        "the actions of the episode before are replayed in the next one",
    ),
    Fault(
        "rlinf/envs/action_log.py",
        '"seeds": self.seeds.copy(),',
        '"seeds": self.seeds,',
        SAVED,
        "a saved state changes with the episodes that follow",
    ),
    Fault(
        "rlinf/envs/action_log.py",
        "if self.lengths.any():",
        "if self.lengths.all():",
        SAVED,
        "actions are lost when the log grows while a row begins",
    ),
    Fault(
        "rlinf/envs/base.py",
        "self._log.begin(chunk.final_ids, request.next_seeds[chunk.final_ids])",
        "self._log.begin(chunk.final_ids, self._log.seeds[chunk.final_ids])",
        SAVED,
        "an episode after an automatic reset is replayed from the start of the one before",
    ),
    Fault(
        "rlinf/envs/base.py",
        "return self.restored_by == way and self.hardware_type is None",
        "return self.restored_by == way",
        SAVED,
        "actions are executed again on a robot",
    ),
    Fault(
        "rlinf/envs/base.py",
        '        self._require_restored(changed_rows(state["obs"], obs))\n',
        "",
        SAVED,
        "a replay that leads elsewhere goes unnoticed",
    ),
    Fault(
        "rlinf/envs/base.py",
        '        self._obs = obs\n        self._tracker.load_state_dict(state["tracker"])\n',
        "        self._obs = obs\n",
        SAVED,
        "steps and returns of replayed episodes are those of the replay, with resting rows and rounding",
    ),
    Fault(
        "rlinf/envs/base.py",
        "            if segment.steps.any() and len(segment.begins):\n",
        "            if False:\n",
        SAVED,
        "rows that a batch simulator has moved meanwhile are not reset before their replay",
    ),
    Fault(
        "rlinf/envs/base.py",
        "            wrapper.load_state_dict(saved)\n",
        "            pass\n",
        SAVED,
        "wrappers forget what they hold",
    ),
    Fault(
        "rlinf/envs/base.py",
        'self._epoch = state["epoch"]',
        "self._epoch = 0",
        SAVED,
        "later start states are those of another rollout epoch",
    ),
    Fault(
        "rlinf/envs/episodes.py",
        '"_reports_success", "_last_reward")',
        '"_reports_success")',
        SAVED,
        "relative rewards after a resume are counted from 0",
    ),
    Fault(
        "rlinf/envs/wrappers/action_delay.py",
        '    state_names = ("waiting",)\n',
        "",
        SAVED,
        "actions that wait are lost",
    ),
    Fault(
        "rlinf/envs/wrappers/base.py",
        "return {name: copy.deepcopy(getattr(self, name)) for name in self.state_names}",
        "return {name: getattr(self, name) for name in self.state_names}",
        SAVED,
        "stacked frames of a saved state change with later steps",
    ),
    Fault(
        "rlinf/envs/simulators/gymnasium_env.py",
        '{**cfg.init_params, "max_episode_steps": cfg.max_episode_steps}',
        "dict(cfg.init_params)",
        BUILTIN,
        "Gymnasium's own limit ends episodes early",
    ),
    Fault(
        "rlinf/config/schema/env.py",
        "return max(1, chunks // chunks_per_episode) if self.auto_reset else 1",
        "return 10**9",
        EVALUATION,
        "an evaluation counts whatever has ended, so short episodes more often",
    ),
    Fault(
        "rlinf/config/schema/env.py",
        "chunks_per_episode = -(-self.max_episode_steps // (num_action_chunks * repeats))",
        "chunks_per_episode = self.max_episode_steps // (num_action_chunks * repeats)",
        EVALUATION,
        "an episode that ends within a chunk is taken to end before it",
    ),
    Fault(
        "rlinf/workers/env/env_worker.py",
        "            self._ended[place] += 1\n            start",
        "            start",
        EVALUATION,
        "ended episodes are not counted",
    ),
    Fault(
        "rlinf/workers/env/env_worker.py",
        "epoch + 1 < cfg.rollout_epoch and time.monotonic() - said >= _SAY_SECONDS",
        "epoch + 1 < cfg.rollout_epoch",
        EVALUATION,
        "every rollout epoch of an evaluation is a line",
    ),
    Fault(
        "rlinf/workers/env/env_worker.py",
        "self._rank == 0 and epoch + 1 < cfg.rollout_epoch and",
        "epoch + 1 < cfg.rollout_epoch - 1 and",
        EVALUATION,
        "a long evaluation goes silent before its end",
    ),
    Fault(
        "rlinf/workers/env/episode_states.py",
        "states = self._states.get(step)",
        "states = self._states.get(max(self._states, default=0))",
        WORKER,
        "the newest state is saved, not that of the step",
    ),
    Fault(
        "rlinf/workers/env/episode_states.py",
        'if saved["setup"].get(name) != value',
        'if name not in saved["setup"]',
        WORKER,
        "the state of another recipe is taken over",
    ),
    Fault(
        "rlinf/runners/embodied_runner.py",
        "        self.restart_episodes = bool(reasons)\n",
        "        self.restart_episodes = True\n",
        RUNNER,
        "a resumed run begins new episodes",
    ),
    Fault(
        "rlinf/runners/embodied_runner.py",
        "        wait_all(*calls)\n",
        "        wait_all(*calls)\n        self.restart_episodes = True\n",
        RUNNER,
        "saving restarts the training episodes",
    ),
    Fault(
        "rlinf/runners/embodied_runner.py",
        'if name not in {"actor", "env"}:',
        'if name not in {"actor"}:',
        RUNNER,
        "an interrupted run ends the env workers before they have saved their episodes",
    ),
    Fault(
        "rlinf/checkpoint/tree_file.py",
        "return tensors[value[_ARRAY]].numpy()",
        "return tensors[value[_ARRAY]]",
        TREE,
        "arrays come back as tensors",
    ),
]

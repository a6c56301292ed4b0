"""Faults of vector environments, their wrappers and the action formats."""

from __future__ import annotations

from tests.mutation.fault import Fault

_RULES = "tests/unit/envs/test_base_rules.py"
_STATES = "tests/unit/envs/test_reset_states.py"
_TESTS = {
    "actions.py": ("tests/unit/envs/test_actions.py",),
    "base.py": (_RULES, _STATES, "tests/unit/envs/wrappers/test_base_wrappers.py"),
    "episodes.py": ("tests/unit/envs/test_episodes.py", _RULES),
    "raw_chunk.py": ("tests/unit/envs/test_raw_chunk.py", _RULES),
    "reset_states.py": (_STATES, _RULES),
    "single_env.py": (_RULES, "tests/unit/envs/test_single_env_vector.py"),
    "process_pool.py": (_RULES, "tests/unit/envs/test_process_pool.py", "tests/unit/envs/test_process_main.py"),
    "wrappers/frame_stack.py": ("tests/unit/envs/wrappers",),
    "wrappers/intervention.py": ("tests/unit/envs/wrappers",),
    "wrappers/action_repeat.py": ("tests/unit/envs/wrappers",),
    "wrappers/action_delay.py": ("tests/unit/envs/wrappers",),
}


def _fault(file: str, before: str, after: str, what: str) -> Fault:
    return Fault(f"rlinf/envs/{file}", before, after, _TESTS[file], what)


FAULTS: list[Fault] = [
    # What ends an episode.
    _fault(
        "raw_chunk.py",
        "terminated = terminated & (not self.ignore_terminations)",
        "terminated = terminated & self.ignore_terminations",
        "terminations are ignored exactly where they should count",
    ),
    _fault(
        "raw_chunk.py",
        "truncated = (truncated | (steps >= self.max_episode_steps)) & (terminated ^ True)",
        "truncated = truncated | (steps >= self.max_episode_steps)",
        "an episode is both terminated and truncated",
    ),
    _fault(
        "raw_chunk.py",
        "(steps >= self.max_episode_steps)",
        "(steps > self.max_episode_steps)",
        "episodes are one step too long",
    ),
    _fault(
        "raw_chunk.py",
        "final_ids=np.concatenate([chunk.final_ids + first for first, chunk in parts]),",
        "final_ids=np.concatenate([chunk.final_ids for first, chunk in parts]),",
        "rows of environments in processes are numbered within their process",
    ),
    # Batch simulators.
    _fault(
        "base.py",
        "chunk.rewards[:, column] = np.where(active, to_numpy(result.rewards, np.float32), 0)",
        "chunk.rewards[:, column] = to_numpy(result.rewards, np.float32)",
        "resting environments are rewarded",
    ),
    _fault(
        "base.py",
        "        chunk.executed[:, column] = active\n",
        "        chunk.executed[:, column] = True\n",
        "actions behind an episode's end count as executed",
    ),
    _fault(
        "base.py",
        "chunk.terminations[:, column] = active & terminated",
        "chunk.terminations[:, column] = terminated | to_numpy(result.terminations, np.bool_)",
        "an environment at rest terminates",
    ),
    _fault(
        "base.py",
        "                active = active & ~ended\n",
        "",
        "the chunk goes on after an episode's end",
    ),
    _fault(
        "base.py",
        "        if not self.cfg.auto_reset:\n            self._active[chunk.final_ids] = False\n",
        "",
        "without automatic resets environments play on",
    ),
    _fault(
        "base.py",
        "self._reset_states.ids(self._epoch, self._tracker.episodes + 1) if self.cfg.auto_reset",
        "self._reset_states.ids(self._epoch, self._tracker.episodes) if self.cfg.auto_reset",
        "the next episode starts from the state of the present one",
    ),
    _fault(
        "base.py",
        "        for wrapper in reversed(self._wrappers):\n            wrapper.is_within_chunk",
        "        for wrapper in self._wrappers:\n            wrapper.is_within_chunk",
        "actions pass the wrappers from the inside",
    ),
    # Metrics and shaped rewards.
    _fault(
        "episodes.py",
        "self._returns += chunk.rewards.sum(axis=1, dtype=np.float64)",
        "self._returns += rewards.sum(axis=1, dtype=np.float64)",
        "returns are those of shaped rewards",
    ),
    _fault(
        "episodes.py",
        "self._success_once |= chunk.successes.any(axis=1)",
        "self._success_once = chunk.successes.any(axis=1)",
        "a success before the last chunk is forgotten",
    ),
    _fault(
        "episodes.py",
        "bool(chunk.successes[row, last[row]])",
        "bool(chunk.successes[row].any())",
        "success at the end is success in the last chunk",
    ),
    _fault(
        "episodes.py",
        "before = np.concatenate([self._last_reward[:, None], rewards[:, :-1]], axis=1)",
        "before = np.concatenate([np.zeros_like(self._last_reward)[:, None], rewards[:, :-1]], axis=1)",
        "relative rewards begin anew with every chunk",
    ),
    _fault(
        "episodes.py",
        "        self._last_reward[rows] = 0\n",
        "",
        "relative rewards go on from the episode before",
    ),
    _fault(
        "episodes.py",
        "        self._returns[rows] = 0\n",
        "",
        "returns add up over episodes",
    ),
    # Start states.
    _fault(
        "reset_states.py",
        'derive_seed(self.cfg.seed, "reset_state", epoch, group, episode)',
        'derive_seed(self.cfg.seed, "reset_state", group, episode)',
        "every epoch starts from the same states",
    ),
    _fault(
        "reset_states.py",
        'derive_seed(self.cfg.seed, "reset_state", epoch, group, episode)',
        'derive_seed(self.cfg.seed, "reset_state", epoch, episode)',
        "all groups start from the same states",
    ),
    _fault(
        "reset_states.py",
        "(episode * self.cfg.rollout_epoch + epoch) * self.num_groups + group",
        "(episode + epoch) * self.num_groups + group",
        "ordered start states repeat from epoch to epoch",
    ),
    _fault(
        "reset_states.py",
        "return step * self._ids_per_step + number",
        "return number",
        "every train step begins with the start states of the first",
    ),
    _fault(
        "reset_states.py",
        "np.arange(first_env, first_env + num_envs) // cfg.group_size",
        "np.arange(num_envs) // cfg.group_size",
        "ranks share their groups",
    ),
    _fault(
        "reset_states.py",
        "return epoch * self.num_groups + self.groups",
        "return self.groups",
        "groups of different epochs are compared with each other",
    ),
    # Actions.
    _fault(
        "actions.py",
        "np.clip(values, space.low.reshape(-1), space.high.reshape(-1))",
        "np.clip(values, space.low.min(), space.high.max())",
        "actions are clipped to the widest bounds",
    ),
    _fault(
        "actions.py",
        "return values + int(space.start)",
        "return values",
        "discrete actions of a space that does not start at 0 are shifted",
    ),
    # Single environments.
    _fault(
        "single_env.py",
        "                ended = True\n                break\n",
        "                ended = True\n",
        "the chunk goes on after an episode's end",
    ),
    _fault(
        "single_env.py",
        "            final_obs.append(self._obs[row])\n            if request.next_seeds is not None:\n"
        "                self._reset_row(row, int(request.next_seeds[row]))\n",
        "            if request.next_seeds is not None:\n"
        "                self._reset_row(row, int(request.next_seeds[row]))\n"
        "            final_obs.append(self._obs[row])\n            if request.next_seeds is not None:\n",
        "the final observation is the first of the next episode",
    ),
    _fault(
        "single_env.py",
        "        for row in np.flatnonzero(request.active).tolist():\n",
        "        for row in range(len(request.active)):\n",
        "environments at rest are stepped",
    ),
    # Wrappers.
    _fault(
        "wrappers/frame_stack.py",
        "            frames[:, rows] = obs[key]\n",
        "            frames[-1, rows] = obs[key]\n",
        "a new episode shows frames of the one before",
    ),
    _fault(
        "wrappers/frame_stack.py",
        "            frames[-1, moved] = closing[key][moved]\n",
        "            frames[-1, moved] = step.obs[key][moved]\n",
        "the final frames show the next episode",
    ),
    _fault(
        "wrappers/frame_stack.py",
        "            frames[:-1, moved] = frames[1:, moved].clone()\n",
        "            frames[1:, moved] = frames[:-1, moved].clone()\n",
        "frames move towards the past",
    ),
    _fault(
        "wrappers/intervention.py",
        "intervene_flag=self.flags & step.executed",
        "intervene_flag=self.flags",
        "an intervention that was not executed is reported",
    ),
    _fault(
        "wrappers/intervention.py",
        "            self.executed[row, 0] = chosen\n",
        "",
        "the policy's action is executed in spite of the operator",
    ),
    _fault(
        "wrappers/intervention.py",
        "        self.rewards[row], self.steps[row] = 0.0, 0\n",
        "",
        "an operator is told the steps of the episode before",
    ),
]

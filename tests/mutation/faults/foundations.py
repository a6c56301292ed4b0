"""Faults of what everything stands on: worker groups and shards, parsing and checks, placement, metrics, processes."""

from __future__ import annotations

from tests.mutation.fault import Fault

_GROUP = "tests/unit/scheduler/test_group.py"
_SHARDING = "tests/unit/scheduler/test_sharding.py"
_PARSE = "tests/unit/config/test_parse.py"
_PARSE_MESSAGES = "tests/unit/config/test_parse_messages.py"
_METRICS = "tests/unit/telemetry/test_metrics_merge.py"
_POOL = "tests/unit/envs/test_process_pool.py"
_PLAN = "tests/unit/placement/test_cluster_plan.py"
_RULES = "tests/unit/placement/test_rules.py"
_COMPONENT = "tests/unit/placement/test_component.py"
_HEARTBEAT = "tests/unit/scheduler/comm/test_heartbeat.py"
_MATH = "tests/unit/workers/reward/test_math_reward.py"
_HOSTILE = "tests/unit/workers/reward/test_hostile_answers.py"
_FUNCTION = "tests/unit/workers/reward/test_function_reward.py"
_OFF_POLICY = "tests/unit/config/checks/test_off_policy_checks.py"
_PLACEMENT = "tests/unit/config/checks/test_placement_checks.py"
_ENGINES = "tests/unit/config/checks/test_text_checks.py"
_TEXT_REWARDS = "tests/unit/config/checks/test_reward_checks_text.py"
_CHANNEL = "tests/unit/scheduler/channel/test_channel.py"
_CHANNEL_HOST = "tests/unit/scheduler/channel/test_channel_host.py"
_ENGINE = "tests/unit/hybrid_engines/generation/test_in_process_engine.py"
_CONFORMANCE = "tests/unit/hybrid_engines/generation/test_engine_conformance.py"


def _fault(file: str, before: str, after: str, what: str, *tests: str) -> Fault:
    return Fault(f"rlinf/{file}", before, after, tests, what)


FAULTS: list[Fault] = [
    _fault(
        "scheduler/group.py",
        "if not 0 <= rank < len(self._members):",
        "if rank >= len(self._members):",
        "a negative rank counts from the end",
        _GROUP,
    ),
    _fault(
        "scheduler/group.py",
        "targets, self._targets = self._targets, ()",
        "targets = self._targets",
        "ranks that were chosen for one call stay chosen",
        _GROUP,
    ),
    _fault(
        "scheduler/group.py",
        'elif self._restart == "on_failure":',
        "elif self._restart:",
        "a group that must not be launched again is",
        _GROUP,
    ),
    _fault(
        "scheduler/sharding.py",
        "-(-(rank + 1) * num_others // num_ranks)",
        "(rank + 1) * num_others // num_ranks",
        "a rank whose part is cut sends less than all",
        _SHARDING,
    ),
    _fault(
        "scheduler/sharding.py",
        "max(receiver * shard - first, 0)",
        "receiver * shard - first",
        "a piece begins before its sender's part",
        _SHARDING,
    ),
    _fault(
        "scheduler/sharding.py",
        "ids[edge - 1] == ids[edge]",
        "ids[edge - 1] != ids[edge]",
        "groups are cut, and boundaries of groups refused",
        _SHARDING,
    ),
    _fault(
        "scheduler/sharding.py", "if len(lengths) > 1:", "if False:", "parts of different lengths are joined", _CHANNEL
    ),
    _fault(
        "scheduler/sharding.py",
        "if len(lengths) != 1:",
        "if not lengths:",
        "leaves of different lengths are cut as if they had one",
        _SHARDING,
    ),
    _fault(
        "scheduler/sharding.py",
        "(slice(None),) * batch_dim + (slice(start, stop),)",
        "(slice(start, stop),)",
        "cuts along the first dimension, whatever the batch's is",
        _SHARDING,
    ),
    _fault(
        "scheduler/sharding.py",
        "np.concatenate(parts, axis=batch_dim)",
        "np.concatenate(parts)",
        "joins along the first dimension, whatever the batch's is",
        _SHARDING,
    ),
    _fault(
        "config/parse.py",
        "        self.unknown_keys(cls, keys, field_types(cls), path)\n",
        "",
        "keys that nothing reads are accepted",
        _PARSE,
        _PARSE_MESSAGES,
    ),
    _fault(
        "config/parse.py",
        "ConfigDict(strict=True, allow_inf_nan=False)",
        "ConfigDict(allow_inf_nan=False)",
        "a number in quotes is taken for a number",
        _PARSE,
        _PARSE_MESSAGES,
    ),
    _fault(
        "config/parse.py",
        "ConfigDict(strict=True, allow_inf_nan=False)",
        "ConfigDict(strict=True)",
        "infinity is a learning rate",
        _PARSE,
        _PARSE_MESSAGES,
    ),
    _fault(
        "config/parse.py",
        "describe_value(value, path)}; allowed",
        "describe_value(value)}; allowed",
        "a message shows a secret",
        _TEXT_REWARDS,
    ),
    _fault(
        "config/parse.py",
        "if value is None and type(None) in members:",
        "if value is None:",
        "null is a value of any union",
        _PARSE,
        _PARSE_MESSAGES,
    ),
    _fault(
        "telemetry/metrics.py",
        "        if self.count == 0:\n            return other\n",
        "",
        "an extreme of nothing is 0",
        _METRICS,
    ),
    _fault(
        "telemetry/metrics.py",
        "if math.isnan(a) or math.isnan(b):",
        "if math.isnan(a):",
        "a NaN is lost, depending on the order",
        _METRICS,
    ),
    _fault(
        "telemetry/metrics.py",
        'return max(a, b) if reducer == "max" else min(a, b)',
        "return max(a, b)",
        "the least is the greatest",
        _METRICS,
    ),
    _fault(
        "telemetry/metrics.py",
        "tensor.detach().clone().reshape(())",
        "tensor.detach().reshape(())",
        "a tensor that grows in place changes what was added",
        _METRICS,
    ),
    _fault(
        "telemetry/metrics.py",
        'if self.reducer == "mean" else self.total',
        'if self.reducer != "sum" else self.total',
        "extremes are divided by the number of samples",
        _METRICS,
    ),
    _fault(
        "telemetry/metrics.py",
        "self._parts[name] = [(metric.total, metric.count)]",
        "self._parts[name].append((metric.total, metric.count))",
        "reading twice counts twice",
        _METRICS,
    ),
    _fault(
        "telemetry/metrics.py",
        'return 0.0 if self.reducer == "sum" else math.nan',
        "return 0.0",
        "what was not measured is 0",
        _METRICS,
    ),
    _fault(
        "telemetry/metrics.py", "if not count >= 0:", "if count < 0:", "a count that is no number is taken", _METRICS
    ),
    _fault(
        "telemetry/metrics.py",
        'torch.float32 if device.startswith("mps") else torch.float64',
        "torch.float32",
        "counts of tokens are rounded",
        _METRICS,
    ),
    _fault(
        "envs/process_pool.py",
        "(rows < child.rows.stop)",
        "(rows <= child.rows.stop)",
        "a process resets its neighbour's environment",
        _POOL,
    ),
    _fault(
        "envs/process_pool.py",
        '("reset", rows[chosen] - child.first_row, seeds[chosen])',
        '("reset", rows[chosen] - child.first_row, seeds[: chosen.sum()])',
        "environments are reset with others' seeds",
        _POOL,
    ),
    _fault(
        "envs/process_pool.py",
        "child.first_row + row: frame",
        "row: frame",
        "frames are those of other environments",
        _POOL,
    ),
    _fault(
        "envs/process_pool.py",
        "answer = self._guard(key.data.recv)",
        "answer = key.data.recv()",
        "after a failure the other processes go on",
        _POOL,
    ),
    _fault(
        "placement/cluster_plan.py",
        "declared.get(rank, given.get(rank))",
        "given.get(rank, declared.get(rank))",
        "what a group declares of its nodes is overruled",
        _PLAN,
    ),
    _fault(
        "placement/cluster_plan.py",
        "if is_size_known and len(value) != size:",
        "if False:",
        "accelerators of too few nodes are taken",
        _PLAN,
    ),
    _fault(
        "placement/cluster_plan.py",
        "return highest + 1",
        "return highest",
        "the last node that a recipe names is not there",
        _PLAN,
    ),
    _fault(
        "placement/cluster_plan.py",
        "        if clash:\n",
        "        if not clash and False:\n",
        "groups that contradict each other are taken",
        _PLAN,
    ),
    _fault(
        "placement/rules.py",
        "if processes[0] != 0:",
        "if processes[0] > 1:",
        "processes need not start at 0",
        _RULES,
        _COMPONENT,
    ),
    _fault(
        "placement/rules.py",
        "name = part.strip()",
        "name = part",
        "blanks are part of a component's name",
        _RULES,
        _COMPONENT,
    ),
    _fault(
        "placement/rules.py",
        "        if unknown:\n",
        "        if len(unknown) > 1:\n",
        "an unknown key of a placement is passed over",
        _RULES,
        _COMPONENT,
    ),
    _fault(
        "scheduler/comm/heartbeat.py",
        " and not any(entry.is_up for entry in links)",
        "",
        "a node is given up when one of its processes ends",
        _HEARTBEAT,
    ),
    _fault(
        "scheduler/comm/heartbeat.py",
        "if len(links) >= _LINKS_PER_NODE:",
        "if False:",
        "every process of a node is watched",
        _HEARTBEAT,
    ),
    _fault(
        "scheduler/comm/heartbeat.py",
        "process.tcp is not None and process.node_id != self._node_id",
        "process.tcp is not None",
        "a node watches itself",
        _HEARTBEAT,
    ),
    _fault(
        "workers/reward/grader_pool.py",
        "            self.stop()\n            return None\n        return answer",
        "            return None\n        return answer",
        "a late answer is that of the next question",
        _MATH,
        _HOSTILE,
    ),
    _fault(
        "workers/reward/grader_pool.py",
        "env={name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}",
        "env=dict(os.environ)",
        "graders of untrusted texts see secrets",
        _MATH,
        _HOSTILE,
    ),
    _fault(
        "workers/reward/grader_pool.py",
        "            self._idle.put(grader)\n\n    def close",
        "            pass\n\n    def close",
        "a grader answers one question",
        _MATH,
        _HOSTILE,
    ),
    _fault(
        "workers/reward/function_reward.py",
        "is_first = self.failures[kind] == 1",
        "is_first = True",
        "every failure is logged",
        _FUNCTION,
    ),
    _fault(
        "workers/reward/function_reward.py",
        "asyncio.Semaphore(self.cfg.max_calls)",
        "asyncio.Semaphore(1 << 20)",
        "all calls run at once",
        _FUNCTION,
    ),
    _fault(
        "workers/reward/function_reward.py",
        "[self.cfg.fallback_reward] * len(queries)",
        "[0.0] * len(queries)",
        "a batch that fails has a reward of 0",
        _FUNCTION,
    ),
    _fault(
        "workers/reward/function_reward.py",
        "_within(self.cfg.timeout_seconds, self._function, argument)",
        "self._function(argument)",
        "a function that hangs hangs the run",
        _FUNCTION,
    ),
    _fault(
        "config/checks/off_policy_checks.py",
        "if replay.min_buffer_size > replay.capacity:",
        "if False:",
        "updates that never begin are accepted",
        _OFF_POLICY,
    ),
    _fault(
        "config/checks/off_policy_checks.py",
        "elif tuning.initial_alpha == 0:",
        "elif False:",
        "a temperature is learned from 0, which it never leaves",
        _OFF_POLICY,
    ),
    _fault(
        "config/checks/off_policy_checks.py",
        "loss.num_min_q > model.num_q_heads",
        "loss.num_min_q > model.num_q_heads + 1",
        "targets need more critics than there are",
        _OFF_POLICY,
    ),
    _fault(
        "config/checks/off_policy_checks.py",
        "not -5 < model.initial_log_std < 2",
        "not -6 < model.initial_log_std < 3",
        "a standard deviation outside its bounds",
        _OFF_POLICY,
    ),
    _fault(
        "config/checks/placement_checks.py",
        "elif size is None or ranks % size:",
        "elif size is None:",
        "replicas of unequal size",
        _PLACEMENT,
    ),
    _fault(
        "config/checks/placement_checks.py",
        "size % other_size and other_size % size",
        "size % other_size",
        "a group that has more ranks cannot be cut",
        _PLACEMENT,
    ),
    _fault(
        "config/checks/placement_checks.py",
        'if group.kind == "node" or sizes <= {wanted}:',
        'if group.kind == "node" or wanted in sizes:',
        "an engine is spread over fewer devices than it has",
        _ENGINES,
    ),
    _fault(
        "scheduler/channel/host.py",
        "if self._queues[channel_id].is_spent:",
        "if False:",
        "closed channels are kept",
        _CHANNEL_HOST,
    ),
    _fault(
        "scheduler/channel/host.py",
        "        for earlier in taken:\n",
        "        for earlier in ():\n",
        "items that were taken are kept",
        _CHANNEL_HOST,
    ),
    _fault(
        "hybrid_engines/generation/in_process_engine.py",
        "        check_request(request, max_context_tokens=self._max_context_tokens, vocab_size=vocab_size)\n",
        "",
        "a request that is too long reaches the model",
        _ENGINE,
        _CONFORMANCE,
    ),
    _fault(
        "hybrid_engines/generation/in_process_engine.py",
        "                self._thread.post(lambda: self._scheduler.abandon(reply))",
        "                pass",
        "a request that is cancelled goes on",
        _ENGINE,
        _CONFORMANCE,
    ),
]

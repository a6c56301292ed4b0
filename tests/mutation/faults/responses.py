"""Faults of the way of responses: engine, reward, actor, and the driver that holds ids, lengths and rewards."""

from __future__ import annotations

from tests.mutation.fault import Fault

_POOL = "tests/unit/runners/test_rollout_pool.py"
_BATCHES = "tests/unit/runners/test_step_batches.py"
_RUNNER = "tests/unit/runners/test_reasoning_runner.py"
_STORE = "tests/unit/workers/reward/test_response_store.py"
_GENERATION = "tests/unit/workers/rollout/test_generation_worker.py"
_PARAMS = "tests/unit/data/messages/test_generation.py"
_BATCH = "tests/unit/data/messages/test_responses_pickled.py"
_ROUTING = "tests/unit/data/messages/test_routing.py"
_INFERENCE = "tests/unit/workers/inference/test_logprob_worker.py"
_DUMP = "tests/unit/workers/actor/test_step_dump.py"
_REPLAY = "tests/unit/cli/test_replay.py"
_CALLS = "tests/unit/scheduler/test_results.py"


def _fault(file: str, before: str, after: str, what: str, *tests: str) -> Fault:
    return Fault(f"rlinf/{file}", before, after, tests, what)


FAULTS: list[Fault] = [
    # The driver
    _fault(
        "runners/rollout_pool.py",
        "while self._queue and min(load) < self._max_per_rank:",
        "while self._queue:",
        "an engine gets more requests than its bound",
        _POOL,
    ),
    _fault(
        "runners/rollout_pool.py",
        "            load[rank] += 1\n\n    def _collect",
        "\n    def _collect",
        "all requests go to one engine",
        _POOL,
    ),
    _fault(
        "runners/rollout_pool.py",
        'self._inference is not None and request.split == "train":',
        "self._inference is not None:",
        "log-probabilities are computed for evaluations",
        _POOL,
    ),
    _fault(
        "runners/rollout_pool.py",
        "            if call is None or call not in self._calls:\n",
        "            if call is None:\n",
        "calls of cancelled requests and dead workers count",
        _POOL,
    ),
    _fault(
        "runners/rollout_pool.py",
        "                for rest in (call, *completed):\n",
        "                for rest in completed:\n",
        "a failure is raised once and then forgotten",
        _POOL,
    ),
    _fault(
        "runners/rollout_pool.py",
        "                for rest in (call, *completed):\n",
        "                for rest in (call,):\n",
        "calls that complete with a failure are lost",
        _POOL,
        _RUNNER,
    ),
    _fault(
        "runners/rollout_pool.py",
        "            if finished:\n",
        "            if not finished:\n",
        "what is finished is generated again, and what is lost is not",
        _POOL,
        _RUNNER,
    ),
    _fault(
        "runners/rollout_pool.py",
        "if number not in held.responses)",
        ")",
        "finished requests are generated again after a death",
        _POOL,
    ),
    _fault(
        "runners/rollout_pool.py",
        "        self._discarded.append((split, removed))\n",
        "",
        "reward ranks keep the tokens of all steps",
        _POOL,
    ),
    _fault(
        "runners/rollout_pool.py",
        "        wait_all(*self._forget(split, cancelled))\n",
        "",
        "reward ranks keep cancelled responses",
        _POOL,
    ),
    _fault(
        "runners/rollout_pool.py",
        "        wait_all(*(self._reward.clear(split) for split in removed))\n",
        "",
        "reward ranks keep cleared responses",
        _POOL,
    ),
    _fault(
        "runners/rollout_pool.py",
        "return request.split != split or request.group_id not in cancelled",
        "return request.group_id not in cancelled",
        "cancelling prompts cancels an evaluation's of the same number",
        _POOL,
    ),
    _fault(
        "runners/step_batches.py",
        "            self._sampler.position -= surplus\n",
        "",
        "cancelled prompts are never submitted again",
        _BATCHES,
    ),
    _fault(
        "runners/step_batches.py",
        "ahead = min(self._ahead, steps_left - 1) * self._size",
        "ahead = self._ahead * self._size",
        "prompts are submitted that no step trains on",
        _RUNNER,
    ),
    _fault(
        "runners/step_batches.py",
        "chosen = sorted([",
        "chosen = list([",
        "groups that fill up come last",
        _BATCHES,
    ),
    _fault(
        "runners/reasoning_runner.py",
        "        self._discard_trained()\n        if self.batch_step != self.step:\n",
        "        if self.batch_step != self.step:\n",
        "a step trains on the prompts of the last one again",
        _RUNNER,
    ),
    _fault(
        "runners/reasoning_runner.py",
        "        self._discard_trained()\n        super().write_checkpoint(folder)\n",
        "        super().write_checkpoint(folder)\n",
        "a resumed run trains on the last step's prompts again",
        _RUNNER,
    ),
    _fault(
        "runners/reasoning_runner.py",
        "        self._discard_trained()\n        return super().recover(death)\n",
        "        return super().recover(death)\n",
        "a reward's death after a step has its prompts generated again",
        _RUNNER,
    ),
    _fault(
        "runners/language_runner.py",
        "self.pool.requeue(finished=has_lost_responses)",
        "self.pool.requeue()",
        "responses that died with a reward rank are waited for",
        _RUNNER,
    ),
    _fault(
        "runners/language_runner.py",
        "            if has_lost_responses:\n                self.reset_batch()\n",
        "",
        "a batch that died with its reward rank is trained on",
        _RUNNER,
    ),
    _fault(
        "runners/language_runner.py",
        '    survivors = frozenset({"actor", "reward"})\n',
        '    survivors = frozenset({"actor"})\n',
        "an engine's death costs the finished responses",
        _RUNNER,
    ),
    _fault(
        "scheduler/results.py",
        "                    self._done.put(self._done.get(timeout=_LOOK_SECONDS))\n                    return\n",
        "                    self._done.get(timeout=_LOOK_SECONDS)\n                    return\n",
        "a call that ends a wait is never handed out",
        _CALLS,
    ),
    _fault(
        "scheduler/results.py",
        "items.append(self._pending.pop(self._done.get_nowait())[1])",
        "items.append(self._pending[self._done.get_nowait()][1])",
        "calls that were handed out are kept",
        _CALLS,
    ),
    # The workers
    _fault(
        "data/messages/responses.py",
        "logprobs=_lay(logprobs, torch.float32),",
        "logprobs=_lay(logprobs, torch.float64),",
        "log-probabilities travel at twice their size",
        _GENERATION,
    ),
    _fault(
        "data/messages/responses.py",
        "int(sampled.min()) if len(sampled) else 0",
        "int(sampled.min())",
        "a response that was aborted before its first token fails its group",
        _BATCH,
    ),
    _fault(
        "data/messages/responses.py",
        "oldest_version=int(sampled.min()) if",
        "oldest_version=int(sampled[0]) if",
        "the first token's version is taken for the oldest",
        _BATCH,
    ),
    _fault(
        "data/messages/responses.py",
        "newest_version=int(sampled.max()) if",
        "newest_version=int(sampled[-1]) if",
        "the last token's version is taken for the newest",
        _BATCH,
    ),
    _fault(
        "workers/reward/response_store.py",
        "        if self._groups.get((split, group.group_id)) is group:\n",
        "        if (split, group.group_id) in self._groups:\n",
        "a late reward is given to what was generated again",
        _STORE,
    ),
    _fault(
        "workers/reward/response_store.py",
        "for held, number in self._groups if held == split]",
        "for held, number in self._groups if held != split]",
        "clearing an evaluation leaves its groups where they are",
        _STORE,
    ),
    _fault(
        "data/messages/routing.py",
        "return group_id % world_size",
        "return group_id // 2 % world_size",
        "groups pile up on some reward ranks",
        _ROUTING,
    ),
    _fault(
        "workers/reward/response_client.py",
        "return ResponseBatch.concat([batches[number] for number in group_ids])",
        "return ResponseBatch.concat(list(batches.values()))",
        "groups come in the order of their reward ranks",
        _STORE,
    ),
    _fault(
        "workers/reward/reward_worker.py",
        "        self.store.replace(split, group, responses=responses)\n",
        "",
        "the actor gets responses without their rewards",
        _STORE,
    ),
    _fault(
        "workers/reward/reward_worker.py",
        "return await (self.store.pop_scoring(split, group_id) or self._score(split, group))",
        "return await self._score(split, group)",
        "rewards that take long are computed twice",
        _STORE,
    ),
    _fault(
        "workers/reward/reward_worker.py",
        "if scoring.done() and scoring.exception() is None else None",
        "if scoring.done() else None",
        "a reward's failure is an engine's",
        _STORE,
    ),
    _fault(
        "workers/reward/reward_worker.py",
        'if any(response.finish_reason == "abort" for response in group.batch.responses):',
        "if False:",
        "cancelled responses are scored",
        _STORE,
    ),
    _fault(
        "workers/reward/response_store.py",
        "        self._scoring.pop(key, None)\n",
        "",
        "what is generated again gets the rewards of the first generation",
        _STORE,
    ),
    _fault(
        "workers/rollout/generation_worker.py",
        "return await self.responses.put(split,",
        "await self.responses.put(split,",
        "rewards that come at once are thrown away",
        _GENERATION,
    ),
    _fault(
        "runners/rollout_pool.py",
        'elif call.stage != "inference" and self._inference',
        'elif call.stage == "reward" and self._inference',
        "responses that are rewarded at once miss the trainer's log-probabilities",
        _POOL,
    ),
    _fault(
        "telemetry/responses.py",
        "group.num_prompt_tokens * len(group) for",
        "group.num_prompt_tokens for",
        "prompts count once for all their responses",
        "tests/unit/telemetry/test_responses.py",
    ),
    _fault(
        "scheduler/comm/serialization.py",
        '(fields := kind.__dict__.get("plain_fields"))',
        '(fields := getattr(kind, "plain_fields", None))',
        "a class derived from a plain one counts as plain",
        "tests/unit/scheduler/comm/test_serialization.py",
    ),
    _fault(
        "scheduler/comm/serialization.py",
        "[getattr(obj, name) for name in fields], _FIELD_DEPTH",
        "[], _FIELD_DEPTH",
        "what a plain message's open fields hold is not looked at",
        "tests/unit/scheduler/comm/test_serialization.py",
    ),
    _fault(
        "workers/reward/reward_worker.py",
        'rows = dict(zip(group_ids, [""] * len(group_ids), strict=True))',
        "rows: dict[int, str] = {}",
        "tables are in the order of reward ranks",
        _STORE,
    ),
    _fault(
        "data/messages/responses.py",
        "torch.cat(trainer) if len(trainer) == len(parts) else None",
        "torch.cat(trainer) if trainer else None",
        "half of the trainer's log-probabilities pass for all",
        _STORE,
    ),
    _fault(
        "workers/inference/logprob_worker.py",
        "world_size=self._world_size if section.shard_model else 1,",
        "world_size=1,",
        "ranks that share a model hold the whole of it",
        _INFERENCE,
    ),
    _fault(
        "workers/inference/logprob_worker.py",
        "        if self.engine.is_main:\n",
        "        if True:\n",
        "every rank that shares a model answers for all",
        _INFERENCE,
    ),
    _fault(
        "workers/inference/logprob_worker.py",
        "if versions != {self.version} or self.version < 0:",
        "if min(versions) != self.version or self.version < 0:",
        "log-probabilities are computed for responses of two versions",
        _INFERENCE,
    ),
    _fault(
        "data/messages/responses.py",
        "found.logprobs if found.full_logprobs is None else found.full_logprobs for",
        "found.logprobs for",
        "training compares with truncated log-probabilities",
        _GENERATION,
    ),
    _fault(
        "data/messages/generation.py",
        "            temperature=0.0 if greedy else cfg.temperature,\n",
        "            temperature=cfg.temperature,\n",
        "a greedy evaluation samples",
        _PARAMS,
    ),
    _fault(
        "data/messages/generation.py",
        "            stop=tuple(cfg.stop),\n",
        "            stop=(),\n",
        "stop strings get lost",
        _PARAMS,
    ),
    _fault(
        "data/messages/generation.py",
        "            stop_token_ids=tuple(cfg.stop_token_ids),\n",
        "",
        "stop_token_ids get lost",
        _PARAMS,
    ),
    _fault(
        "data/messages/generation.py",
        "            min_new_tokens=cfg.min_new_tokens,\n",
        "",
        "min_new_tokens gets lost",
        _PARAMS,
    ),
    _fault(
        "data/messages/generation.py",
        "            repetition_penalty=cfg.repetition_penalty,\n",
        "",
        "the repetition penalty gets lost",
        _PARAMS,
    ),
    # Steps that can be made again
    _fault(
        "runners/step_runner.py",
        "        step = self.step + 1\n        return str(dump_folder",
        "        step = self.step\n        return str(dump_folder",
        "the step after the named one is dumped",
        _RUNNER,
    ),
    _fault(
        "workers/actor/step_dump.py",
        "    if rank and not isinstance(batch, Trajectory):\n",
        "    if rank:\n",
        "only the first rank's trajectories are dumped",
        _DUMP,
    ),
    _fault(
        "cli/replay.py",
        "is_same = known == value or ",
        "is_same = (known is not None and abs(known - value) < 0.2) or ",
        "numbers that are nearly the recorded ones pass for equal",
        _REPLAY,
    ),
    _fault(
        "cli/replay.py",
        "or (known is None and not math.isfinite(value))\n",
        "or known is None\n",
        "a number in place of a NaN passes for equal",
        _REPLAY,
    ),
    _fault(
        "cli/replay.py",
        "        worker._shut_down()\n",
        "        pass\n",
        "a replay leaves its engine open",
        _REPLAY,
    ),
    _fault(
        "cli/replay.py",
        'row["step"] == step]',
        'row["step"] >= 0]',
        "a step is compared with the last one",
        _REPLAY,
    ),
]

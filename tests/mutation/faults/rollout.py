"""Faults of the workers that generate: which weights, which random numbers, what is delivered."""

from __future__ import annotations

from tests.mutation.fault import Fault

_WORKER = "tests/unit/workers/rollout/test_rollout_worker.py"
_COLLECTOR = "tests/unit/workers/rollout/test_collector.py"
_EXPERTS = "tests/unit/workers/rollout/test_experts.py"
_PATCHES = "tests/unit/workers/test_patch_syncer.py"
_RELAYS = "tests/unit/workers/test_relays.py"
_INBOX = "tests/unit/workers/test_weight_inbox.py"
_SYNCER = "tests/unit/workers/test_weight_syncer.py"
_PATCH_SYNCER = "tests/unit/workers/test_patch_syncer.py"
_STREAM = "tests/unit/workers/rollout/test_weight_stream.py"
_BALANCER = "tests/unit/workers/test_load_balancer.py"
_GENERATION = "tests/unit/workers/rollout/test_generation_worker.py"
_INFERENCE = "tests/unit/workers/inference/test_logprob_worker.py"


def _fault(file: str, before: str, after: str, what: str, *tests: str) -> Fault:
    return Fault(f"rlinf/workers/{file}", before, after, tests, what)


FAULTS: list[Fault] = [
    _fault(
        "rollout/rollout_worker.py",
        'self._generator("actions", self._rank, step, epoch)',
        'self._generator("actions", self._rank, step)',
        "rollout epochs of a step sample the same",
        _WORKER,
    ),
    _fault(
        "rollout/rollout_worker.py",
        'self._generator("actions", self._rank, step, epoch)',
        'self._generator("actions", self._rank, epoch)',
        "every step samples the same",
        _WORKER,
    ),
    _fault(
        "rollout/rollout_worker.py",
        'self._generator("actions", self._rank, step, epoch)',
        'self._generator("actions", 0, step, epoch)',
        "all ranks sample the same",
        _WORKER,
    ),
    _fault(
        "rollout/rollout_worker.py",
        'mode="train" if explores else "eval"',
        'mode="train"',
        "an evaluation samples",
        _WORKER,
    ),
    _fault(
        "rollout/rollout_worker.py",
        "self.weights.wait_for(step - 1 - (self.cfg.algorithm.staleness_threshold or 0))",
        "self.weights.wait_for(step - 2 - (self.cfg.algorithm.staleness_threshold or 0))",
        "a rollout begins with weights one version too old",
        _WORKER,
    ),
    _fault(
        "rollout/rollout_worker.py",
        "self.weights.wait_for(step - 1 - (self.cfg.algorithm.staleness_threshold or 0))",
        "self.weights.wait_for(step - 1)",
        "an asynchronous rollout waits for the newest weights",
        _WORKER,
    ),
    _fault(
        "rollout/rollout_worker.py",
        "collector.add_last_values(self.model.predict_values(message.obs))",
        "collector.add_last_values(self.model.predict_values(acted_on[stage]))",
        "the last value is that of the state before",
        _WORKER,
    ),
    _fault(
        "rollout/rollout_worker.py",
        "return ids.chunk(self.env_route.parts)[self._rank % self.env_route.parts]",
        "return ids.chunk(self.env_route.parts)[0]",
        "ranks that share an env worker number their environments alike",
        _WORKER,
    ),
    _fault(
        "rollout/rollout_worker.py",
        "parts = actions.chunk(len(self.env_route.peers))",
        "parts = actions.chunk(len(self.env_route.peers))[::-1]",
        "env workers get each other's actions",
        _WORKER,
    ),
    _fault(
        "rollout/rollout_worker.py",
        "collector.add_decision(output, version=self.weights.version)",
        "collector.add_decision(output, version=self.weights.version + 1)",
        "chunks carry the version of the next weights",
        _WORKER,
    ),
    _fault(
        "rollout/delivery.py",
        "            env_ids=env_ids + epoch * cfg.total_num_envs,\n",
        "            env_ids=env_ids,\n",
        "rollout epochs number their environments alike",
        _WORKER,
    ),
    _fault(
        "rollout/delivery.py",
        "group_ids=env_ids // cfg.group_size + epoch * num_groups,",
        "group_ids=env_ids // cfg.group_size,",
        "groups of several rollout epochs are mixed",
        _WORKER,
    ),
    _fault(
        "rollout/collector.py",
        'self.decisions.append(output.to("cpu"))',
        "self.decisions.append(output)",
        "images of a whole rollout lie on the device",
        _WORKER,
        _COLLECTOR,
    ),
    _fault(
        "rollout/collector.py",
        'feedback = feedback.to("cpu")',
        "pass",
        "what the policy saw after each chunk lies on the device",
        _COLLECTOR,
    ),
    _fault(
        "rollout/collector.py",
        "self.results.append(replace(step, obs={}, final_obs=None))",
        "self.results.append(step)",
        "observations of a whole rollout are kept twice",
        _COLLECTOR,
    ),
    _fault(
        "rollout/collector.py",
        "            wanted = step.truncations[step.final_ids].any(-1)\n",
        "            wanted = step.terminations[step.final_ids].any(-1)\n",
        "terminal states are bootstrapped, truncated ones are not",
        _WORKER,
        _COLLECTOR,
    ),
    _fault(
        "rollout/collector.py",
        "return step.final_ids[wanted], self.model.predict_values(select_rows(step.final_obs, wanted))",
        "return step.final_ids[wanted], self.model.predict_values(select_rows(step.obs, wanted))",
        "final values are those of the next episode",
        _WORKER,
        _COLLECTOR,
    ),
    _fault(
        "rollout/collector.py",
        "return {name: tensor.index_copy(0, rows, final[name]) for name, tensor in inputs.items()}",
        "return inputs",
        "a transition leads into the next episode",
        _COLLECTOR,
    ),
    _fault(
        "rollout/collector.py",
        "values = torch.stack([*rows, self.last_values])",
        "values = torch.stack([*rows, rows[-1]])",
        "the value after the last chunk is the one before it",
        _WORKER,
    ),
    _fault(
        "rollout/collector.py",
        "action = torch.where(flag.view(*flag.shape, *[1] * (action.ndim - flag.ndim)), executed_actions, action)",
        "action = executed_actions",
        "actions without an intervention are replaced, too",
        _COLLECTOR,
    ),
    _fault(
        "rollout/experts.py",
        "self.beta = self.loss.beta * self.loss.beta_decay ** (step - 1)",
        "self.beta = self.loss.beta * self.loss.beta_decay**step",
        "the expert's share decays one step early",
        _EXPERTS,
    ),
    _fault(
        "rollout/experts.py",
        "precision = recipe.rollout.model.precision or model_cfg.precision",
        "precision = model_cfg.precision",
        "an expert fills the rollout's device in fp32",
        _EXPERTS,
    ),
    _fault(
        "rollout/experts.py",
        "model_cfg = cfg.model_beside(recipe.actor.model)",
        "model_cfg = cfg.model or recipe.actor.model",
        "the expert is what the policy starts from",
        _EXPERTS,
    ),
    _fault(
        "rollout/experts.py",
        "            labelled = expert_mask\n",
        "            labelled = torch.ones_like(expert_mask)\n",
        "labels of states in which the expert did not take over are learned",
        _EXPERTS,
    ),
    _fault(
        "rollout/experts.py",
        "draws = torch.rand(len(chosen), generator=generator, device=generator.device if generator else None)",
        "draws = torch.rand(len(chosen), device=generator.device if generator else None)",
        "who acts is not repeatable",
        _EXPERTS,
    ),
    _fault(
        "rollout/weight_stream.py",
        "        while self.version < version:\n",
        "        while self.version < version - 1:\n",
        "weights one version older are enough",
        _STREAM,
        _WORKER,
    ),
    _fault(
        "rollout/weight_stream.py",
        "        while self._inbox.has_arrived():\n            newest = self._inbox.take()\n",
        "        if self._inbox.has_arrived():\n            newest = self._inbox.take()\n",
        "the oldest weights that have arrived are taken",
        _STREAM,
    ),
    _fault(
        "weight_inbox.py",
        "            if isinstance(message, Manifest) and message.version >= version:\n",
        "            if isinstance(message, Manifest):\n",
        "what is left of a broken update is taken for the next",
        _INBOX,
    ),
    _fault(
        "weight_inbox.py",
        "        if found.content != manifest:\n",
        "        if found.entries != manifest.entries:\n",
        "owners may publish different versions",
        _INBOX,
    ),
    _fault(
        "weight_inbox.py",
        "isinstance(message, Manifest) and message.version >= version",
        "not isinstance(message, Manifest) or message.version >= version",
        "a bucket that is left over is taken for an announcement",
        _INBOX,
    ),
    _fault(
        "weight_inbox.py",
        "            check_bucket(manifest, index, buckets[index])\n",
        "",
        "damaged buckets are handed on",
        _INBOX,
    ),
    _fault(
        "weight_inbox.py",
        'is_lasting = all(bucket.device.type == "cpu" for bucket in buckets)',
        "is_lasting = True",
        "parameters are views of memory that another process's device may take back",
        _INBOX,
    ),
    _fault(
        "actor/weight_publisher.py",
        'return plan if self._is_on_host else replace(plan, checksum_kind="words")',
        "return plan",
        "buckets of a device come to the host for their seals",
        _INBOX,
    ),
    _fault(
        "weight_syncer.py",
        'if isinstance(message, torch.Tensor) and message.device.type != "cpu":',
        "if False:",
        "what lies on a device goes to several ranks through host memory",
        _SYNCER,
    ),
    _fault(
        "weight_syncer.py",
        "        return torch.empty(num_bytes, dtype=torch.uint8, device=self.worker.device)\n",
        "        return self.worker.shared_buffer(num_bytes)\n",
        "buckets are never filled on a device",
        _SYNCER,
    ),
    _fault(
        "actor/weight_publisher.py",
        "        weights = engine.export_weights(form, owned=True)\n",
        "        weights = engine.export_weights(form, owned=False)\n",
        "every rank makes the whole model whole",
        _INBOX,
    ),
    _fault(
        "patch_syncer.py",
        "        has_base = last is not None and last.version == manifest.base and _alike(last, manifest)\n",
        "        has_base = last is not None and _alike(last, manifest)\n",
        "patches of an update that was missed are accepted",
        _PATCHES,
    ),
    _fault(
        "patch_syncer.py",
        "        base, self._last = self._last, None\n",
        "        base = self._last\n",
        "a sender that broke off goes on from what it did not send",
        _PATCHES,
    ),
    _fault(
        "relays.py",
        "                relays[receiver] = next(reversed(first_of.values()))\n",
        "                relays[receiver] = next(iter(first_of.values()))\n",
        "one node sends the weights to all others",
        _RELAYS,
    ),
    _fault(
        "weight_inbox.py",
        "            self._next_manifest(source, manifest.version)\n",
        "            pass\n",
        "a relay's announcement is taken for a bucket",
        _RELAYS,
    ),
    _fault(
        "rollout/generation_worker.py",
        "            buckets[index] = torch.empty(0, dtype=torch.uint8)\n",
        "            buckets[0] = torch.empty(0, dtype=torch.uint8)\n",
        "memory of buckets that have been loaded is kept",
        _GENERATION,
    ),
    _fault(
        "load_balancer.py",
        "        if ended[rollout] == self.num_env_workers:\n",
        "        if ended[rollout] >= 1:\n",
        "a rollout ends with its first env rank",
        _BALANCER,
    ),
    # Language models.
    _fault(
        "rollout/generation_worker.py",
        'derive_seed(self.cfg.actor.seed, "answers", split, group_id)',
        'derive_seed(self.cfg.actor.seed, "answers", split)',
        "all prompts share a stream of random numbers",
        _GENERATION,
    ),
    _fault(
        "rollout/generation_worker.py",
        'derive_seed(self.cfg.actor.seed, "answers", split, group_id)',
        'derive_seed(self.cfg.actor.seed, "answers", group_id)',
        "evaluation samples what training samples",
        _GENERATION,
    ),
    _fault(
        "weight_inbox.py",
        "            manifest.check_version(version)\n",
        "            pass\n",
        "weights of a later version than expected are taken",
        _INBOX,
        _GENERATION,
    ),
    _fault(
        "rollout/generation_worker.py",
        "            await self.engine.load_bucket(index, buckets[index])\n",
        "            await self.engine.load_bucket(0, buckets[index])\n",
        "every bucket is loaded as the first",
        _GENERATION,
    ),
    _fault(
        "rollout/generation_worker.py",
        "            finally:\n                await self.engine.resume()\n",
        "            finally:\n                pass\n",
        "the engine stays paused after an update",
        _GENERATION,
    ),
    _fault(
        "rollout/generation_worker.py",
        "abs(float(found[name].float().norm()) - norm) > _TOLERANCE * max(norm, 1e-6)",
        "float(found[name].float().norm()) - norm > _TOLERANCE * max(norm, 1e-6)",
        "weights that are too small pass the validation",
        _GENERATION,
    ),
    _fault(
        "inference/logprob_worker.py",
        "        if versions != {self.version} or self.version < 0:\n",
        "        if self.version < 0:\n",
        "log-probabilities are computed with other weights than those that sampled",
        _INFERENCE,
    ),
    _fault(
        "inference/logprob_worker.py",
        "        self.version = -1\n        for part in named:\n",
        "        for part in named:\n",
        "a failed update leaves the old version in place",
        _INFERENCE,
    ),
    _fault(
        "inference/logprob_worker.py",
        "weights = self.adapters if manifest.is_partial else self.weights",
        "weights = dict(self.weights)",
        "updates of adapters alone are refused",
        _INFERENCE,
    ),
    _fault(
        "weight_syncer.py",
        "            self._death = self._death or error\n",
        "            raise\n",
        "the receivers that are left wait for an update that broke off when another died",
        _PATCH_SYNCER,
    ),
    _fault(
        "weight_syncer.py",
        "        if death is not None:\n            raise death\n",
        "",
        "the death of a receiver is not reported",
        _PATCH_SYNCER,
    ),
]

"""Faults of generation engines and of the weights that they receive."""

from __future__ import annotations

from tests.mutation.fault import Fault

_GENERATION = "rlinf/hybrid_engines/generation"
_WEIGHTS = "rlinf/hybrid_engines/weights"
_CONFORMANCE = "tests/unit/hybrid_engines/generation/test_engine_conformance.py"
_SAMPLER = "tests/unit/hybrid_engines/generation/test_sampler.py"
_SEQUENCE = "tests/unit/hybrid_engines/generation/test_token_sequence.py"
_SCHEDULER = "tests/unit/hybrid_engines/generation/test_engine_scheduler.py"
_IN_PROCESS = "tests/unit/hybrid_engines/generation/test_in_process_engine.py"
_BUCKETS = "tests/unit/hybrid_engines/weights/test_bucket.py"
_FILLING = "tests/unit/hybrid_engines/weights/test_bucket_filling.py"
_CHECKSUM = "tests/unit/hybrid_engines/weights/test_checksum.py"
_SHARING = "tests/unit/hybrid_engines/weights/test_work_sharing.py"
_PATCH = "tests/unit/hybrid_engines/weights/test_patch.py"
_MEMORY = "tests/unit/hybrid_engines/weights/test_memory.py"
_ADAPTERS = "tests/unit/hybrid_engines/weights/test_adapters.py"
_ACTOR = "tests/unit/workers/actor/test_actor_worker.py"
_TESTS = {
    "token_sequence.py": (_SEQUENCE,),
    "sampler.py": (_SAMPLER, _CONFORMANCE),
    "hf.py": (_CONFORMANCE, _IN_PROCESS),
    "engine_scheduler.py": (_SCHEDULER, _CONFORMANCE),
    "slot_cache.py": (_CONFORMANCE, _IN_PROCESS),
}


def _fault(file: str, before: str, after: str, what: str, *tests: str) -> Fault:
    return Fault(f"{_GENERATION}/{file}", before, after, tests or _TESTS[file], what)


FAULTS: list[Fault] = [
    # Which tokens are sampled, and with which probability.
    _fault(
        "sampler.py",
        "logits = logits / logits.new_tensor([[t or 1.0] for t in temperatures])",
        "logits = logits * logits.new_tensor([[t or 1.0] for t in temperatures])",
        "the temperature multiplies",
    ),
    _fault(
        "sampler.py",
        "logprobs = full if not rows else _filtered(full, sequences, rows)",
        "logprobs = full",
        "top-k, top-p and min-p are ignored",
    ),
    _fault(
        "sampler.py",
        "torch.stack([logprobs.gather(1, index)[:, 0], full.gather(1, index)[:, 0]])",
        "torch.stack([full.gather(1, index)[:, 0], logprobs.gather(1, index)[:, 0]])",
        "log-probabilities of the truncated and of the full distribution change places",
    ),
    _fault(
        "sampler.py",
        "full[rows], filters).log_softmax(-1)",
        "full[rows], filters)",
        "truncated probabilities are not renormalised",
    ),
    _fault(
        "sampler.py",
        "torch.where(greedy, logprobs.argmax(-1), _invert(logprobs, sequences))",
        "torch.where(greedy, full.argmax(-1), _invert(logprobs, sequences))",
        "greedy sampling takes a token that is suppressed",
    ),
    _fault(
        "sampler.py",
        "changed = torch.where(part > 0, part / penalties, part * penalties)",
        "changed = torch.where(part > 0, part * penalties, part / penalties)",
        "the repetition penalty rewards repetitions",
    ),
    _fault(
        "sampler.py",
        "changed = torch.where(part > 0, part / penalties, part * penalties)",
        "changed = part / penalties",
        "the repetition penalty raises negative logits",
    ),
    _fault(
        "sampler.py",
        "            seen[sequence.context] = True",
        "            seen[list(sequence.token_ids)] = True",
        "the repetition penalty does not see the prompt",
    ),
    _fault(
        "sampler.py",
        "            seen[sequence.token_ids[-1]] = True",
        "            seen[sequence.token_ids[0]] = True",
        "the repetition penalty sees only the first token",
    ),
    _fault(
        "sampler.py",
        "logprobs < logprobs.amax(-1, keepdim=True) + min_p.log()",
        "logprobs < min_p.log()",
        "min-p is absolute rather than relative to the likeliest token",
    ),
    _fault(
        "sampler.py",
        "ordered.masked_fill(ranks >= torch.tensor(top_k",
        "ordered.masked_fill(ranks > torch.tensor(top_k",
        "top-k leaves one token more",
    ),
    _fault(
        "sampler.py",
        "reached = probabilities.cumsum(-1) - probabilities >= logprobs.new_tensor(top_p)[:, None]",
        "reached = probabilities.cumsum(-1) >= logprobs.new_tensor(top_p)[:, None]",
        "top-p leaves out the token that reaches it",
    ),
    _fault(
        "sampler.py",
        "    probabilities = ordered.softmax(-1)\n",
        "    probabilities = logprobs.sort(-1, descending=True)[0].exp()\n",
        "top-p counts what top-k has left out",
    ),
    _fault(
        "sampler.py",
        "suppressed=() if key[1] else tuple(sequence.end_ids)",
        "suppressed=()",
        "min_new_tokens does not suppress end tokens",
    ),
    _fault(
        "sampler.py",
        "indices = np.array([len(a.token_ids) for a in sequences], dtype=np.uint64)",
        "indices = np.array([0 for a in sequences], dtype=np.uint64)",
        "every token is sampled with the same random number",
    ),
    _fault(
        "sampler.py",
        "seeds = np.array([a.seed for a in sequences], dtype=np.uint64)",
        "seeds = np.array([sequences[0].seed for a in sequences], dtype=np.uint64)",
        "a batch shares one stream of random numbers",
    ),
    # When a response ends.
    _fault(
        "token_sequence.py",
        "return len(self.token_ids) >= self.params.min_new_tokens",
        "return len(self.token_ids) > self.params.min_new_tokens",
        "min_new_tokens asks for one token more",
    ),
    _fault(
        "token_sequence.py",
        "elif len(self.token_ids) >= self.limit:",
        "elif len(self.token_ids) > self.limit:",
        "a response is one token longer than allowed",
    ),
    _fault(
        "token_sequence.py",
        '            self.finish_reason = "length"\n',
        '            self.finish_reason = "stop"\n',
        "a response that was cut off says that it stopped",
    ),
    _fault(
        "token_sequence.py",
        "        self.versions.append(version)\n",
        "        self.versions = [version] * len(self.token_ids)\n",
        "all tokens carry the newest weight version",
    ),
    _fault(
        "token_sequence.py",
        "tail = self.token_ids[-(_TOKENS_PER_CHARACTER * longest + 1) :]",
        "tail = self.token_ids[-1:]",
        "stop strings of several tokens are not found",
    ),
    _fault(
        "engine_scheduler.py",
        "frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else self._end_ids)",
        "frozenset() if params.ignore_eos else self._end_ids",
        "stop_token_ids do not reach the engine",
    ),
    _fault(
        "engine_scheduler.py",
        "(frozenset() if params.ignore_eos else self._end_ids)",
        "self._end_ids",
        "ignore_eos is ignored",
    ),
    _fault(
        "engine_scheduler.py",
        "limit=min(params.max_new_tokens, self._max_context_tokens - len(request.prompt_ids)),",
        "limit=params.max_new_tokens,",
        "a response outgrows the context",
    ),
    # Seeds and queues.
    _fault(
        "engine_scheduler.py",
        "if params.seed is None else (params.seed, index)",
        "if params.seed is None else (params.seed, 0)",
        "all responses to a prompt are equal",
    ),
    _fault(
        "engine_scheduler.py",
        "origin = (self._seed, -1, next(self._seeds)) if params.seed is None",
        "origin = (self._seed, -1, 0) if params.seed is None",
        "requests without a seed share one",
    ),
    _fault(
        "engine_scheduler.py",
        "self._queue.extendleft(reversed(running))",
        "self._queue.extendleft(running)",
        "evicted responses come back in reverse order",
    ),
    _fault(
        "engine_scheduler.py",
        "self._queue.extendleft(reversed(running))",
        "self._queue.extend(running)",
        "evicted responses queue behind those that wait",
    ),
    _fault(
        "engine_scheduler.py",
        "sequence.append(token_id, logprob, full_logprob, self.version)",
        "sequence.append(token_id, logprob, full_logprob, self.version + 1)",
        "tokens carry the version of the next weights",
    ),
    _fault(
        "engine_scheduler.py",
        "        self.version = version\n",
        "        self.version += 1\n",
        "the version is counted rather than taken from the update",
    ),
    _fault(
        "engine_scheduler.py",
        "        self.model_runner.begin_update(manifest)\n        self._evict()\n",
        "        self.model_runner.begin_update(manifest)\n",
        "responses go on with the key-value cache of older weights",
    ),
    _fault(
        "engine_scheduler.py",
        "        self._queue.extend(self._set_aside)\n",
        "",
        "requests that came during a pause are forgotten",
    ),
    _fault(
        "engine_scheduler.py",
        "is_complete=self.is_synced",
        "is_complete=True",
        "adapters are accepted by an engine without their base",
    ),
    _fault(
        "engine_scheduler.py",
        "completions = tuple(sequence.completion() for sequence in entry.sequences)",
        "completions = tuple(sequence.completion() for sequence in reversed(entry.sequences))",
        "responses are returned in another order than their seeds",
    ),
    _fault(
        "engine_scheduler.py",
        'if mode == "abort":\n            self._abort([*self._running.values(), *self._queue])',
        'if mode == "abort":\n            self._abort([*self._running.values()])',
        "a pause with abort keeps what waits",
    ),
    _fault(
        "hf.py",
        "        positions = torch.tensor(lengths, device=self._device) - 1\n",
        "        positions = torch.tensor(lengths, device=self._device)\n",
        "positions are one too high",
    ),
    _fault(
        "hf.py",
        "mask = torch.arange(width, device=self._device) <= positions[:, None]",
        "mask = torch.arange(width, device=self._device) < positions[:, None]",
        "a token does not attend to itself",
    ),
    _fault(
        "hf.py",
        "return self._sample(logits[places], sequences, ",
        "return self._sample(logits[: len(sequences)], sequences, ",
        "the first token comes from another prompt",
    ),
    _fault(
        "hf.py",
        "self._cache.move(len(self._rows), row, len(last.prompt_ids) + len(last.token_ids))",
        "self._cache.move(len(self._rows), row, len(last.prompt_ids))",
        "a moved response loses the cache of its own tokens",
    ),
    _fault(
        "sampler.py",
        "            self._seen.pop(key, None)\n",
        "            self._seen.get(key, None)\n",
        "what was seen of ended responses is kept",
    ),
    _fault(
        "slot_cache.py",
        "store[1, index, first:last, :, :width] = values[sources]",
        "store[1, index, first:last, :, :width] = keys[sources]",
        "values of a prompt are its keys",
    ),
    _fault(
        "sampler.py",
        "if kind.suppressed and len(rows_of) == 1:",
        "if kind.suppressed:",
        "what one response may not sample, none may",
    ),
    _fault(
        "sampler.py",
        "        key = (id(sequence.params), sequence.may_end)\n",
        "        key = (id(sequence.params), sequences[0].may_end)\n",
        "responses of another length are suppressed as the first one",
    ),
    _fault(
        "slot_cache.py",
        "self._targets = first + positions.repeat_interleave(heads)",
        "self._targets = first + positions.repeat(heads)",
        "keys of one response are written to another's places",
    ),
    _fault(
        "slot_cache.py",
        "                grown[:, :, :, :, : store.shape[4]] = store\n",
        "                pass\n",
        "a cache that grows forgets",
    ),
    _fault(
        "slot_cache.py",
        "query.reshape(batch, num_key_heads, num_heads // num_key_heads, head_dim)",
        "query.reshape(batch, num_heads // num_key_heads, num_key_heads, head_dim).transpose(1, 2)",
        "query heads read the key heads of others",
    ),
    # Weights.
    Fault(
        f"{_WEIGHTS}/bucket.py",
        "        if manifest.version < current_version:\n",
        "        if manifest.version < current_version - 1:\n",
        (_BUCKETS,),
        "weights one version older are accepted",
    ),
    Fault(
        f"{_WEIGHTS}/bucket.py",
        "        self.version = version\n",
        "        self.version = max(self.version + 1, 0)\n",
        (_BUCKETS, "tests/unit/workers/rollout/test_weight_stream.py"),
        "the receiver counts versions itself",
    ),
    Fault(
        f"{_WEIGHTS}/bucket.py",
        "return version << 24 | index",
        "return index",
        (_BUCKETS,),
        "a bucket of another version passes the checksum",
    ),
    Fault(
        f"{_WEIGHTS}/bucket.py",
        "    if missing or extra:\n",
        "    if extra:\n",
        (_BUCKETS,),
        "weights that are missing keep their old values",
    ),
    Fault(
        f"{_WEIGHTS}/bucket.py",
        "        version = update.finish()\n",
        "        version = manifest.version\n",
        (_BUCKETS,),
        "a missing bucket is not noticed before loading",
    ),
    Fault(
        f"{_WEIGHTS}/bucket.py",
        "        filled[index] += -(-num_bytes // _ALIGNMENT) * _ALIGNMENT\n",
        "        filled[index] += num_bytes // _ALIGNMENT * _ALIGNMENT\n",
        (_BUCKETS,),
        "tensors overlap in a bucket",
    ),
    Fault(
        f"{_WEIGHTS}/bucket.py",
        "        self._received.add(index)\n",
        "        self._received |= set(range(index + 1))\n",
        (_BUCKETS,),
        "earlier buckets count as received",
    ),
    Fault(
        f"{_WEIGHTS}/bucket.py",
        "        if manifest.version < current_version:\n",
        "        if manifest.version <= current_version:\n",
        (_BUCKETS,),
        "weights of the present version are refused",
    ),
    Fault(
        f"{_WEIGHTS}/bucket.py",
        '    if kind == "parts":\n        bucket = bucket.cpu()\n',
        '    bucket = bucket.cpu()\n    kind = "parts"\n',
        (_BUCKETS,),
        "buckets of a device are checked as those of the host",
    ),
    Fault(
        f"{_WEIGHTS}/bucket_filling.py",
        "        for part in range(offset // PART_BYTES, -(-end // PART_BYTES)):\n",
        "        for part in range(offset // PART_BYTES, end // PART_BYTES + 1)[:-1] or [offset // PART_BYTES]:\n",
        (_FILLING,),
        "the last part of a tensor is not copied",
    ),
    Fault(
        f"{_WEIGHTS}/bucket_filling.py",
        "tasks[part].append((copy, max(offset, begin_of_part), min(end, begin_of_part + PART_BYTES)))",
        "tasks[part].append((copy, max(offset, begin_of_part), end))",
        (_FILLING,),
        "a part is hashed before its neighbour's thread has written it again",
    ),
    Fault(
        f"{_WEIGHTS}/bucket_filling.py",
        "            first, last = (begin - offset) // itemsize, (end - offset) // itemsize\n",
        "            first, last = begin // itemsize, end // itemsize\n",
        (_FILLING,),
        "parts that are cast lie elsewhere",
    ),
    Fault(
        f"{_WEIGHTS}/checksum.py",
        "            fill(part)\n        digests[part]",
        "            pass\n        digests[part]",
        (_FILLING,),
        "buckets are sealed as they were",
    ),
    Fault(
        f"{_WEIGHTS}/checksum.py",
        "    count = -(-len(content) // PART_BYTES)\n",
        "    count = max(len(content) // PART_BYTES, 1)\n",
        (_CHECKSUM,),
        "the end of a bucket is not hashed",
    ),
    Fault(
        f"{_WEIGHTS}/work_sharing.py",
        "min(_MAX_THREADS, len(os.sched_getaffinity(0)), count // min_each)",
        "min(_MAX_THREADS, count // min_each)",
        (_SHARING,),
        "more threads than cores",
    ),
    Fault(
        f"{_WEIGHTS}/work_sharing.py",
        "            other.result()\n",
        "            other.exception()\n",
        (_SHARING,),
        "what fails on another thread is lost",
    ),
    Fault(
        f"{_WEIGHTS}/checksum.py",
        "(numbers * 2 + 1).mul_(_MULTIPLIER)",
        "(numbers * 0 + 1).mul_(_MULTIPLIER)",
        (_CHECKSUM,),
        "words that changed places are not noticed",
    ),
    Fault(
        f"{_WEIGHTS}/checksum.py",
        "        numbers = torch.arange(begin, begin + part.numel(), device=words.device)\n",
        "        numbers = torch.arange(part.numel(), device=words.device)\n",
        (_CHECKSUM,),
        "every step of the sum has the same factors",
    ),
    Fault(
        f"{_WEIGHTS}/bucket.py",
        "    entries.sort(key=lambda entry: entry.bucket)\n",
        "",
        (_BUCKETS,),
        "the buckets of several owners are mixed",
    ),
    Fault(
        f"{_WEIGHTS}/bucket.py",
        "    if is_lasting and same and isinstance(target, nn.Parameter):\n",
        "    if same and isinstance(target, nn.Parameter):\n",
        (_IN_PROCESS,),
        "parameters are views of memory that is used again",
    ),
    Fault(
        f"{_WEIGHTS}/bucket.py",
        "    if is_lasting and same and isinstance(target, nn.Parameter):\n",
        "    if is_lasting and isinstance(target, nn.Parameter):\n",
        (_IN_PROCESS,),
        "the engine takes over the precision of what was published",
    ),
    Fault(
        f"{_WEIGHTS}/patch.py",
        "before.view(np.int64) != after.view(np.int64)",
        "before.view(np.float64) != after.view(np.float64)",
        (_PATCH,),
        "numbers are compared, not bits",
    ),
    Fault(
        f"{_WEIGHTS}/patch.py",
        "    result[np.cumsum(skips + 1) - 1] = rest\n",
        "    result[np.cumsum(skips + 1) - 1] = np.maximum(rest, 1)\n",
        (_PATCH,),
        "an element right behind a skip moves",
    ),
    Fault(
        f"{_WEIGHTS}/patch.py",
        "    result = torch.empty_like(base) if allocate is None else allocate(base.nbytes)\n",
        "    result = base\n",
        (_PATCH,),
        "a patch is applied to weights that are in use",
    ),
    Fault(
        f"{_WEIGHTS}/memory.py",
        "        weakref.finalize(array, spare.append, memory).atexit = False\n",
        "        weakref.finalize(tensor := torch.from_numpy(array), spare.append, memory).atexit = False\n",
        (_MEMORY,),
        "memory is used again while parameters lie in it",
    ),
    Fault(
        f"{_WEIGHTS}/adapters.py",
        "            check_manifest(manifest, self._parts, self._parts)\n",
        "            pass\n",
        (_ADAPTERS,),
        "adapters of another model are merged",
    ),
    Fault(
        f"{_WEIGHTS}/adapters.py",
        "if is_partial and not is_adapted(name)}",
        "if is_partial}",
        (_ACTOR, _ADAPTERS),
        "what adapters are added to is taken for what stays as it is",
    ),
    Fault(
        f"{_WEIGHTS}/adapters.py",
        "        check_manifest(self._merger.plan(is_partial=True), targets, targets)\n",
        "",
        (_ADAPTERS,),
        "merged weights of another model are loaded in part",
    ),
    Fault(
        f"{_WEIGHTS}/adapters.py",
        "tensor.float() if tensor.dtype in _HALVES else tensor",
        "tensor",
        (_ADAPTERS,),
        "adapters are added in bfloat16",
    ),
    Fault(
        f"{_WEIGHTS}/bucket.py",
        " | set(manifest.left_out)\n",
        "\n",
        (_ACTOR,),
        "an update of what is trained is refused",
    ),
    Fault(
        "rlinf/models/trainable.py",
        '(form == "trained" and name in frozen) or ',
        "",
        ("tests/unit/models/test_trainable.py",),
        "frozen weights count as trained",
    ),
    Fault(
        "rlinf/models/trainable.py",
        "self.named_parameters(remove_duplicate=False) if not",
        "self.named_parameters() if not",
        ("tests/unit/models/test_trainable.py",),
        "the second name of a frozen weight counts as trained",
    ),
    Fault(
        f"{_WEIGHTS}/adapters.py",
        "        if torch.equal(half.float(), tensor.cpu()):\n            return half\n",
        "        return half\n",
        (_ADAPTERS,),
        "weights are rounded to bfloat16",
    ),
    Fault(
        "rlinf/hybrid_engines/generation/engine_scheduler.py",
        "self.model_runner.load_weights(self._begun().take(index, bucket))",
        "self.model_runner.load_weights(self._begun().take(index, bucket)[-1:])",
        ("tests/unit/hybrid_engines/generation/test_trained_weights.py",),
        "of a bucket with several tensors one is loaded",
    ),
]

"""Faults of messages, replays, prompts and packing."""

from __future__ import annotations

from tests.mutation.fault import Fault

_TESTS = {
    "messages/batch_record.py": ("tests/unit/data/messages/test_batch_record.py",),
    "messages/embodied.py": ("tests/unit/data/messages/test_embodied_messages.py",),
    "replay/buffer.py": ("tests/unit/data/replay/test_buffer.py",),
    "replay/segments.py": ("tests/unit/data/replay/test_segments.py", "tests/unit/data/replay/test_buffer.py"),
    "datasets/prompts.py": ("tests/unit/data/datasets/test_prompts.py",),
    "datasets/examples.py": ("tests/unit/data/datasets/test_examples.py",),
    "packing.py": ("tests/unit/data/test_packing.py",),
    "shared_prefixes.py": ("tests/unit/data/test_shared_prefixes.py",),
    "credit_columns.py": ("tests/unit/data/test_credit_columns.py",),
    "messages/routing.py": ("tests/unit/data/messages/test_routing.py",),
    "messages/rewards.py": (
        "tests/unit/data/messages/test_embodied_messages.py",
        "tests/unit/workers/reward/test_reward_worker.py",
    ),
}


def _fault(file: str, before: str, after: str, what: str) -> Fault:
    return Fault(f"rlinf/data/{file}", before, after, _TESTS[file], what)


FAULTS: list[Fault] = [
    # Transitions and the replay.
    _fault(
        "replay/buffer.py",
        "rewards = torch.where(executed, trajectory.rewards.flatten(0, 1), 0.0)",
        "rewards = trajectory.rewards.flatten(0, 1)",
        "rewards of actions that were not executed count",
    ),
    _fault(
        "replay/buffer.py",
        "terminated=(trajectory.terminations & trajectory.executed).any(-1)",
        "terminated=trajectory.terminations.any(-1)",
        "terminations of actions that were not executed count",
    ),
    _fault(
        "replay/buffer.py",
        "terminated=(trajectory.terminations & trajectory.executed).any(-1)",
        "terminated=((trajectory.terminations | trajectory.truncations) & trajectory.executed).any(-1)",
        "a truncation counts as terminal",
    ),
    _fault(
        "replay/buffer.py",
        "powers = gamma ** torch.arange(executed.shape[-1], dtype=torch.float64)",
        "powers = gamma ** (1 + torch.arange(executed.shape[-1], dtype=torch.float64))",
        "rewards of a chunk are discounted once too often",
    ),
    _fault(
        "replay/buffer.py",
        "rewards=(rewards * powers).sum(-1).float()[kept],",
        "rewards=rewards.sum(-1).float()[kept],",
        "rewards of a chunk are not discounted",
    ),
    _fault(
        "replay/buffer.py",
        "lengths=executed.sum(-1)[kept],",
        "lengths=torch.full_like(executed.sum(-1), executed.shape[-1])[kept],",
        "what follows an interrupted chunk is discounted as after a whole one",
    ),
    _fault(
        "replay/buffer.py",
        "        kept = executed.any(-1)\n",
        "        kept = torch.ones_like(executed.any(-1))\n",
        "chunks that were not executed are learned from",
    ),
    _fault(
        "replay/buffer.py",
        "next_inputs={name: t.flatten(0, 1)[kept] for name, t in trajectory.next_inputs.items()},",
        "next_inputs={name: inputs[name] for name in trajectory.next_inputs},",
        "the next state is the present one",
    ),
    _fault(
        "replay/buffer.py",
        "ages = torch.randint(self.size, (count,), generator=generator)",
        "ages = torch.randint(self.size, (count,))",
        "sampling ignores its generator",
    ),
    _fault(
        "replay/buffer.py",
        "ages = torch.randint(self.size, (count,), generator=generator)",
        "ages = torch.randint(max(self.size - 1, 1), (count,), generator=generator)",
        "the newest transition is never sampled",
    ),
    _fault(
        "replay/buffer.py",
        "return Transitions.from_named(self._gather(self.first + ages))",
        "return Transitions.from_named(self._gather(ages))",
        "a draw depends on how much was added before a reload",
    ),
    _fault(
        "replay/buffer.py",
        "self.size = min(self.size + count, self.capacity)",
        "self.size = min(self.size + count, self._memory_rows)",
        "transitions in files are forgotten",
    ),
    _fault(
        "replay/buffer.py",
        "slots = (self.end + torch.arange(count)) % self._memory_rows",
        "slots = (self.end + torch.arange(count).flip(0)) % self._memory_rows",
        "transitions of one addition are stored in reverse order",
    ),
    _fault(
        "replay/buffer.py",
        "places = (numbers < self.end - self._in_memory).nonzero().flatten()",
        "places = (numbers < self.end - self._in_memory - 1).nonzero().flatten()",
        "a spilled transition is read from memory that was overwritten",
    ),
    _fault(
        "replay/buffer.py",
        "mine = numbers % num_ranks == rank",
        "mine = numbers % num_ranks == 0",
        "every rank loads the same share",
    ),
    _fault(
        "replay/buffer.py",
        "            self._disk.drop_before(self.first)\n",
        "            self._disk.drop_before(self.end)\n",
        "spilled transitions that are still held are deleted",
    ),
    _fault(
        "replay/segments.py",
        "if path.stat().st_size != segment.bytes or _checksum(path) != segment.xxh3_128:",
        "if path.stat().st_size != segment.bytes:",
        "damage that keeps a file's size is not noticed",
    ),
    _fault(
        "replay/segments.py",
        "for index in [index for index, segment in self.segments.items() if segment.end <= first]:",
        "for index in [index for index, segment in self.segments.items() if segment.start <= first]:",
        "a segment whose newer rows are held is deleted",
    ),
    _fault(
        "replay/segments.py",
        "held = slice(first - segment.start, end - segment.start)",
        "held = slice(0, end - first)",
        "rows older than the oldest held come back",
    ),
    _fault(
        "replay/segments.py",
        'key=lambda part: int(part.parent.name.removeprefix("rank_"))',
        "key=lambda part: part.parent.name",
        "ranks of a saved replay are sorted as text",
    ),
    # Messages.
    _fault(
        "messages/embodied.py",
        "inside = ((self.final_ids >= start) & (self.final_ids < stop)).nonzero().flatten()",
        "inside = ((self.final_ids >= start) & (self.final_ids <= stop)).nonzero().flatten()",
        "an episode's end reaches a neighbour's share",
    ),
    _fault(
        "messages/embodied.py",
        "final_ids=self.final_ids[inside] - start",
        "final_ids=self.final_ids[inside]",
        "rows of a share are numbered as those of the whole",
    ),
    _fault(
        "messages/embodied.py",
        "part.final_ids + first",
        "part.final_ids",
        "rows of joined messages are numbered as those of their parts",
    ),
    _fault(
        "messages/embodied.py",
        "torch.argsort(self.env_ids)",
        "torch.argsort(self.group_ids)",
        "trajectories are ordered by group",
    ),
    _fault(
        "messages/embodied.py",
        '{"group_ids": 0, "env_ids": 0}',
        '{"group_ids": 0}',
        "the numbers of environments are taken for time-major",
    ),
    # Records.
    _fault(
        "messages/batch_record.py",
        "return value[(slice(None),) * axis + (rows,)]",
        "return value[rows]",
        "rows are selected along the first axis",
    ),
    _fault(
        "messages/batch_record.py",
        "        return torch.cat(present, axis)\n",
        "        return torch.cat(present)\n",
        "records are joined along the first axis",
    ),
    _fault(
        "messages/batch_record.py",
        "chosen = rows.nonzero().flatten() if rows.dtype == torch.bool else rows",
        "chosen = rows",
        "a mask selects the first two entries of a list",
    ),
    _fault(
        "messages/batch_record.py",
        "    present = [value for value in values if value is not None]\n",
        "    present = list(values)\n",
        "a field that some records lack cannot be joined",
    ),
    _fault(
        "messages/rewards.py",
        "        return step.obs\n    closing",
        "        return step.obs\n    return step.obs\n    closing",
        "a reward sees the first state of the next episode",
    ),
    # Routes.
    _fault(
        "messages/routing.py",
        "return Route((source_rank * num_destinations // num_sources,), 1)",
        "return Route((source_rank % num_destinations,), 1)",
        "shares are dealt out rather than contiguous",
    ),
    _fault(
        "messages/routing.py",
        "return Route((destination_rank * num_sources // num_destinations,), num_destinations // num_sources)",
        "return Route((destination_rank % num_sources,), num_destinations // num_sources)",
        "a receiver looks at another sender than the one that sends",
    ),
    # Prompts and examples.
    _fault(
        "datasets/prompts.py",
        'derive_seed(self._seed, "prompts", epoch)',
        'derive_seed(self._seed, "prompts", 0)',
        "every epoch has the same order",
    ),
    _fault(
        "datasets/prompts.py",
        'derive_seed(self._seed, "prompts", epoch)',
        'derive_seed(0, "prompts", epoch)',
        "the order of prompts does not depend on the seed",
    ),
    _fault(
        "datasets/prompts.py",
        "max(self.position, number + 1)",
        "max(self.position, number + (1 if offset < len(self._prompts) - 1 else 2))",
        "an epoch skips a prompt",
    ),
    _fault(
        "datasets/prompts.py",
        "if len(prompt.token_ids) <= cfg.max_prompt_length:",
        "if len(prompt.token_ids) < cfg.max_prompt_length:",
        "prompts of exactly the allowed length are left out",
    ),
    _fault(
        "datasets/prompts.py",
        "add_special_tokens=not _is_chat(content, cfg)",
        "add_special_tokens=True",
        "chat prompts get special tokens twice",
    ),
    _fault(
        "datasets/examples.py",
        "mask = [False] * len(token_ids)",
        "mask = [True] * len(token_ids)",
        "the prompt is learned",
    ),
    _fault(
        "datasets/examples.py",
        "num_learned = len(part) if piece.is_learned else 0",
        "num_learned = len(part)",
        "questions between learned turns are learned",
    ),
    _fault(
        "datasets/examples.py",
        "num_learned = len(part) - part[::-1].index(end)",
        "num_learned = len(part) - part[::-1].index(end) - 1",
        "the end token is not learned",
    ),
    _fault(
        "datasets/examples.py",
        'turns = turns if cfg.train_turns == "all" else turns[-1:]',
        'turns = turns if cfg.train_turns == "all" else turns[:1]',
        "the first turn is learned instead of the last",
    ),
    _fault(
        "datasets/examples.py",
        "    if length > cfg.max_length:\n        if cfg.on_too_long",
        "    if length >= cfg.max_length:\n        if cfg.on_too_long",
        "examples of exactly the allowed length are left out",
    ),
    # Packing.
    _fault(
        "packing.py",
        "before = where.roll(1).where(positions > 0, where)",
        "before = where.roll(1)",
        "a sequence follows the one before it in the pack",
    ),
    _fault(
        "packing.py",
        "positions = torch.arange(len(where)) - (sizes.cumsum(0) - sizes).repeat_interleave(sizes)",
        "positions = torch.arange(len(where))",
        "positions go on from one sequence to the next",
    ),
    _fault(
        "shared_prefixes.py",
        "self._first.setdefault(first[:length], number)",
        "self._first[first[:length]] = number",
        "a short prompt is shared with the newest sequence instead of the first",
    ),
    _fault(
        "shared_prefixes.py",
        "bucket.tree.add(np.concatenate([_array(each), _array(response)]), number)",
        "bucket.tree.add(_array(each), number)",
        "what a turn sampled is computed again by the next branch",
    ),
    _fault(
        "shared_prefixes.py",
        "            self._first[prompt] = source\n",
        "            pass\n",
        "a context is shared with the prompt that was found in it",
    ),
    _fault(
        "shared_prefixes.py",
        "first += tuple(_array(response[: MIN_SHARED - len(first)]).tolist())",
        "first += (0,) * (MIN_SHARED - len(first))",
        "responses to short prompts are all alike",
    ),
    _fault(
        "shared_prefixes.py",
        "            if length <= len(first):\n",
        "            if length < len(first):\n",
        "a short sequence is not found by a prompt that equals it",
    ),
    _fault(
        "shared_prefixes.py",
        "rest = _Edge(edge.tokens[within:], edge.number, edge.children)",
        "rest = _Edge(edge.tokens[within:], edge.number)",
        "sequences are forgotten when an edge is split",
    ),
    _fault(
        "packing.py",
        "places.append(np.concatenate([places[source][:count], begins]) if count else begins)",
        "places.append(np.concatenate([places[-1][:count], begins]) if count else begins)",
        "contexts are those of the sequence before",
    ),
    # Credit.
    _fault(
        "credit_columns.py",
        "if not response.turn_spans:",
        "if True:",
        "turns of other branches come in the order of branches",
    ),
    _fault(
        "credit_columns.py",
        "begin += response.num_tokens",
        "begin += len(indices[-1])",
        "episodes begin where the sampled tokens of the one before end",
    ),
    _fault(
        "packing.py",
        "is_response[packed.places[of_responses]] = True",
        "is_response[packed.places[of_responses.roll(-1)]] = True",
        "responses are marked one token early",
    ),
]

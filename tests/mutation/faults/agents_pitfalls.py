"""Faults of agents that are easily made and no other table has; ``tests/mutation/pitfalls.py`` names their pitfalls."""

from __future__ import annotations

from tests.mutation.fault import Fault

_CHAT = "tests/unit/agents/test_chat.py"
_EPISODE = "tests/unit/agents/test_episode.py"
_HISTORY = "tests/unit/agents/server/test_chat_history.py"
_THREADS = "tests/unit/agents/test_threads.py"
_TOOLBOX = "tests/unit/agents/tools/test_toolbox.py"
_TOOLS = "tests/unit/agents/workflows/test_tool_loop.py"


def _fault(file: str, before: str, after: str, what: str, *tests: str) -> Fault:
    return Fault(f"rlinf/{file}", before, after, tests, what)


_PACKED = "tests/unit/models/language/test_packed_attention.py"

_RANDOM = "tests/unit/agents/server/test_random_histories.py"

FAULTS: list[Fault] = [
    _fault(
        "agents/server/program_session.py",
        "self._exchanges.get(body) if is_retry else None",
        "next(reversed(self._exchanges.values()), None) if is_retry and len(self._exchanges) > 2 else None",
        "a request that is sent again joins the last one, whatever it was",
        _RANDOM,
    ),
    _fault(
        "agents/recorder.py",
        "max(common, key=lambda node: (common[node], -node.end, -node.number), default=None)",
        "next(iter(common), None)",
        "every prompt branches off the first turn",
        "tests/unit/agents/test_recorder.py",
    ),
    _fault(
        "models/language/packed_attention.py",
        "mask = None if distance is None else distance >= 0",
        "mask = None if distance is None else distance >= -1",
        "branches that attend alone see the next token",
        _PACKED,
    ),
    _fault(
        "models/language/packed_attention.py",
        "places = torch.minimum(steps, lengths - 1)\n    distance",
        "places = torch.minimum(steps, lengths - 1) * 0 + shared\n    distance",
        "all tokens of a branch attend as its first",
        _PACKED,
    ),
    _fault(
        "models/language/packed_attention.py",
        "steps = shared + torch.arange(int((lengths - shared).max()))",
        "steps = shared - 1 + torch.arange(int((lengths - shared).max()))",
        "branches attend one token too early",
        _PACKED,
    ),
    _fault(
        "models/language/packed_attention.py",
        "        if distance is None:\n            steps",
        "        if True:\n            steps",
        "windows of branches that attend alone are those of whole sequences",
        _PACKED,
    ),
    _fault(
        "models/language/packed_attention.py",
        "length >= MIN_TAIL_LENGTH and 0 < own",
        "length < 0 < own",
        "every branch computes the attention of its whole context again",
        _PACKED,
    ),
    _fault(
        "agents/chat.py",
        "self._token_ids += close_turn(completed, tail)",
        "self._token_ids += tail[1:]",
        "a turn that was cut off is not closed",
        _CHAT,
    ),
    _fault(
        "agents/server/chat_history.py",
        "closing = close_turn(parent.new_ids, tail)",
        "closing = tail[1:]",
        "a turn of a program that was cut off is not closed",
        _HISTORY,
    ),
    _fault(
        "agents/chat.py",
        "self._token_ids += close_turn(completed, tail)",
        "self._token_ids = self._template.prompt(self.messages, self._tools)",
        "the template renders earlier turns again, without their thoughts",
        f"{_CHAT}::test_thoughts_of_earlier_turns_stay_in_the_context",
    ),
    _fault(
        "agents/chat.py",
        "    if not isinstance(value, dict):",
        "    if not isinstance(value, dict | list):",
        "a list in place of a call ends the episode",
        f"{_TOOLS}::test_a_thousand_random_replies_end_no_episode_early",
        _CHAT,
    ),
    _fault(
        "agents/tools/toolbox.py",
        "        except Exception as error:  # noqa: BLE001 - the boundary around a tool",
        "        except ValueError as error:  # noqa: BLE001 - the boundary around a tool",
        "what a tool raises ends the episode",
        _TOOLBOX,
        "tests/unit/workers/agent/test_misbehaving_tools.py",
    ),
    _fault(
        "agents/threads.py",
        "except (SystemExit, KeyboardInterrupt) as error:",
        "except KeyboardInterrupt as error:",
        "a coroutine that exits ends what plays episodes",
        _THREADS,
    ),
    _fault(
        "agents/threads.py",
        "self._loop = self._loop if done else None",
        "pass",
        "a tool that has blocked once is never called again",
        _THREADS,
        _TOOLBOX,
    ),
    _fault(
        "agents/threads.py",
        "self._loop = self._loop if done else None",
        "self._loop = None",
        "clients of a tool lose their event loop with every call that is cancelled",
        _THREADS,
    ),
    _fault(
        "agents/threads.py",
        "max(deadline - time.monotonic(), 0.0)",
        "_PULSE_SECONDS",
        "calls with little time wait for a loop that is blocked",
        _TOOLBOX,
    ),
    _fault(
        "agents/threads.py",
        "            self._idle.pop().put(call)",
        "            self._idle[-1].put(call)",
        "calls wait for the thread of one that hangs",
        _THREADS,
    ),
    _fault(
        "agents/threads.py",
        "            self._idle.append(calls)",
        "            return",
        "every call starts a thread",
        _THREADS,
    ),
    _fault(
        "agents/threads.py",
        "self._batches is None or self._batches.loop is not loop",
        "self._batches is None",
        "a function that another event loop has called is called for that one",
        _THREADS,
    ),
    _fault(
        "agents/threads.py",
        "            self.loop.call_soon(self._start)",
        "            self._start()",
        "every call changes threads, as nothing else is taken along",
        _THREADS,
    ),
    _fault(
        "agents/threads.py",
        "        relief = self.loop.call_later(_QUICK_SECONDS, self._relieve, batch)",
        "        relief = self.loop.call_later(3600.0, self._relieve, batch)",
        "calls wait for one that hangs",
        _THREADS,
    ),
    _fault(
        "agents/threads.py",
        "        batch.settle()\n        late,",
        "        late,",
        "what has returned waits for a call that hangs",
        _THREADS,
    ),
    _fault(
        "agents/threads.py",
        "        for waiting in (batch.waiting, late.waiting):",
        "        for waiting in (batch.waiting,):",
        "calls that come during one that hangs are lost",
        _THREADS,
    ),
    _fault(
        "agents/threads.py",
        "        self._is_quick = self._is_running = False",
        "        self._is_running = False",
        "each call of a function that takes long is waited for by those beside it",
        _THREADS,
    ),
    _fault(
        "agents/threads.py",
        "time.monotonic() - began < _QUICK_SECONDS",
        "False",
        "a function that was slow once gets a thread a call for ever",
        _THREADS,
    ),
    _fault(
        "agents/threads.py",
        "        if self._is_running:\n            self._start()",
        "        pass",
        "calls that come during a batch are never made",
        _THREADS,
    ),
    _fault(
        "agents/threads.py",
        "return self, None if self.future.done() else self.function(), None",
        "return self, self.function(), None",
        "calls are made though their callers have left",
        _THREADS,
    ),
    _fault(
        "agents/episode_engine.py",
        "        self._last_turn = played._last_turn",
        "        pass",
        "no turn of an episode that was taken over can be rewarded",
        "tests/unit/agents/test_episode_engine.py",
    ),
    _fault(
        "agents/episode.py",
        "    except EpisodeLimitError:",
        "    except Exception:",
        "a workflow that fails counts as an episode that was cut off",
        _EPISODE,
    ),
    _fault(
        "runners/rollout_pool.py",
        "oldest = list(itertools.islice(held.requests, count))",
        "oldest = sorted(held.requests, key=lambda number: number not in held.responses)[:count]",
        "a step trains on what is played fastest",
        "tests/unit/runners/test_rollout_pool.py",
        "tests/unit/runners/test_step_batches.py",
    ),
]

"""Faults of agents: the recorder and its masks, chat templates, replies, tools, and how episodes end."""

from __future__ import annotations

from tests.mutation.fault import Fault

_RECORDER = "tests/unit/agents/test_recorder.py"
_TEMPLATE = "tests/unit/agents/test_template.py"
_CHAT = "tests/unit/agents/test_chat.py"
_ENGINE = "tests/unit/agents/test_episode_engine.py"
_EPISODE = "tests/unit/agents/test_episode.py"
_GROUPS = "tests/unit/agents/test_episode_groups.py"
_TOOLBOX = "tests/unit/agents/tools/test_toolbox.py"
_CALCULATOR = "tests/unit/agents/tools/test_calculator.py"
_RETRIEVAL = "tests/unit/agents/tools/test_retrieval.py"
_WORKER = "tests/unit/workers/agent/test_episode_worker.py"
_CLIENT = "tests/unit/workers/agent/test_engine_client.py"
_SERVER = "tests/unit/agents/server/test_agent_server.py"
_SESSION = "tests/unit/agents/server/test_program_session.py"
_HISTORY = "tests/unit/agents/server/test_chat_history.py"
_CHAT_DIALECT = "tests/unit/agents/server/dialects/test_chat_dialect.py"
_RESPONSES = "tests/unit/agents/server/dialects/test_responses_dialect.py"
_COMPLETIONS = "tests/unit/agents/server/dialects/test_completions_dialect.py"
_PROGRAMS = "tests/unit/agents/test_programs.py"
_PROGRAM = "tests/unit/agents/workflows/test_program.py"
_CHECKS = "tests/unit/config/checks/test_agent_checks.py"


def _fault(file: str, before: str, after: str, what: str, *tests: str) -> Fault:
    return Fault(f"rlinf/{file}", before, after, tests, what)


FAULTS: list[Fault] = [
    # The recorder
    _fault(
        "agents/recorder.py",
        "chains[before][-1] is before",
        "True",
        "two turns that continue one are one trajectory",
        _RECORDER,
    ),
    _fault(
        "agents/recorder.py",
        "sorted(self._nodes, key=lambda node: node.number)",
        "self._nodes",
        "trajectories depend on the order in which completions come",
        _RECORDER,
    ),
    _fault(
        "agents/recorder.py",
        "loss_mask[start:stop] = node.logprobs, node.versions, True",
        "loss_mask[: stop] = node.logprobs, node.versions, True",
        "tokens of tools are trained on",
        _RECORDER,
    ),
    _fault(
        "agents/recorder.py",
        "np.full(count, -1, dtype=np.int32)",
        "np.full(count, 0, dtype=np.int32)",
        "tokens that were not sampled have a version",
        _RECORDER,
    ),
    _fault(
        "agents/recorder.py",
        "if shared >= node.kept:",
        "if shared > node.kept:",
        "a prompt continues no turn",
        _RECORDER,
    ),
    _fault(
        "agents/recorder.py",
        "count = min(count, node.kept)",
        "count = count",
        "a context holds the tokens behind a fork",
        _RECORDER,
    ),
    _fault(
        "agents/recorder.py",
        "prompt[kept:].copy()",
        "prompt[kept:]",
        "every turn keeps the memory of its whole prompt",
        _RECORDER,
    ),
    _fault(
        "agents/recorder.py",
        "completion.logprobs if completion.full_logprobs is None else completion.full_logprobs",
        "completion.logprobs",
        "log-probabilities of a part of the vocabulary are trained with",
        _RECORDER,
    ),
    _fault(
        "agents/recorder.py",
        "if not np.isfinite(node.logprobs).all():",
        "if False:",
        "log-probabilities that are not finite are recorded",
        _RECORDER,
    ),
    _fault(
        "agents/recorder.py",
        "any(text.startswith(",
        "any(text.endswith(",
        "drift is taken for another history",
        _RECORDER,
    ),
    _fault(
        "agents/recorder.py",
        "if parent is None or kept == len(prompt) or not parent.start <= kept < parent.end:",
        "if parent is None or not parent.start <= kept < parent.end:",
        "sampling a prompt twice counts as a fork",
        _RECORDER,
    ),
    # Chat templates
    _fault(
        "agents/template.py",
        "split_special_tokens=is_plain",
        "split_special_tokens=False",
        "text of tools forges special tokens",
        _TEMPLATE,
    ),
    _fault(
        "agents/template.py",
        "            return tail[count:]\n",
        "            return tail\n",
        "a turn that ended by itself is closed twice",
        _TEMPLATE,
        _CHAT,
    ),
    _fault(
        "agents/template.py",
        'if not text.endswith(f"Yes.{tail}"):',
        "if not text.endswith(tail):",
        "a template whose tail depends on the turn passes the check",
        _TEMPLATE,
    ),
    _fault(
        "agents/template.py",
        "if not found or _SENTINEL in before:",
        "if False:",
        "a template that does not write the content of a turn passes",
        _TEMPLATE,
    ),
    _fault(
        "agents/template.py",
        "tools=[dict(tool) for tool in tools] or None,",
        "tools=None,",
        "the model does not see its tools",
        "tests/unit/agents/workflows/test_tool_loop.py",
    ),
    # Replies
    _fault(
        "agents/chat.py",
        "value, end = _JSON.raw_decode(text, start)",
        "value, end = _JSON.raw_decode(text.partition(_CALL_CLOSES)[0], start)",
        "a closing tag within a string ends a call",
        _CHAT,
    ),
    _fault(
        "agents/chat.py",
        "except (ValueError, RecursionError) as error:",
        "except ValueError as error:",
        "a call that is nested deeply ends the episode",
        _CHAT,
    ),
    _fault(
        "agents/chat.py",
        "error_text = None if closing else",
        "error_text = None if True else",
        "a call that was cut off is made",
        _CHAT,
    ),
    _fault(
        "agents/chat.py",
        "        self._token_ids += completion.token_ids\n",
        "        self._token_ids += self._template.tokenizer.encode(\n"
        "            self._template.tokenizer.decode(list(completion.token_ids)), add_special_tokens=False\n"
        "        )\n",
        "the text of a turn is encoded again",
        _CHAT,
    ),
    # Requests
    _fault(
        "agents/episode_engine.py",
        "min(self._params.max_new_tokens, room, max_new_tokens or room)",
        "min(self._params.max_new_tokens, max_new_tokens or room)",
        "a request asks for more than the context holds",
        _ENGINE,
    ),
    _fault(
        "agents/episode_engine.py",
        "if call.number else self._seed",
        "",
        "first turns are sampled with other seeds than without a workflow",
        _ENGINE,
        _WORKER,
    ),
    _fault(
        "agents/episode_engine.py",
        "            first_index=self._index,\n",
        "",
        "the episodes of a group are all the same",
        _WORKER,
    ),
    _fault(
        "agents/episode_engine.py",
        'if call.fork == "drift" and not may_drift:',
        'if call.fork == "other":',
        "a prompt that was encoded again is sampled from",
        _ENGINE,
    ),
    # How episodes end
    _fault(
        "agents/episode.py",
        "        task.cancel()\n",
        "",
        "an episode that is over goes on",
        _EPISODE,
    ),
    _fault(
        "agents/episode.py",
        "        await asyncio.wait({task}, timeout=_CANCEL_SECONDS)\n",
        "",
        "a workflow's tools are left open when it is cancelled",
        _EPISODE,
    ),
    _fault(
        "agents/episode_groups.py",
        'if episode.status == "done" else "length"',
        "",
        "an episode that was cut off counts as ended",
        _GROUPS,
    ),
    _fault(
        "agents/episode_groups.py",
        "[each.versions[each.loss_mask] for each in trajectories]",
        "[each.versions for each in trajectories]",
        "the oldest version is that of tokens that were not sampled",
        _GROUPS,
    ),
    # Tools
    _fault(
        "agents/tools/toolbox.py",
        "        except AgentError:\n            raise\n",
        "",
        "a service that is away is the model's fault",
        _TOOLBOX,
    ),
    _fault(
        "agents/tools/toolbox.py",
        "for session in sessions.values():",
        "for session in ():",
        "sessions of tools are not closed",
        _TOOLBOX,
    ),
    _fault(
        "agents/tools/toolbox.py",
        "if len(token_ids) <= most and not dropped:",
        "if len(token_ids) <= most or dropped:",
        "a result of 100 megabytes is handed on",
        _TOOLBOX,
    ),
    _fault(
        "agents/tools/toolbox.py",
        "        if problem is not None:\n",
        "        if False:\n",
        "arguments are not checked",
        _TOOLBOX,
    ),
    _fault(
        "agents/tools/calculator.py",
        "if len(expression) > _MAX_CHARS:",
        "if not expression:",
        "expressions of any length are evaluated",
        _CALCULATOR,
    ),
    _fault(
        "agents/tools/calculator.py",
        "type(node.value) in {int, float}",
        "isinstance(node.value, int | float | complex)",
        "truth values are numbers",
        _CALCULATOR,
    ),
    _fault(
        "agents/tools/retrieval.py",
        'raise AgentError(f"agent.tools.{self.name} (tool_type=retrieval): {error}") from error',
        "return ToolResult(str(error), True)",
        "a search service that is away is the model's fault",
        _RETRIEVAL,
    ),
    # Workers
    _fault(
        "hybrid_engines/generation/engine_choice.py",
        "load[home] - load[idlest] >= MARGIN",
        "load[home] > load[idlest]",
        "requests leave the engine that has their prefix",
        "tests/unit/hybrid_engines/generation/test_engine_choice.py",
    ),
    _fault(
        "workers/agent/engine_client.py",
        "            self._group.execute_on(rank).abort_requests([request.request_id])\n",
        "",
        "requests of cancelled episodes go on",
        _CLIENT,
    ),
    _fault(
        "workers/agent/episode_worker.py",
        "            except (WorkerError, EngineError):\n                raise\n",
        "",
        "episodes are played anew on an engine that has failed",
        _WORKER,
    ),
    _fault(
        "workers/agent/episode_worker.py",
        "            older.cancel()\n",
        "            pass\n",
        "an episode that is submitted again is played twice",
        _WORKER,
    ),
    _fault(
        "config/schema/root.py",
        "return min(turns * self.algorithm.sampling_params.max_new_tokens, self.max_context_tokens)",
        "return self.algorithm.sampling_params.max_new_tokens",
        "constant denominators count one turn",
        _CHECKS,
    ),
    _fault(
        "config/checks/agent_checks.py",
        "agent.max_context_tokens <= longest",
        "agent.max_context_tokens < longest",
        "a context without room for a token passes",
        _CHECKS,
    ),
    _fault(
        "algorithms/rewards/workflow_outcome.py",
        'if query.finish_reason == "length":',
        "if True:",
        "a workflow that does not judge gives 0",
        "tests/unit/algorithms/rewards/test_workflow_outcome.py",
    ),
    _fault(
        "hybrid_engines/generation/engine_scheduler.py",
        "self._new_sequence(request, first + number)",
        "self._new_sequence(request, number)",
        "the episodes of a group are all the same",
        "tests/unit/hybrid_engines/generation/test_engine_scheduler.py",
    ),
    _fault(
        "agents/episode_groups.py",
        "return max(turns, key=lambda pair: pair[1].number)",
        "return next(turns)",
        "rewards read the first turn",
        _GROUPS,
    ),
    _fault(
        "agents/episode_groups.py",
        "turn.number: (begin + turn.start, begin + turn.stop)",
        "turn.number: (turn.start, turn.stop)",
        "turns of all branches lie in the first one",
        _GROUPS,
    ),
    _fault(
        "workers/actor/text_samples.py",
        "return self.select([index for number in numbers for index in branches[number]])",
        "return self.select(numbers)",
        "branches count as episodes of minibatches",
        "tests/unit/workers/actor/test_text_samples.py",
    ),
    _fault(
        "workers/actor/text_samples.py",
        "episodes = torch.tensor(chosen.episode_ids) if chosen.episode_ids else batch.indices",
        "episodes = batch.indices",
        "means count branches instead of episodes",
        "tests/unit/workers/actor/test_text_samples.py",
    ),
    _fault(
        "workers/actor/text_samples.py",
        "local: torch.Tensor = torch.unique(self.episode_ids, return_inverse=True)[1]",
        "return self.packed.sequence_ids",
        "ratios of sequences are those of branches",
        "tests/unit/workers/actor/test_text_samples.py",
    ),
    _fault(
        "algorithms/minibatch.py",
        "parts = singles if episodes is None else _by_episode(singles, episodes, shared)",
        "parts = singles",
        "an episode is cut apart by a bound",
        "tests/unit/algorithms/test_minibatch.py",
    ),
    # Programs and the server
    _fault(
        "agents/recorder.py",
        "            if node.number in self._discarded:",
        "            if False:",
        "a turn that no client has read is trained on",
        _RECORDER,
        _SESSION,
    ),
    _fault(
        "agents/recorder.py",
        "for node in self._nodes if node.continued is not None}",
        "for node in ()}",
        "a turn that was read is not trained on",
        _RECORDER,
    ),
    _fault(
        "agents/server/program_session.py",
        "self._exchanges.get(body) if is_retry else None",
        "None",
        "a request that is sent again is sampled again",
        _SESSION,
    ),
    _fault(
        "agents/server/program_session.py",
        "self._exchanges.get(body) if is_retry else None",
        "self._exchanges.get(body)",
        "a request that is meant twice is sampled once",
        _SESSION,
    ),
    _fault(
        "agents/server/program_session.py",
        "        self._undelivered.discard(exchange)",
        "        self._undelivered.clear()",
        "a completion that no client was sent is trained on",
        _SESSION,
    ),
    _fault(
        "agents/server/program_session.py",
        "            task.cancel()\n        if tasks:",
        "            pass\n        if tasks:",
        "the end of an episode waits for what is being sampled",
        _SESSION,
    ),
    _fault(
        "agents/server/program_session.py",
        "elif error is not None and not isinstance(error, AgentError) and",
        "elif False and",
        "an episode goes on without its engine",
        _SERVER,
        _PROGRAM,
    ),
    _fault(
        "agents/server/program_session.py",
        "            self.limit = error",
        "            pass",
        "an episode that met its limit has failed",
        _SERVER,
        _PROGRAM,
    ),
    _fault(
        "agents/server/program_session.py",
        "(*before, *(request.messages or ()))",
        "request.messages",
        "a response that is followed by its id is forgotten",
        _RESPONSES,
    ),
    _fault(
        "agents/server/agent_server.py",
        "            del self._sessions[session.key]\n",
        "",
        "a key outlives its episode",
        _SERVER,
    ),
    _fault(
        "agents/server/agent_server.py",
        'headers={"x-should-retry": "false"}',
        "headers={}",
        "clients repeat what cannot be served",
        _SERVER,
    ),
    _fault(
        "agents/server/agent_server.py",
        "            session.deliver(exchange)\n",
        "",
        "no completion is trained on",
        _SESSION,
        _HISTORY,
    ),
    _fault(
        "agents/server/agent_server.py",
        "request.transport.abort()",
        "pass",
        "a failure looks like an empty completion",
        _SERVER,
    ),
    _fault(
        "agents/server/agent_server.py",
        'b": wait\\n\\n" if served.is_streamed else b" "',
        'b" "',
        "a sign of life breaks a stream of events",
        _SERVER,
    ),
    _fault(
        "agents/server/chat_history.py",
        "(*parent.prompt_ids, *parent.new_ids, *closing)",
        "(*parent.prompt_ids, *parent.new_ids, *tail)",
        "the close of a turn is doubled",
        _HISTORY,
    ),
    _fault(
        "agents/server/chat_history.py",
        'message.get("tool_calls", ()) != calls',
        "False",
        "a history with other calls continues the turn",
        _HISTORY,
    ),
    _fault(
        "agents/server/chat_history.py",
        "or tuple(turn.tools) != tuple(tools):",
        "or False:",
        "a prompt with other tools continues the turn",
        _HISTORY,
    ),
    _fault(
        "agents/server/chat_history.py",
        '        ends = ("", *self.stop)',
        '        ends = ("",)',
        "a client that repeats the stop string leaves the turn",
        _HISTORY,
    ),
    _fault(
        "agents/server/chat_history.py",
        "        if calls and not content:",
        "        if False:",
        "a client that leaves out what was said beside a call leaves the turn",
        _HISTORY,
    ),
    _fault(
        "agents/server/chat_history.py",
        "text[: min(cuts)] if cuts else text",
        "text",
        "clients read the stop string",
        _HISTORY,
    ),
    _fault(
        "agents/server/chat_history.py",
        "    if request.tools and not any(call.error for call in reply.tool_calls):",
        "    if request.tools:",
        "a call that cannot be read is lost",
        _HISTORY,
    ),
    _fault(
        "agents/server/dialects/dialect.py",
        "json.dumps(arguments, sort_keys=True)",
        "json.dumps(arguments)",
        "arguments in another order are another history",
        _HISTORY,
    ),
    _fault(
        "agents/server/dialects/dialect.py",
        "if value is not None and value is not False and value != {}",
        "if value",
        "a temperature of 0 is not counted as ignored",
        _SESSION,
    ),
    _fault(
        "agents/server/dialects/chat_dialect.py",
        'call["index"] = number',
        "pass",
        "streamed calls have no index",
        _CHAT_DIALECT,
    ),
    _fault(
        "agents/server/dialects/completions_dialect.py",
        '(turn.reply.text, None), ("", turn.finish_reason)',
        "(turn.reply.text, None), (turn.reply.text, turn.finish_reason)",
        "a streamed text comes twice",
        _COMPLETIONS,
    ),
    _fault(
        "agents/server/dialects/responses_dialect.py",
        "            last = messages.pop() if follows else",
        "            last =",
        "the calls of a turn are a message of their own",
        _RESPONSES,
    ),
    _fault(
        "agents/server/dialects/responses_dialect.py",
        '"response.incomplete" if is_cut else',
        "",
        "a response that was cut is complete",
        _RESPONSES,
    ),
    _fault(
        "agents/programs.py",
        "                os.killpg(process.pid, signal.SIGKILL)",
        "                process.kill()",
        "what a program has started outlives it",
        _PROGRAMS,
    ),
    _fault(
        "agents/programs.py",
        "        os.close(write_end)\n        os.close(read_end)",
        "        os.close(read_end)",
        "each program leaves a descriptor",
        _PROGRAMS,
    ),
    _fault(
        "agents/programs.py",
        "        del tail[:-_OUTPUT_BYTES]\n",
        "",
        "all that a program writes is kept",
        _PROGRAMS,
    ),
    _fault(
        "agents/program_launcher.py",
        "fcntl.F_GETFL) | os.O_ASYNC",
        "fcntl.F_GETFL)",
        "a program outlives the process that started it",
        _PROGRAMS,
    ),
    _fault(
        "agents/workflows/program.py",
        "outcome if session.outcome is None else session.outcome",
        "outcome",
        "a judgement that a program posts is lost",
        _PROGRAM,
    ),
    _fault(
        "agents/workflows/program.py",
        "            if session.failure.done():",
        "            if False:",
        "a program waits for an engine that has died",
        _PROGRAM,
    ),
    _fault(
        "agents/workflows/program.py",
        "                raise session.limit from error",
        "                raise",
        "an episode that met its limit has failed",
        _PROGRAM,
    ),
    _fault(
        "agents/workflows/program.py",
        "            if not session.messages:",
        "            if False:",
        "a program that requests nothing is not named",
        _PROGRAM,
    ),
    _fault(
        "workers/agent/episode_worker.py",
        "                async with self._slots:",
        "                if True:",
        "all episodes are played at a time",
        _WORKER,
    ),
    _fault(
        "config/checks/agent_checks.py",
        "bool(agent.command) == (agent.function is not None)",
        "False",
        "a program that is nothing starts a run",
        _CHECKS,
    ),
]

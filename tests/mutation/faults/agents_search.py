"""Faults of searches by agents, of tools that servers bring, and of sub-agents."""

from __future__ import annotations

from tests.mutation.fault import Fault

_SEARCH = "tests/unit/agents/workflows/test_search_loop.py"
_DOCUMENTS = "tests/unit/agents/retrieval/test_document_index.py"
_BM25 = "tests/unit/agents/retrieval/test_bm25_index.py"
_RETRIEVAL_SERVER = "tests/unit/agents/retrieval/test_retrieval_server.py"
_MCP = "tests/unit/agents/tools/test_mcp.py"
_DELEGATE = "tests/unit/agents/workflows/test_delegate.py"
_CHECKS = "tests/unit/config/checks/test_agent_checks.py"


def _fault(file: str, before: str, after: str, what: str, *tests: str) -> Fault:
    return Fault(f"rlinf/{file}", before, after, tests, what)


FAULTS: list[Fault] = [
    # Searches
    _fault(
        "agents/workflows/search_loop.py",
        "token_ids += [*completion.token_ids, *added]",
        "token_ids += added",
        "what was found stands behind the prompt, not behind the search",
        _SEARCH,
    ),
    _fault(
        "agents/workflows/search_loop.py",
        "add_special_tokens=False, split_special_tokens=True",
        "add_special_tokens=False",
        "what a search finds may hold special tokens",
        _SEARCH,
    ),
    _fault(
        "agents/workflows/search_loop.py",
        "fullmatch(text.rstrip())",
        "match(text.rstrip())",
        "a turn that goes on behind its search searches",
        _SEARCH,
    ),
    _fault(
        "agents/workflows/search_loop.py",
        "stop=STOPS",
        "stop=STOPS[:1]",
        "an answer does not end the turn",
        _SEARCH,
    ),
    _fault(
        "agents/retrieval/bm25_index.py",
        " if score > 0]",
        "]",
        "documents without a word of the query are found",
        _BM25,
    ),
    _fault(
        "agents/retrieval/bm25_index.py",
        "if known != _fingerprint(self._documents):",
        "if False:",
        "the index of another corpus is taken",
        _BM25,
    ),
    _fault(
        "agents/retrieval/bm25_index.py",
        "stopwords=[]",
        'stopwords="english"',
        "words such as in are left out of documents",
        _BM25,
    ),
    _fault(
        "agents/retrieval/document_index.py",
        "enumerate(lines, 1)",
        "enumerate(lines)",
        "an error names the line before",
        _DOCUMENTS,
    ),
    _fault(
        "agents/retrieval/retrieval_server.py",
        'message.get("return_scores", False)',
        "True",
        "documents always have scores",
        _RETRIEVAL_SERVER,
    ),
    _fault(
        "agents/retrieval/retrieval_server.py",
        "type(top_k) is not int or ",
        "",
        "a number of documents that is no number is taken",
        _RETRIEVAL_SERVER,
    ),
    _fault(
        "config/checks/agent_checks.py",
        "isinstance(agent, SearchConfig) and len(agent.tools) > 1",
        "False",
        "a search with two tools passes the checks",
        _CHECKS,
    ),
    # Servers of the Model Context Protocol
    _fault(
        "agents/tools/mcp_connection.py",
        "            self._is_suspect = True\n",
        "",
        "a server that hangs is not started again",
        _MCP,
    ),
    _fault(
        "agents/tools/mcp_connection.py",
        "            await self._disconnect()\n            return False",
        "            return False",
        "a server that died is not started again",
        _MCP,
    ),
    _fault(
        "agents/tools/mcp_connection.py",
        "if self._client is client and not await self._answers(client):",
        "if False:",
        "the death of a server is the model's fault",
        _MCP,
    ),
    _fault(
        "agents/tools/mcp_connection.py",
        "bool(result.is_error)",
        "False",
        "an error of a server's tool counts as none",
        _MCP,
    ),
    _fault(
        "agents/tools/mcp.py",
        "await self._connection.wait_ready()",
        "pass",
        "starting a server again is the next call's time",
        _MCP,
    ),
    _fault(
        "agents/tools/mcp.py",
        "for each in cfg.tools or known",
        "for each in known",
        "the model may call tools that the recipe leaves out",
        _MCP,
    ),
    _fault(
        "agents/tools/toolbox.py",
        "known = [name for name in members if name in self.tools]",
        "known: list[str] = []",
        "a tool takes the place of another of its name",
        _MCP,
    ),
    # Sub-agents
    _fault(
        "agents/workflows/delegate.py",
        "        self._num_agents += 1\n",
        "",
        "there may be any number of sub-agents",
        _DELEGATE,
    ),
    _fault(
        "agents/workflows/delegate.py",
        "engine.chat([message], tools=self._box.schemas)",
        "engine.chat(tools=self._box.schemas)",
        "sub-agents are given the row in place of their task",
        _DELEGATE,
    ),
    _fault(
        "agents/workflows/delegate.py",
        "        except EpisodeLimitError:",
        "        except ZeroDivisionError:",
        "a sub-agent without turns ends the episode",
        _DELEGATE,
    ),
    _fault(
        "agents/workflows/delegate.py",
        "max_turns=self._cfg.worker_turns",
        "max_turns=9",
        "sub-agents have as many turns as they like",
        _DELEGATE,
    ),
    _fault(
        "agents/workflows/delegate.py",
        "    runs_at_once = True",
        "    runs_at_once = False",
        "sub-agents work one after the other",
        _DELEGATE,
    ),
    _fault(
        "agents/episode_engine.py",
        'self._renewed(derive_seed(self._seed, "agent", name), self._name, limits)',
        "self._renewed(self._seed, self._name, limits)",
        "sub-agents sample with the random stream of the main agent",
        _DELEGATE,
    ),
    _fault(
        "agents/episode_engine.py",
        'derive_seed(self._seed, "turn", turn) if turn',
        'derive_seed(self._seed, "turn", call.number) if call.number',
        "random streams depend on the turns of other agents",
        _DELEGATE,
    ),
    _fault(
        "agents/episode_groups.py",
        "(not pair[1].agent, pair[1].number)",
        "pair[1].number",
        "rewards read the reply of a sub-agent",
        _DELEGATE,
    ),
    _fault(
        "agents/tools/toolbox.py",
        "except (AgentError, EngineError, WorkerError):",
        "except AgentError:",
        "an engine that fails in a sub-agent is text for the model",
        _DELEGATE,
    ),
    _fault(
        "config/checks/agent_checks.py",
        '"{task}" not in agent.worker_prompt',
        "False",
        "sub-agents without a task pass the checks",
        _CHECKS,
    ),
]

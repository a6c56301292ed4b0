"""Faults of sessions with live clients."""

from __future__ import annotations

from tests.mutation.fault import Fault

POOL = "rlinf/agents/server/session_pool.py"
SERVER = "rlinf/agents/server/session_server.py"
TESTS = ("tests/unit/agents/server/test_session_server.py",)
CHECKS = ("tests/unit/config/checks/test_agent_checks.py",)

FAULTS: list[Fault] = [
    Fault(
        POOL,
        "is_tracked = self.num_tracked < len(self._waiting)",
        "is_tracked = True",
        TESTS,
        "sessions that no episode waits for are kept until they are old",
    ),
    Fault(
        POOL,
        "return self.outcome if self.outcome is not None else sum(self.values.values()) if self.values else None",
        "return sum(self.values.values()) if self.values else self.outcome",
        TESTS,
        "feedback on responses comes before the judgement of the session",
    ),
    Fault(
        POOL,
        "return self.outcome if self.outcome is not None else sum(self.values.values()) if self.values else None",
        "return self.outcome if self.outcome is not None else sum(self.values.values())",
        TESTS,
        "no feedback counts as reward 0",
    ),
    Fault(
        POOL,
        "            session.values[name] = value\n",
        "            session.values[name] = session.values.get(name, 0.0) + value\n",
        TESTS,
        "feedback that is sent again counts twice",
    ),
    Fault(
        POOL,
        "        self.is_closed |= self.is_single\n",
        "        self.is_closed = True\n",
        TESTS,
        "every session ends with its first response",
    ),
    Fault(
        POOL,
        "is_over = session.is_closed and not session.num_running",
        "is_over = not session.num_running",
        TESTS,
        "feedback ends an open session",
    ),
    Fault(
        POOL,
        "loop.call_later(self._cfg.feedback_seconds, self._end, session)",
        "loop.call_later(self._cfg.idle_seconds, self._end, session)",
        TESTS,
        "feedback may take no longer than the next request",
    ),
    Fault(
        POOL,
        "            session.timer = loop.call_later(self._cfg.idle_seconds, self.close, session)\n",
        "            session.timer = None\n",
        TESTS,
        "a client that went away holds its place for ever",
    ),
    Fault(
        POOL,
        "        session.num_running += 1\n        self._stop(session)\n",
        "        session.num_running += 1\n",
        TESTS,
        "a session is closed while its request is being served",
    ),
    Fault(
        POOL,
        "            if session.is_single and not session.response_ids:\n",
        "            if False:\n",
        TESTS,
        "a client that hung up holds its place",
    ),
    Fault(
        POOL,
        '            session.is_tracked = False\n            self._counts["failed"] += 1\n',
        '            self._counts["failed"] += 1\n',
        TESTS,
        "what a broken engine said is trained on",
    ),
    Fault(
        POOL,
        "return versions is None or self._newest - versions[0] > self._cfg.max_token_age",
        "return False",
        TESTS,
        "max_token_age has no effect",
    ),
    Fault(
        POOL,
        "self._newest = max(self._newest, -1 if versions is None else versions[1])",
        "pass",
        TESTS,
        "the newest weights are not known",
    ),
    Fault(
        POOL,
        "            _, ended = self._waiting.popleft()\n",
        "            _, ended = self._waiting.pop()\n",
        TESTS,
        "an episode that has waited long waits on",
    ),
    Fault(
        POOL,
        "                self._ready.appendleft(ended.result())\n",
        "                pass\n",
        TESTS,
        "the session of an episode that is given up is lost",
    ),
    Fault(
        POOL,
        'source.renewed(f"session-{number}"),',
        'source.renewed("session"),',
        TESTS,
        "all sessions draw the same samples",
    ),
    Fault(
        POOL,
        '            engine.counts[f"server/{name}"] += count\n            self._counts[name] = 0.0\n',
        "            self._counts[name] = 0.0\n",
        TESTS,
        "no metric counts how many sessions were dropped",
    ),
    Fault(
        SERVER,
        "return None if session is None or session.is_closed else session",
        "return session",
        TESTS,
        "a closed session goes on",
    ),
    Fault(
        SERVER,
        "        self._is_ending = True\n",
        "",
        TESTS,
        "new requests keep a run from ending",
    ),
    Fault(
        SERVER,
        "            await self._pool.wait_idle(_END_SECONDS)\n",
        "            pass\n",
        TESTS,
        "requests that are being served are cut off at the end",
    ),
    Fault(
        SERVER,
        "        self._check_application(request)\n        body = read_json(await request.read())\n",
        "        body = read_json(await request.read())\n",
        TESTS,
        "anybody may reward",
    ),
    Fault(
        SERVER,
        "return secrets.compare_digest(key.encode(), self._api_key.encode())",
        "return bool(key)",
        TESTS,
        "any key is the application's",
    ),
    Fault(
        "rlinf/config/checks/agent_checks.py",
        "            cfg.algorithm.advantage.compares_groups,\n",
        "            False,\n",
        CHECKS,
        "sessions are compared with groups of one",
    ),
    Fault(
        "rlinf/config/checks/agent_checks.py",
        "            ranks is not None and ranks > 1,\n",
        "            False,\n",
        CHECKS,
        "two servers take the same port",
    ),
]

"""Tools of one group of episodes sleep, raise, exit, block and write 100 MB: every episode goes on, and ends."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from rlinf.config import load_recipe, validate_cfg
from rlinf.data.messages.generation import Completion, GenerationRequest, SamplingParams
from rlinf.workers.agent.episode_worker import EpisodeWorker
from tests.unit.agents.conversations import QWEN2_5, ScriptedEngine, make_prompt, make_tokenizer
from tests.unit.workers.agent.test_episode_worker import Store
from tests.unit.workers.post_office import PostOffice

FUNCTIONS = "tests.unit.agents.agent_functions"
SECONDS = 0.3
CALLS = [
    ("behave", "sleep", f"did not return within {SECONDS} s."),
    ("behave", "raise", "Error: ValueError: of my own"),
    ("behave", "exit", "Error: RuntimeError: SystemExit: 3"),
    ("behave", "write", "x\n[...]\nxxx"),
    ("later", "stay", f"did not return within {SECONDS} s."),
    ("later", "block", f"did not return within {SECONDS} s."),
    ("other", "exit", "Error: RuntimeError: SystemExit: 3"),
    ("behave", "well", "well"),
]
"""What each episode calls, and what it reads."""


class CallingEngine(ScriptedEngine):
    """Has every episode call a tool of its own, and then say something."""

    def at(self, group_id: int, *, joins: bool) -> CallingEngine:
        assert (group_id, joins) == (7, False)
        return self

    async def generate(self, request: GenerationRequest) -> Completion:
        self.requests.append(request)
        name, how, _ = CALLS[request.params.first_index]
        call = json.dumps({"name": name, "arguments": {"how": how}})
        is_first = request.request_id.endswith("-0")
        text = f"<tool_call>{call}</tool_call><|im_end|>" if is_first else "Done.<|im_end|>"
        ids = tuple(self.tokenizer.encode(text, add_special_tokens=False))
        return Completion(token_ids=ids, logprobs=(-1.0,) * len(ids), versions=(0,) * len(ids), finish_reason="stop")


def make_worker(folder: Path) -> EpisodeWorker:
    make_tokenizer(QWEN2_5).save_pretrained(folder)
    functions = {"behave": "behave", "later": "behave_later", "other": "behave_later"}
    tools = ", ".join(
        f"{name}: {{tool_type: function, function: '{FUNCTIONS}:{path}', timeout_seconds: {SECONDS}}}"
        for name, path in functions.items()
    )
    agent = f"agent={{workflow: tools, max_turns: 3, max_context_tokens: 4000, tools: {{{tools}}}}}"
    cfg: Any = validate_cfg(load_recipe("tiny_retry_grpo", [f"actor.model.model_path={folder}", agent]))
    worker: EpisodeWorker = PostOffice().wire(EpisodeWorker, cfg, group="RewardGroup")
    worker.init_worker()
    worker.engines = CallingEngine(worker.tokenizer, [])  # type: ignore[assignment]  # a client that plays a script
    worker.responses = Store()  # type: ignore[assignment]
    return worker


def test_every_episode_ends_and_is_the_models_own(tmp_path: Path) -> None:
    worker = make_worker(tmp_path)
    params = SamplingParams(max_new_tokens=200, n=len(CALLS))

    async def play() -> set[asyncio.Task[Any]]:
        prompt = make_prompt(worker.tokenizer)
        assert await worker.generate(prompt, group_id=7, params=params, split="train") == "kept"
        await asyncio.sleep(0)
        return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]

    assert not asyncio.run(play()), "a task is left"
    assert worker._playing == {}
    store: Any = worker.responses
    (group,) = store.groups
    for response, query, transcript, (_, _, said) in zip(
        group.batch.responses, group.queries(), group.transcripts, CALLS, strict=True
    ):
        assert [message["role"] for message in transcript] == ["user", "assistant", "tool", "assistant"]
        assert said in transcript[2]["content"]
        assert (query.response, response.finish_reason) == ("Done.", "stop")
        assert response.episode_metrics["turns"] == 2
        assert response.episode_metrics["episode_timeouts"] == 0
    assert len(worker.engines.requests) == 2 * len(CALLS), "no episode was played anew"  # type: ignore[attr-defined]

"""Groups of episodes: their seeds, their turns, what becomes of failures, and of episodes that are not needed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rlinf.agents.chat import Reply
from rlinf.agents.episode_engine import EpisodeEngine
from rlinf.agents.workflow import RolloutWorkflow
from rlinf.config import load_recipe, validate_cfg
from rlinf.config.registries import workflows
from rlinf.data.messages.generation import GenerationRequest, SamplingParams
from rlinf.data.messages.responses import Prompt, ResponseGroup
from rlinf.errors import AgentError, EngineError
from rlinf.utils.seeding import derive_seed
from rlinf.workers.agent.episode_worker import EpisodeWorker
from tests.unit.agents.conversations import QWEN2_5, ScriptedEngine, make_prompt, make_tokenizer
from tests.unit.workers.post_office import PostOffice

PARAMS = SamplingParams(max_new_tokens=50, n=3)


def respond(reply: Reply, prompt: Prompt) -> str | float:
    del prompt
    return float(reply.turn) if reply.turn == 1 else "More."


class Failing(RolloutWorkflow):
    """Fails as often as its class says, after its first turn."""

    failures = 0
    error: Exception = ValueError("mine")

    async def arun_episode(self, engine: EpisodeEngine, data: Prompt) -> None:
        await engine.agenerate(data.token_ids)
        if type(self).failures:
            type(self).failures -= 1
            raise self.error


class Engines(ScriptedEngine):
    """Answers everything, or nothing."""

    stalls = False

    def at(self, group_id: int, *, joins: bool) -> Engines:
        assert (group_id, joins) == (7, False)
        return self

    async def generate(self, request: GenerationRequest) -> Any:
        if self.stalls:
            self.requests.append(request)
            await asyncio.sleep(3600)
        self.lines.append(f"turn {len(self.requests)}")
        return await super().generate(request)


class Store:
    def __init__(self) -> None:
        self.groups: list[ResponseGroup] = []

    async def put(self, split: str, group: ResponseGroup) -> str:
        assert split == "train"
        self.groups.append(group)
        return "kept"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    make_tokenizer(QWEN2_5).save_pretrained(folder)
    return folder


def make_worker(folder: Path, *overrides: str) -> EpisodeWorker:
    keys = [f"actor.model.model_path={folder}", "agent.max_context_tokens=4000", *overrides]
    cfg: Any = validate_cfg(load_recipe("tiny_retry_grpo", keys))
    worker: EpisodeWorker = PostOffice().wire(EpisodeWorker, cfg, group="RewardGroup")
    worker.init_worker()
    worker.engines = Engines(worker.tokenizer, [])  # type: ignore[assignment]  # a client that plays a script
    worker.responses = Store()  # type: ignore[assignment]
    return worker


def engines_of(worker: EpisodeWorker) -> Any:
    return worker.engines


def generate(worker: EpisodeWorker) -> ResponseGroup:
    prompt = make_prompt(worker.tokenizer)
    assert asyncio.run(worker.generate(prompt, group_id=7, params=PARAMS, split="train")) == "kept"
    store: Any = worker.responses
    group: ResponseGroup = store.groups[-1]
    return group


def failing(monkeypatch: pytest.MonkeyPatch, folder: Path, failures: int, error: Exception) -> EpisodeWorker:
    monkeypatch.setattr(workflows, "_entries", dict(workflows._entries))
    workflows.register("failing", Failing)
    monkeypatch.setattr(Failing, "failures", failures)
    monkeypatch.setattr(Failing, "error", error)
    return make_worker(folder, "agent={workflow: failing, retries: 1, max_context_tokens: 4000}")


def test_a_group_is_played_turn_by_turn(folder: Path) -> None:
    worker = make_worker(folder, f"agent.respond={__name__}:respond")
    group = generate(worker)
    assert group.group_id == 7
    assert [response.index for response in group.batch.responses] == [0, 1, 2]
    assert [response.episode_metrics["turns"] for response in group.batch.responses] == [2, 2, 2]
    assert group.outcomes == (1.0, 1.0, 1.0)
    assert [len(transcript) for transcript in group.transcripts] == [4, 4, 4]
    assert all(query.response.startswith("turn ") for query in group.queries())


def test_first_turns_are_sampled_as_without_a_workflow(folder: Path) -> None:
    worker = make_worker(folder, f"agent.respond={__name__}:respond")
    generate(worker)
    first, later = engines_of(worker).requests[:3], engines_of(worker).requests[3:]
    seed = derive_seed(worker.cfg.actor.seed, "answers", "train", 7)
    assert [(each.params.seed, each.params.first_index, each.params.n) for each in first] == [
        (seed, index, 1) for index in range(3)
    ]
    assert {each.params.seed for each in later} == {derive_seed(seed, "turn", 1)}
    assert len({each.request_id for each in (*first, *later)}) == 6


def test_an_episode_that_failed_is_played_anew(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    worker = failing(monkeypatch, folder, 1, ValueError("mine"))
    group = generate(worker)
    assert [response.episode_metrics["turns"] for response in group.batch.responses] == [1, 1, 1]
    requests = engines_of(worker).requests
    assert len(requests) == 4
    assert requests[0].params.seed == requests[3].params.seed
    assert requests[0].request_id != requests[3].request_id


def test_an_episode_that_fails_again_fails_the_run(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    worker = failing(monkeypatch, folder, 9, ValueError("mine"))
    message = r"workflow=failing: episode \d of group train-7 .*failed 2 times: ValueError: mine"
    with pytest.raises(AgentError, match=message):
        generate(worker)


def test_an_engine_that_fails_is_not_the_workflows_fault(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    worker = failing(monkeypatch, folder, 9, EngineError("gone"))
    with pytest.raises(EngineError, match="gone"):
        generate(worker)
    assert len(engines_of(worker).requests) <= 3


def test_so_many_episodes_are_played_at_a_time(folder: Path) -> None:
    worker = make_worker(folder, "+agent.max_episodes=2")
    engines_of(worker).stalls = True

    async def play() -> None:
        task = asyncio.ensure_future(
            worker.generate(make_prompt(worker.tokenizer), group_id=7, params=PARAMS, split="train")
        )
        await asyncio.sleep(0.2)
        assert len(engines_of(worker).requests) == 2
        await worker.abort([7], split="train")
        assert await asyncio.wait_for(task, 20) is None

    asyncio.run(play())


@pytest.mark.parametrize("ends_by", ["abort", "again"])
def test_episodes_that_are_not_needed_end_without_a_result(folder: Path, ends_by: str) -> None:
    worker = make_worker(folder)
    engines_of(worker).stalls = True
    prompt = make_prompt(worker.tokenizer)

    async def play() -> None:
        task = asyncio.ensure_future(worker.generate(prompt, group_id=7, params=PARAMS, split="train"))
        while len(engines_of(worker).requests) < 3:
            await asyncio.sleep(0.01)
        if ends_by == "abort":
            await worker.abort([7, 8], split="train")
        else:
            engines_of(worker).stalls = False
            assert await worker.generate(prompt, group_id=7, params=PARAMS, split="train") == "kept"
        assert await asyncio.wait_for(task, 20) is None
        assert worker._playing == {}

    asyncio.run(play())


def test_a_template_that_cannot_be_continued_is_an_error_at_the_start(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "template.jinja"
    path.write_text("{{ messages | length }}")
    with pytest.raises(AgentError, match=r"cannot be continued"):
        make_worker(folder, f"+agent.chat_template={path}")

"""Who has which advantage in episodes of several agents, and how much each agent counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlinf.algorithms.minibatch import MicroBatch
from rlinf.config.registries import advantages
from rlinf.config.schema.algorithm import ActorLossConfig, GSPOLossConfig, TextAlgorithmConfig
from rlinf.data.messages.responses import ResponseBatch
from rlinf.models.language.language_model import TokenEvaluation
from rlinf.workers.actor.text_samples import TextSamples, make_text_samples, text_denominators, text_loss
from tests.unit.data.messages.response_samples import Sample, batch_of

Turns = Sequence[tuple[str, int]]
"""The turns of an episode: each one's agent, and its number of tokens."""

PLAYED: list[tuple[float, Turns]] = [
    (1.0, [("", 1), ("worker.1", 1), ("worker.2", 3), ("", 1)]),
    (0.0, [("", 1), ("worker.1", 2)]),
]


def recipe(name: str = "rloo", credit: Any = "episode", **keys: Any) -> TextAlgorithmConfig:
    estimator = advantages.configs.get(name)
    normalized = {} if name in {"rloo", "grpo"} else {"normalize_advantages": False}
    return TextAlgorithmConfig(
        adv_type=name,
        loss_type="actor",
        advantage=estimator(**normalized),
        loss=ActorLossConfig(**keys),
        credit=credit,
    )


def batch(episodes: Sequence[tuple[float, Turns]], groups: Sequence[int] = ()) -> ResponseBatch:
    """Return episodes, each turn of which is a branch of its own."""
    samples = [
        Sample(group_id=group, token_ids=(7,) * sum(count for _, count in turns), reward=reward)
        for (reward, turns), group in zip(episodes, groups or (0,) * len(episodes), strict=True)
    ]
    joined = batch_of(samples)
    responses = []
    for response, (_, turns) in zip(joined.responses, episodes, strict=True):
        ends = torch.tensor([count for _, count in turns]).cumsum(0).tolist()
        spans = tuple(zip([0, *ends[:-1]], ends, strict=True))
        lengths = tuple(count for _, count in turns)
        agents = tuple(agent for agent, _ in turns)
        responses.append(replace(response, branch_lengths=lengths, turn_spans=spans, turn_agents=agents))
    prompts = tuple((1, 2) for _, turns in episodes for _ in turns)
    return replace(joined, responses=tuple(responses), prompt_ids=prompts)


def made(algorithm: TextAlgorithmConfig, episodes: Any = PLAYED, groups: Sequence[int] = ()) -> TextSamples:
    return make_text_samples(batch(episodes, groups), algorithm=algorithm)[0]


def gradients(samples: TextSamples, algorithm: TextAlgorithmConfig, parts: Sequence[Sequence[int]]) -> list[float]:
    """Return the gradient of the loss at ratio 1 for each token, in micro-batches of these samples."""
    batches = [samples.pack(MicroBatch(torch.tensor(part)), torch.device("cpu")) for part in parts]
    denominators = text_denominators(batches, max_tokens=9)
    found = []
    for each in batches:
        logprobs = each.tokens["old_logprobs"].clone().requires_grad_()
        result = TokenEvaluation(logprobs=logprobs, entropy=torch.zeros_like(logprobs), values=None)
        text_loss(result, each, denominators, algorithm=algorithm)[0].backward()
        assert logprobs.grad is not None
        found += each.split(logprobs.grad)
    return torch.cat(found).tolist()


@pytest.mark.parametrize(
    ("credit", "expected"),
    [
        ("episode", [1, 1, 1, 1, 1, 1, -1, -1, -1]),
        ("shared", [1, 1, 1, 1, 1, 1, -1, -1, -1]),
        # Main agents earn 1 and 0, the three sub-agents 1, 1 and 0: each less the mean of the others of its role.
        ("agent", [1, 0.5, 0.5, 0.5, 0.5, 1, -1, -1, -1]),
    ],
)
def test_units_are_compared_with_those_of_their_role(credit: str, expected: list[float]) -> None:
    assert torch.cat(made(recipe(credit=credit)).tokens["advantages"]).tolist() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("credit", "agg", "expected"),
    [
        ("shared", "token-mean", [1 / 9] * 6 + [-1 / 9] * 3),
        ("episode", "seq-mean-token-mean", [1 / 2 / 6] * 6 + [-1 / 2 / 3] * 3),
        # One over episodes, agents of the episode, and tokens of the agent.
        (
            "shared",
            "seq-mean-token-mean",
            [1 / 2 / 3 / 2, 1 / 2 / 3, *[1 / 2 / 3 / 3] * 3, 1 / 2 / 3 / 2, -1 / 2 / 2, *[-1 / 2 / 2 / 2] * 2],
        ),
        ("shared", "seq-mean-token-sum", [1 / 2 / 3] * 6 + [-1 / 2 / 2] * 3),
    ],
)
def test_agents_of_an_episode_count_alike_in_means_over_sequences(credit: str, agg: Any, expected: list[float]) -> None:
    algorithm = recipe(credit=credit, loss_agg_func=agg)
    samples = made(algorithm)
    for parts in ([range(6)], [range(4), range(4, 6)], [range(4, 6), range(4)]):
        numbers = [number for part in parts for number in part]
        lengths = [len(each) for each in samples.responses]
        placed = torch.split(torch.tensor(expected), lengths)
        found = gradients(samples, algorithm, parts)
        assert found == pytest.approx([-x for number in numbers for x in placed[number].tolist()])


def test_an_agent_that_is_left_out_does_not_count() -> None:
    """Groups of sub-agents that all earn the same are replaced where the recipe replaces groups, and masked here."""
    algorithm = replace(recipe(credit="agent", loss_agg_func="seq-mean-token-mean"), max_num_gen_batches=2)
    alone = [(1.0, [("", 1), ("worker.1", 2)]), (0.0, [("", 1)])]
    samples = made(algorithm, alone)
    assert torch.cat(samples.tokens["loss_mask"]).tolist() == [True, False, False, True]
    assert gradients(samples, algorithm, [range(3)]) == pytest.approx([-1 / 2, 0, 0, 1 / 2])


def test_ratios_of_sequences_are_those_of_agents() -> None:
    algorithm = replace(recipe(credit="shared"), loss_type="gspo", loss=GSPOLossConfig())
    samples = made(algorithm)
    each = samples.pack(MicroBatch(torch.arange(6)), torch.device("cpu"))
    local = each.split(each.local_sequence_ids)
    assert [set(ids.tolist()) for ids in local] == [{0}, {1}, {2}, {0}, {3}, {4}]
    assert [set(ids.tolist()) for ids in each.split(each.local_episode_ids)] == [{0}] * 4 + [{1}] * 2


turns = st.lists(st.tuples(st.sampled_from(["", "worker.1", "worker.2", "critic"]), st.integers(1, 4)), max_size=4)
episodes = st.lists(
    st.tuples(st.floats(-2, 2).map(lambda x: round(x, 2)), turns.map(lambda found: [("", 1), *found])),
    min_size=4,
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(played=episodes, name=st.sampled_from(["rloo", "grpo", "reinpp"]))
def test_advantages_do_not_depend_on_turns_and_branches(played: list[tuple[float, Turns]], name: str) -> None:
    """Those of an episode are those of the same rewards as single turns; it is in one optimizer step."""
    groups = [number % 2 for number in range(len(played))]
    samples = made(recipe(name), played, groups)
    single = made(recipe(name), [(reward, [("", sum(n for _, n in turns))]) for reward, turns in played], groups)
    assert samples.num_episodes == single.num_episodes == len(played)
    for number in range(len(played)):
        whole, parts = (torch.cat(each.select_episodes([number]).tokens["advantages"]) for each in (single, samples))
        assert parts.tolist() == whole.tolist()


@settings(max_examples=60, deadline=None)
@given(played=episodes, name=st.sampled_from(["rloo", "grpo"]))
def test_advantages_of_agents_are_those_of_their_parts_alone(played: list[tuple[float, Turns]], name: str) -> None:
    """The baseline counts units of a role: as many single turns, each a group's member, have the same advantages."""
    groups = [number % 2 for number in range(len(played))]
    samples = made(recipe(name, "agent"), played, groups)
    parts: dict[tuple[int, str], float] = {
        (number, agent): reward for number, (reward, turns) in enumerate(played) for agent, _ in turns
    }
    roles = ["", "worker", "critic"]
    keys = [(groups[number], roles.index(agent.partition(".")[0])) for number, agent in parts]
    alone = made(recipe(name), [(reward, [("", 1)]) for reward in parts.values()], [3 * g + r for g, r in keys])
    expected = dict(zip(parts, torch.cat(alone.tokens["advantages"]).tolist(), strict=True))
    branches = iter(samples.tokens["advantages"])
    for number, (_, taken) in enumerate(played):
        for agent, count in taken:
            assert next(branches).tolist() == pytest.approx([expected[number, agent]] * count, abs=1e-5)

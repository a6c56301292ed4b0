"""What lies beside which token, and which probabilities a loss is handed as whose."""

from dataclasses import replace

import pytest
import torch

from rlinf.algorithms.minibatch import MicroBatch
from rlinf.algorithms.types import finalize_metrics
from rlinf.config.checks.language_checks import check_importance_correction
from rlinf.config.checks.recipe_check import Check
from rlinf.config.checks.run_sizes import WorldSizes
from rlinf.config.problems import Problems
from rlinf.config.registries import advantages
from rlinf.config.schema.algorithm import (
    ActorLossConfig,
    AdvantageConfig,
    DecoupledActorCriticLossConfig,
    ImportanceCorrectionConfig,
    TextAlgorithmConfig,
)
from rlinf.config.schema.model import CausalLMConfig
from rlinf.config.schema.root import RLinfConfig
from rlinf.config.schema.train import ActorConfig
from rlinf.data.messages.responses import ResponseBatch
from rlinf.errors import AlgorithmError
from rlinf.workers.actor.text_samples import make_text_samples, text_denominators
from tests.unit.data.messages.response_samples import Sample, batch_of

CPU = torch.device("cpu")
RAW = TextAlgorithmConfig(adv_type="raw", loss_type="actor", advantage=AdvantageConfig(), loss=ActorLossConfig())
DECOUPLED = replace(RAW, loss_type="decoupled_actor_critic", loss=DecoupledActorCriticLossConfig())


def sample(
    prompt: tuple[int, ...],
    tokens: tuple[int, ...],
    logprobs: tuple[float, ...],
    *,
    mask: tuple[bool, bool, bool] | None = None,
    reward: float = 1.0,
    group_id: int = 0,
) -> Sample:
    return Sample(
        group_id=group_id, prompt=prompt, token_ids=tokens, logprobs=logprobs, loss_mask=mask or (), reward=reward
    )


SAMPLES = [
    sample((1, 2), (3, 4, 5), (-1.0, -2.0, -3.0), mask=(True, False, True), reward=2.0),
    sample((6,), (7,), (-4.0,), reward=3.0),
    sample((8, 9, 10), (11, 12), (-5.0, -6.0), reward=-1.0, group_id=1),
]
TRAINER = [torch.tensor(values) for values in ([-1.5, -2.5, -2.0], [-4.0], [-5.0, -6.5])]


def test_a_packed_batch_has_its_numbers_beside_its_tokens() -> None:
    samples, metrics = make_text_samples(batch_of(SAMPLES), algorithm=RAW)
    assert samples.lengths == [5, 2, 5]
    batch = samples.pack(MicroBatch(torch.tensor([2, 0])), CPU)
    assert batch.packed.token_ids.tolist() == [8, 9, 10, 11, 12, 1, 2, 3, 4, 5]
    assert batch.tokens["old_logprobs"].tolist() == [0, 0, 0, -5, -6, 0, 0, -1, -2, -3]
    assert batch.tokens["loss_mask"].int().tolist() == [0, 0, 0, 1, 1, 0, 0, 1, 0, 1]
    assert batch.tokens["advantages"].tolist() == [0, 0, 0, -1, -1, 0, 0, 2, 0, 2]
    assert batch.episode_ids.tolist() == [2] * 5 + [0] * 5
    assert [part.tolist() for part in batch.split(batch.packed.token_ids)] == [[11, 12], [3, 4, 5]]
    assert finalize_metrics(metrics)["score"] == pytest.approx(4 / 3)


def test_padding_has_no_token_under_its_mask() -> None:
    samples, _ = make_text_samples(batch_of(SAMPLES), algorithm=RAW)
    batch = samples.pack(MicroBatch(torch.tensor([1]), is_padding=True), CPU)
    assert batch.packed.token_ids.tolist() == [6, 7]
    assert not batch.tokens["loss_mask"].any()


def test_denominators_count_the_update_batch_and_not_its_micro_batches() -> None:
    samples, _ = make_text_samples(batch_of(SAMPLES), algorithm=RAW)
    for parts in ([[0, 1, 2]], [[2], [0], [1]], [[1, 0], [2]]):
        batches = [samples.pack(MicroBatch(torch.tensor(part)), CPU) for part in parts]
        counted = text_denominators(batches, max_tokens=64).policy
        assert (counted.num_valid_tokens, counted.num_sequences, counted.max_tokens) == (5, 3, 64)


def test_ratios_are_formed_with_the_trainers_probabilities_where_there_are_any() -> None:
    samples, metrics = make_text_samples(batch_of(SAMPLES), algorithm=RAW, trainer_logprobs=TRAINER)
    assert [old.tolist() for old in samples.tokens["old_logprobs"]] == [t.tolist() for t in TRAINER]
    # Under the mask: -0.5, 1, 0, 0, -0.5.
    assert finalize_metrics(metrics)["mismatch_k1"] == pytest.approx(0.0)
    assert finalize_metrics(metrics)["mismatch_max_probability_difference"] > 0
    without, metrics = make_text_samples(batch_of(SAMPLES), algorithm=RAW)
    assert [old.tolist() for old in without.tokens["old_logprobs"]] == [list(a.logprobs) for a in SAMPLES]
    assert not any(name.startswith("mismatch") for name in metrics)


def test_weights_go_into_the_advantages() -> None:
    config = replace(RAW, importance_correction=ImportanceCorrectionConfig(upper_bound=2.0))
    samples, metrics = make_text_samples(batch_of(SAMPLES), algorithm=config, trainer_logprobs=TRAINER)
    expected = [2 * torch.tensor([-0.5, 0.0, 0.0]).exp(), torch.tensor([3.0]), -torch.tensor([0.0, -0.5]).exp()]
    expected[0][1], expected[0][2] = 0.0, 4.0  # A tool's token, and e^1 at the bound.
    for actual, wanted in zip(samples.tokens["advantages"], expected, strict=True):
        torch.testing.assert_close(actual, wanted)
    assert finalize_metrics(metrics)["correction_fraction"] == pytest.approx(0.2)


def test_a_decoupled_loss_gets_both_probabilities() -> None:
    samples, _ = make_text_samples(batch_of(SAMPLES), algorithm=DECOUPLED, trainer_logprobs=TRAINER)
    assert samples.tokens["old_logprobs"][1].tolist() == [-4.0]
    assert samples.tokens["old_logprobs"][0].tolist() == [-1.0, -2.0, -3.0]
    assert samples.tokens["proximal_logprobs"][0].tolist() == TRAINER[0].tolist()
    with pytest.raises(AlgorithmError, match=r"algorithm\.recompute_logprobs=true"):
        make_text_samples(batch_of(SAMPLES), algorithm=DECOUPLED)


def problems_of(algorithm: TextAlgorithmConfig) -> Problems:
    model = CausalLMConfig(model_type="qwen3", model_path="x")
    problems = Problems()
    cfg = RLinfConfig(algorithm=algorithm, actor=ActorConfig(model=model, global_batch_size=1, micro_batch_size=1))
    check_importance_correction(Check(cfg, WorldSizes(), problems))
    return problems


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        (replace(DECOUPLED, recompute_logprobs=False), "loss_type=decoupled_actor_critic needs the trainer's"),
        (
            replace(RAW, recompute_logprobs=False, importance_correction=ImportanceCorrectionConfig()),
            "importance_correction needs the trainer's",
        ),
        (replace(DECOUPLED, importance_correction=ImportanceCorrectionConfig()), "weighs samples by itself"),
        (replace(RAW, importance_correction=ImportanceCorrectionConfig(lower_bound=1.5)), "bounds 1.5 and 2.0"),
    ],
)
def test_corrections_that_cannot_be_made_are_problems(algorithm: TextAlgorithmConfig, message: str) -> None:
    with pytest.raises(Exception, match=message):
        problems_of(algorithm).raise_if_any()
    problems_of(replace(RAW, importance_correction=ImportanceCorrectionConfig())).raise_if_any()


def as_branches(*batches: ResponseBatch, lengths: tuple[int, ...], spans: tuple[tuple[int, int], ...]) -> ResponseBatch:
    """Return batches joined, the first response of which was played on several branches with one prompt each."""
    batch = ResponseBatch.concat(batches)
    first = replace(batch.responses[0], branch_lengths=lengths, turn_spans=spans)
    prompts = tuple((20 + number,) for number in range(len(lengths)))
    return replace(batch, responses=(first, *batch.responses[1:]), prompt_ids=prompts + batch.prompt_ids[1:])


@pytest.mark.parametrize("name", ["grpo", "rloo", "reinpp"])
def test_advantages_are_those_of_episodes_whatever_their_branches(name: str) -> None:
    algorithm = replace(RAW, adv_type=name, advantage=advantages.configs.get(name)())
    whole = batch_of([sample((1, 2), (3, 4, 5), (-1.0, -2.0, -3.0), reward=2.0), *SAMPLES[1:]])
    branched = as_branches(whole, lengths=(1, 1, 1), spans=((2, 3), (0, 1), (1, 2)))
    expected, metrics = make_text_samples(whole, algorithm=algorithm)
    samples, found = make_text_samples(branched, algorithm=algorithm)
    assert finalize_metrics(found) == finalize_metrics(metrics)
    of_first = expected.tokens["advantages"][0]
    assert torch.cat(samples.tokens["advantages"][:3]).tolist() == of_first[[1, 2, 0]].tolist()
    for one, other in zip(samples.tokens["advantages"][3:], expected.tokens["advantages"][1:], strict=True):
        assert torch.equal(one, other)
    assert samples.episode_ids == (0, 0, 0, 1, 2)
    assert samples.num_episodes == 3


def test_values_follow_the_order_of_turns() -> None:
    algorithm = replace(RAW, adv_type="gae", advantage=advantages.configs.get("gae")(normalize_advantages=False))
    whole = batch_of([sample((1, 2), (3, 4, 5), (-1.0, -2.0, -3.0), reward=2.0)])
    branched = as_branches(whole, lengths=(2, 1), spans=((0, 1), (2, 3), (1, 2)))
    values = torch.tensor([0.1, 0.7, 0.4])
    samples, _ = make_text_samples(branched, algorithm=algorithm, values=torch.split(values, [2, 1]))
    expected, _ = make_text_samples(whole, algorithm=algorithm, values=[values[[0, 2, 1]]])
    found = torch.cat(samples.tokens["returns"])[[0, 2, 1]]
    assert found.tolist() == pytest.approx(expected.tokens["returns"][0].tolist())
    assert torch.cat(samples.tokens["prev_values"]).tolist() == values.tolist()


def with_turn_rewards(*rewards: tuple[float, ...], totals: tuple[float, ...]) -> ResponseBatch:
    """Return episodes of one group whose turns are one token each, with their own rewards and total ones."""
    tokens = [sample((1,), (3, 4, 5)[: len(own)], (-1.0,) * len(own)) for own in rewards]
    batch = batch_of(tokens)
    responses = tuple(
        replace(
            response,
            reward=total,
            turn_spans=tuple((at, at + 1) for at in range(len(own))) if any(own) else (),
            turn_rewards=own if any(own) else (),
        )
        for response, own, total in zip(batch.responses, rewards, totals, strict=True)
    )
    return replace(batch, responses=responses)


def test_a_turns_reward_is_for_the_tokens_up_to_its_end() -> None:
    cfg = advantages.configs.get("reinpp")(normalize_advantages=False)
    batch = with_turn_rewards((0.5, 0.0, 0.25), (0.0, 0.0), totals=(1.75, 2.0))
    samples, metrics = make_text_samples(batch, algorithm=replace(RAW, adv_type="reinpp", advantage=cfg))
    assert [column.tolist() for column in samples.tokens["returns"]] == [[1.75, 1.25, 1.25], [2, 2]]
    assert finalize_metrics(metrics)["score"] == pytest.approx(1.875)


def test_groups_compare_episodes_by_all_they_have_earned() -> None:
    cfg = advantages.configs.get("grpo")(normalize_advantages=False)
    algorithm = replace(RAW, adv_type="grpo", advantage=cfg)
    plain = batch_of([sample((1,), (3, 4, 5), (-1.0,) * 3, reward=1.5), sample((1,), (3, 4), (-1.0,) * 2, reward=0.5)])
    batch = with_turn_rewards((0.25, 0.25, 0.0), (0.0, -0.5), totals=(1.5, 0.5))
    (samples, _), (expected, _) = (make_text_samples(each, algorithm=algorithm) for each in (batch, plain))
    for found, wanted in zip(samples.tokens["advantages"], expected.tokens["advantages"], strict=True):
        assert found.tolist() == pytest.approx(wanted.tolist())


def test_a_group_whose_turns_make_the_difference_is_trained_on() -> None:
    algorithm = replace(RAW, group_size=2, max_num_gen_batches=2)
    assert algorithm.replaces_groups
    batch = with_turn_rewards((0.5, 0.0), (0.0, 0.0), totals=(1.5, 1.0))
    samples, _ = make_text_samples(batch, algorithm=algorithm)
    assert torch.cat(samples.tokens["loss_mask"]).all()
    same = with_turn_rewards((0.5, 0.0), (0.0, 0.5), totals=(1.5, 1.5))
    samples, _ = make_text_samples(same, algorithm=algorithm)
    assert not torch.cat(samples.tokens["loss_mask"]).any()


def test_an_episode_is_in_one_minibatch_and_counts_once() -> None:
    whole = batch_of([sample((1, 2), (3, 4, 5), (-1.0, -2.0, -3.0), reward=2.0), *SAMPLES[1:]])
    samples, _ = make_text_samples(as_branches(whole, lengths=(2, 1), spans=((0, 2), (2, 3))), algorithm=RAW)
    chosen = samples.select_episodes([2, 0])
    assert [part.tolist() for part in chosen.responses] == [[11, 12], [3, 4], [5]]
    batches = [chosen.pack(MicroBatch(torch.tensor(indices)), CPU) for indices in ([0, 1], [2])]
    counted = text_denominators(batches, max_tokens=9)
    assert (counted.policy.num_valid_tokens, counted.policy.num_sequences) == (5, 2)
    together = chosen.pack(MicroBatch(torch.tensor([1, 2])), CPU)
    assert together.local_episode_ids.unique().tolist() == [0]
    assert together.episode_ids.unique().tolist() == [0]

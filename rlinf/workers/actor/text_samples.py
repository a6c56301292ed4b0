"""From responses to training samples, to packed micro-batches, and to a language model's loss on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from rlinf.algorithms.advantages_and_returns import compute_advantages_and_returns
from rlinf.algorithms.aggregation import LossDenominators, compute_loss_denominators
from rlinf.algorithms.filtering import differing_groups
from rlinf.algorithms.importance import correct_importance, mismatch_metrics
from rlinf.algorithms.losses.inputs import LossInputs
from rlinf.algorithms.minibatch import MicroBatch
from rlinf.algorithms.registry import policy_loss
from rlinf.algorithms.steps import responses_to_steps, steps_to_ragged
from rlinf.algorithms.types import AllReduce, Metrics, Ragged
from rlinf.config.schema.algorithm import LanguageAlgorithmConfig, TextAlgorithmConfig
from rlinf.data.credit_columns import CreditColumns
from rlinf.data.messages.responses import ResponseBatch
from rlinf.data.packing import PackedSequences, pack_responses, place
from rlinf.data.prompt_images import Images
from rlinf.errors import AlgorithmError
from rlinf.models.language.expert_routing import ExpertRouting
from rlinf.models.language.language_model import TokenEvaluation


@dataclass(frozen=True, slots=True)
class TextSamples:
    """Responses as training samples, on the host.

    Attributes:
        prompts: Token ids of the prompts, one per response.
        responses: Token ids of the responses, [L] each; the branches of an episode are one each.
        tokens: Tensors [L] for each response: ``loss_mask``; of a model's own responses ``old_logprobs``,
            ``advantages`` and ``returns``; ``prev_values``, ``ref_logprobs`` and ``proximal_logprobs`` where there are
            any. With ``old_logprobs_in_update`` the update adds ``old_logprobs``, and there are ``engine_logprobs`` to
            compare them with. Where losses count agents (``algorithm.credit``), ``unit_ids``, the number of each
            token's unit, and ``sequence_weights``.
        routes: For each prompt and response together, the experts that its tokens go to, int [P + L, layers, chosen]:
            see ``ExpertRouting``. None where they are not recorded.
        episode_ids: Number of the episode of each; empty where each is one of its own.
        images: Images of each prompt; empty where there are none.
    """

    prompts: tuple[tuple[int, ...], ...]
    responses: Ragged
    tokens: Mapping[str, tuple[torch.Tensor, ...]]
    routes: tuple[torch.Tensor, ...] | None = None
    episode_ids: tuple[int, ...] = ()
    images: tuple[Images, ...] = ()

    @property
    def lengths(self) -> list[int]:
        """Tokens of each prompt and response together: what budgets of micro-batches count."""
        return [len(prompt) + len(response) for prompt, response in zip(self.prompts, self.responses, strict=True)]

    @property
    def num_episodes(self) -> int:
        """Episodes: what minibatches count."""
        return len(set(self.episode_ids)) or len(self.responses)

    @property
    def has_learning_signal(self) -> bool:
        """Whether the loss counts any token."""
        return any(bool(mask.any()) for mask in self.tokens["loss_mask"])

    def select(self, indices: Sequence[int]) -> TextSamples:
        """Return some of the samples, in the given order."""
        return TextSamples(
            prompts=tuple(self.prompts[i] for i in indices),
            responses=tuple(self.responses[i] for i in indices),
            tokens={name: tuple(values[i] for i in indices) for name, values in self.tokens.items()},
            routes=None if self.routes is None else tuple(self.routes[i] for i in indices),
            episode_ids=tuple(self.episode_ids[i] for i in indices) if self.episode_ids else (),
            images=tuple(self.images[i] for i in indices) if self.images else (),
        )

    def select_episodes(self, numbers: Sequence[int]) -> TextSamples:
        """Return the samples of some episodes, which are numbered from 0, in the given order."""
        if not self.episode_ids:
            return self.select(numbers)
        branches: dict[int, list[int]] = {}
        for index, episode in enumerate(self.episode_ids):
            branches.setdefault(episode, []).append(index)
        return self.select([index for number in numbers for index in branches[number]])

    def pack(self, batch: MicroBatch, device: torch.device, *, share_prompts: bool = False) -> TextBatch:
        """Lay the samples of a micro-batch end to end, on a device; equal prompts once, if they are to be shared."""
        chosen = self.select(batch.indices.tolist())
        packed, where = pack_responses(
            chosen.prompts, chosen.responses, share_prompts=share_prompts, images=chosen.images
        )
        tokens = {name: place(values, where).to(device) for name, values in chosen.tokens.items()}
        if batch.is_padding:
            tokens["loss_mask"] = torch.zeros_like(tokens["loss_mask"])
        episodes = torch.tensor(chosen.episode_ids) if chosen.episode_ids else batch.indices
        return TextBatch(
            packed=packed.to(device),
            is_response=where.to(device),
            response_lengths=tuple(len(response) for response in chosen.responses),
            episode_ids=episodes[packed.sequence_ids].to(device),
            num_episodes=chosen.num_episodes,
            tokens=tokens,
            routes=None if chosen.routes is None else _placed_routes(chosen.routes, packed).to(device),
            is_padding=batch.is_padding,
        )


@dataclass(frozen=True, slots=True)
class TextBatch:
    """A packed micro-batch; tensors [T] are aligned with the packed tokens.

    Attributes:
        packed: Prompts, each with its response behind it.
        is_response: bool [T].
        response_lengths: Tokens of each response, on the host.
        episode_ids: int64 [T]; which of the minibatch's episodes a token belongs to; of a shared prompt, the first one.
        num_episodes: Episodes of the micro-batch.
        tokens: As in ``TextSamples``, each [T] and 0 at prompts.
        routes: As in ``TextSamples``, int [T, layers, chosen].
        is_padding: Whether it only makes ranks have equally many micro-batches.
        routing: What the pass does about experts; None leaves them to the model.
    """

    packed: PackedSequences
    is_response: torch.Tensor
    response_lengths: tuple[int, ...]
    episode_ids: torch.Tensor
    num_episodes: int
    tokens: Mapping[str, torch.Tensor]
    routes: torch.Tensor | None = None
    is_padding: bool = False
    routing: ExpertRouting | None = None

    @property
    def local_episode_ids(self) -> torch.Tensor:
        """``episode_ids``, but from 0 on within the micro-batch: int64 [T]."""
        if self.num_episodes == self.packed.num_sequences:
            return self.packed.sequence_ids
        local: torch.Tensor = torch.unique(self.episode_ids, return_inverse=True)[1]
        return local

    @property
    def local_sequence_ids(self) -> torch.Tensor:
        """int64 [T]; the number, from 0, of what a token counts in: its episode, or an agent's part of it."""
        if "unit_ids" not in self.tokens:
            return self.local_episode_ids
        local: torch.Tensor = torch.unique(self.tokens["unit_ids"], return_inverse=True)[1]
        return local

    def split(self, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the values [T] of each response's tokens, [L] each."""
        return torch.split(values[self.is_response], list(self.response_lengths))


def make_text_samples(
    batch: ResponseBatch,
    *,
    algorithm: TextAlgorithmConfig,
    trainer_logprobs: Ragged | None = None,
    ref_logprobs: Ragged | None = None,
    values: Ragged | None = None,
    all_reduce: AllReduce | None = None,
    all_reduce_max: AllReduce | None = None,
) -> tuple[TextSamples, Metrics]:
    """Compute advantages and returns of responses, and weight them for the difference between engine and trainer.

    Ratios are those to the trainer's probabilities at the start of the update where these are given, else to the
    engine's. A decoupled loss gets both, and weights by itself.

    Args:
        batch: Rewarded responses; whole groups.
        algorithm: The ``algorithm`` section.
        trainer_logprobs: float [L] each, of the policy at the start of the update, by the trainer; None where they were
            not computed.
        ref_logprobs: float [L] each, of the reference policy; None without one.
        values: float [L] each, of the state before each token; None without a value head.
        all_reduce: Sum over data-parallel ranks, if every rank holds other responses; None where all are here.
        all_reduce_max: The same for the largest.

    Returns:
        The samples, in the responses' order, and metrics as (sum, count) pairs: those of
        ``compute_advantages_and_returns``,
        ``mismatch_metrics`` and ``correct_importance``, the latter two as far as they apply.

    Raises:
        AlgorithmError: Tensors that do not fit, or a correction or decoupled loss without ``trainer_logprobs``.
    """
    columns = CreditColumns.of(batch, by_agent=algorithm.credit == "agent")
    units = CreditColumns.of(batch, by_agent=algorithm.credit != "episode")

    def in_time(known: Ragged | None) -> Ragged | None:
        return None if known is None else columns.gather(torch.cat(list(known)))

    trainer = None if trainer_logprobs is None else torch.cat(list(trainer_logprobs))
    outcomes, turn_rewards, totals = _rewards_of(batch, columns)
    group_ids = columns.group_ids(batch)
    steps = responses_to_steps(
        scores=outcomes,
        loss_masks=columns.gather(batch.loss_mask),
        group_ids=group_ids,
        rewards=turn_rewards,
        values=in_time(values),
        old_logprobs=columns.gather(batch.logprobs if trainer is None else trainer),
        ref_logprobs=in_time(ref_logprobs),
        kl_in_reward=algorithm.kl_in_reward,
        all_reduce=all_reduce,
    )
    # Groups that dynamic sampling could not replace are left out.
    selected = differing_groups(totals, group_ids) if algorithm.replaces_groups else None
    computed, metrics = compute_advantages_and_returns(
        algorithm.adv_type, steps, algorithm.advantage, selected=selected
    )
    lengths = [len(where) for where in columns.indices]
    advantages, returns, loss_mask = (
        columns.scatter(steps_to_ragged(column, lengths))
        for column in (computed.advantages, computed.returns, computed.loss_mask)
    )
    advantages, corrected = _corrected(
        advantages, loss_mask, batch.logprobs, trainer, units.numbers, algorithm, all_reduce_max=all_reduce_max
    )
    flat = {"loss_mask": loss_mask, "advantages": advantages, "returns": returns}
    if algorithm.credit != "episode":
        flat |= {"unit_ids": units.numbers, "sequence_weights": units.weights(loss_mask)}
    if algorithm.old_logprobs_in_update:
        flat["engine_logprobs"] = batch.logprobs
    tokens = {name: tuple(batch.split(column)) for name, column in flat.items()}
    tokens |= _known_before_update(
        batch, algorithm, trainer_logprobs=trainer_logprobs, ref_logprobs=ref_logprobs, prev_values=values
    )
    samples = TextSamples(
        prompts=batch.prompt_ids,
        responses=batch.split(batch.token_ids),
        tokens=tokens,
        episode_ids=batch.episode_ids if len(batch.prompt_ids) > len(batch.responses) else (),
        images=batch.images,
    )
    return samples, metrics | corrected


def _rewards_of(
    batch: ResponseBatch, columns: CreditColumns
) -> tuple[torch.Tensor, tuple[torch.Tensor, ...] | None, torch.Tensor]:
    """Return the rewards of units: outcomes [U], rewards of turns [L] each or None, and the sums of both [U]."""
    outcomes = torch.tensor([batch.responses[number].outcome for number in columns.episodes])
    turns = columns.turn_rewards(batch)
    return outcomes, turns, outcomes if turns is None else outcomes + torch.stack([own.sum() for own in turns])


def _known_before_update(
    batch: ResponseBatch, algorithm: TextAlgorithmConfig, *, trainer_logprobs: Ragged | None, **others: Ragged | None
) -> dict[str, tuple[torch.Tensor, ...]]:
    """Return what the loss compares with, by the names of ``TextSamples.tokens``."""
    engine: Ragged | None = batch.split(batch.logprobs)
    before = trainer_logprobs
    if before is None and not algorithm.old_logprobs_in_update:
        before = engine
    is_decoupled = algorithm.loss.needs_proximal_logprobs
    others["old_logprobs"] = engine if is_decoupled else before
    others["proximal_logprobs"] = before if is_decoupled else None
    return {name: tuple(known) for name, known in others.items() if known is not None}


def text_denominators(
    batches: Sequence[TextBatch],
    *,
    max_tokens: int,
    data_parallel_size: int = 1,
    all_reduce: AllReduce | None = None,
) -> LossDenominators:
    """Count the tokens and responses of an update batch, over all of a rank's micro-batches and all ranks.

    Args:
        batches: This rank's micro-batches of the update batch.
        max_tokens: Most tokens that a response can have.
        data_parallel_size: Ranks over which gradients are averaged.
        all_reduce: Sum over these ranks; None on one rank. Called once.
    """
    return compute_loss_denominators(
        policy_mask=torch.cat([batch.tokens["loss_mask"] for batch in batches]),
        data_parallel_size=data_parallel_size,
        all_reduce=all_reduce,
        max_tokens=max_tokens,
        sequence_ids=torch.cat([batch.episode_ids for batch in batches]),
    )


def text_loss(
    result: TokenEvaluation,
    batch: TextBatch,
    denominators: LossDenominators,
    *,
    algorithm: LanguageAlgorithmConfig,
) -> tuple[torch.Tensor, Metrics]:
    """Compute a micro-batch's part of the loss; the ``use`` of a pass in ``TrainEngine.forward_backward``.

    Args:
        result: What ``evaluate_tokens`` returned.
        batch: The micro-batch.
        denominators: Of the update batch.
        algorithm: The ``algorithm`` section.

    Returns:
        Scalar loss, and metrics as (sum, count) pairs.
    """
    tokens = dict(batch.tokens)
    compared: Metrics = {}
    if "engine_logprobs" in tokens:
        tokens, compared = _compared_in_update(batch, result.logprobs, algorithm)
    inputs = LossInputs(
        logprobs=result.logprobs,
        entropy=result.entropy,
        values=result.values,
        sequence_ids=batch.local_sequence_ids,
        denominators=denominators,
        **{name: values for name, values in tokens.items() if name != "unit_ids"},
    )
    loss, metrics = policy_loss(algorithm.loss_type, inputs, algorithm.loss)
    return loss, metrics | compared


def _compared_in_update(
    batch: TextBatch, logprobs: torch.Tensor, algorithm: LanguageAlgorithmConfig
) -> tuple[dict[str, torch.Tensor], Metrics]:
    """Return a micro-batch's tensors with weighted advantages, and metrics of the difference to the engine.

    In the first minibatch, which has no log-probabilities of the start of the update, they are ``logprobs``.
    """
    assert isinstance(algorithm, TextAlgorithmConfig)
    tokens = dict(batch.tokens)
    engine = tokens.pop("engine_logprobs")
    trainer = tokens.setdefault("old_logprobs", logprobs.detach())
    mask, sequence_ids = tokens["loss_mask"], batch.local_sequence_ids
    weights, metrics = _compare(engine, trainer, mask, sequence_ids, algorithm)
    if weights is not None:
        tokens["advantages"] = tokens["advantages"] * weights
    return tokens, metrics


def evaluate_tokens(
    model: nn.Module,
    batch: TextBatch,
    *,
    algorithm: LanguageAlgorithmConfig,
    whole_responses: bool = False,
    with_top: bool = False,
) -> TokenEvaluation:
    """Run the model on a micro-batch at the temperature of training.

    Args:
        model: A ``LanguageModel``, as the engine hands it.
        batch: The micro-batch.
        algorithm: The ``algorithm`` section.
        whole_responses: Also evaluate responses' tokens that the loss leaves out.
        with_top: Whether to find out which tokens are the most likely ones.
    """
    scored = batch.is_response if whole_responses else batch.tokens["loss_mask"]
    temperature = algorithm.training_temperature
    steered = {} if batch.routing is None else {"routing": batch.routing}
    result: TokenEvaluation = model(batch.packed, temperature=temperature, scored=scored, with_top=with_top, **steered)
    return result


def _placed_routes(routes: Sequence[torch.Tensor], packed: PackedSequences) -> torch.Tensor:
    """Lay the routes of each sequence's tokens next to the packed tokens; of those that share one, the first known."""
    joined = torch.cat(list(routes))
    known = joined.flatten(1).any(1).nonzero().squeeze(1)
    first = torch.full((packed.num_tokens,), len(joined))
    first.scatter_reduce_(0, packed.places[known], known, "amin")
    placed = joined.new_zeros(packed.num_tokens, *joined.shape[1:])
    has_any = first < len(joined)
    placed[has_any] = joined[first[has_any]]
    return placed


def _corrected(
    advantages: torch.Tensor,
    loss_mask: torch.Tensor,
    engine: torch.Tensor,
    trainer: torch.Tensor | None,
    sequence_ids: torch.Tensor,
    algorithm: TextAlgorithmConfig,
    *,
    all_reduce_max: AllReduce | None,
) -> tuple[torch.Tensor, Metrics]:
    """Return weighted advantages [T], and metrics of the difference between engine and trainer."""
    if trainer is None:
        correction = algorithm.importance_correction
        is_needed = correction is not None or algorithm.loss.needs_proximal_logprobs
        if is_needed and not algorithm.old_logprobs_in_update:
            raise AlgorithmError(
                f"loss_type={algorithm.loss_type} with importance_correction={correction} needs the trainer's "
                "log-probabilities. Set algorithm.recompute_logprobs=true."
            )
        return advantages, {}
    weights, metrics = _compare(engine, trainer, loss_mask, sequence_ids, algorithm, all_reduce_max=all_reduce_max)
    return advantages if weights is None else advantages * weights, metrics


def _compare(
    engine: torch.Tensor,
    trainer: torch.Tensor,
    loss_mask: torch.Tensor,
    sequence_ids: torch.Tensor,
    algorithm: TextAlgorithmConfig,
    *,
    all_reduce_max: AllReduce | None = None,
) -> tuple[torch.Tensor | None, Metrics]:
    """Return the weights of tokens, if the recipe corrects them, and metrics of the difference; see ``importance``."""
    packed = {
        "trainer_logprobs": trainer,
        "engine_logprobs": engine,
        "loss_mask": loss_mask,
        "sequence_ids": sequence_ids,
    }
    metrics = mismatch_metrics(**packed, all_reduce_max=all_reduce_max)
    correction = algorithm.importance_correction
    if correction is None:
        return None, metrics
    weights, corrected = correct_importance(
        **packed,
        level=correction.level,
        mode=correction.mode,
        lower_bound=correction.lower_bound,
        upper_bound=correction.upper_bound,
    )
    return weights, metrics | corrected

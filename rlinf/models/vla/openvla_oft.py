"""``openvla_oft``: a chunk of actions in one pass; every token sees every other (Kim et al., arXiv 2502.19645)."""

from __future__ import annotations

import torch
from torch import nn

from rlinf.config.schema.vla import OpenVLAOFTConfig
from rlinf.data.messages.embodied import Observation, PolicyOutput
from rlinf.models.base_policy import BasePolicy, Mode, PolicyEvaluation
from rlinf.models.vla.distributions import ActionDistribution, NumberDistribution, TokenDistribution
from rlinf.models.vla.prismatic import FiLMBackbone, L1Head, PrismaticShape, ProprioProjector, VisionBackbone
from rlinf.models.vla.prismatic_policy import ACTION, PrismaticInputs, PrismaticPolicy, build_prismatic


def build_openvla_oft(cfg: OpenVLAOFTConfig, *, num_values: int = 1) -> BasePolicy:
    """Build what ``model_type: openvla_oft`` names, on device ``meta``; ``weight_source`` is ``model_path``."""
    return build_prismatic(cfg, lambda shape, inputs: OpenVLAOFTPolicy(cfg, shape, inputs, num_values=num_values))


class OpenVLAOFTPolicy(PrismaticPolicy):
    """The sequence is: first token, images, state, prompt, ``C * A`` empty slots, end of sequence.

    The output before each slot decides its number, as in a causal model; yet attention is bidirectional, by a mask
    that is handed to every layer. Positions count tokens, not padding.

    Args:
        cfg: The model's keys.
        shape: Sizes of the published model.
        inputs: Makes records of observations.
        num_values: Values per observation (``V``).
    """

    cfg: OpenVLAOFTConfig

    def __init__(
        self, cfg: OpenVLAOFTConfig, shape: PrismaticShape, inputs: PrismaticInputs, *, num_values: int = 1
    ) -> None:
        super().__init__(cfg, shape, inputs, num_values=num_values)
        if cfg.use_film:
            assert isinstance(self.vision_backbone, VisionBackbone)
            self.vision_backbone = FiLMBackbone(self.vision_backbone, self.word_width)
        self.proprio_projector: ProprioProjector | None = None
        if cfg.use_proprio:
            self.proprio_projector = ProprioProjector(cfg.state_dim or len(inputs.states or ()), self.word_width)
        self.action_head: L1Head | None = None
        if cfg.head == "l1":
            self.action_head = L1Head(self.word_width, cfg.action_dim)
            self.log_std = nn.Parameter(torch.zeros(cfg.action_dim))

    def components(self) -> tuple[str, ...]:
        """See ``PrismaticPolicy``."""
        cfg = self.cfg
        film = ("vision_backbone",) if cfg.use_film else ()
        proprio = ("proprio_projector",) if cfg.use_proprio else ()
        return (*film, *proprio, *(("action_head",) if cfg.head == "l1" else ()))

    def hidden_states(self, record: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return the hidden states that decide the ``C * A`` numbers, [N, C * A, W].

        Args:
            record: See ``PrismaticInputs.record``.
        """
        mask = record["token_mask"]
        words, seen, end = self._embeddings(record)
        slots = words.new_zeros(len(words), self.cfg.num_action_chunks * self.cfg.action_dim, words.shape[-1])
        sequence = torch.cat([words[:, :1], seen, words[:, 1:], slots, end], 1)
        there = torch.cat(
            [
                mask[:, :1],
                mask.new_ones(len(mask), seen.shape[1]),
                mask[:, 1:],
                mask.new_ones(len(mask), slots.shape[1] + 1),
            ],
            1,
        )
        output = self.language_model.model(
            inputs_embeds=sequence,
            attention_mask=bidirectional_mask(there),
            position_ids=(there.cumsum(1) - 1).clamp(min=0),
            use_cache=False,
        )
        hidden: torch.Tensor = output.last_hidden_state[:, -slots.shape[1] - 2 : -2]
        return hidden

    def distribution(self, hidden: torch.Tensor, inputs: dict[str, torch.Tensor] | None = None) -> ActionDistribution:
        """Return what actions are sampled from.

        Args:
            hidden: See ``hidden_states``.
            inputs: ``forward_inputs`` of actions that are given; None to act.
        """
        if self.action_head is not None:
            return NumberDistribution(self.action_head(hidden), self.log_std)
        return self.distribution_of(self._logits(hidden), inputs)

    def action_logits(self, forward_inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """See ``PrismaticPolicy``."""
        return self._logits(self.hidden_states(forward_inputs))

    def supervised_forward(self, forward_inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """See ``PrismaticPolicy``; of the L1 head, distances."""
        if self.action_head is None:
            return super().supervised_forward(forward_inputs)
        numbers: torch.Tensor = self.action_head(self.hidden_states(forward_inputs))
        # The standard deviation gets a gradient of 0: optimizers keep, and checkpoints expect, a state of it.
        return (numbers - forward_inputs[ACTION]).abs() + 0.0 * self.log_std

    def default_forward(self, forward_inputs: dict[str, torch.Tensor]) -> PolicyEvaluation:
        """See ``BasePolicy``."""
        hidden = self.hidden_states(forward_inputs)
        distribution = self.distribution(hidden, forward_inputs)
        return PolicyEvaluation(
            logprobs=distribution.logprobs(forward_inputs[ACTION]),
            entropy=distribution.entropy(),
            values=self.values_of(hidden[:, 0]),
            greedy=None if self.action_head is None else distribution.mode(),
        )

    @torch.no_grad()
    def predict_action_batch(
        self, obs: Observation, *, mode: Mode, generator: torch.Generator | None = None
    ) -> tuple[torch.Tensor, PolicyOutput]:
        """See ``BasePolicy``."""
        record = self.inputs.record(obs, self.device)
        hidden = self.hidden_states(record)
        distribution = self.distribution(hidden)
        chosen = distribution.sample(generator) if mode == "train" else distribution.mode()
        output = PolicyOutput(
            logprobs=distribution.logprobs(chosen),
            values=self.values_of(hidden[:, 0]),
            forward_inputs={**record, **self._inputs_of(chosen, distribution)},
        )
        return self.inputs.actions.restore(distribution.numbers(chosen)), output

    @torch.no_grad()
    def predict_values(self, obs: Observation) -> torch.Tensor:
        """See ``BasePolicy``."""
        values = self.values_of(self.hidden_states(self.inputs.record(obs, self.device))[:, 0])
        assert values is not None
        return values

    def forward_inputs_of(self, obs: Observation, actions: torch.Tensor) -> dict[str, torch.Tensor]:
        """See ``BasePolicy``."""
        numbers = self.inputs.actions.normalize(actions.to(self.device))
        chosen = numbers if self.action_head is not None else self.tokens.to_bins(numbers)
        return {**self.inputs.record(obs, self.device), **self._inputs_of(chosen)}

    def _inputs_of(
        self, chosen: torch.Tensor, distribution: ActionDistribution | None = None
    ) -> dict[str, torch.Tensor]:
        if self.action_head is not None:
            return {ACTION: chosen}
        return self.token_inputs(chosen, distribution.kept if isinstance(distribution, TokenDistribution) else None)

    def _logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return logits of bins [N, C, A, n] of ``hidden_states``."""
        return self.all_logits(hidden).view(len(hidden), self.cfg.num_action_chunks, self.cfg.action_dim, -1)

    def _embeddings(self, record: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return embeddings of the prompt [N, L, W], of images and state [N, P, W], and of the end [N, 1, W]."""
        ids, mask = record["token_ids"], record["token_mask"]
        last = torch.full_like(ids[:, :1], self.inputs.prompts.eos_token_id)
        embedded = self.embed(torch.cat([ids, last], 1))
        words, end = embedded[:, :-1], embedded[:, -1:]
        mean = None
        if self.cfg.use_film:
            total = (words * mask.unsqueeze(-1)).sum(1) + end.squeeze(1)
            mean = total / (mask.sum(1, keepdim=True) + 1)
        seen = self.see(record, mean)
        if self.proprio_projector is not None:
            seen = torch.cat([seen, self.proprio_projector(record["state"]).to(seen.dtype)], 1)
        return words, seen, end


def bidirectional_mask(there: torch.Tensor) -> torch.Tensor:
    """Return which token attends to which, bool [N, 1, T, T]: each to all that are there.

    Args:
        there: bool [N, T]; false for padding.
    """
    return there[:, None, None, :].expand(-1, 1, there.shape[1], -1)

"""``openvla``: one action, a token at a time (Kim et al., arXiv 2406.09246)."""

from __future__ import annotations

from typing import Any

import torch

from rlinf.config.schema.vla import OpenVLAConfig
from rlinf.data.messages.embodied import Observation, PolicyOutput
from rlinf.models.base_policy import BasePolicy, Mode, PolicyEvaluation
from rlinf.models.vla.prismatic_policy import ACTION, PrismaticPolicy, build_prismatic
from rlinf.utils.optional import require


def build_openvla(cfg: OpenVLAConfig, *, num_values: int = 1) -> BasePolicy:
    """Build what ``model_type: openvla`` names, on device ``meta``; ``weight_source`` is ``model_path``."""
    return build_prismatic(cfg, lambda shape, inputs: OpenVLAPolicy(cfg, shape, inputs, num_values=num_values))


class OpenVLAPolicy(PrismaticPolicy):
    """The sequence is: first token, image, prompt, and the tokens of the action, each of which sees those before it.

    A rollout keeps keys and values of what it has seen and adds one token a pass; training evaluates all tokens in
    one pass. Positions count tokens, not padding.
    """

    def components(self) -> tuple[str, ...]:
        """See ``PrismaticPolicy``: none."""
        return ()

    def default_forward(self, forward_inputs: dict[str, torch.Tensor]) -> PolicyEvaluation:
        """See ``BasePolicy``."""
        hidden = self.hidden_states(forward_inputs)
        distribution = self.distribution_of(self.all_logits(hidden).unsqueeze(1), forward_inputs)
        return PolicyEvaluation(
            logprobs=distribution.logprobs(forward_inputs[ACTION]),
            entropy=distribution.entropy(),
            values=self.values_of(hidden[:, 0]),
        )

    def action_logits(self, forward_inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """See ``PrismaticPolicy``."""
        return self.all_logits(self.hidden_states(forward_inputs)).unsqueeze(1)

    def hidden_states(self, forward_inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return the hidden states that decide the ``A`` numbers of a given action, [N, A, W].

        Args:
            forward_inputs: See ``BasePolicy.default_forward``.
        """
        bins = forward_inputs[ACTION]
        given = self.embed(self.tokens.to_ids(bins[:, 0, :-1]))
        sequence, there = self._prompt(forward_inputs)
        there = torch.cat([there, there.new_ones(given.shape[:2])], 1)
        return self._run(torch.cat([sequence, given], 1), there)[:, -bins.shape[-1] :]

    @torch.no_grad()
    def predict_action_batch(
        self, obs: Observation, *, mode: Mode, generator: torch.Generator | None = None
    ) -> tuple[torch.Tensor, PolicyOutput]:
        """See ``BasePolicy``."""
        record = self.inputs.record(obs, self.device)
        sequence, there = self._prompt(record)
        cache = require("transformers", needed_by="model_type=openvla").DynamicCache()
        bins, logprobs, kept, values = [], [], [], None
        for index in range(self.cfg.action_dim):
            hidden = self._run(sequence, there, cache)[:, -1:]
            values = self.values_of(hidden[:, 0]) if index == 0 else values
            distribution = self.distribution_of(self.all_logits(hidden).unsqueeze(1))
            chosen = distribution.sample(generator) if mode == "train" else distribution.mode()
            bins.append(chosen)
            logprobs.append(distribution.logprobs(chosen))
            kept += [] if distribution.kept is None else [distribution.kept]
            sequence = self.embed(self.tokens.to_ids(chosen[:, 0]))
            there = torch.cat([there, there.new_ones(len(there), 1)], 1)
        action = torch.cat(bins, -1)
        inputs = self.token_inputs(action, torch.cat(kept, 2) if kept else None)
        output = PolicyOutput(torch.cat(logprobs, -1), values, {**record, **inputs})
        return self.inputs.actions.restore(self.tokens.to_numbers(action)), output

    @torch.no_grad()
    def predict_values(self, obs: Observation) -> torch.Tensor:
        """See ``BasePolicy``."""
        values = self.values_of(self._run(*self._prompt(self.inputs.record(obs, self.device)))[:, -1])
        assert values is not None
        return values

    def forward_inputs_of(self, obs: Observation, actions: torch.Tensor) -> dict[str, torch.Tensor]:
        """See ``BasePolicy``."""
        bins = self.tokens.to_bins(self.inputs.actions.normalize(actions.to(self.device)))
        return {**self.inputs.record(obs, self.device), **self.token_inputs(bins)}

    def _prompt(self, record: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return embeddings [N, T, W] of the first token, the images and the prompt, and where there are any."""
        words, mask, seen = self.embed(record["token_ids"]), record["token_mask"], self.see(record)
        there = torch.cat([mask[:, :1], mask.new_ones(seen.shape[:2]), mask[:, 1:]], 1)
        return torch.cat([words[:, :1], seen, words[:, 1:]], 1), there

    def _run(self, sequence: torch.Tensor, there: torch.Tensor, cache: Any = None) -> torch.Tensor:
        """Return the hidden states [N, Q, W] of new embeddings [N, Q, W].

        Args:
            sequence: The embeddings; those before them are in the cache.
            there: bool [N, T]; of all positions, the new ones last.
            cache: Keys and values of the positions before; taken on. None has none.
        """
        new = sequence.shape[1]
        output = self.language_model.model(
            inputs_embeds=sequence,
            attention_mask=causal_mask(there)[:, :, -new:],
            position_ids=(there.cumsum(1) - 1).clamp(min=0)[:, -new:],
            past_key_values=cache,
            use_cache=cache is not None,
        )
        hidden: torch.Tensor = output.last_hidden_state
        return hidden


def causal_mask(there: torch.Tensor) -> torch.Tensor:
    """Return which token attends to which, bool [N, 1, T, T]: each to itself and those before it that are there.

    Args:
        there: bool [N, T]; false for padding.
    """
    size = there.shape[1]
    before = torch.ones(size, size, dtype=torch.bool, device=there.device).tril()
    itself = torch.eye(size, dtype=torch.bool, device=there.device)
    return (before & there[:, None, None, :]) | itself

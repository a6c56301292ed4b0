"""``openpi``: pi-0 and pi-0.5, flows from noise to chunks of actions given images, a sentence and a state.

Published time runs from 1 (noise) to 0 (actions); ``chain`` holds the points that a flow passed in that order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from rlinf.config.schema.vla import PiConfig
from rlinf.data.messages.embodied import Observation, PolicyOutput
from rlinf.errors import ConfigError
from rlinf.models.base_policy import BasePolicy, Mode, PolicyEvaluation
from rlinf.models.control.action_flow import DiffusionNoise
from rlinf.models.control.heads import gaussian_entropy, gaussian_logprob, run_head
from rlinf.models.language.model_path import find_model_folder, require_model_path
from rlinf.models.lora import add_adapters, merged
from rlinf.models.trainable import WeightForm
from rlinf.models.velocity_policy import VelocityEvaluation, VelocityPolicy
from rlinf.models.vla.pi_inputs import PiInputs
from rlinf.models.vla.pi_model import PaliGemmaWithExpert, PiShape, Prefix, time_embedding
from rlinf.models.vla.published_folder import PublishedWeights, StartingWeights, initial_head
from rlinf.models.vla.value_heads import value_head
from rlinf.utils.optional import require

CHAIN = "chain"
"""Where the points of a flow stand in ``forward_inputs``: float32 [N, K + 1, H, D]."""
ACTION = "action"
"""Where recorded actions stand in ``forward_inputs``: float32 [N, H, A], normalised."""
_TIME_CONCENTRATION = 1.5
"""Times of training have the density of Beta(1.5, 1), ..."""
_LAST_TIME = 0.001
"""... and end just before the actions."""
_PALIGEMMA = "paligemma_with_expert.paligemma"
_TIED = {f"{_PALIGEMMA}.model.language_model.embed_tokens.weight": f"{_PALIGEMMA}.lm_head.weight"}
UNUSED = (f"{_PALIGEMMA}.lm_head.weight", "paligemma_with_expert.gemma_expert.lm_head.weight")


class PiPolicy(VelocityPolicy):
    """A flow policy of which the first ``C`` of ``H`` actions, and ``A`` of ``D`` numbers, are executed.

    Log-probabilities are those of the noisy steps, summed over the steps: a product of Gaussians over what is executed.
    Everything else follows the velocity, so that nothing random is left out. Evaluation starts from 0.

    Args:
        cfg: The model's keys.
        shape: Sizes of the published model.
        inputs: Makes records of observations.
        num_values: Values per observation (``V``).
    """

    def __init__(self, cfg: PiConfig, shape: PiShape, inputs: PiInputs, *, num_values: int = 1) -> None:
        super().__init__()
        self.cfg, self.inputs, self.padded_dim = cfg, inputs, shape.action_dim
        width, padded = shape.expert.width, shape.action_dim
        self.paligemma_with_expert = PaliGemmaWithExpert(shape, is_adaptive=self.is_adaptive)
        self.action_in_proj = nn.Linear(padded, width)
        self.action_out_proj = nn.Linear(width, padded)
        if self.is_adaptive:
            self.time_mlp_in, self.time_mlp_out = nn.Linear(width, width), nn.Linear(width, width)
        else:
            self.state_proj = nn.Linear(padded, width)
            self.action_time_mlp_in, self.action_time_mlp_out = nn.Linear(2 * width, width), nn.Linear(width, width)
        self.noise = DiffusionNoise(cfg, width)
        self.value_head = value_head(cfg, shape.language.width, num_values) if cfg.add_value_head else None

    @property
    def is_adaptive(self) -> bool:
        """Whether time modulates the expert's norms, and the state is among the words."""
        return self.cfg.variant == "pi05"

    def components(self) -> tuple[str, ...]:
        """Return the parts that published folders keep in files of their own: none."""
        return ()

    def prefix(self, record: dict[str, torch.Tensor]) -> Prefix:
        """Return what the expert attends to; see ``PiInputs.record``."""
        images = [record[f"images.{key}"] for key in self.cfg.image_keys]
        mask = record["token_mask"]
        there = record.get("image_mask", mask.new_ones(len(mask), len(images)))
        return self.paligemma_with_expert.prefix(images, record["token_ids"], torch.cat([there, mask], 1))

    def velocity(self, prefix: Prefix, state: torch.Tensor, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """Return the published velocity at ``J`` points, which stand side by side and do not see each other.

        Args:
            prefix: What they all attend to.
            state: [N, D], padded.
            x: float32 [N, J, H, D].
            time: float32 [J], or [N, J] where samples have their own; 1 is noise.

        Returns:
            float32 [N, J, H, D].
        """
        num_points, horizon = x.shape[1:3]
        embedded = self.action_in_proj(x.to(self.action_in_proj.weight.dtype))
        moments = time_embedding(time, embedded.shape[-1]).to(embedded.dtype).unsqueeze(-2).expand_as(embedded)
        condition = None
        if self.is_adaptive:
            condition = F.silu(self.time_mlp_out(F.silu(self.time_mlp_in(moments)))).flatten(1, 2)
        else:
            both = torch.cat([embedded, moments], -1)
            embedded = self.action_time_mlp_out(F.silu(self.action_time_mlp_in(both)))
            token = self.state_proj(state.to(embedded.dtype))[:, None, None].expand(-1, num_points, -1, -1)
            embedded = torch.cat([token, embedded], 2)
        block = embedded.shape[2]
        first = prefix.there.sum(1)[:, None, None]
        positions = (first + torch.arange(block, device=x.device)).expand(-1, num_points, -1).flatten(1, 2)
        output, _ = self.paligemma_with_expert.expert(
            embedded.flatten(1, 2),
            mask=suffix_mask(prefix.there, num_points, block, has_state=not self.is_adaptive),
            positions=positions,
            before=prefix.keys_values,
            condition=condition,
        )
        output = output.view(*embedded.shape)[:, :, -horizon:]
        velocity: torch.Tensor = self.action_out_proj(output.to(self.action_out_proj.weight.dtype))
        return velocity.float()

    def default_forward(self, forward_inputs: dict[str, torch.Tensor]) -> PolicyEvaluation:
        """See ``BasePolicy``; all steps of a flow are evaluated in one pass."""
        chain, prefix = forward_inputs[CHAIN], self.prefix(forward_inputs)
        begins = chain[:, :-1]
        velocity = self.velocity(prefix, forward_inputs["state"], begins, self._times(chain.device))
        log_stds = self.noise.log_stds(begins)
        means = self._executed(self._drifted(begins, velocity))
        logprobs = gaussian_logprob(self._executed(chain[:, 1:]), means, log_stds)
        return PolicyEvaluation(
            logprobs=logprobs.sum(1), entropy=gaussian_entropy(log_stds).sum(1), values=self._values(prefix)
        )

    def velocity_forward(
        self, forward_inputs: dict[str, torch.Tensor], noise: torch.Tensor, time: torch.Tensor
    ) -> VelocityEvaluation:
        """See ``VelocityPolicy``, whose time runs the other way; what is not executed keeps the start that it had."""
        chain, prefix = forward_inputs[CHAIN], self.prefix(forward_inputs)
        start = chain[:, :1].clone()
        self._executed(start)[:, 0] = noise
        point = torch.lerp(start, chain[:, -1:], time.view(-1, 1, 1, 1))
        velocity = self.velocity(prefix, forward_inputs["state"], point, (1.0 - time).unsqueeze(1))
        target = self._executed(chain[:, -1:] - start)[:, 0]
        return VelocityEvaluation(
            velocity=-self._executed(velocity)[:, 0],
            target=target,
            saturated=torch.zeros_like(target, dtype=torch.bool),
            values=self._values(prefix),
        )

    @property
    def num_supervised_actions(self) -> int:
        """See ``BasePolicy``."""
        return self.cfg.horizon

    def forward_inputs_of(self, obs: Observation, actions: torch.Tensor) -> dict[str, torch.Tensor]:
        """See ``BasePolicy``; actions are normalised."""
        return {**self.inputs.record(obs, self.device), ACTION: self.inputs.actions.normalize(actions.to(self.device))}

    def supervised_draws(self, count: int, generator: torch.Generator) -> dict[str, torch.Tensor]:
        """See ``BasePolicy``: noise [count, H, D], and times from a Beta distribution that prefers noise (pi-0)."""
        share = torch.rand(count, generator=generator).pow(1.0 / _TIME_CONCENTRATION)
        noise = torch.randn(count, self.cfg.horizon, self.padded_dim, generator=generator)
        return {"noise": noise, "time": _LAST_TIME + (1.0 - _LAST_TIME) * share}

    def supervised_forward(self, forward_inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """See ``BasePolicy``: squared errors of the velocity between noise and actions (flow matching)."""
        actions, noise, time = (forward_inputs[name] for name in (ACTION, "noise", "time"))
        padded = F.pad(actions, (0, self.padded_dim - actions.shape[-1]))
        late = time[:, None, None]
        point = late * noise + (1.0 - late) * padded
        prefix = self.prefix(forward_inputs)
        velocity = self.velocity(prefix, forward_inputs["state"], point.unsqueeze(1), time.unsqueeze(1))[:, 0]
        return (noise - padded - velocity).square()[..., : self.cfg.action_dim]

    @torch.no_grad()
    def predict_action_batch(
        self, obs: Observation, *, mode: Mode, generator: torch.Generator | None = None
    ) -> tuple[torch.Tensor, PolicyOutput]:
        """See ``BasePolicy``."""
        record = self.inputs.record(obs, self.device)
        prefix = self.prefix(record)
        shape = (len(record["state"]), self.cfg.horizon, self.padded_dim)
        start = torch.zeros(shape, device=self.device)
        if mode == "train":
            start.normal_(generator=generator)
        has_noise = mode == "train" and self.cfg.noise_method == "flow_sde"
        chain, logprobs = self.sample(prefix, record["state"], start, generator if has_noise else None)
        actions = self._executed(chain[:, -1:])[:, 0]
        output = PolicyOutput(logprobs=logprobs, values=self._values(prefix), forward_inputs={**record, CHAIN: chain})
        return self.inputs.actions.restore(actions), output

    def sample(
        self, prefix: Prefix, state: torch.Tensor, start: torch.Tensor, generator: torch.Generator | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Carry noise to actions.

        Args:
            prefix: What the expert attends to.
            state: [N, D].
            start: float32 [N, H, D]; where flows start.
            generator: Of the steps' noise; None has none.

        Returns:
            The points passed, [N, K + 1, H, D], and log-probabilities [N, C, A], 0 without noise.
        """
        times, chain = self._times(start.device), [start]
        log_stds = self.noise.log_stds(start)
        logprobs = torch.zeros_like(log_stds[:, 0])
        for step in range(self.cfg.num_steps):
            begin = chain[-1].unsqueeze(1)
            velocity = self.velocity(prefix, state, begin, times[step : step + 1])
            if generator is None:
                chain.append((begin - velocity / self.cfg.num_steps)[:, 0])
                continue
            end = self._drifted(begin, velocity, step)[:, 0]
            noise = torch.randn(logprobs.shape, generator=generator, device=start.device)
            mean = self._executed(end.unsqueeze(1))[:, 0].clone()
            reached = mean + noise * log_stds[:, step].exp()
            self._executed(end.unsqueeze(1))[:, 0] = reached
            logprobs = logprobs + gaussian_logprob(reached, mean, log_stds[:, step])
            chain.append(end)
        return torch.stack(chain, 1), logprobs

    @torch.no_grad()
    def predict_values(self, obs: Observation) -> torch.Tensor:
        """See ``BasePolicy``."""
        values = self._values(self.prefix(self.inputs.record(obs, self.device)))
        assert values is not None
        return values

    def shard_units(self) -> list[nn.Module]:
        """See ``TrainableModel``: layers of all stacks, word embeddings, the value head."""
        words = self.paligemma_with_expert.parts["language_model"].embed_tokens
        return [*self.recompute_units(), words, *(() if self.value_head is None else (self.value_head,))]

    def recompute_units(self) -> list[nn.Module]:
        """See ``TrainableModel``."""
        model = self.paligemma_with_expert
        tower = model.parts["vision_tower"]["vision_model"].encoder.layers
        return [*tower, *model.parts["language_model"].layers, *model.expert.layers]

    def export(
        self, whole: Callable[[torch.Tensor], torch.Tensor], form: WeightForm = "merged"
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """See ``TrainableModel``; ``merged`` names are those of published folders."""
        if self.cfg.is_lora and form == "merged":
            yield from merged(self.state_dict(), self.cfg, whole)
        else:
            yield from super().export(whole, form)

    def _times(self, device: torch.device) -> torch.Tensor:
        """Return when the steps begin, float32 [K]: from 1 on.

        Rounded as the published code does, which adds the steps up: the embedding's shortest period is that short.
        """
        step, times = torch.tensor(-1.0 / self.cfg.num_steps), [torch.tensor(1.0)]
        for _ in range(self.cfg.num_steps - 1):
            times.append(times[-1] + step)
        return torch.stack(times).to(device)

    def _drifted(self, begins: torch.Tensor, velocity: torch.Tensor, first: int = 0) -> torch.Tensor:
        """Return where steps end without noise [N, J, H, D]; what will have noise drifts by as much more as it takes.

        Args:
            begins: Where they begin, [N, J, H, D].
            velocity: There.
            first: Number of the first of these steps.
        """
        steps = self.cfg.num_steps
        # The noise's time and velocity run from noise to actions.
        elapsed = (1.0 - self._times(begins.device))[first : first + begins.shape[1]].view(1, -1, 1, 1)
        ends = begins - velocity / steps
        drift = self.noise.drift(-self._executed(velocity), self._executed(begins), elapsed)
        drifted = self._executed(begins) + drift / steps
        chunk, size = drifted.shape[2:]
        rest = torch.cat([drifted, ends[:, :, :chunk, size:]], -1)
        return torch.cat([rest, ends[:, :, chunk:]], 2)

    def _executed(self, points: torch.Tensor) -> torch.Tensor:
        """Return what is executed of points [N, J, H, D]: a view [N, J, C, A]."""
        return points[:, :, : self.cfg.num_action_chunks, : self.cfg.action_dim]

    def _values(self, prefix: Prefix) -> torch.Tensor | None:
        if self.value_head is None:
            return None
        mean = prefix.mean()
        return run_head(self.value_head, mean.detach() if self.cfg.value_detach else mean)


def suffix_mask(there: torch.Tensor, num_points: int, block: int, *, has_state: bool) -> torch.Tensor:
    """Return what tokens of the expert attend to, bool [N, 1, J * block, P + J * block].

    Each sees the prefix and the block that it stands in; a state, the first token of a block, does not see actions.

    Args:
        there: bool [N, P]; false for padding of the prefix.
        num_points: Blocks (``J``).
        block: Tokens of one.
        has_state: Whether there are states.
    """
    own = torch.ones(block, block, dtype=torch.bool, device=there.device)
    if has_state:
        own[0, 1:] = False
    blocks = torch.kron(torch.eye(num_points, dtype=torch.bool, device=there.device), own)
    size = num_points * block
    before = there[:, None, None, :].expand(-1, 1, size, -1)
    return torch.cat([before, blocks.expand(len(there), 1, -1, -1)], -1)


def build_openpi(cfg: PiConfig, *, num_values: int = 1) -> BasePolicy:
    """Build what ``model_type: openpi`` names, on device ``meta``; ``weight_source`` is ``model_path``.

    Args:
        cfg: The ``actor.model`` section.
        num_values: Values per observation (``V``).

    Raises:
        ConfigError: The folder does not exist, or is not of this model.
        MissingPackageError: transformers is not installed.
    """
    require("transformers", needed_by="model_type=openpi")
    require_model_path(cfg.model_path)
    folder = find_model_folder(cfg.model_path)
    try:
        shape = PiShape.of_config(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise ConfigError(
            f"actor.model.model_path: config.json of '{folder}' is not that of openpi: {type(error).__name__}: "
            f"{error}. Give a folder that openpi's conversion to PyTorch has written."
        ) from error
    if cfg.action_dim > shape.action_dim:
        raise ConfigError(
            f"actor.model.action_dim: received {cfg.action_dim}; the model predicts {shape.action_dim} numbers. Choose "
            "another checkpoint."
        )
    inputs = PiInputs(cfg, folder, image_size=shape.vision["image_size"], padded_dim=shape.action_dim)
    with torch.device("meta"):
        policy = PiPolicy(cfg, shape, inputs, num_values=num_values)
        _adapt(policy, cfg)
    policy.paligemma_with_expert.compute_buffers()
    policy.weight_source = _weights(policy, cfg, folder)
    return policy.eval()


def _adapt(policy: PiPolicy, cfg: PiConfig) -> None:
    model = policy.paligemma_with_expert
    if cfg.is_lora:
        add_adapters(model, cfg)
    parts: dict[str, Any] = {
        "vision": model.parts["vision_tower"],
        "projector": model.parts["multi_modal_projector"],
        "language": model.parts["language_model"],
    }
    for part in cfg.freeze:
        parts[part].requires_grad_(False)


def _weights(policy: PiPolicy, cfg: PiConfig, folder: Path) -> StartingWeights:
    seed, last = torch.initial_seed(), f"value_head.{2 * len(cfg.value_hidden_dims)}."

    def new(name: str, shape: Sequence[int]) -> torch.Tensor | None:
        return initial_head(name, shape, seed=seed, last=last) if name.startswith("value_head.") else None

    return StartingWeights(policy, PublishedWeights(folder, tied=_TIED, unused=UNUSED), new=new, folder=folder)

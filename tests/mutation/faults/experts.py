"""Faults of routing replay, the balance of experts, tokens over ranks under FSDP2, and critics of their own."""

from __future__ import annotations

from tests.mutation.fault import Fault

_UNIT = "tests/unit"
PURE = (f"{_UNIT}/models/language/test_expert_routing.py",)
FSDP = (f"{_UNIT}/hybrid_engines/train/test_fsdp_experts.py",)
MEGATRON = (f"{_UNIT}/hybrid_engines/train/megatron/test_expert_routes.py",)
LOSSES = (f"{_UNIT}/hybrid_engines/train/megatron/test_megatron_losses.py",)
LEARNER = (f"{_UNIT}/workers/actor/test_expert_use.py",)
CRITIC = (f"{_UNIT}/workers/actor/test_text_critic.py",)
PLAN = (f"{_UNIT}/models/language/test_token_plan.py",)
LANGUAGE = (f"{_UNIT}/config/checks/test_language_checks.py",)
TEXT = (f"{_UNIT}/config/checks/test_text_checks.py",)
_ROUTING = "rlinf/models/language/expert_routing.py"
_USE = "rlinf/workers/actor/expert_use.py"
_LAYERS = "rlinf/hybrid_engines/train/megatron/layers.py"
_FSDP = "rlinf/hybrid_engines/train/fsdp.py"
_CRITIC = "rlinf/workers/actor/text_critic.py"

FAULTS: list[Fault] = [
    Fault(
        _ROUTING,
        "chosen = known.where(known >= 0, chosen)",
        "chosen = known.clamp(min=0)",
        PURE,
        "tokens without a known route go to the first expert",
    ),
    Fault(
        _ROUTING,
        "(chosen[self.own] + 1).to(routing.recorded.dtype)",
        "chosen[self.own].to(routing.recorded.dtype)",
        PURE,
        "routes are recorded as numbers from 0, which mean unknown",
    ),
    Fault(
        _ROUTING,
        "weights = weights / weights.sum(-1, keepdim=True)",
        "weights = weights / weights.detach().sum(-1, keepdim=True)",
        FSDP,
        "the sum of a token's weights has no gradient",
    ),
    Fault(
        _ROUTING,
        "weights = probabilities.gather(1, chosen)",
        "weights = probabilities.topk(sizes.num_chosen, dim=-1).values",
        PURE,
        "replayed experts get the weights of those that the router prefers",
    ),
    Fault(_ROUTING, "loss * self.scale)", "loss)", PURE, "the balance loss is not scaled as the loss is"),
    Fault(
        _ROUTING,
        "self.counts[self.own] = routing.counts[self.places]",
        "self.counts[:] = 1.0",
        PURE,
        "padding counts in the balance",
    ),
    Fault(
        _ROUTING,
        "/ max(len(routes), 1) * expert_loads(routes, sizes)",
        "* expert_loads(routes, sizes)",
        PURE,
        "the balance loss is a sum over tokens, not a mean",
    ),
    Fault(
        _ROUTING,
        "counts.view(sizes.num_layers, -1)[:, 1:].float()",
        "counts.view(sizes.num_layers, -1)[:, :-1].float()",
        PURE,
        "loads are those of the experts before",
    ),
    Fault(
        _ROUTING,
        "loss = self.counts @ (probabilities.float() @ routing.balance[layer])",
        "share = torch.nn.functional.one_hot(chosen[self.counts > 0], sizes.num_experts).float().sum((0, 1))\n"
        "            share = share / share.sum().clamp(min=1) * routing.balance[layer].sum()\n"
        "            loss = self.counts @ (probabilities.float() @ share)",
        FSDP,
        "loads are counted in each micro-batch: the balance loss depends on packing",
    ),
    Fault(
        _ROUTING,
        "return torch.bincount(packed.places, minlength=packed.num_tokens).float()",
        "return torch.ones(packed.num_tokens)",
        PURE,
        "shared prompts count once",
    ),
    Fault(
        _ROUTING,
        "layer.self_attn.register_forward_pre_hook(steer, with_kwargs=True)",
        "layer.register_forward_pre_hook(steer, with_kwargs=True)",
        FSDP,
        "a recomputed layer takes the routes of the last micro-batch",
    ),
    Fault(
        _ROUTING,
        "router.steered.route(number, output[0])",
        "router.steered.route(0, output[0])",
        FSDP,
        "all layers take the routes of the first",
    ),
    Fault(
        _LAYERS,
        "self.steered.route(self.layer_number - 1, logits)",
        "self.steered.route((self.layer_number - 1) % 2, logits)",
        MEGATRON,
        "layers are counted within a share of a stage",
    ),
    Fault(
        _LAYERS,
        "        if isinstance(self.mlp, MoELayer):\n",
        "        if isinstance(self.mlp, MoELayer) and self.mlp.router.steered is None:\n",
        MEGATRON,
        "routers keep the routes of the first micro-batch",
    ),
    Fault(
        "rlinf/hybrid_engines/train/megatron/stage.py",
        "own = plan.places.chunk(multiple)[dist.get_rank(self.groups.tp) if multiple > 1 else 0]",
        "own = plan.places.chunk(multiple)[0]",
        MEGATRON,
        "all tensor ranks take the routes of the first one's tokens",
    ),
    Fault(
        "rlinf/hybrid_engines/train/megatron/engine.py",
        "self.scaler.scale * self.layout.context if counts else 0.0",
        "self.scaler.scale * self.layout.context",
        MEGATRON,
        "padding of the interleaved schedule is balanced, too",
    ),
    Fault(
        _FSDP,
        "scale = self.scaler.scale * self.layout.context",
        "scale = self.scaler.scale",
        FSDP,
        "gradients of context ranks are averaged",
    ),
    Fault(
        _FSDP,
        "            self.model.balance_scale = scale\n",
        "            pass\n",
        FSDP,
        "the balance loss of context ranks is averaged",
    ),
    Fault(
        "rlinf/models/language/token_plan.py",
        "torch.nn.functional.pad(places, (0, padding), value=-1)",
        "torch.nn.functional.pad(places, (0, padding))",
        PLAN,
        "padding is taken for the first token",
    ),
    Fault(
        "rlinf/workers/actor/text_samples.py",
        "    placed[has_any] = joined[first[has_any]]\n",
        "    placed[: len(joined)] = joined[: len(placed)]\n",
        LEARNER,
        "routes of shared prompts are laid out one after another",
    ),
    Fault(
        "rlinf/workers/actor/logprobs.py",
        "flat[where] = packed.routing.recorded[packed.packed.places]",
        "flat[where] = packed.routing.recorded[packed.packed.places].roll(1, 0)",
        LEARNER,
        "routes are those of the token before",
    ),
    Fault(
        _USE,
        "replayed=batch.routes if self.replays else None",
        "replayed=None",
        LEARNER,
        "nothing is replayed",
    ),
    Fault(
        _USE,
        "* float(not batch.is_padding)",
        "",
        LEARNER,
        "padding micro-batches are balanced",
    ),
    Fault(
        "rlinf/models/language/context_parallel.py",
        "attn_mask=mask, scale=scaling, enable_gqa=True",
        "attn_mask=mask, enable_gqa=True",
        (f"{_UNIT}/models/language/test_context_parallel.py",),
        "ranks that share tokens do not scale their scores as the layer says",
    ),
    Fault(
        _CRITIC,
        "chosen = replace(section.model or cfg.actor.model, add_value_head=True)",
        "chosen = replace(cfg.actor.model, add_value_head=True)",
        CRITIC,
        "the critic always starts from the policy",
    ),
    Fault(
        _CRITIC,
        "            self.engine.load(path / CRITIC_FOLDER)\n",
        "            pass\n",
        CRITIC,
        "a critic forgets what it has learned",
    ),
    Fault(
        _CRITIC,
        "        if self.cfg.critic.enable_offload:\n            self.engine.offload()\n",
        "",
        CRITIC,
        "a critic never leaves its device",
    ),
    Fault(
        "rlinf/cli/memory_plan.py",
        "_activations(cfg, sizes, compute) // fsdp.context_parallel_size",
        "_activations(cfg, sizes, compute)",
        (f"{_UNIT}/cli/test_memory_plan.py",),
        "ranks that share tokens keep the activations of all",
    ),
    Fault(
        _CRITIC,
        'returns=batch.tokens["returns"],',
        'returns=batch.tokens["prev_values"],',
        CRITIC,
        "values are trained towards themselves",
    ),
    Fault(
        "rlinf/workers/actor/text_learner.py",
        "            values = self.critic.values(batch)\n",
        "            pass\n",
        CRITIC,
        "advantages know no values",
    ),
    Fault(
        "rlinf/config/checks/language_checks.py",
        "elif not cfg.algorithm.recompute_logprobs:",
        "elif False:",
        LANGUAGE,
        "replay without a pass that records is accepted",
    ),
    Fault(
        "rlinf/config/checks/language_checks.py",
        "if check.world.actor is not None and check.world.actor % size:",
        "if check.world.actor is None:",
        LANGUAGE,
        "ranks that cannot share tokens are accepted",
    ),
    Fault(
        "rlinf/config/checks/text_checks.py",
        "    if model.add_value_head or isinstance(algorithm.loss, ActorCriticLossConfig):\n        check.problem(\n"
        '            "critic.use_critic_model",\n',
        '    if False:\n        check.problem(\n            "critic.use_critic_model",\n',
        TEXT,
        "a critic next to a value head is accepted",
    ),
]

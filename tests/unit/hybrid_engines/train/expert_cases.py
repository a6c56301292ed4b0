"""What every training engine must do with experts: replay routes, record them, balance their load."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, NamedTuple

import torch

from rlinf.data.packing import pack_sequences
from rlinf.hybrid_engines.train.train_engine import Loss, Pass
from rlinf.models.language.expert_routing import ExpertRouting, ExpertSizes, balance_factors, token_counts
from rlinf.models.language.language_model import TokenEvaluation
from tests.unit.hybrid_engines.train.conformance import (
    SEQUENCES,
    TEMPERATURE,
    MakeEngine,
    Setting,
    Tensors,
    Weighted,
    assert_close,
    gradients_of,
    scaled_loss,
    weights_of_tokens,
)
from tests.unit.hybrid_engines.train.rank_processes import run_ranks

SIZES = ExpertSizes(num_layers=4, num_experts=4, num_chosen=2, is_normalised=True)
COEFFICIENT = 3.0
MODEL = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2}
MODEL |= {"vocab_size": 129, "num_hidden_layers": SIZES.num_layers, "head_dim": 16, "tie_word_embeddings": False}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": True}
CUTS = [[SEQUENCES], [SEQUENCES[:2], SEQUENCES[2:4], SEQUENCES[4:]]]


class Steered(NamedTuple):
    """A pack, the weights of its tokens, and what routers do with them."""

    batch: Weighted
    routing: ExpertRouting


class Found(NamedTuple):
    """What a pass over all sequences computes: [T] log-probabilities, gradients, and routes [T, layers, chosen]."""

    logprobs: torch.Tensor
    gradients: Tensors
    routes: torch.Tensor


def save_experts(folder: Path) -> Path:
    """Write a random Qwen3-MoE whose routers have clear preferences."""
    import transformers

    path = folder / "steered"
    if not path.exists():
        torch.manual_seed(5)
        model = transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(**MODEL, **EXPERTS))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
        model.save_pretrained(path)
    return path


@functools.cache
def forced_routes() -> torch.Tensor:
    """Return random routes [T, layers, chosen] of all sequences' tokens; every fifth is unknown."""
    generator = torch.Generator().manual_seed(2)
    count = sum(map(len, SEQUENCES))
    routes = torch.rand(count, SIZES.num_layers, SIZES.num_experts, generator=generator).topk(2, dim=-1).indices + 1
    routes[::5] = 0
    return routes.to(torch.uint8)


@functools.cache
def expected(path: Path, *, forced: bool) -> Found:
    """Return what transformers computes in float64, one sequence after another, with the balance loss added."""
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float64, experts_implementation="eager")
    logits: list[list[torch.Tensor]] = [[] for _ in range(SIZES.num_layers)]
    routes: list[list[torch.Tensor]] = [[] for _ in range(SIZES.num_layers)]
    now: list[torch.Tensor] = []

    def route(_: object, __: object, output: Any, number: int) -> Any:
        known = now[0][:, number].long() - 1
        chosen = known.where(known >= 0, output[2])
        weights = output[0].softmax(-1).gather(1, chosen)
        logits[number].append(output[0])
        routes[number].append(chosen + 1)
        return output[0], weights / weights.sum(-1, keepdim=True), chosen

    for number, layer in enumerate(model.model.layers):
        layer.mlp.gate.register_forward_hook(functools.partial(route, number=number))
    columns, losses = [], []
    lengths = [len(sequence) for sequence in SEQUENCES]
    targets = forced_routes() if forced else torch.zeros_like(forced_routes())
    for sequence, target in zip(SEQUENCES, torch.split(targets, lengths), strict=True):
        now[:] = [target]
        log_softmax = (model(torch.tensor([sequence])).logits[0, :-1] / TEMPERATURE).log_softmax(-1)
        logprobs = log_softmax.gather(-1, torch.tensor(sequence[1:]).unsqueeze(-1)).squeeze(-1)
        entropy = -(log_softmax.exp() * log_softmax).sum(-1)
        zero = torch.zeros(1, dtype=torch.float64)
        columns.append(torch.cat([zero, logprobs]))
        result = TokenEvaluation(columns[-1], torch.cat([zero, entropy]), None)
        batch = Weighted(pack_sequences([sequence]), weights_of_tokens(torch.tensor(sequence)))
        losses.append(scaled_loss(result, batch, scale=1.0)[0])
    for layer_logits, layer_routes in zip(logits, routes, strict=True):
        chosen = torch.nn.functional.one_hot(torch.cat(layer_routes) - 1, SIZES.num_experts).double()
        share = chosen.sum((0, 1)) / chosen.sum()
        probability = torch.cat(layer_logits).softmax(-1).mean(0)
        losses.append(COEFFICIENT * SIZES.num_experts * (share * probability).sum())
    torch.stack(losses).sum().backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    found = torch.stack([torch.cat(each) for each in routes], dim=1)
    return Found(torch.cat(columns).detach(), gradients, found)


def call(model: torch.nn.Module, steered: Steered) -> TokenEvaluation:
    """Run the model."""
    result: TokenEvaluation = model(steered.batch.packed, temperature=TEMPERATURE, routing=steered.routing)
    return result


def use(result: TokenEvaluation, steered: Steered, scale: float) -> Loss:
    """Return the loss without that of the balance."""
    return scaled_loss(result, steered.batch, scale)


def steered(group: list[list[int]], *, forced: bool, balance: torch.Tensor | None, counts: float) -> Steered:
    """Return a pack of some of ``SEQUENCES``; ``counts`` is 0 for padding."""
    packed = pack_sequences(group)
    known = torch.split(forced_routes(), [len(sequence) for sequence in SEQUENCES])
    routes = torch.cat([known[SEQUENCES.index(sequence)] for sequence in group])
    routing = ExpertRouting(
        SIZES,
        replayed=routes if forced else None,
        recorded=SIZES.no_routes(packed.num_tokens) if counts else None,
        balance=balance,
        counts=token_counts(packed) * counts,
    )
    weights = torch.cat([weights_of_tokens(torch.tensor(sequence)) for sequence in group])
    return Steered(Weighted(packed, weights * counts), routing)


def run_pass(rank: int, make: MakeEngine, setting: Setting, cut: int, routes: torch.Tensor, forced: bool) -> Found:
    """Return log-probabilities and routes of one pack, and gradients of the micro-batches of ``CUTS[cut]``."""
    engine = make(setting, rank)
    everything = steered(SEQUENCES, forced=forced, balance=None, counts=1.0)
    (logprobs,) = engine.forward([everything], Pass(call, lambda result, _: result.logprobs.detach()))
    assert everything.routing.recorded is not None
    recorded = engine.sum_parts(everything.routing.recorded.int()) // engine.world_size
    balance = balance_factors(routes, SIZES, coefficient=COEFFICIENT, num_replicas=engine.world_size)
    groups = CUTS[cut]
    mine = [
        steered(group, forced=forced, balance=balance, counts=1.0) for group in groups[engine.rank :: engine.world_size]
    ]
    missing = -(-len(groups) // engine.world_size) - len(mine)
    mine += [steered(groups[0], forced=forced, balance=balance, counts=0.0)] * missing
    engine.forward_backward(mine, Pass(call, functools.partial(use, scale=float(engine.world_size))))
    return Found(logprobs, gradients_of(engine), recorded)


def check_layout(make: MakeEngine, setting: Setting, cut: int, *, forced: bool) -> None:
    """Compare what the ranks of a layout compute with transformers."""
    wanted = expected(setting.folder, forced=forced)
    ranks = run_ranks(setting.layout.world_size, run_pass, make, setting, cut, wanted.routes, forced)
    for logprobs, gradients, routes in ranks:
        assert (logprobs - wanted.logprobs).abs().max() < 1e-5
        assert_close(gradients, wanted.gradients, 2e-5)
        # The order of a token's experts means nothing.
        assert torch.equal(routes.long().sort(-1).values, wanted.routes.sort(-1).values)

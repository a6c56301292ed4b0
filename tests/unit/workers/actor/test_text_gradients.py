"""A step's gradient is the same packed or padded, in one micro-batch or many, on one rank or two.

The yardstick is transformers itself, on a padded batch, with the losses on rows; what is measured goes through
``CausalLM``, packed samples, planned micro-batches and the training engine.
"""

import itertools
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rlinf.algorithms.aggregation import LOSS_AGG_FUNCS, compute_loss_denominators
from rlinf.algorithms.minibatch import SequenceCost
from rlinf.algorithms.registry import policy_loss
from rlinf.config.registries import advantages, losses
from rlinf.config.schema.algorithm import ImportanceCorrectionConfig, KLInRewardConfig, TextAlgorithmConfig
from rlinf.config.schema.generation import SamplingConfig
from rlinf.config.schema.train import FSDPConfig, OptimConfig
from rlinf.hybrid_engines.train.fsdp import FSDPEngine
from rlinf.hybrid_engines.train.train_engine import Pass
from rlinf.models import get_model
from rlinf.scheduler.probe import find_free_port
from rlinf.workers.actor.logprobs import MicroBatchPlanner
from rlinf.workers.actor.text_samples import (
    TextSamples,
    evaluate_tokens,
    make_text_samples,
    text_denominators,
    text_loss,
)
from tests.ranks import run_ranks
from tests.unit.data.messages.response_samples import Sample, batch_of
from tests.unit.models.tiny_language_models import save_tiny, tiny_config

TEMPERATURE, MAX_NEW_TOKENS = 0.8, 12
SIZES = [(3, 5), (3, 2), (1, 7), (1, 1), (2, 4), (2, 9), (4, 3), (4, 6)]  # Prompt and response; groups of two.
REGULARIZED = {"entropy_bonus": 0.02, "kl_beta": 0.1, "kl_penalty": "k3_unbiased"}
CASES = {
    "actor": {"clip_ratio_high": 0.28, "clip_ratio_c": 3.0},
    "gspo": {"clip_ratio_low": 0.05, "clip_ratio_high": 0.05},
    "cispo": {},
    "actor_critic": {"value_clip": 0.2},
    "decoupled_actor_critic": {"value_clip": 0.2, "behave_weight_threshold": 1.1},
}


def algorithm(loss_type: str = "actor", *, adv_type: str = "grpo", **keys: str) -> TextAlgorithmConfig:
    section = {name: keys.pop(name) for name in ("importance_correction", "kl_in_reward") if name in keys}
    return TextAlgorithmConfig(
        adv_type=adv_type,
        loss_type=loss_type,
        advantage=advantages.configs.get(adv_type)(),
        loss=losses.configs.get(loss_type)(**{**REGULARIZED, **CASES[loss_type], **keys}),
        sampling_params=SamplingConfig(temperature=TEMPERATURE, max_new_tokens=MAX_NEW_TOKENS),
        **section,
    )


def make_responses() -> list[Any]:
    generator = torch.Generator().manual_seed(3)

    def draw(*size: int) -> torch.Tensor:
        return torch.rand(*size, generator=generator)

    responses = []
    for number, (asked, said) in enumerate(SIZES):
        if number % 2 == 0:
            prompt = tuple((draw(asked) * 40).long().tolist())
        mask = [True] * said
        if said > 4:
            mask[2] = False  # A tool's token.
        responses.append(
            Sample(
                group_id=number // 2,
                index=number % 2,
                prompt=prompt,
                token_ids=tuple((draw(said) * 40).long().tolist()),
                logprobs=tuple((-1.0 - 3 * draw(said)).tolist()),
                loss_mask=tuple(mask),
                reward=float(draw(1)),
            )
        )
    return responses


def make_samples(config: TextAlgorithmConfig, dtype: torch.dtype) -> TextSamples:
    """Samples whose numbers are near those of the model's, so that ratios lie within and without the bounds."""
    responses = make_responses()
    generator = torch.Generator().manual_seed(4)
    near = [
        torch.tensor(response.logprobs) + 0.3 * torch.randn(len(response.logprobs), generator=generator)
        for response in responses
    ]
    samples, _ = make_text_samples(
        batch_of(responses),
        algorithm=config,
        trainer_logprobs=near,
        ref_logprobs=[logprobs - 0.1 for logprobs in near],
        values=[logprobs.cos() for logprobs in near] if "critic" in config.loss_type else None,
    )
    tokens = {
        name: tuple(t.to(dtype) if t.is_floating_point() else t for t in values)
        for name, values in samples.tokens.items()
    }
    return replace(samples, tokens=tokens)


def gradient_by_transformers(
    folder: Path, config: TextAlgorithmConfig, side: str, dtype: torch.dtype
) -> dict[str, torch.Tensor | None]:
    """One padded batch through transformers, the losses on rows [N, L]."""
    from transformers import AutoModelForCausalLM

    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    samples = make_samples(config, dtype)
    width = max(samples.lengths)

    def pad(values: list[int], fill: int) -> list[int]:
        gap = [fill] * (width - len(values))
        return gap + values if side == "left" else values + gap

    whole = [[*p, *a.tolist()] for p, a in zip(samples.prompts, samples.responses, strict=True)]
    ids = torch.tensor([pad(tokens, 0) for tokens in whole])
    seen = torch.tensor([pad([1] * len(tokens), 0) for tokens in whole])
    hidden = reference.model(
        input_ids=ids, attention_mask=seen, position_ids=(seen.cumsum(1) - 1).clamp(min=0)
    ).last_hidden_state
    log_softmax = (reference.lm_head(hidden) / TEMPERATURE).log_softmax(-1)
    logprobs = log_softmax[:, :-1].gather(-1, ids[:, 1:].unsqueeze(-1)).squeeze(-1)
    entropy = -(log_softmax.exp() * log_softmax).sum(-1)[:, :-1]
    tokens = {
        name: torch.tensor(
            [pad([0] * len(p) + v.tolist(), 0) for p, v in zip(samples.prompts, values, strict=True)],
            dtype=values[0].dtype,
        )[:, 1:]
        for name, values in samples.tokens.items()
    }
    head = value_head(dtype)
    loss, _ = policy_loss(
        config.loss_type,
        logprobs=logprobs,
        entropy=entropy,
        values=head(hidden)[:, :-1, 0],
        denominators=compute_loss_denominators(policy_mask=tokens["loss_mask"], max_tokens=MAX_NEW_TOKENS),
        **{name: tokens.get(name) for name in ("prev_values", "ref_logprobs", "proximal_logprobs")},
        **{name: tokens[name] for name in ("old_logprobs", "advantages", "returns", "loss_mask")},
        **asdict(config.loss),
    )
    loss.backward()
    gradients = {name: p.grad for name, p in reference.named_parameters()}
    return gradients | {f"value_head.{name}": p.grad for name, p in head.named_parameters() if p.grad is not None}


def value_head(dtype: torch.dtype) -> torch.nn.Linear:
    head = torch.nn.Linear(16, 1).to(dtype)
    with torch.no_grad():
        head.weight.copy_(torch.linspace(-0.2, 0.3, 16).unsqueeze(0))
        head.bias.fill_(0.1)
    return head


def gradient(
    folder: Path | str,
    config: TextAlgorithmConfig,
    dtype: torch.dtype = torch.float64,
    *,
    sharding: str = "no_shard",
    rank: int = 0,
    world_size: int = 1,
    keys: Any = None,
    share_prompts: bool = True,
    **budget: int,
) -> dict[str, Any]:
    """The accumulated gradient of one update batch of all samples, through the engine."""
    torch.manual_seed(0)
    model = get_model(tiny_config(folder, add_value_head="critic" in config.loss_type, **(keys or {}))).to(dtype)
    if model.value_head is not None:
        model.value_head.load_state_dict(value_head(dtype).state_dict())
    engine = FSDPEngine(
        model,
        optim=OptimConfig(),
        fsdp=FSDPConfig(sharding_strategy=sharding),
        precision="fp32",
        device=torch.device("cpu"),
        rank=rank,
        world_size=world_size,
    )
    samples = make_samples(config, dtype)
    budget = {"max_tokens": None, "max_samples": None} | (budget or {"max_tokens": 1000})
    planner = MicroBatchPlanner(
        engine,
        cost=SequenceCost(quadratic=0.1),
        share_prompts=share_prompts,
        whole_episodes=config.loss.needs_whole_sequences,
        **budget,
    )
    batches = planner.pack(samples, planner.plan(samples))
    denominators = text_denominators(
        batches, max_tokens=MAX_NEW_TOKENS, data_parallel_size=world_size, all_reduce=engine.all_reduce
    )
    loss = Pass(
        lambda model, batch: evaluate_tokens(model, batch, algorithm=config),
        lambda result, batch: text_loss(result, batch, denominators, algorithm=config),
    )
    engine.forward_backward(batches, loss)
    gradients = {name: p.grad for name, p in engine.model.named_parameters() if p.grad is not None}
    return {name: g.full_tensor() if hasattr(g, "full_tensor") else g.clone() for name, g in gradients.items()}


def difference(actual: dict[str, Any], expected: dict[str, Any]) -> float:
    assert set(actual) == set(expected)
    names = sorted(expected)
    one, other = (torch.cat([gradients[name].flatten() for name in names]).double() for gradients in (actual, expected))
    assert other.norm() > 1e-3
    return ((one - other).norm() / other.norm()).item()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    save_tiny(folder)
    return folder


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("loss_type", CASES)
def test_packed_equals_padded_on_either_side(folder: Path, loss_type: str, side: str) -> None:
    config = algorithm(loss_type)
    expected = gradient_by_transformers(folder, config, side, torch.float64)
    assert difference(gradient(folder, config), expected) < 1e-6
    assert difference(gradient(folder, config, max_samples=1), expected) < 1e-6


@pytest.mark.parametrize("loss_agg_func", LOSS_AGG_FUNCS)
def test_every_aggregation_is_the_same_packed(folder: Path, loss_agg_func: str) -> None:
    for loss_type in ("actor", "gspo"):
        config = algorithm(loss_type, loss_agg_func=loss_agg_func)
        expected = gradient_by_transformers(folder, config, "right", torch.float64)
        assert difference(gradient(folder, config, max_tokens=14), expected) < 1e-6


BUDGETS = [{"max_samples": n} for n in (1, 3, 7)] + [{"max_tokens": n} for n in (11, 20, 40)]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-6), (torch.float32, 1e-5)])
def test_any_micro_batches(folder: Path, dtype: torch.dtype, tolerance: float) -> None:
    config = algorithm("actor_critic", loss_agg_func="seq-mean-token-mean")
    expected = gradient(folder, config, torch.float64)
    for budget in BUDGETS:
        assert difference(gradient(folder, config, dtype, **budget), expected) < tolerance, budget


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-6), (torch.float32, 1e-5)])
@pytest.mark.parametrize("loss_type", ["actor_critic", "gspo"])
def test_prompts_shared_or_each_for_itself(folder: Path, loss_type: str, dtype: torch.dtype, tolerance: float) -> None:
    config = algorithm(loss_type)
    samples = make_samples(config, dtype)
    assert len(set(samples.prompts)) < len(samples.prompts)
    expected = gradient(folder, config, torch.float64, share_prompts=False)
    for budget in BUDGETS:
        assert difference(gradient(folder, config, dtype, **budget), expected) < tolerance, budget
        alone = gradient(folder, config, dtype, share_prompts=False, **budget)
        assert difference(alone, expected) < tolerance, budget


def test_the_keys_of_rewards_and_weights_reach_the_gradient(folder: Path) -> None:
    gradients = [
        gradient(folder, algorithm("actor", adv_type="reinpp", **keys))
        for keys in (
            {},
            {"kl_in_reward": KLInRewardConfig(beta=0.5)},
            {"importance_correction": ImportanceCorrectionConfig(level="token", upper_bound=1.2)},
            {"importance_correction": ImportanceCorrectionConfig(level="geometric", mode="mask", upper_bound=1.1)},
        )
    ]
    for one, other in itertools.combinations(gradients, 2):
        assert difference(one, other) > 1e-2


LORA = {"is_lora": True, "lora_rank": 2}
RANKED = [
    # Model, its keys, loss, precision, sharding, tolerance.
    ("untied", {}, "actor", torch.float64, "no_shard", 1e-6),
    ("untied", {}, "decoupled_actor_critic", torch.float64, "no_shard", 1e-6),
    ("untied", {}, "cispo", torch.float32, "no_shard", 1e-5),
    ("untied", {}, "actor_critic", torch.float32, "full_shard", 1e-5),
    ("tied", {}, "gspo", torch.float64, "no_shard", 1e-6),
    ("tied", {}, "gspo", torch.float32, "full_shard", 1e-5),
    ("tied", LORA, "actor", torch.float32, "full_shard", 1e-5),
]


def run_rank(rank: int, port: int, folder: Path) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    where = {"rank": rank, "world_size": 2, "max_tokens": 14}
    results = [
        gradient(f"{folder}/{model}", algorithm(loss), dtype, sharding=sharding, keys=keys, **where)
        for model, keys, loss, dtype, sharding, _ in RANKED
    ]
    if rank == 0:
        torch.save(results, f"{folder}/gradients.pt")


def test_two_ranks_have_the_gradient_of_one(tmp_path: Path) -> None:
    for model in ("tied", "untied"):
        save_tiny(tmp_path / model, tie_word_embeddings=model == "tied")
    run_ranks(run_rank, find_free_port(), str(tmp_path))
    results = torch.load(tmp_path / "gradients.pt")
    for (model, keys, loss, dtype, sharding, tolerance), actual in zip(RANKED, results, strict=True):
        expected = gradient(tmp_path / model, algorithm(loss), keys=keys)
        assert difference(actual, expected) < tolerance, (model, loss, dtype, sharding)

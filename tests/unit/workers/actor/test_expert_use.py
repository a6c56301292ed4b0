"""An update of a model with experts replays the routes of the first pass, and its balance knows no micro-batches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rlinf.errors import ConfigError
from tests.unit.data.messages.response_samples import batch_of
from tests.unit.models.tiny_language_models import save_tiny
from tests.unit.workers.actor.test_text_learner import config, make_learner, make_responses

transformers = pytest.importorskip("transformers")
REPLAY, BALANCE = "actor.routing_replay=recompute", "actor.moe_aux_loss_coeff=0.5"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Qwen3-MoE of two layers whose routers can hardly decide."""
    path = tmp_path_factory.mktemp("experts") / "model"
    torch.manual_seed(0)
    sizes = {"vocab_size": 48, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "head_dim": 8}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "num_experts": 4, "num_experts_per_tok": 2}
    model = transformers.Qwen3MoeForCausalLM(
        transformers.Qwen3MoeConfig(**sizes, **heads, moe_intermediate_size=16, norm_topk_prob=True)
    )
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.01 if "gate.weight" in name else 0.3)
    model.save_pretrained(path)
    return path


def gradients(folder: Path, *keys: str) -> tuple[torch.Tensor, dict[str, float]]:
    """Return the weights after a step of one update, and its metrics."""
    learner = make_learner(config(folder, "algorithm.update_epoch=1", "actor.global_batch_size=12", *keys))
    learner.compute_advantages(batch_of(make_responses(folder)))
    metrics = learner.update(1)
    return torch.cat([tensor.flatten() for _, tensor in learner.engine.export_weights()]), metrics


def test_the_balance_loss_knows_neither_micro_batches_nor_shared_prompts(folder: Path) -> None:
    without, _ = gradients(folder)
    expected, metrics = gradients(folder, BALANCE)
    assert (expected - without).abs().max() > 1e-3
    assert 0 <= metrics["expert_load_min"] < 1 < metrics["expert_load_max"] <= 2
    for cut in ("runner.max_tokens_per_mbs=20", "runner.share_prompts=false"):
        found, others = gradients(folder, BALANCE, cut)
        assert (found - expected).abs().max() < 1e-4, cut
        assert others["grad_norm"] == pytest.approx(metrics["grad_norm"], rel=1e-4)


def test_with_replay_the_first_ratio_is_1_though_routers_were_rounded(folder: Path) -> None:
    ratios = {}
    for name, keys in (("live", ()), ("replayed", (REPLAY,))):
        learner = make_learner(config(folder, "algorithm.update_epoch=1", "actor.global_batch_size=12", *keys))
        learner.compute_advantages(batch_of(make_responses(folder)))
        with torch.no_grad():
            for parameter in (p for n, p in learner.engine.model.named_parameters() if "gate.weight" in n):
                # Another precision: nearly the same weights of experts, but another choice here and there.
                parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)), alpha=5e-4)
        ratios[name] = learner.update(1)
    assert ratios["replayed"]["actor_approx_kl"] < 1e-5
    assert ratios["live"]["actor_approx_kl"] > 20 * ratios["replayed"]["actor_approx_kl"]


def test_models_without_such_experts_are_refused(tmp_path: Path) -> None:
    save_tiny(tmp_path)
    with pytest.raises(ConfigError, match="routing_replay.*qwen2.*Remove the key"):
        make_learner(config(tmp_path, REPLAY))


def test_padding_is_not_balanced(folder: Path) -> None:
    learner = make_learner(config(folder, BALANCE))
    learner.compute_advantages(batch_of(make_responses(folder)))
    assert learner.samples is not None
    assert learner.experts is not None
    plan = learner.planner.plan(learner.samples)
    packed = learner.planner.pack(learner.samples, [replace(plan[0], is_padding=True), *plan])
    steered = learner.experts.training(packed, learner.samples, num_replicas=1)
    counts = [float(batch.routing.counts.sum()) for batch in steered if batch.routing is not None]
    assert counts == [0.0, *[float(sum(learner.samples.lengths))]]

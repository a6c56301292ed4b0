"""An update from responses is the same however the work is cut up, and what is compared with what is right."""

from __future__ import annotations

import itertools
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rlinf.algorithms.aggregation import LossDenominators
from rlinf.config import load_recipe, validate_cfg
from rlinf.config.schema.root import RLinfConfig
from rlinf.hybrid_engines.train.fsdp import FSDPEngine
from rlinf.models import get_model
from rlinf.scheduler.probe import find_free_port
from rlinf.workers.actor.learner import staleness
from rlinf.workers.actor.text_learner import TextLearner
from rlinf.workers.actor.text_samples import TextSamples, text_denominators
from tests.ranks import run_ranks
from tests.unit.data.messages.response_samples import Sample, batch_of
from tests.unit.models.tiny_language_models import save_tiny

pytest.importorskip("transformers")

SIZES = [(3, 5), (3, 2), (3, 4), (3, 1), (1, 7), (1, 1), (1, 3), (1, 9), (2, 4), (2, 9), (2, 2), (2, 6)]
"""Tokens of prompt and answer; groups of four."""
BASE = (
    "algorithm.group_size=4",
    "algorithm.sampling_params.temperature=0.8",
    "algorithm.sampling_params.max_new_tokens=12",
    "algorithm.update_epoch=2",
    "data.rollout_batch_size=3",
    "data.max_prompt_length=4",
    "actor.global_batch_size=4",
    "actor.micro_batch_size=2",
    "actor.optim.lr=0.01",
)
VALUES = ("algorithm.adv_type=gae", "algorithm.loss_type=actor_critic", "actor.model.add_value_head=true")


def config(folder: Path, *overrides: str) -> RLinfConfig:
    keys = [*BASE, f"actor.model.model_path={folder}", *overrides]
    return validate_cfg(load_recipe("tiny_math_grpo", keys))


def make_learner(cfg: RLinfConfig, *, rank: int = 0, world_size: int = 1) -> TextLearner:
    torch.manual_seed(0)
    model = get_model(cfg.actor.model)
    if model.value_head is not None:
        with torch.no_grad():
            model.value_head.weight.copy_(torch.linspace(-0.2, 0.3, 16).unsqueeze(0))
    engine = FSDPEngine(
        model,
        optim=cfg.actor.optim,
        fsdp=cfg.actor.fsdp_config,
        precision="fp32",
        device=torch.device("cpu"),
        rank=rank,
        world_size=world_size,
    )
    return TextLearner(engine, cfg=cfg)


def true_logprobs(folder: Path, prompt: tuple[int, ...], answer: tuple[int, ...], temperature: float = 0.8) -> Any:
    """Return what transformers says of the answer's tokens, at the temperature of the recipe."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = torch.tensor([[*prompt, *answer]])
    with torch.no_grad():
        logprobs = (model(ids).logits[0, len(prompt) - 1 : -1] / temperature).log_softmax(-1)
    return logprobs.gather(-1, ids[0, len(prompt) :].unsqueeze(-1)).squeeze(-1)


def make_responses(folder: Path, *, noise: float = 0.0, version: int = 3) -> list[Any]:
    generator = torch.Generator().manual_seed(3)
    responses = []
    for number, (asked, said) in enumerate(SIZES):
        prompt = tuple(torch.randint(0, 40, (asked,), generator=generator).tolist())
        tokens = tuple(torch.randint(0, 40, (said,), generator=generator).tolist())
        logprobs = true_logprobs(folder, prompt, tokens)
        logprobs = logprobs + noise * torch.randn(said, generator=generator)
        responses.append(
            Sample(
                group_id=number // 4,
                index=number % 4,
                prompt=prompt,
                token_ids=tokens,
                logprobs=tuple(logprobs.tolist()),
                versions=(version,) * said,
                reward=float(torch.rand(1, generator=generator)),
            )
        )
    return responses


def train(
    cfg: RLinfConfig, folder: Path, *, noise: float = 0.0, steps: int = 2, **where: int
) -> tuple[torch.Tensor, list[Any]]:
    """Make steps; return the weights and all metrics."""
    learner = make_learner(cfg, **where)
    responses = make_responses(folder, noise=noise)
    metrics = []
    for step in range(1, steps + 1):
        metrics.append(learner.compute_advantages(batch_of(responses)))
        metrics.append(learner.update(step))
    weights = torch.cat([tensor.flatten() for _, tensor in learner.engine.export_weights()])
    heads = [p.detach() for name, p in learner.engine.model.named_parameters() if "value_head" in name]
    heads = [head.full_tensor() if hasattr(head, "full_tensor") else head for head in heads]
    return torch.cat([weights, *(head.flatten() for head in heads)]), metrics


def assert_same(found: Any, expected: Any, tolerance: float = 2e-5) -> None:
    assert (found[0] - expected[0]).abs().max() < tolerance
    for one, other in zip(found[1], expected[1], strict=True):
        assert set(one) == set(other)
        for name, value in other.items():
            assert one[name] == pytest.approx(value, rel=1e-3, abs=1e-4), name


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    save_tiny(folder)
    return folder


SAMPLES = ("runner.enable_dynamic_batch_size=false", "~runner.max_tokens_per_mbs")


@pytest.mark.parametrize("loss", [(), VALUES], ids=["grpo", "actor_critic"])
def test_an_update_is_the_same_however_it_is_cut_up(folder: Path, loss: tuple[str, ...]) -> None:
    expected = train(config(folder, *loss), folder, noise=0.1)
    initial = torch.cat([tensor.flatten() for _, tensor in make_learner(config(folder)).engine.export_weights()])
    assert (expected[0][: len(initial)] - initial).abs().max() > 1e-2
    for keys in (["runner.max_tokens_per_mbs=16"], SAMPLES, [*SAMPLES, "actor.micro_batch_size=1"]):
        assert_same(train(config(folder, *loss, *keys), folder, noise=0.1), expected)


IN_UPDATE = ("algorithm.old_logprobs_in_update=true", "algorithm.update_epoch=1")
CORRECTIONS = {
    "token": ("algorithm.importance_correction={level: token, upper_bound: 1.2}",),
    "sequence": ("algorithm.importance_correction={level: sequence, mode: mask, upper_bound: 1.5}",),
    "gspo": ("algorithm.loss_type=gspo", "algorithm.loss_agg_func=seq-mean-token-mean"),
    "critic": ("algorithm.adv_type=gae", "critic.use_critic_model=true"),
}
RANKED = [
    ("no_shard", (*IN_UPDATE, *CORRECTIONS["sequence"])),
    ("no_shard", ()),
    ("no_shard", ("runner.max_tokens_per_mbs=16", "algorithm.kl_beta=0.1")),
    ("full_shard", ()),
    ("full_shard", VALUES),
]


def run_rank(rank: int, port: int, folder: Path, results: Any) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    found = []
    for sharding, keys in RANKED:
        cfg = config(folder, f"actor.fsdp_config.sharding_strategy={sharding}", *keys)
        found.append(train(cfg, folder, noise=0.1, rank=rank, world_size=2))
    if rank == 0:
        torch.save(found, results)


def test_two_ranks_make_the_update_of_one(folder: Path, tmp_path: Path) -> None:
    run_ranks(run_rank, find_free_port(), str(folder), str(tmp_path / "found.pt"))
    for (_, keys), (weights, metrics) in zip(RANKED, torch.load(tmp_path / "found.pt"), strict=True):
        assert_same((weights, metrics), train(config(folder, *keys), folder, noise=0.1))


def test_on_policy_the_ratio_is_one_recomputed_or_not(folder: Path) -> None:
    once = ("algorithm.update_epoch=1", "actor.global_batch_size=12")
    recomputed = train(config(folder, *once), folder, steps=1)
    assert recomputed[1][0]["mismatch_max_probability_difference"] < 1e-5
    assert recomputed[1][0]["mismatch_ess"] == pytest.approx(1.0, abs=1e-5)
    engines = train(config(folder, *once, "algorithm.recompute_logprobs=false"), folder, steps=1)
    assert "mismatch_k1" not in engines[1][0]
    for _, metrics in (recomputed, engines):
        assert metrics[1]["actor_ratio"] == pytest.approx(1.0, abs=1e-5)
        assert metrics[1]["actor_approx_kl"] == pytest.approx(0.0, abs=1e-6)
    assert engines[1][1]["grad_norm"] == pytest.approx(recomputed[1][1]["grad_norm"], rel=1e-4)


@pytest.mark.parametrize("keys", CORRECTIONS.values(), ids=CORRECTIONS)
def test_old_logprobs_of_the_update_are_those_of_a_pass_before_it(folder: Path, keys: tuple[str, ...]) -> None:
    before = train(config(folder, IN_UPDATE[1], *keys), folder, noise=0.3)
    within = train(config(folder, *IN_UPDATE, *keys), folder, noise=0.3)
    for weights, metrics in (before, within):
        assert len(metrics) == 4
        assert torch.isfinite(weights).all()
    assert "mismatch_k1" not in within[1][0]
    names = {name for name in before[1][0] if name.startswith(("mismatch_", "correction_"))}
    assert {f"rollout/{name}" for name in names} <= set(within[1][1])
    merged = [
        (weights, [named(metrics[0], metrics[1]), named(metrics[2], metrics[3])])
        for weights, metrics in (before, within)
    ]
    assert_same(merged[1], merged[0])


def named(rollout: dict[str, float], update: dict[str, float]) -> dict[str, float]:
    """Return a step's metrics by the names that a run reports."""
    in_rollout = {f"rollout/{name}": value for name, value in rollout.items()}
    return in_rollout | {name if "/" in name else f"train/{name}": value for name, value in update.items()}


def test_the_update_computes_old_logprobs_of_later_minibatches_alone_and_packs_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = make_learner(config(folder, *IN_UPDATE))
    packed: list[int] = []
    forward, pack = learner.engine.forward, TextSamples.pack

    def record_pack(self: TextSamples, batch: Any, *args: Any, **keys: Any) -> Any:
        packed.append(len(batch.indices))
        return pack(self, batch, *args, **keys)

    computed: list[int] = []

    def record_forward(batches: Any, work: Any) -> Any:
        computed.extend(batch.packed.num_sequences for batch in batches)
        return forward(batches, work)

    monkeypatch.setattr(TextSamples, "pack", record_pack)
    monkeypatch.setattr(learner.engine, "forward", record_forward)
    learner.compute_advantages(batch_of(make_responses(folder)))
    assert packed == computed == []
    learner.update(1)
    assert sum(packed) == 12
    assert sum(computed) == 8


def test_off_policy_recomputing_takes_the_trainers_word_for_the_ratio(folder: Path) -> None:
    once = ("algorithm.update_epoch=1", "actor.global_batch_size=12")
    _, recomputed = train(config(folder, *once), folder, noise=0.3, steps=1)
    _, engines = train(config(folder, *once, "algorithm.recompute_logprobs=false"), folder, noise=0.3, steps=1)
    assert recomputed[1]["actor_ratio"] == pytest.approx(1.0, abs=1e-5)
    assert recomputed[0]["mismatch_k3"] > 0.01
    assert abs(engines[1]["actor_ratio"] - 1.0) > 1e-2


def test_the_reference_is_the_initial_model(folder: Path) -> None:
    keys = ("algorithm.kl_beta=0.5", "algorithm.update_epoch=1", "actor.global_batch_size=12")
    _, metrics = train(config(folder, *keys), folder)
    assert metrics[1]["actor_kl_ref"] == pytest.approx(0.0, abs=1e-6)  # Before the first update they are one.
    assert metrics[3]["actor_kl_ref"] > 1e-4


def test_a_price_of_the_divergence_changes_the_rewards_only_once_there_is_one(folder: Path) -> None:
    keys = ("algorithm.adv_type=reinpp", "algorithm.update_epoch=1", "actor.global_batch_size=12")
    plain = train(config(folder, *keys), folder)
    priced = train(config(folder, *keys, "algorithm.kl_in_reward={beta: 5.0}"), folder)
    assert priced[1][1]["grad_norm"] == pytest.approx(plain[1][1]["grad_norm"], rel=1e-3)
    assert abs(priced[1][3]["grad_norm"] / plain[1][3]["grad_norm"] - 1) > 1e-2


def test_a_correction_weighs_what_the_engine_computed_differently(folder: Path) -> None:
    keys = ("algorithm.update_epoch=1", "actor.global_batch_size=12")
    correction = "algorithm.importance_correction={level: token, upper_bound: 1.2}"

    def gradient_norm(*extra: str, noise: float) -> Any:
        _, metrics = train(config(folder, *keys, *extra), folder, noise=noise, steps=1)
        return metrics[1]["grad_norm"]

    assert gradient_norm(correction, noise=0.0) == pytest.approx(gradient_norm(noise=0.0), rel=1e-3)
    assert gradient_norm(correction, noise=0.3) != pytest.approx(gradient_norm(noise=0.3), rel=1e-2)


def test_values_are_learned(folder: Path) -> None:
    keys = (*VALUES, "algorithm.update_epoch=20", "actor.global_batch_size=12")
    learner = make_learner(config(folder, *keys))
    learner.compute_advantages(batch_of(make_responses(folder)))
    head = learner.engine.model.value_head.weight.detach().clone()
    learner.update(1)
    assert (learner.engine.model.value_head.weight - head).abs().max() > 1e-2


def test_staleness_counts_versions_of_every_token(folder: Path) -> None:
    learner = make_learner(config(folder))
    responses = [replace(a, versions=(5,) * len(a.versions)) for a in make_responses(folder)]
    responses[0] = replace(responses[0], versions=(3, 3, 4, 5, 5))
    metrics = staleness(learner.engine, 5 - learner.behaviour_versions(batch_of(responses)))
    assert metrics["staleness_max"] == 2
    assert metrics["staleness_mean"] == pytest.approx(5 / sum(said for _, said in SIZES))


DYNAMIC = ("algorithm.max_num_gen_batches=2", "actor.optim.weight_decay=0.1")


def weights_of(learner: TextLearner) -> torch.Tensor:
    return torch.cat([tensor.flatten() for _, tensor in learner.engine.export_weights()])


def test_groups_that_only_fill_up_a_batch_change_nothing(folder: Path) -> None:
    responses = make_responses(folder)
    equal = [a if a.group_id == 1 else replace(a, reward=0.5) for a in responses]
    alone = [a for a in responses if a.group_id == 1]
    found = []
    for given in (equal, alone):
        learner = make_learner(config(folder, *DYNAMIC, "algorithm.update_epoch=1", "actor.global_batch_size=12"))
        metrics = learner.compute_advantages(batch_of(given))
        found.append((weights_of(learner), learner.update(1), weights_of(learner), metrics["filtered_fraction"]))
    assert (found[0][2] - found[0][0]).abs().max() > 1e-3
    assert (found[0][2] - found[1][2]).abs().max() < 1e-6
    assert [filtered for *_, filtered in found] == [pytest.approx(2 / 3), 0.0]
    for name, value in found[1][1].items():
        assert found[0][1][name] == pytest.approx(value, rel=1e-4, abs=1e-6), name


def test_updates_with_nothing_to_learn_from_are_left_out(folder: Path) -> None:
    learner = make_learner(config(folder, *DYNAMIC))
    learner.compute_advantages(batch_of(make_responses(folder)))
    assert learner.update(1)["skipped_updates"] == 0
    before = weights_of(learner)
    learner.compute_advantages(batch_of([replace(sample, reward=1.0) for sample in make_responses(folder)]))
    # Momentum is there by now, and would move the model.
    assert learner.update(2) == {"skipped_updates": 6.0}
    assert torch.equal(weights_of(learner), before)
    learner.compute_advantages(batch_of(make_responses(folder)))
    assert learner.update(3)["skipped_updates"] == 0
    assert not torch.equal(weights_of(learner), before)


def test_every_epoch_has_minibatches_of_its_own(folder: Path) -> None:
    plan = list(make_learner(config(folder)).minibatches(12, 1))
    assert len(plan) == 6
    assert sorted(itertools.chain(*plan[:3])) == sorted(itertools.chain(*plan[3:])) == list(range(12))
    assert plan[:3] != plan[3:]


def test_values_alone_do_not_replace_the_engines_log_probabilities(folder: Path) -> None:
    learner = make_learner(config(folder, *VALUES, "algorithm.recompute_logprobs=false"))
    responses = make_responses(folder, noise=0.3)
    assert "mismatch_k1" not in learner.compute_advantages(batch_of(responses))
    for found, given in zip(learner.samples.tokens["old_logprobs"], responses, strict=True):
        assert found.tolist() == pytest.approx(list(given.logprobs))


def test_the_reference_of_adapters_is_the_model_without_them(folder: Path) -> None:
    keys = ("actor.model.is_lora=true", "actor.model.lora_rank=2", "algorithm.kl_beta=0.5", "algorithm.update_epoch=1")
    learner = make_learner(config(folder, *keys, "actor.global_batch_size=12"))
    learner.reference = None
    divergences = []
    for step in (1, 2, 3):
        learner.compute_advantages(batch_of(make_responses(folder)))
        divergences.append(learner.update(step)["actor_kl_ref"])
    assert divergences[0] == pytest.approx(0.0, abs=1e-7)
    assert divergences[-1] > 1e-6


def test_the_longest_answer_is_the_constant_of_an_update(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make_learner(config(folder))
    learner.compute_advantages(batch_of(make_responses(folder)))
    seen = []

    def record(batches: Any, **keys: Any) -> LossDenominators:
        seen.append(keys["max_tokens"])
        return text_denominators(batches, **keys)

    monkeypatch.setattr("rlinf.workers.actor.token_learner.text_denominators", record)
    learner.update(1)
    assert set(seen) == {12}

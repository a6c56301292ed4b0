import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.fsdp import FSDPModule

from rlinf.config.schema.model import MLPPolicyConfig
from rlinf.config.schema.train import FSDPConfig, MixedPrecisionConfig, OptimConfig
from rlinf.errors import AlgorithmError, CheckpointError, NumericalError
from rlinf.hybrid_engines.train.fsdp import FSDPEngine
from rlinf.hybrid_engines.train.loss_scale import LossScaler
from rlinf.hybrid_engines.train.optimizer import learning_rate_factor
from rlinf.hybrid_engines.train.state import load_weights
from rlinf.hybrid_engines.train.train_engine import Pass
from rlinf.models import get_model

MODEL = MLPPolicyConfig(
    model_type="mlp_policy",
    obs_dim=5,
    action_dim=2,
    num_action_chunks=3,
    hidden_dims=[16],
    add_value_head=True,
    normalize_obs=True,
)
STRATEGIES = ["no_shard", "full_shard", "shard_grad_op"]


def engine(
    strategy: str = "no_shard", precision: str = "fp32", model: MLPPolicyConfig = MODEL, **optim: float
) -> FSDPEngine:
    torch.manual_seed(0)
    return FSDPEngine(
        get_model(model),
        optim=OptimConfig(**{"lr": 1e-2, **optim}),
        fsdp=FSDPConfig(sharding_strategy=strategy, gradient_checkpointing=True),
        precision=precision,
        device=torch.device("cpu"),
    )


def batch(rows: int = 8) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {
        "states": torch.randn(rows, 5, generator=generator),
        "action": torch.randn(rows, 3, 2, generator=generator),
    }


def loss_fn(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    evaluation = model(forward_inputs=inputs)
    loss = evaluation.values.square().mean() - evaluation.logprobs.mean()
    return loss, {"loss": torch.stack([loss.detach(), torch.ones(())])}


def weights(trained: FSDPEngine) -> dict[Any, Any]:
    return {name: tensor.clone() for name, tensor in trained.export_weights()}


def train(trained: FSDPEngine, steps: int = 3) -> dict[Any, Any]:
    for _ in range(steps):
        trained.forward_backward([batch()], Pass.whole(loss_fn))
        trained.step()
    return weights(trained)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_sharding_changes_nothing_on_one_rank(strategy: str) -> None:
    expected, actual = train(engine("no_shard")), train(engine(strategy))
    for name, tensor in expected.items():
        torch.testing.assert_close(actual[name], tensor, msg=name)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("strategy", ["no_shard", "full_shard"])
def test_low_precision_compute_keeps_fp32_master_weights(strategy: str, precision: str) -> None:
    trained = engine(strategy, precision)
    result = train(trained)
    assert result["policy_head.0.weight"].dtype == torch.float32
    # An update below bf16's resolution of the weights would be lost without master weights.
    expected = train(engine("no_shard"))
    torch.testing.assert_close(result["policy_head.0.weight"], expected["policy_head.0.weight"], atol=2e-2, rtol=0)


def test_the_compute_is_really_done_in_low_precision() -> None:
    full, low = engine("full_shard"), engine("full_shard", "bf16")
    a = full.forward_backward([batch()], Pass.whole(loss_fn))["loss"][0]
    b = low.forward_backward([batch()], Pass.whole(loss_fn))["loss"][0]
    assert a != b
    assert abs(a - b) / abs(a) < 0.05


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_loaded_engine_continues_bit_for_bit(strategy: str, tmp_path: Path) -> None:
    undisturbed = engine(strategy)
    train(undisturbed)
    undisturbed.save(tmp_path / "actor")
    resumed = engine(strategy)
    resumed.load(tmp_path / "actor")
    assert resumed.num_steps == 3
    a, b = train(undisturbed), train(resumed)
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_a_checkpoint_of_one_strategy_loads_under_another(tmp_path: Path) -> None:
    sharded, replicated = engine("full_shard"), engine("no_shard")
    train(sharded)
    sharded.save(tmp_path / "actor")
    replicated.load(tmp_path / "actor")
    a, b = weights(sharded), weights(replicated)
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_weights_load_from_folder_pt_and_safetensors(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    trained = engine()
    expected = train(trained)
    trained.save(tmp_path / "global_step_3" / "actor")
    torch.save(expected, tmp_path / "weights.pt")
    save_file(expected, tmp_path / "weights.safetensors")
    for path in (tmp_path / "global_step_3", tmp_path / "weights.pt", tmp_path / "weights.safetensors"):
        torch.manual_seed(5)
        fresh = get_model(MODEL)
        assert not torch.equal(fresh.state_dict()["policy_head.0.weight"], expected["policy_head.0.weight"])
        load_weights(path, fresh)
        assert all(torch.equal(fresh.state_dict()[name], expected[name]) for name in expected), path


def test_weights_of_another_model_are_refused_by_name(tmp_path: Path) -> None:
    other = MLPPolicyConfig(model_type="mlp_policy", obs_dim=4, action_dim=2)
    torch.save(get_model(other).state_dict(), tmp_path / "other.pt")
    with pytest.raises(CheckpointError, match=r"other\.pt.*do not fit"):
        load_weights(tmp_path / "other.pt", get_model(MODEL))
    with pytest.raises(CheckpointError, match="No weights at"):
        load_weights(tmp_path / "nothing.pt", get_model(MODEL))
    with pytest.raises(CheckpointError, match="no distributed checkpoint"):
        engine().load(tmp_path)


@pytest.mark.parametrize("strategy", ["no_shard", "full_shard"])
def test_a_gradient_that_is_not_finite_is_an_error_that_says_when(strategy: str) -> None:
    trained = engine(strategy)
    before = weights(trained)
    broken = batch()
    broken["states"][0, 0] = math.nan
    trained.forward_backward([broken], Pass.whole(loss_fn))
    with pytest.raises(NumericalError, match="optimizer step 1"):
        trained.step()
    assert all(torch.equal(before[name], tensor) for name, tensor in weights(trained).items())


def test_fp16_skips_an_overflowing_step_and_lowers_its_scale() -> None:
    trained = engine("full_shard", "fp16")
    before, scale = weights(trained), trained.scaler.scale
    trained.forward_backward([batch()], Pass.whole(lambda model, b: (loss_fn(model, b)[0] * 1e30, {})))
    result = trained.step()
    assert not math.isfinite(result["grad_norm"])
    assert trained.scaler.scale == scale / 2
    assert all(torch.equal(before[name], tensor) for name, tensor in weights(trained).items())


def test_the_gradient_is_clipped_to_its_norm() -> None:
    trained = engine(clip_grad=1e-3)
    trained.forward_backward([batch()], Pass.whole(loss_fn))
    norm = trained.step()["grad_norm"]
    assert norm > 0.1  # The norm before clipping is what is reported.


def test_only_the_value_head_learns_during_critic_warmup() -> None:
    trained = engine(critic_warmup_steps=2)
    before = weights(trained)
    after = train(trained, steps=2)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved
    assert all(name.startswith("value_head.") for name in moved)
    assert not torch.equal(train(trained, steps=1)["policy_head.0.weight"], before["policy_head.0.weight"])


def test_value_head_has_a_learning_rate_of_its_own() -> None:
    trained = engine(lr=1e-2, value_lr=1e-6)
    before = weights(trained)
    after = train(trained, steps=1)
    change = {name: float((after[name] - before[name]).abs().max()) for name in before}
    assert change["value_head.2.bias"] < 1e-5 < change["policy_head.2.bias"]


@pytest.mark.parametrize(
    ("scheduler", "expected"),
    [
        ("constant", [1 / 3, 2 / 3, 1.0, 1.0, 1.0, 1.0]),
        ("linear", [1 / 3, 2 / 3, 1.0, 0.775, 0.55, 0.325]),
        (
            "cosine",
            [
                1 / 3,
                2 / 3,
                1.0,
                0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi / 4)),
                0.55,
                0.1 + 0.9 * 0.5 * (1 + math.cos(0.75 * math.pi)),
            ],
        ),
    ],
)
def test_learning_rate_follows_its_schedule(scheduler: str, expected: list[float]) -> None:
    cfg = OptimConfig(lr_scheduler=scheduler, lr_warmup_steps=2, total_training_steps=6, min_lr_ratio=0.1)
    assert [learning_rate_factor(step, cfg) for step in range(6)] == pytest.approx(expected)
    assert learning_rate_factor(100, cfg) == pytest.approx(1.0 if scheduler == "constant" else 0.1)


def first_gradients(trained: FSDPEngine, scale: float = 1.0) -> dict[Any, Any]:
    trained.forward_backward([batch()], Pass.whole(lambda model, inputs: (scale * loss_fn(model, inputs)[0], {})))
    return {name: p.grad.clone() for name, p in trained.model.named_parameters() if p.grad is not None}


def adamw(
    trained: FSDPEngine, gradients: dict[Any, Any], steps: int, **keys: float | tuple[float, float]
) -> dict[Any, Any]:
    """Weights after some steps of torch's AdamW with gradients that change from step to step."""
    parameters = {name: p.detach().clone().requires_grad_() for name, p in trained.model.named_parameters()}
    reference = torch.optim.AdamW([p for name, p in parameters.items() if name in gradients], **keys)
    for step in range(steps):
        for name, gradient in gradients.items():
            parameters[name].grad = (1 - 3 * step) * gradient
        reference.step()
    return parameters


def test_steps_are_those_of_adamw_with_the_keys_of_the_recipe() -> None:
    keys = {"adam_beta1": 0.7, "adam_beta2": 0.9, "adam_eps": 0.05, "weight_decay": 0.3, "clip_grad": 1e9}
    trained = engine(**keys)
    gradients = first_gradients(trained)
    expected = adamw(trained, gradients, 3, lr=1e-2, betas=(0.7, 0.9), eps=0.05, weight_decay=0.3)
    for step in range(3):
        for name, parameter in trained.model.named_parameters():
            parameter.grad = (1 - 3 * step) * gradients[name] if name in gradients else None
        trained.step()
    for name, parameter in trained.model.named_parameters():
        torch.testing.assert_close(parameter, expected[name], msg=name)


@pytest.mark.parametrize("max_norm", [0.01, 1e9])
def test_the_whole_gradient_is_shortened_and_keeps_its_direction(max_norm: float) -> None:
    # eps this large makes Adam's first step proportional to the gradient.
    trained = engine(clip_grad=max_norm, adam_eps=1e6, weight_decay=0.0, lr=1e6)
    before, gradients = weights(trained), first_gradients(trained)
    norm = torch.stack([gradient.norm() for gradient in gradients.values()]).norm()
    trained.step()
    after = weights(trained)
    for name, gradient in gradients.items():
        clipped = gradient * min(1.0, max_norm / float(norm))
        torch.testing.assert_close(before[name] - after[name], clipped, atol=1e-6, rtol=1e-3, msg=name)


def test_fp16_scales_the_loss_and_unscales_the_gradient() -> None:
    trained, single = engine(precision="fp16", clip_grad=1e9), engine(clip_grad=1e9)
    scaled, expected = first_gradients(trained), first_gradients(single)
    for name, gradient in expected.items():
        torch.testing.assert_close(scaled[name] / trained.scaler.scale, gradient, atol=2e-3, rtol=2e-2)
    assert trained.step()["grad_norm"] == pytest.approx(single.step()["grad_norm"], rel=1e-2)


def test_the_loss_scale_grows_after_a_run_of_good_steps_and_halves_after_a_bad_one() -> None:
    scaler = LossScaler(enabled=True)
    scaler.GROWTH_INTERVAL = 3
    history = []
    for finite in (True, True, False, True, True, True, True, True, True, True):
        scaler.update(finite=finite)
        history.append(scaler.scale / 65536.0)
    assert history == [1, 1, 0.5, 0.5, 0.5, 1, 1, 1, 2, 2]
    for _ in range(40):
        scaler.update(finite=False)
    assert scaler.scale == 1.0


def test_the_loss_scale_is_part_of_a_checkpoint(tmp_path: Path) -> None:
    trained = engine(precision="fp16")
    trained.forward_backward([batch()], Pass.whole(lambda model, b: (loss_fn(model, b)[0] * 1e30, {})))
    trained.step()
    train(trained, 2)
    trained.save(tmp_path / "actor")
    resumed = engine(precision="fp16")
    resumed.load(tmp_path / "actor")
    assert resumed.scaler.state_dict() == trained.scaler.state_dict() == {"scale": 32768.0, "good_steps": 2}
    assert resumed.num_steps == trained.num_steps == 3  # the skipped one counts


def test_metrics_are_summed_over_micro_batches() -> None:
    whole = engine().forward_backward([batch()], Pass.whole(loss_fn))["loss"]
    parts = engine().forward_backward([batch(), batch()], Pass.whole(loss_fn))["loss"]
    torch.testing.assert_close(parts, 2 * whole)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_forward_pass_keeps_no_graph_and_has_the_precision_of_training(precision: str) -> None:
    trained = engine(precision=precision)
    (found,) = trained.forward([batch()], Pass.whole(lambda model, inputs: model(forward_inputs=inputs).logprobs))
    assert not found.requires_grad
    seen = []

    def recorded(model: torch.nn.Module, inputs: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        seen.append(model(forward_inputs=inputs).logprobs)
        return loss_fn(model, inputs)

    trained.forward_backward([batch()], Pass.whole(recorded))
    assert torch.equal(found, seen[0])
    (full,) = engine().forward([batch()], Pass.whole(lambda model, inputs: model(forward_inputs=inputs).logprobs))
    assert torch.equal(found, full) == (precision == "fp32")


def test_mixed_precision_has_the_last_word() -> None:
    mixed = MixedPrecisionConfig(param_dtype="bf16")
    trained = FSDPEngine(
        get_model(MODEL),
        optim=None,
        fsdp=FSDPConfig(sharding_strategy="no_shard", mixed_precision=mixed),
        precision="fp32",
        device=torch.device("cpu"),
    )
    assert trained.compute_dtype == torch.bfloat16


@pytest.mark.parametrize(("reduce_dtype", "expected"), [(None, torch.float32), ("bf16", torch.bfloat16)])
def test_gradients_are_reduced_in_single_precision_unless_told(reduce_dtype: str | None, expected: torch.dtype) -> None:
    trained = FSDPEngine(
        get_model(MODEL),
        optim=OptimConfig(lr=1e-2),
        fsdp=FSDPConfig(
            sharding_strategy="full_shard",
            mixed_precision=MixedPrecisionConfig(param_dtype="bf16", reduce_dtype=reduce_dtype),
        ),
        precision="bf16",
        device=torch.device("cpu"),
    )
    policies = [m._get_fsdp_state()._mp_policy for m in trained.model.modules() if isinstance(m, FSDPModule)]
    assert len(policies) > 1
    assert {policy.reduce_dtype for policy in policies} == {expected}


@pytest.mark.parametrize("strategy", ["no_shard", "full_shard"])
def test_imported_weights_take_the_place_of_what_was_there(strategy: str) -> None:
    source, target = engine(strategy), engine(strategy)
    expected = train(source)
    target.import_weights(expected.items())
    found = weights(target)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_the_schedule_of_the_first_step_is_its_first_entry() -> None:
    trained = engine(lr_warmup_steps=3, value_lr=4e-2)
    rates = []
    for _ in range(4):
        trained.forward_backward([batch()], Pass.whole(loss_fn))
        rates.append(trained.step()["lr"])
    assert rates == pytest.approx([0.25e-2, 0.5e-2, 0.75e-2, 1e-2])


def logprobs(trained: FSDPEngine) -> torch.Tensor:
    return trained.forward([batch()], Pass.whole(lambda model, inputs: model(forward_inputs=inputs).logprobs))[0]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_remembered_weights_are_computed_with_only_where_they_are_asked_for(strategy: str) -> None:
    trained = engine(strategy)
    initial = logprobs(trained)
    trained.remember("start")
    train(trained)
    trained.model.encoder.normalizer.mean.add_(1.0)  # A buffer belongs to a model as its weights do.
    present, after = logprobs(trained), weights(trained)
    for _ in range(2):
        with trained.weights_of("start"):
            assert torch.equal(logprobs(trained), initial)
        assert torch.equal(logprobs(trained), present)
    assert not torch.equal(present, initial)
    assert all(torch.equal(after[name], tensor) for name, tensor in weights(trained).items())


def test_present_weights_come_back_though_a_pass_with_remembered_ones_fails() -> None:
    trained = engine()
    trained.remember("start")
    after = train(trained)
    with pytest.raises(RuntimeError, match="a pass"), trained.weights_of("start"):
        raise RuntimeError("a pass")
    assert all(torch.equal(after[name], tensor) for name, tensor in weights(trained).items())
    with pytest.raises(AlgorithmError, match="remember"), trained.weights_of("end"):
        pass


def test_a_pass_hands_its_output_from_the_call_to_the_use() -> None:
    trained = engine()
    work = Pass(lambda model, inputs: model(forward_inputs=inputs), lambda output, inputs: output.values - inputs["v"])
    shift = batch() | {"v": torch.ones(8, 1)}
    whole = Pass.whole(lambda model, inputs: model(forward_inputs=inputs).values - 1)
    assert torch.equal(trained.forward([shift], work)[0], trained.forward([batch()], whole)[0])
    assert whole.needs_whole_model
    assert not work.needs_whole_model
    assert trained.is_main
    assert trained.layout.world_size == 1


def test_exported_weights_can_be_cast_and_masters_stay() -> None:
    trained = engine("full_shard")
    before = weights(trained)
    for name, tensor in trained.export_weights(dtype=torch.bfloat16):
        assert torch.equal(tensor, before[name].bfloat16() if before[name].is_floating_point() else before[name])
    assert all(torch.equal(before[name], tensor) for name, tensor in weights(trained).items())


def sharded(**keys: bool | str | None) -> FSDPEngine:
    torch.manual_seed(0)
    return FSDPEngine(
        get_model(MODEL),
        optim=OptimConfig(lr=1e-2),
        fsdp=FSDPConfig(**keys),
        precision="fp32",
        device=torch.device("cpu"),
    )


@pytest.mark.parametrize(
    "keys",
    [
        {"strategy": "fsdp"},
        {"reshard_after_forward": False},
        {"sharding_strategy": "shard_grad_op", "reshard_after_forward": True},
        {"enable_gradient_accumulation": False},
        {"forward_prefetch": True},
        {"cpu_offload": True, "offload_pin_memory": False},
    ],
    ids=str,
)
def test_keys_of_sharding_change_memory_and_no_weight(keys: dict[str, bool | str]) -> None:
    trained, expected = sharded(**keys), sharded()
    for one in (trained, expected):
        for _ in range(2):
            one.forward_backward([batch(3), batch(5)], Pass.whole(loss_fn))
            one.step()
    found, plain = weights(trained), weights(expected)
    for name, tensor in plain.items():
        torch.testing.assert_close(found[name], tensor, msg=name)


def unsharded_gradients(trained: FSDPEngine) -> list[Any]:
    seen = []

    def watched(model: torch.nn.Module, inputs: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        groups = [m._get_fsdp_state()._fsdp_param_group for m in model.modules() if isinstance(m, FSDPModule)]
        parameters = [p for group in groups if group is not None for p in group.fsdp_params]
        whole = [p._unsharded_param for p in parameters if hasattr(p, "_unsharded_param")]
        seen.append(any(parameter.grad is not None for parameter in whole))
        return loss_fn(model, inputs)

    trained.forward_backward([batch(3), batch(5)], Pass.whole(watched))
    return seen


def test_gradients_are_kept_whole_until_the_last_micro_batch_only_if_they_are_reduced_once() -> None:
    assert unsharded_gradients(sharded()) == [False, True]
    assert unsharded_gradients(sharded(enable_gradient_accumulation=False)) == [False, False]


@pytest.mark.parametrize(
    ("strategy", "key", "expected"),
    [
        ("full_shard", None, True),
        ("full_shard", False, False),
        ("shard_grad_op", None, False),
        ("shard_grad_op", True, True),
    ],
)
def test_parameters_are_dropped_after_the_forward_pass_as_the_keys_say(
    strategy: str, key: bool | None, expected: bool
) -> None:
    trained = sharded(sharding_strategy=strategy, reshard_after_forward=key)
    groups = [m._get_fsdp_state()._fsdp_param_group for m in trained.model.modules() if isinstance(m, FSDPModule)]
    assert {group._reshard_after_forward for group in groups if group is not None} == {expected}


def test_a_model_with_weights_is_moved_before_it_is_sharded_and_never_after(monkeypatch: pytest.MonkeyPatch) -> None:
    # Sharding takes to the host what cpu_offload keeps there.
    moved, to = [], torch.nn.Module.to

    def record(module: Any, *arguments: Any, **keys: Any) -> torch.nn.Module:
        moved.append(isinstance(module, FSDPModule))
        return to(module, *arguments, **keys)

    monkeypatch.setattr(torch.nn.Module, "to", record)
    sharded(cpu_offload=True, offload_pin_memory=False)
    assert moved == [False]

"""``openpi`` computes what the published code does, and all steps in one pass are the rollout's, one by one."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from safetensors.torch import load_file, save_file

from rlinf.config.schema.vla import PiConfig
from rlinf.data.messages.embodied import Observation
from rlinf.errors import ConfigError
from rlinf.models import check_policy
from rlinf.models.vla import openpi
from rlinf.models.vla.pi_model import PiShape
from tests.unit.models.vla.pi_policies import CAMERAS, STATISTICS, golden_record, pi_policy, shapes_of
from tests.unit.models.vla.vla_policies import observations, published_names

pytest.importorskip("transformers")
both = pytest.mark.parametrize("variant", ["pi0", "pi05"])


def obs_of() -> Observation:
    """Return three observations with states of three numbers."""
    return observations() | {"states": torch.tensor([[0.1, -0.2, 0.3], [0.5, 0.9, -0.4], [-2.0, 0.0, 0.7]])}


@both
@torch.no_grad()
def test_sampled_actions_are_the_published_ones(variant: str, tmp_path: Path) -> None:
    policy = pi_policy(tmp_path, variant, image_keys=CAMERAS)
    record, expected = golden_record(variant)
    chain, logprobs = policy.sample(policy.prefix(record), record["state"], expected["noise"], None)
    torch.testing.assert_close(chain[:, -1], expected["sampled"], rtol=0, atol=1e-5)
    assert torch.equal(logprobs, torch.zeros(2, 2, 3))


@both
@torch.no_grad()
def test_the_velocity_is_the_published_one(variant: str, tmp_path: Path) -> None:
    policy = pi_policy(tmp_path, variant, image_keys=CAMERAS)
    record, expected = golden_record(variant)
    noise, actions, time = expected["noise"], expected["actions"], expected["time"]
    x = time[:, None, None] * noise + (1 - time[:, None, None]) * actions
    prefix = policy.prefix(record)
    # Both times side by side; each sample has one of them.
    velocity = policy.velocity(prefix, record["state"], x.unsqueeze(1).expand(-1, 2, -1, -1), time)
    chosen = velocity[torch.arange(2), torch.arange(2)]
    loss = (noise - actions - chosen).square()
    torch.testing.assert_close(loss, expected["loss"], rtol=1e-5, atol=1e-5)


@both
@torch.no_grad()
def test_the_supervised_loss_is_the_published_one(variant: str, tmp_path: Path) -> None:
    policy = pi_policy(tmp_path, variant, image_keys=CAMERAS)
    record, expected = golden_record(variant)
    inputs = {**record, **{name: expected[name] for name in ("noise", "time")}}
    loss = policy.supervised_forward({**inputs, "action": expected["actions"]})
    torch.testing.assert_close(loss, expected["loss"][..., :3], rtol=1e-5, atol=1e-5)


@both
def test_draws_of_the_supervised_loss(variant: str, tmp_path: Path) -> None:
    policy = pi_policy(tmp_path, variant)
    draws = policy.supervised_draws(4000, torch.Generator().manual_seed(0))
    time, noise = draws["time"], draws["noise"]
    assert noise.shape == (4000, 6, 8)
    assert abs(float(noise.mean())) < 0.01
    assert float(time.min()) >= 0.001
    assert float(time.max()) <= 1.0
    # Of Beta(1.5, 1): mean 0.6, variance 1.5 / (2.5^2 * 3.5).
    assert float(time.mean()) == pytest.approx(0.6, abs=0.015)
    assert float(time.var()) == pytest.approx(0.0686, abs=0.004)


def test_recorded_actions_are_normalised_and_noise_leads_back_to_them(tmp_path: Path) -> None:
    policy = pi_policy(tmp_path, "pi0")
    actions = torch.randn(3, 6, 3, generator=torch.Generator().manual_seed(0))
    inputs = policy.forward_inputs_of(obs_of(), actions)
    torch.testing.assert_close(policy.inputs.actions.restore(inputs["action"]), actions)
    assert policy.num_supervised_actions == 6
    assert policy.supervised_forward(inputs | policy.supervised_draws(3, torch.Generator())).shape == (3, 6, 3)


@both
@torch.no_grad()
def test_velocities_are_those_between_new_noise_and_the_actions(variant: str, tmp_path: Path) -> None:
    policy = pi_policy(tmp_path, variant, add_value_head=True)
    _, report = policy.predict_action_batch(obs_of(), mode="train", generator=torch.Generator().manual_seed(0))
    inputs, chain = report.forward_inputs, report.forward_inputs["chain"]
    noise, time = torch.randn(3, 2, 3, generator=torch.Generator().manual_seed(1)), torch.tensor([0.1, 0.5, 0.9])
    found = policy.velocity_forward(inputs, noise, time)
    start = chain[:, 0].clone()
    start[:, :2, :3] = noise
    draws = {"noise": start[:, None], "final": chain[:, None, -1]}
    point = (1 - time.view(3, 1, 1, 1)) * draws["noise"] + time.view(3, 1, 1, 1) * draws["final"]
    published = policy.velocity(policy.prefix(inputs), inputs["state"], point, (1 - time)[:, None])[:, 0]
    torch.testing.assert_close(found.velocity, -published[:, :2, :3])
    torch.testing.assert_close(found.target, chain[:, -1, :2, :3] - noise)
    assert not found.saturated.any()
    assert report.values is not None
    torch.testing.assert_close(found.values, report.values)
    assert torch.equal(chain, report.forward_inputs["chain"])


@both
def test_the_rules_of_policies_are_kept(variant: str, tmp_path: Path) -> None:
    check_policy(pi_policy(tmp_path, variant, add_value_head=True), obs_of(), num_action_chunks=2)


@both
def test_one_pass_recomputes_the_steps_of_the_rollout(variant: str, tmp_path: Path) -> None:
    policy = pi_policy(tmp_path, variant, add_value_head=True)
    _, report = policy.predict_action_batch(obs_of(), mode="train", generator=torch.Generator().manual_seed(5))
    again = policy(forward_inputs=report.forward_inputs)
    torch.testing.assert_close(again.logprobs, report.logprobs, rtol=0, atol=1e-5)
    assert again.values is not None
    again.logprobs.sum().backward()
    without = {name for name, p in policy.named_parameters() if p.grad is None or not p.grad.any()}
    # The expert attends to keys and values: what the last layer makes of them is for the value head alone.
    language = "paligemma_with_expert.paligemma.model.language_model"
    last = {name for name, _ in policy.named_parameters() if name.startswith(f"{language}.layers.1.")}
    used = {
        f"{language}.layers.1.{name}.weight" for name in ("input_layernorm", "self_attn.k_proj", "self_attn.v_proj")
    }
    heads = {name for name, _ in policy.named_parameters() if name.startswith("value_head.")}
    assert used < last
    assert without == heads | (last - used) | {f"{language}.norm.weight"}


@both
def test_log_probabilities_are_those_of_the_noise(variant: str, tmp_path: Path) -> None:
    policy = pi_policy(tmp_path, variant)
    steps, level = policy.cfg.num_steps, policy.cfg.noise_level
    _, report = policy.predict_action_batch(obs_of(), mode="train", generator=torch.Generator().manual_seed(5))
    generator = torch.Generator().manual_seed(5)
    torch.zeros(3, 6, 8).normal_(generator=generator)
    expected = torch.zeros(3, 2, 3)
    for step in range(steps):
        draw = torch.randn(3, 2, 3, generator=generator)
        time = max(step / steps, 1 / steps)
        std = level * math.sqrt((1 - step / steps) / time / steps)
        expected += -0.5 * draw**2 - math.log(std) - 0.5 * math.log(2 * math.pi)
    torch.testing.assert_close(report.logprobs, expected, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_training_starts_where_the_recipe_says(tmp_path: Path) -> None:
    def chain_of(**keys: float) -> torch.Tensor:
        policy = pi_policy(tmp_path, "pi0", **keys)
        generator = torch.Generator().manual_seed(5)
        chain = policy.predict_action_batch(obs_of(), mode="train", generator=generator)[1].forward_inputs["chain"]
        assert isinstance(chain, torch.Tensor)
        return chain

    whole, half, zero = chain_of(), chain_of(start_std=0.5), chain_of(start_std=0.0)
    assert whole[:, 0].std() > 0.8
    torch.testing.assert_close(half[:, 0], whole[:, 0] / 2)
    assert not zero[:, 0].any()
    # The steps' noise is left.
    assert zero[:, 1, 0, 0].unique().numel() == 3
    evaluated = pi_policy(tmp_path, "pi0").predict_action_batch(obs_of(), mode="eval")[1].forward_inputs["chain"]
    assert isinstance(evaluated, torch.Tensor)
    torch.testing.assert_close(zero[:, 1, 2:], evaluated[:, 1, 2:])


@both
def test_only_what_is_executed_is_noisy(variant: str, tmp_path: Path) -> None:
    policy = pi_policy(tmp_path, variant)
    start = torch.randn(3, 6, 8, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        record = policy.inputs.record(obs_of(), policy.device)
        prefix = policy.prefix(record)
        noisy, _ = policy.sample(prefix, record["state"], start, torch.Generator().manual_seed(2))
        calm, _ = policy.sample(prefix, record["state"], start, None)
    first = (noisy[:, 1] - calm[:, 1]).abs() > 1e-6
    assert first[:, :2, :3].all()
    assert not first[:, 2:].any()
    assert not first[:, :2, 3:].any()


@both
def test_blocks_do_not_see_each_other(variant: str, tmp_path: Path) -> None:
    policy = pi_policy(tmp_path, variant)
    record = policy.inputs.record(obs_of(), policy.device)
    points = torch.randn(3, 2, 6, 8, generator=torch.Generator().manual_seed(1))
    times = torch.tensor([1.0, 0.4])
    with torch.no_grad():
        prefix = policy.prefix(record)
        together = policy.velocity(prefix, record["state"], points, times)
        alone = policy.velocity(prefix, record["state"], points[:, 1:], times[1:])
    torch.testing.assert_close(together[:, 1:], alone, rtol=0, atol=1e-5)


@both
def test_padding_changes_nothing(variant: str, tmp_path: Path) -> None:
    short, long = (pi_policy(tmp_path, variant, max_prompt_length=length, add_value_head=True) for length in (32, 45))
    actions = [policy.predict_action_batch(obs_of(), mode="eval")[0] for policy in (short, long)]
    torch.testing.assert_close(actions[0], actions[1], rtol=0, atol=1e-5)
    means = [policy.prefix(policy.inputs.record(obs_of(), policy.device)).mean() for policy in (short, long)]
    torch.testing.assert_close(means[0], means[1], rtol=0, atol=1e-5)


@both
def test_images_words_and_states_all_matter(variant: str, tmp_path: Path) -> None:
    policy, obs = pi_policy(tmp_path, variant), obs_of()
    actions = policy.predict_action_batch(obs, mode="eval")[0]
    changes: dict[str, Any] = {
        "main_images": obs["main_images"].flip(1),
        "task_descriptions": ["reach the red disc"] * 3,
    }
    if variant == "pi0":
        changes["states"] = -obs["states"]
    for name, value in changes.items():
        assert not torch.allclose(actions, policy.predict_action_batch(obs | {name: value}, mode="eval")[0]), name


@both
def test_names_and_shapes_are_the_published_ones(variant: str, tmp_path: Path) -> None:
    policy = pi_policy(tmp_path, variant)
    published = shapes_of(variant)
    ours = {name: list(tensor.shape) for name, tensor in policy.state_dict().items()}
    assert ours.items() <= published.items()
    assert published.keys() - ours.keys() == set(openpi.UNUSED)


@both
def test_the_full_size_model_has_the_published_names(variant: Any) -> None:
    published = published_names(f"{variant}_3b.txt")
    config = {"paligemma_variant": "gemma_2b", "action_expert_variant": "gemma_300m", "action_dim": 32}
    cfg, no_inputs = PiConfig(model_type="openpi", model_path="", action_dim=7, variant=variant), cast(Any, None)
    with torch.device("meta"):
        policy = openpi.PiPolicy(cfg, PiShape.of_config(config), no_inputs)
    ours = {name: tuple(tensor.shape) for name, tensor in policy.state_dict().items()}
    assert ours.items() <= published.items()
    assert published.keys() - ours.keys() == set(openpi.UNUSED)


def test_a_file_that_lacks_weights_is_refused(tmp_path: Path) -> None:
    pi_policy(tmp_path, "pi0")
    tensors = load_file(tmp_path / "model.safetensors")
    tensors.pop("state_proj.weight")
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ConfigError, match=r"model_path: .* no weights for state_proj.weight"):
        pi_policy(tmp_path, "pi0")


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"action_dim": 9}, "the model predicts 8 numbers"),
        ({"tokenizer_path": "/nowhere"}, "holds no tokenizer.json"),
        ({"unnorm_key": "other"}, "unnorm_key: received other"),
    ],
)
def test_keys_that_do_not_fit_the_folder_are_refused(keys: dict[str, Any], words: str, tmp_path: Path) -> None:
    pi_policy(tmp_path, "pi0")
    with pytest.raises(ConfigError, match=words):
        pi_policy(tmp_path, "pi0", **keys)


def test_the_horizon_is_the_checkpoint_s_unless_the_recipe_says_otherwise(tmp_path: Path) -> None:
    assert pi_policy(tmp_path, "pi0", horizon=None).num_supervised_actions == 6
    assert pi_policy(tmp_path, "pi0", horizon=4).plan_action_batch(obs_of()).shape == (3, 4, 3)
    with pytest.raises(ConfigError, match="num_action_chunks: received 7; .* predicts 6. Set it to 6 or less"):
        pi_policy(tmp_path, "pi0", horizon=None, num_action_chunks=7)


def test_a_folder_without_a_configuration_is_of_the_published_size(tmp_path: Path) -> None:
    pi_policy(tmp_path, "pi0")
    (tmp_path / "config.json").rename(tmp_path / "other.json")
    shape = PiShape.of_config({})
    assert (shape.language.width, shape.expert.width, shape.action_dim, shape.horizon) == (2048, 1024, 32, 50)
    cfg = pi_config(tmp_path)
    with pytest.raises(ConfigError, match=r"is not of this model: .* shape"):
        openpi.build_openpi(cfg)


@both
def test_folders_of_lerobot_are_read(variant: str, tmp_path: Path) -> None:
    plain = pi_policy(tmp_path, variant)
    file, config = tmp_path / "model.safetensors", json.loads((tmp_path / "config.json").read_text())
    save_file({f"model.{name}": tensor for name, tensor in load_file(file).items()}, file)
    theirs = {"action_dim": "max_action_dim", "action_horizon": "chunk_size"}
    config = {theirs.get(key, key): value for key, value in config.items()}
    (tmp_path / "config.json").write_text(json.dumps({**config, "type": variant}))
    shutil.rmtree(tmp_path / "assets")
    columns = {"action": "action", "state": "observation.state"}
    numbers = {f"{column}.{key}": torch.tensor(STATISTICS[key]) for column in columns.values() for key in STATISTICS}
    save_file(numbers, tmp_path / "policy_preprocessor_step_2_normalizer_processor.safetensors")
    read = pi_policy(tmp_path, variant, horizon=None)
    assert read.horizon == 6
    assert all(torch.equal(tensor, read.state_dict()[name]) for name, tensor in plain.state_dict().items())
    assert torch.equal(read.inputs.actions.low, plain.inputs.actions.low)
    other = {"pi0": "pi05", "pi05": "pi0"}[variant]
    with pytest.raises(ConfigError, match=f"variant: received {other}; .* holds LeRobot's {variant}"):
        pi_policy(tmp_path, other)


def pi_config(folder: Path) -> PiConfig:
    return PiConfig(model_type="openpi", model_path=str(folder), action_dim=3, variant="pi0", num_action_chunks=2)


def test_adapters_leave_projections_whole(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    plain = pi_policy(tmp_path, "pi0")
    policy = pi_policy(tmp_path, "pi0", is_lora=True, lora_rank=2, freeze=["vision"])
    before = plain.predict_action_batch(obs_of(), mode="eval")[0]
    assert torch.equal(policy.predict_action_batch(obs_of(), mode="eval")[0], before)
    trained = {name.split(".")[0] for name, p in policy.named_parameters() if p.requires_grad and "lora" not in name}
    assert trained == {"action_in_proj", "action_out_proj", "state_proj", "action_time_mlp_in", "action_time_mlp_out"}
    plain.load_state_dict(dict(policy.export(lambda tensor: tensor)))

"""Published folders are loaded whole or refused, and written back as they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from rlinf.errors import CheckpointError, ConfigError
from rlinf.hybrid_engines.inference_backends import build_torch_policy
from rlinf.models import get_policy, materialize
from rlinf.models.lora import adapters_off
from rlinf.models.vla.published_folder import write_published
from tests.unit.models.vla.gr00t_policies import gr00t_policy
from tests.unit.models.vla.pi_policies import pi_policy
from tests.unit.models.vla.smolvla_policies import smolvla_policy
from tests.unit.models.vla.vla_policies import build, golden, observations, random_policy

pytest.importorskip("transformers")
L1: dict[str, Any] = {"head": "l1", "use_proprio": True, "state_dim": 2}


LAYOUTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "openvla": (random_policy, {"kind": "openvla"}),
    "tokens": (random_policy, {"kind": "oft"}),
    "l1": (random_policy, {"kind": "oft", **L1}),
    "film": (random_policy, {"kind": "oft", **L1, "use_film": True}),
    "pi0": (pi_policy, {"variant": "pi0"}),
    "smolvla": (smolvla_policy, {}),
    "gr00t": (gr00t_policy, {}),
}


def make_policy(layout: str, folder: Path, **more: Any) -> Any:
    make, keys = LAYOUTS[layout]
    return make(folder=folder, **keys, **more)


def publish(layout: str, folder: Path) -> None:
    """Write a folder as large models have it: in shards, of two types, with code and with what policies do not need."""
    make_policy(layout, folder)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    if layout == "film":
        # What the towers were before FiLM.
        tensors |= {f"vision_backbone.{name}": torch.full((2, 2), 3.0) for name in ("featurizer.a", "featurizer.b")}
    shards: dict[str, dict[str, torch.Tensor]] = {}
    for index, (name, tensor) in enumerate(sorted(tensors.items())):
        shard = f"model-0000{index % 3 + 1}-of-00003.safetensors"
        # Norms and biases stay in full precision.
        shards.setdefault(shard, {})[name] = tensor.bfloat16() if tensor.ndim > 1 else tensor
    for name, content in shards.items():
        save_file(content, folder / name, metadata={"by": "a test"})
    weight_map = {name: shard for shard, content in shards.items() for name in content}
    size = sum(tensor.nbytes for content in shards.values() for tensor in content.values())
    index = {"metadata": {"total_size": size}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
    (folder / "modeling_prismatic.py").write_text("# code that auto_map names")


def content(folder: Path) -> dict[str, bytes]:
    """Return all files of a folder; of files of PyTorch the tensors."""
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    components = {name: torch.load(path) for name, path in found.items() if path.suffix == ".pt"}
    described = {
        name: repr([(key, tensor.dtype, tensor.tolist()) for key, tensor in tensors.items()]).encode()
        for name, tensors in components.items()
    }
    return {name: path.read_bytes() for name, path in found.items()} | described


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_written_back_is_what_was_read(layout: str, tmp_path: Path) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    publish(layout, source)
    policy = make_policy(layout, source, add_value_head=True)
    write_published(copy, policy, policy.export(lambda tensor: tensor), source=source)
    before, after = content(source), content(copy)
    assert before.keys() == after.keys()
    assert [name for name in before if before[name] != after[name]] == []
    assert {"modeling_prismatic.py", "model-00002-of-00003.safetensors"} < before.keys()


def test_what_was_trained_is_written_and_read_again(tmp_path: Path) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    publish("film", source)
    policy = make_policy("film", source)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(1.0)
    write_published(copy, policy, policy.export(lambda tensor: tensor), source=source, dtype=torch.float32)
    again = make_policy("film", copy)
    expected = {name: tensor for name, tensor in policy.state_dict().items() if name != "log_std"}
    assert all(torch.equal(tensor, again.state_dict()[name]) for name, tensor in expected.items())
    index = json.loads((copy / "model.safetensors.index.json").read_text())
    tensors = [load_file(copy / name) for name in sorted(set(index["weight_map"].values()))]
    assert {tensor.dtype for file in tensors for tensor in file.values()} == {torch.float32}
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for file in tensors for tensor in file.values())
    with pytest.raises(CheckpointError, match="is not whole: weights of"):
        write_published(tmp_path / "part", policy, [("projector.fc1.bias", torch.zeros(3))], source=source)


@pytest.mark.parametrize("is_tied", [True, False])
def test_both_names_of_tied_weights_are_written(is_tied: bool, tmp_path: Path) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    pi_policy(source, "pi0")
    words, head = "model.language_model.embed_tokens.weight", "lm_head.weight"
    words, head = (f"paligemma_with_expert.paligemma.{name}" for name in (words, head))
    edit(source, lambda tensors: tensors.update({words: tensors[head].clone() if is_tied else tensors[head] * 2}))
    policy = pi_policy(source, "pi0")
    before = load_file(source / "model.safetensors")[head]
    trained = policy.state_dict()[words].clone().add_(1.0)
    weights = {**dict(policy.export(lambda tensor: tensor)), words: trained}
    write_published(copy, policy, weights.items(), source=source)
    after = load_file(copy / "model.safetensors")
    assert torch.equal(after[words], trained)
    assert torch.equal(after[head], trained if is_tied else before)


@pytest.mark.parametrize("variant", ["pi0", "pi05"])
def test_flows_are_written_back_with_tied_and_unused_weights(variant: str, tmp_path: Path) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    policy = pi_policy(source, variant, add_value_head=True)
    write_published(copy, policy, policy.export(lambda tensor: tensor), source=source)
    before, after = (
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for folder in (source, copy)
    )
    assert before == after


def test_what_was_trained_to_predict_another_number_of_actions_says_so(tmp_path: Path) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    policy = pi_policy(source, "pi0", horizon=4)
    write_published(copy, policy, policy.export(lambda tensor: tensor), source=source, horizon=policy.horizon)
    before, after = (json.loads((folder / "config.json").read_text()) for folder in (source, copy))
    assert after == {**before, "action_horizon": 4}


def test_statistics_of_published_training_are_copied(tmp_path: Path) -> None:
    source, copy, name = tmp_path / "source", tmp_path / "copy", "physical-intelligence/libero"
    pi_policy(source, "pi0")
    (source / "physical-intelligence").mkdir()
    (source / "assets" / "tiny").rename(source / name)
    policy = pi_policy(source, "pi0", unnorm_key=name)
    write_published(copy, policy, policy.export(lambda tensor: tensor), source=source)
    assert (copy / name / "norm_stats.json").read_bytes() == (source / name / "norm_stats.json").read_bytes()


@pytest.mark.parametrize("kind", ["openvla", "oft_tokens", "oft_l1", "oft_film"])
def test_names_and_shapes_are_the_published_ones(kind: str, tmp_path: Path) -> None:
    policy = golden(kind, tmp_path).policy
    assert not any(parameter.is_meta for parameter in policy.parameters())
    published = load_file(tmp_path / "model.safetensors")
    for path in tmp_path.glob("*.pt"):
        component = path.name.partition("--")[0]
        published |= {f"{component}.{name}": tensor for name, tensor in torch.load(path).items()}
    ours = policy.state_dict()
    assert ours.keys() - published.keys() <= {"log_std"}
    assert all(torch.equal(ours[name], tensor) for name, tensor in published.items())


def edit(folder: Path, change: Any) -> None:
    """Change the main file of a folder."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tensors: tensors.pop("projector.fc1.weight"), "no weights for projector.fc1.weight"),
        (lambda tensors: tensors.update(more=torch.zeros(1)), "does not have: more"),
        (lambda tensors: tensors.update({"projector.fc3.bias": torch.zeros(3)}), r"shape \(3,\) instead of \(32,\)"),
    ],
    ids=["missing", "unexpected", "shape"],
)
def test_files_of_another_model_are_refused(change: Any, words: str, tmp_path: Path) -> None:
    random_policy("oft", tmp_path)
    edit(tmp_path, change)
    with pytest.raises(ConfigError, match=rf"model_path: .*{words}"):
        random_policy("oft", tmp_path)


def test_a_missing_component_names_its_file(tmp_path: Path) -> None:
    random_policy("oft", tmp_path)
    with pytest.raises(ConfigError, match=r"one file action_head--<steps>_checkpoint.pt and has none"):
        random_policy("oft", tmp_path, head="l1")


def test_components_of_distributed_training_are_read(tmp_path: Path) -> None:
    before = random_policy("oft", tmp_path, **L1)
    path = tmp_path / "action_head--0_checkpoint.pt"
    torch.save({f"module.{name}": tensor for name, tensor in torch.load(path).items()}, path)
    after = random_policy("oft", tmp_path, **L1)
    assert all(torch.equal(tensor, after.state_dict()[name]) for name, tensor in before.state_dict().items())


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    with pytest.raises(ConfigError, match="is not that of a Prismatic model"):
        build("openvla", model_path=str(tmp_path), action_dim=3)


def test_a_rollout_copy_reads_no_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = random_policy("oft", tmp_path, add_value_head=True)
    monkeypatch.setattr(materialize, "fill", None)
    copy = build_torch_policy(policy.cfg, num_values=1, precision="bf16", device=torch.device("cpu"))
    assert not any(tensor.is_meta for tensor in (*copy.parameters(), *copy.buffers()))
    assert {parameter.dtype for parameter in copy.parameters()} == {torch.bfloat16}
    copy.load_state_dict(dict(policy.export(lambda tensor: tensor)))
    actions = copy.predict_action_batch(observations(), mode="eval")[0]
    assert torch.isfinite(actions).all()


def test_half_precision_is_close_to_full(tmp_path: Path) -> None:
    policy = random_policy("oft", tmp_path, head="l1", use_proprio=True, state_dim=2)
    copy = build_torch_policy(policy.cfg, num_values=1, precision="bf16", device=torch.device("cpu"))
    copy.load_state_dict(dict(policy.export(lambda tensor: tensor)))
    exact, rounded = (one.predict_action_batch(observations(), mode="eval")[0] for one in (policy, copy))
    assert rounded.dtype == torch.float32
    assert 1e-5 < (exact - rounded).abs().max() < 0.1


def test_building_on_meta_reads_and_allocates_nothing(tmp_path: Path) -> None:
    policy = random_policy("oft", tmp_path)
    empty = get_policy(policy.cfg, on_meta=True)
    assert all(parameter.is_meta for parameter in empty.parameters())
    assert not any(buffer.is_meta for buffer in empty.buffers())


def test_adapters_change_nothing_at_first_and_are_merged_for_rollouts(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    plain = random_policy("oft", tmp_path, **L1, add_value_head=True)
    policy = random_policy("oft", tmp_path, **L1, add_value_head=True, is_lora=True, lora_rank=2)
    obs = observations()
    before = plain.predict_action_batch(obs, mode="eval")[0]
    assert torch.equal(policy.predict_action_batch(obs, mode="eval")[0], before)
    trained = {
        name.split(".")[0] for name, p in policy.named_parameters() if p.requires_grad and not policy.is_adapter(name)
    }
    assert trained == {"action_head", "proprio_projector", "value_head", "log_std"}
    assert not any(policy.is_adapter(name) for name in policy.state_dict() if "patch_embed" in name)
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if policy.is_adapter(name):
                parameter.normal_(std=0.1)
    after = policy.predict_action_batch(obs, mode="eval")[0]
    assert not torch.allclose(after, before)
    with adapters_off(policy):
        assert torch.equal(policy.predict_action_batch(obs, mode="eval")[0], before)
    copy = build_torch_policy(policy.cfg, num_values=1, precision="fp32", device=torch.device("cpu"))
    copy.load_state_dict(dict(policy.export(lambda tensor: tensor)))
    torch.testing.assert_close(copy.predict_action_batch(obs, mode="eval")[0], after, rtol=0, atol=1e-5)


def test_a_value_head_starts_at_zero_and_the_same_on_every_rank(tmp_path: Path) -> None:
    one, other = (random_policy("oft", tmp_path, add_value_head=True) for _ in range(2))
    assert torch.equal(one.predict_values(observations()), torch.zeros(3, 1))
    assert torch.equal(one.state_dict()["value_head.0.weight"], other.state_dict()["value_head.0.weight"])
    assert one.state_dict()["value_head.0.weight"].std() > 0

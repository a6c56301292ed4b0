"""``gr00t`` computes what GR00T N1.5's published code does; rollout and training have the same log-probabilities."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from safetensors.torch import load_file, save_file

from rlinf.config.schema.vla import Gr00tConfig
from rlinf.data.messages.embodied import Observation
from rlinf.errors import ConfigError
from rlinf.models import check_policy, get_policy
from rlinf.models.vla import gr00t
from rlinf.models.vla.gr00t_model import Gr00tShape
from rlinf.models.vla.published_folder import write_published
from tests.unit.models.vla.gr00t_policies import config_of, golden_record, gr00t_policy, published, write_gr00t
from tests.unit.models.vla.vla_policies import observations, published_names
from toolkits.vla.golden_gr00t import FULL_EAGLE, FULL_HEAD

pytest.importorskip("transformers")
CAMERAS = ["camera0", "camera1"]


def obs_of() -> Observation:
    """Return three observations with states of three numbers."""
    return observations() | {"states": torch.tensor([[0.1, -0.2, 0.3], [0.5, 0.9, -0.4], [-2.0, 0.0, 0.7]])}


@torch.no_grad()
def test_sampled_actions_are_the_published_ones(tmp_path: Path) -> None:
    policy = gr00t_policy(tmp_path, image_keys=CAMERAS)
    record, expected = golden_record()
    chain, _ = policy.sample(policy.prefix(record), record["state"], expected["noise"], None)
    torch.testing.assert_close(chain[:, -1], expected["sampled"], rtol=0, atol=1e-5)


@torch.no_grad()
def test_the_training_loss_is_the_published_one(tmp_path: Path) -> None:
    notes = published()
    write_gr00t(tmp_path)
    cfg = gr00t_policy(tmp_path, image_keys=CAMERAS).cfg
    policy = gr00t.Gr00tPolicy(
        Gr00tConfig(**{**vars(cfg), "action_dim": notes["action_dim"]}),
        Gr00tShape.of_config(config_of(notes), notes["eagle"]),
        cast(Any, None),
    ).eval()
    weights = {
        name: tensor for name, tensor in load_file(tmp_path / "model.safetensors").items() if name not in gr00t.UNUSED
    }
    policy.load_state_dict(weights)
    record, expected = golden_record()
    # The published time runs the other way.
    draws = {"action": expected["actions"], "noise": expected["noise"], "time": 1.0 - expected["time"]}
    loss = policy.supervised_forward(record | draws)
    torch.testing.assert_close(loss.mean((1, 2)), expected["loss"], rtol=0, atol=1e-5)


@torch.no_grad()
def test_points_side_by_side_do_not_see_each_other(tmp_path: Path) -> None:
    policy = gr00t_policy(tmp_path, image_keys=CAMERAS)
    record, stored = golden_record()
    prefix, time = policy.prefix(record), torch.tensor([0.75, 0.25])
    x = torch.stack([stored["noise"], stored["actions"]], 1)
    both = policy.velocity(prefix, record["state"], x, time)
    for point in range(2):
        alone = policy.velocity(prefix, record["state"], x[:, point : point + 1], time[point : point + 1])
        torch.testing.assert_close(both[:, point : point + 1], alone, rtol=0, atol=1e-5)


@torch.no_grad()
def test_padding_is_invisible(tmp_path: Path) -> None:
    policy = gr00t_policy(tmp_path, image_keys=CAMERAS, add_value_head=True)
    record, stored = golden_record()
    longer = {
        "token_ids": torch.nn.functional.pad(record["token_ids"], (0, 4), value=7),
        "token_mask": torch.nn.functional.pad(record["token_mask"], (0, 4)),
    }
    short, long = policy.prefix(record), policy.prefix(record | longer)
    torch.testing.assert_close(long.mean(), short.mean(), rtol=0, atol=1e-5)
    chains = [policy.sample(prefix, record["state"], stored["noise"], None)[0] for prefix in (short, long)]
    torch.testing.assert_close(*chains, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("steps", "buckets"), [(4, [0, 250, 500, 750]), (10, list(range(0, 1000, 100)))])
def test_moments_are_the_published_buckets(steps: int, buckets: list[int], tmp_path: Path) -> None:
    policy = gr00t_policy(tmp_path, num_steps=steps)
    seen: list[torch.Tensor] = []
    output = policy.action_head.output
    policy.action_head.output = lambda x, **keys: seen.append(keys["bucket"]) or output(x, **keys)
    policy.predict_action_batch(obs_of(), mode="eval")
    assert [bucket.tolist() for bucket in seen] == [[[bucket]] * 3 for bucket in buckets]


def test_some_times_of_training_are_noise_alone(tmp_path: Path) -> None:
    draws = gr00t_policy(tmp_path).supervised_draws(4000, torch.Generator().manual_seed(0))
    assert 1.0 < draws["time"].max() <= 1.0 / 0.999
    # The mean of Beta(1.5, 1) is 0.6.
    assert draws["time"].mean() == pytest.approx(0.6, abs=0.02)
    assert draws["noise"].shape == (4000, 6, 8)


def test_rollout_and_training_have_the_same_log_probabilities(tmp_path: Path) -> None:
    policy = gr00t_policy(tmp_path, add_value_head=True)
    check_policy(policy, obs_of(), num_action_chunks=2)
    _, report = policy.predict_action_batch(obs_of(), mode="train", generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        evaluated = policy.default_forward(report.forward_inputs)
    torch.testing.assert_close(evaluated.logprobs, report.logprobs, rtol=0, atol=1e-5)
    assert report.logprobs.abs().max() > 0


def test_images_words_and_states_all_matter(tmp_path: Path) -> None:
    policy, obs = gr00t_policy(tmp_path), obs_of()
    actions = policy.predict_action_batch(obs, mode="eval")[0]
    changes: dict[str, Any] = {
        "main_images": obs["main_images"].flip(1),
        "task_descriptions": ["reach the red disc"] * 3,
        "states": -obs["states"],
    }
    for name, value in changes.items():
        assert not torch.allclose(actions, policy.predict_action_batch(obs | {name: value}, mode="eval")[0]), name


def test_values_depend_on_the_state(tmp_path: Path) -> None:
    policy, obs = gr00t_policy(tmp_path, add_value_head=True, value_hidden_dims=[]), obs_of()
    assert policy.value_head is not None
    torch.nn.init.ones_(policy.value_head[-1].weight)
    before, after = (policy.predict_values(o) for o in (obs, obs | {"states": -obs["states"]}))
    assert not torch.allclose(before, after)


def test_each_robot_has_its_encoders(tmp_path: Path) -> None:
    record, stored = golden_record()
    chains = []
    for number in (2, 3):
        policy = gr00t_policy(tmp_path, image_keys=CAMERAS, embodiment_id=number)
        with torch.no_grad():
            chains.append(policy.sample(policy.prefix(record), record["state"], stored["noise"], None)[0][:, -1])
    assert not torch.allclose(*chains)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"embodiment_tag": "new_embodimnt"}, "embodiment_tag: received new_embodimnt; .*libero_franka"),
        ({"embodiment_id": 4}, "embodiment_id: received 4; the model has encoders of 4 robots"),
        ({"embodiment_id": 2, "embodiment_tag": "so100"}, "unnorm_key: received so100; .* are of gr1, new_embodiment"),
    ],
)
def test_unknown_robots_are_refused(keys: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        gr00t_policy(tmp_path, **{"embodiment_id": None, **keys})


def test_prompts_are_conversations_about_the_images(tmp_path: Path) -> None:
    policy = gr00t_policy(tmp_path, image_keys=["main_images", "wrist_images"])
    seen: list[str] = []
    tokenizer = policy.inputs._tokenizer
    policy.inputs._tokenizer = lambda text, **keys: seen.append(text) or tokenizer(text, **keys)
    ids, mask = policy.inputs.encode(["reach the disc"], torch.zeros(1, 3))
    patches = "<IMG_CONTEXT>" * 4
    assert seen == [
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
        f"<image 1><img>{patches}</img><image 2><img>{patches}</img>reach the disc<|im_end|>\n<|im_start|>assistant\n"
    ]
    assert (ids == 319).sum() == 8
    assert 0 not in ids[mask]


def test_the_middle_of_images_is_shown(tmp_path: Path) -> None:
    policy = gr00t_policy(tmp_path)
    image = torch.zeros(1, 40, 60, 3, dtype=torch.uint8)
    # 95 % of 40 and of 60 leave a border of one and of one and a half pixels, which becomes two to even.
    image[:, 1:39, 2:59] = 100
    kept = policy.inputs.image(image, is_cropped=False)
    assert kept.shape == (1, 16, 16, 3)
    # Rounding down makes some of them 99.
    assert set(kept.unique().tolist()) <= {99, 100}
    image[:, 1], image[:, :, 58] = 255, 255
    changed = policy.inputs.image(image, is_cropped=False)
    assert (changed[:, 0] > 100).all()
    assert (changed[:, :, -1] > 100).all()
    # The border is seen where fine-tuning has cropped before.
    assert (policy.inputs.image(image, is_cropped=True)[:, 4:12, 0] < 99).all()


def test_states_and_actions_have_the_units_of_the_checkpoint(tmp_path: Path) -> None:
    policy = gr00t_policy(tmp_path)
    state = policy.inputs.record(obs_of(), policy.device)["state"]
    expected = torch.tensor([[0.1, -0.1, 0.0], [0.5, 0.45, 0.0], [-2.0, 0.0, 0.0]])
    torch.testing.assert_close(state[:, :3], expected, rtol=0, atol=1e-6)
    assert state.shape == (3, 10)
    restored = policy.inputs.actions.restore(torch.tensor([-1.0, 1.0, 0.5]))
    torch.testing.assert_close(restored, torch.tensor([-0.1, 0.4, 0.75]), rtol=0, atol=1e-6)


def test_names_and_shapes_are_the_published_ones(tmp_path: Path) -> None:
    ours = {name: list(tensor.shape) for name, tensor in gr00t_policy(tmp_path).state_dict().items()}
    shapes = published()["shapes"]
    assert ours.items() <= shapes.items()
    assert shapes.keys() - ours.keys() == set(gr00t.UNUSED)


def test_the_full_size_model_has_the_published_names() -> None:
    names = published_names("gr00t_n1_5_3b.txt")
    config = {"action_head_cfg": FULL_HEAD, "backbone_cfg": {"select_layer": 12, "project_to_dim": None}}
    cfg, no_inputs = Gr00tConfig(model_type="gr00t", model_path="", action_dim=7), cast(Any, None)
    with torch.device("meta"):
        policy = gr00t.Gr00tPolicy(cfg, Gr00tShape.of_config(config, FULL_EAGLE), no_inputs)
    ours = {name: tuple(tensor.shape) for name, tensor in policy.state_dict().items()}
    assert ours.items() <= names.items()
    assert names.keys() - ours.keys() == set(gr00t.UNUSED)


def test_a_folder_is_written_back_bit_for_bit(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    policy = gr00t_policy(source)
    write_published(target, policy, policy.export(lambda tensor: tensor), source=source)
    assert (source / "model.safetensors").read_bytes() == (target / "model.safetensors").read_bytes()
    actions = [p.predict_action_batch(obs_of(), mode="eval")[0] for p in (policy, gr00t_policy(target))]
    assert torch.equal(*actions)


def test_tied_embeddings_are_found_by_their_other_name(tmp_path: Path) -> None:
    write_gr00t(tmp_path)
    plain = gr00t_policy(tmp_path).predict_action_batch(obs_of(), mode="eval")[0]
    tensors = load_file(tmp_path / "model.safetensors")
    language = "backbone.eagle_model.language_model"
    tensors[f"{language}.lm_head.weight"] = tensors.pop(f"{language}.model.embed_tokens.weight")
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert torch.equal(gr00t_policy(tmp_path).predict_action_batch(obs_of(), mode="eval")[0], plain)


def test_eagle_may_lie_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    write_gr00t(tmp_path / "model")
    shutil.move(tmp_path / "model" / "eagle", tmp_path / "elsewhere")
    gr00t_policy(tmp_path / "model", eagle_path=str(tmp_path / "elsewhere"))
    with pytest.raises(ConfigError, match="actor.model.eagle_path: there is no folder 'nowhere'"):
        gr00t_policy(tmp_path / "model", eagle_path="nowhere")


@pytest.mark.parametrize(
    ("file", "change", "words"),
    [
        ("config.json", {"model_type": "Gr00tN1d6"}, "is not that of gr00t: ValueError: model_type Gr00tN1d6"),
        ("config.json", {"action_head_cfg.use_vlln": False}, "use_vlln"),
        ("config.json", {"action_head_cfg.diffusion_model_cfg.positional_embeddings": "sinusoidal"}, "positional"),
        ("eagle/config.json", {"use_pixel_shuffle": True}, "use_pixel_shuffle"),
        ("eagle/config.json", {"select_layer": -2}, "select_layer"),
        ("config.json", {"action_head_cfg.action_dim": 2}, "the model predicts 2 numbers"),
    ],
)
def test_what_was_not_published_is_refused(file: str, change: dict[str, Any], words: str, tmp_path: Path) -> None:
    write_gr00t(tmp_path)
    config = json.loads((tmp_path / file).read_text())
    for path, value in change.items():
        *parents, last = path.split(".")
        section = config
        for parent in parents:
            section = section[parent]
        section[last] = value
    (tmp_path / file).write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=words):
        gr00t_policy(tmp_path)


def test_parts_are_frozen_and_adapted(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    policy = gr00t_policy(tmp_path, freeze=["vision", "projector", "language"])
    trained = {name.split(".")[0] for name, p in policy.named_parameters() if p.requires_grad}
    assert trained == {"action_head"}
    adapted = gr00t_policy(tmp_path, is_lora=True, lora_rank=2)
    plain = get_policy(policy.cfg).predict_action_batch(obs_of(), mode="eval")[0]
    assert torch.equal(adapted.predict_action_batch(obs_of(), mode="eval")[0], plain)
    assert set(dict(adapted.export(lambda tensor: tensor))) == set(policy.state_dict())
    whole = {name for name, p in adapted.named_parameters() if p.requires_grad and "lora" not in name}
    assert "action_head.state_encoder.layer1.W" in whole
    assert not any(name.startswith(("backbone.", "action_head.model.")) for name in whole)

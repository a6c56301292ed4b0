"""Models that judge frames begin with a policy's eyes and words, and see frames, their order and the sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from rlinf.errors import ConfigError
from rlinf.models import get_model, get_policy
from tests.unit.models.vla.value_toy_models import seen, value_config, value_model

pytest.importorskip("transformers")
TASKS = ["task 0", "task 1", "task 0"]
PUBLISHED = "paligemma_with_expert.paligemma."


def test_every_member_begins_with_the_weights_of_the_folder_and_a_head_of_its_own(tmp_path: Path) -> None:
    torch.manual_seed(3)
    model = get_model(value_config(tmp_path / "pi", "steam_value_model", ensemble_size=2))
    state, files = model.state_dict(), load_file(tmp_path / "pi" / "model.safetensors")
    published = {name.removeprefix(PUBLISHED): value for name, value in files.items() if name.startswith(PUBLISHED)}
    published.pop("lm_head.weight", None)
    for member in range(2):
        for name, value in published.items():
            assert torch.equal(state[f"members.{member}.paligemma.{name}"], value), name
    # Two layers of the head, three norms, and the scale.
    assert len(state) == 2 * (len(published) + 2 * 2 + 3 * 2) + 1
    heads = [state[f"members.{member}.head.0.weight"] for member in range(2)]
    assert heads[0].abs().max() > 0
    assert not torch.equal(*heads)
    assert not state["members.0.head.2.weight"].any()


def test_embeddings_may_stand_under_the_name_of_the_head_that_they_are_tied_to(tmp_path: Path) -> None:
    cfg = value_config(tmp_path / "pi", "recap_value_model")
    path = tmp_path / "pi" / "model.safetensors"
    files = load_file(path)
    words = files.pop(f"{PUBLISHED}model.language_model.embed_tokens.weight")
    save_file(files | {f"{PUBLISHED}lm_head.weight": words}, path, metadata={"format": "pt"})
    state = get_model(cfg).state_dict()
    assert torch.equal(state["members.0.paligemma.model.language_model.embed_tokens.weight"], words)


@torch.no_grad()
def test_a_frame_and_a_sentence_decide_and_samples_do_not_see_each_other(tmp_path: Path) -> None:
    model = value_model(tmp_path / "pi", "recap_value_model", ensemble_size=2)
    images = seen()
    logits = model(model.record(images, TASKS))
    assert logits.shape == (3, 2, 4)
    alone = model(model.record([{"main_images": images[0]["main_images"][:1]}], TASKS[:1]))
    torch.testing.assert_close(alone, logits[:1], rtol=0, atol=1e-5)
    other_word = model(model.record(images, ["task 1", "task 1", "task 0"]))
    changed = (other_word - logits).abs().amax((1, 2))
    assert changed[0] > 1e-4
    assert changed[1:].max() < 1e-6
    dark = {"main_images": images[0]["main_images"].clone()}
    dark["main_images"][2] = 0
    changed = (model(model.record([dark], TASKS)) - logits).abs().amax((1, 2))
    assert changed[2] > 1e-4
    assert changed[:2].max() < 1e-6


@torch.no_grad()
def test_pairs_have_an_order(tmp_path: Path) -> None:
    model = value_model(tmp_path / "pi", "steam_value_model")
    first, second = seen(frames=2)
    there = model(model.record([first, second], TASKS))
    back = model(model.record([second, first], TASKS))
    assert (there - back).abs().amax((1, 2)).min() > 1e-4
    # The same frame twice has not changed, whatever it shows.
    member = model.members[0]
    seen_pairs = []
    handle = member.head.register_forward_pre_hook(lambda _, inputs: seen_pairs.append(inputs[0]))  # type: ignore[operator, union-attr]
    for pair in ([first, second], [first, first]):
        model(model.record(pair, TASKS))
    handle.remove()
    width = seen_pairs[0].shape[1] // 3
    change = [features[:, width : 2 * width].abs().max() for features in seen_pairs]
    assert change[0] > 0.5
    assert not torch.equal(*change)


@torch.no_grad()
def test_padding_says_nothing(tmp_path: Path) -> None:
    short = value_model(tmp_path / "pi", "recap_value_model", max_prompt_length=3)
    long = value_model(tmp_path / "pi", "recap_value_model", max_prompt_length=9)
    logits = [model(model.record(seen(), TASKS)) for model in (short, long)]
    torch.testing.assert_close(*logits, rtol=0, atol=1e-5)


@torch.no_grad()
def test_all_cameras_are_seen_at_the_models_size(tmp_path: Path) -> None:
    model = value_model(tmp_path / "pi", "recap_value_model", image_keys=["main_images", "wrist_images"])
    images = [{**seen()[0], "wrist_images": seen(size=32)[0]["main_images"]}]
    record = model.record(images, TASKS)
    assert record["images.0.wrist_images"].shape == (3, 16, 16, 3)
    logits = model(record)
    for name in ("images.0.main_images", "images.0.wrist_images"):
        assert (model({**record, name: torch.zeros_like(record[name])}) - logits).abs().max() > 1e-4


def test_parts_keep_their_weights_and_heads_have_a_rate_of_their_own(tmp_path: Path) -> None:
    model = get_model(value_config(tmp_path / "pi", "recap_value_model", freeze=["vision", "language"]))
    free = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    kinds = {name.split(".")[4 if "paligemma" in name else 2] for name in free}
    assert kinds == {"multi_modal_projector", "norms", "head"}
    own = {name for name, _ in model.named_parameters() if model.is_value_parameter(name)}
    assert own == {
        f"members.0.{part}.{number}.{kind}"
        for part, numbers in (("norms", (0, 1)), ("head", (0, 2)))
        for number in numbers
        for kind in ("weight", "bias")
    }


def test_sharded_units_are_the_layers_and_words_of_all_members(tmp_path: Path) -> None:
    model = get_model(value_config(tmp_path / "pi", "recap_value_model", ensemble_size=2))
    # Two layers of each stack.
    assert len(model.recompute_units()) == 2 * (2 + 2)
    assert len(model.shard_units()) == len(model.recompute_units()) + 2


def test_what_it_cannot_begin_with_is_said(tmp_path: Path) -> None:
    cfg = value_config(tmp_path / "pi", "recap_value_model")
    with pytest.raises(ConfigError, match="no folder"):
        get_model(type(cfg)(model_type=cfg.model_type, model_path="nowhere"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(ConfigError, match="openpi's conversion"):
        get_model(type(cfg)(model_type=cfg.model_type, model_path=str(tmp_path / "other")))
    model = value_model(tmp_path / "pi", "recap_value_model", max_prompt_length=1)
    with pytest.raises(ConfigError, match="max_prompt_length: received 1; the prompt of 'task 0' has 3"):
        model.record(seen(), TASKS)


def test_it_is_no_policy(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="recap_value_model, which does not act"):
        get_policy(value_config(tmp_path / "pi", "recap_value_model"))

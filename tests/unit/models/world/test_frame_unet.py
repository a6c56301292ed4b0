"""``world_model_type: frame_unet``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from rlinf.data.messages.embodied import FrameWindow
from rlinf.errors import ConfigError
from rlinf.models.control.success_classifier import ClassifierConfig, SuccessClassifier
from rlinf.models.world.frame_unet import FrameUNet, FrameUNetConfig

SIZE = (8, 12)


def model(**keys: Any) -> FrameUNet:
    torch.manual_seed(0)
    return FrameUNet(FrameUNetConfig(image_size=SIZE, action_dim=2, **{"width": 4, **keys})).eval()


def past_of(rows: int, *, num_frames: int = 1, state_dim: int = 0, seed: int = 1) -> FrameWindow:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(256, (rows, num_frames, *SIZE, 3), generator=generator).to(torch.uint8)
    return FrameWindow(images, torch.randn(rows, num_frames, state_dim, generator=generator))


def actions_of(rows: int, steps: int) -> torch.Tensor:
    return torch.rand(rows, steps, 2, generator=torch.Generator().manual_seed(2)) * 2 - 1


def seeds_of(rows: int, steps: int) -> torch.Tensor:
    return torch.arange(rows * steps).view(rows, steps)


def same(one: FrameWindow, other: FrameWindow) -> bool:
    return torch.equal(one.images, other.images) and torch.equal(one.states, other.states)


def test_what_is_imagined_depends_on_the_row_alone() -> None:
    dreaming = model(state_dim=3, num_steps=2)
    past, actions, seeds = past_of(21, state_dim=3), actions_of(21, 3), seeds_of(21, 3)
    whole = dreaming.imagine(past, actions, seeds)
    assert whole.images.shape == (21, 3, *SIZE, 3)
    assert whole.images.dtype == torch.uint8
    assert whole.states.shape == (21, 3, 3)
    for rows in (slice(0, 1), slice(15, 18), slice(20, 21)):
        part = dreaming.imagine(FrameWindow(past.images[rows], past.states[rows]), actions[rows], seeds[rows])
        assert same(part, FrameWindow(whole.images[rows], whole.states[rows]))


@pytest.mark.parametrize("num_frames", [1, 2])
def test_a_chunk_goes_on_from_what_was_shown(num_frames: int) -> None:
    dreaming = model(num_frames=num_frames)
    past, actions, seeds = past_of(2, num_frames=num_frames), actions_of(2, 4), seeds_of(2, 4)
    whole = dreaming.imagine(past, actions, seeds)
    first = dreaming.imagine(past, actions[:, :1], seeds[:, :1])
    shown = torch.cat([past.images, first.images], 1)[:, -num_frames:]
    rest = dreaming.imagine(FrameWindow(shown, past.states), actions[:, 1:], seeds[:, 1:])
    assert torch.equal(whole.images, torch.cat([first.images, rest.images], 1))


def test_every_input_matters() -> None:
    dreaming = model(num_frames=2, state_dim=1)
    past, actions, seeds = past_of(1, num_frames=2, state_dim=1), actions_of(1, 1), seeds_of(1, 1)
    usual = dreaming.imagine(past, actions, seeds)
    older = past.images.clone()
    older[:, 0] = 255 - older[:, 0]
    for other in (
        dreaming.imagine(past, -actions, seeds),
        dreaming.imagine(past, actions, seeds + 1),
        dreaming.imagine(FrameWindow(older, past.states), actions, seeds),
        dreaming.imagine(FrameWindow(past.images, past.states + 1), actions, seeds),
    ):
        assert not torch.equal(other.images, usual.images)
        assert not torch.equal(other.states, usual.states)


def test_statistics_normalise_states_and_actions() -> None:
    plain, scaled = model(state_dim=1), model(state_dim=1)
    scaled.state_mean.fill_(10.0)
    scaled.state_std.fill_(4.0)
    scaled.action_mean.fill_(-1.0)
    scaled.action_std.fill_(3.0)
    past, actions, seeds = past_of(2, state_dim=1), actions_of(2, 2), seeds_of(2, 2)
    expected = plain.imagine(past, actions, seeds)
    found = scaled.imagine(FrameWindow(past.images, past.states * 4 + 10), actions * 3 - 1, seeds)
    assert (expected.images.int() - found.images.int()).abs().max() <= 1
    torch.testing.assert_close(found.states, expected.states * 4 + 10, rtol=1e-4, atol=1e-4)


def test_two_steps_follow_the_velocity_towards_the_clean_frame() -> None:
    dreaming = model(num_steps=2)
    past, state, action = torch.rand(1, 1, 3, *SIZE) * 2 - 1, torch.zeros(1, 0), torch.zeros(1, 2)
    noise = torch.randn(1, 3, *SIZE)
    with torch.no_grad():
        clean, _ = dreaming(noise, torch.zeros(1), past, state, action)
        half = noise + 0.5 * (clean - noise)
        expected, _ = dreaming(half, torch.full((1,), 0.5), past, state, action)
        found, _ = dreaming._next(past, state, action, noise)
    torch.testing.assert_close(found, expected)


def test_training_goes_the_way_of_imagining() -> None:
    """A network that returns the noisy frame has no error at the end of the flow, where that is the frame."""
    dreaming, generator = model(), torch.Generator()
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []

    def echo(noisy: torch.Tensor, times: torch.Tensor, *rest: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        seen.append((noisy, times))
        return noisy, rest[1]

    dreaming.forward = echo  # type: ignore[method-assign]
    frames = past_of(400, num_frames=2)
    dreaming.loss(frames, actions_of(400, 1)[:, 0], generator.manual_seed(0))
    (noisy, times), target = seen[0], frames.images[:, 1].movedim(-1, 1).float() / 127.5 - 1
    error = (noisy - target).square().mean((1, 2, 3))
    assert 0.4 < float((times == 0).float().mean()) < 0.6
    assert float(error[times > 0.9].max()) < 0.1 < float(error[times == 0].min())


def test_it_learns_what_actions_do() -> None:
    """The image brightens by the first action and the state moves by the second."""
    dreaming, generator = model(width=8, state_dim=1), torch.Generator().manual_seed(3)
    optimizer = torch.optim.Adam(dreaming.parameters(), lr=3e-3)

    def batch(rows: int) -> tuple[FrameWindow, torch.Tensor]:
        actions = torch.rand(rows, 2, generator=generator) * 2 - 1
        images = torch.randint(60, 196, (rows, 1, 1, 1, 1), generator=generator).expand(rows, 1, *SIZE, 3)
        after = (images + 50 * actions[:, 0, None, None, None, None]).to(torch.uint8)
        states = torch.randn(rows, 1, 1, generator=generator)
        moved = torch.cat([states, states + actions[:, 1, None, None]], 1)
        return FrameWindow(torch.cat([images.to(torch.uint8), after], 1), moved), actions

    for _ in range(150):
        loss = dreaming.loss(*batch(32), generator)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    frames, actions = batch(16)
    found = dreaming.imagine(frames[:1], actions[:, None], seeds_of(16, 1))
    error = (found.images - frames.images[:, 1:].float()).abs().mean()
    still = (frames.images[:, :1] - frames.images[:, 1:].float()).abs().mean()
    assert error < 0.3 * still
    assert (found.states - frames.states[:, 1:]).abs().mean() < 0.2


def test_the_loss_counts_errors_near_the_end_of_the_flow_more_and_looks_at_states() -> None:
    dreaming, generator = model(state_dim=1), torch.Generator()
    frames, actions = past_of(64, num_frames=2, state_dim=1), actions_of(64, 1)[:, 0]
    off = FrameWindow(frames.images, frames.states + torch.tensor([0.0, 5.0])[None, :, None])
    losses = [dreaming.loss(window, actions, generator.manual_seed(0)).item() for window in (frames, off)]
    assert losses[1] > losses[0] + 5
    with torch.no_grad():
        for value in dreaming.out.parameters():
            value.zero_()
    # The frame is then guessed to be the one before, whose error does not depend on the flow's time.
    same_images = FrameWindow(frames.images[:, :1].expand(-1, 2, -1, -1, -1), frames.states[:, :1].expand(-1, 2, -1))
    assert dreaming.loss(same_images, actions, generator.manual_seed(0)).item() < losses[0]


def test_a_folder_gives_the_model_back(tmp_path: Path) -> None:
    dreaming = model(state_dim=2, num_frames=2)
    dreaming.action_high.fill_(0.5)
    dreaming.classifier = SuccessClassifier(ClassifierConfig(image_size=(16, 16)))
    dreaming.save(tmp_path / "model")
    loaded = FrameUNet.load(tmp_path / "model").eval()
    assert (loaded.image_size, loaded.state_dim, loaded.num_frames) == (SIZE, 2, 2)
    assert loaded.action_high.tolist() == [0.5, 0.5]
    past, actions, seeds = past_of(2, num_frames=2, state_dim=2), actions_of(2, 2), seeds_of(2, 2)
    assert same(loaded.imagine(past, actions, seeds), dreaming.imagine(past, actions, seeds))
    assert loaded.classifier is not None
    kept, first = dreaming.classifier.state_dict(), loaded.classifier.state_dict()
    assert all(torch.equal(kept[name], first[name]) for name in kept)


def test_success_is_the_classifiers_probability() -> None:
    classifier = SuccessClassifier(ClassifierConfig(image_size=(16, 16))).eval()
    dreaming = FrameUNet(FrameUNetConfig(image_size=(16, 16), action_dim=2, width=4), classifier)
    images = torch.randint(256, (9, 2, 16, 16, 3), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    found = dreaming.success(FrameWindow(images, torch.zeros(9, 2, 0)), [""] * 9)
    assert found.shape == (9, 2)
    with torch.no_grad():
        expected = [torch.sigmoid(classifier({"main_images": images[:, step]})) for step in range(2)]
    torch.testing.assert_close(found, torch.stack(expected, 1))


def test_success_is_that_of_the_sentence_of_each_row() -> None:
    torch.manual_seed(0)
    classifier = SuccessClassifier(ClassifierConfig(image_size=(16, 16), words=("the", "red", "green"))).eval()
    dreaming = FrameUNet(FrameUNetConfig(image_size=(16, 16), action_dim=2, width=4), classifier)
    images = torch.randint(256, (12, 3, 16, 16, 3), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    images[1] = images[0]
    frames, tasks = FrameWindow(images, torch.zeros(12, 3, 0)), ["the red", "the green", "red"] * 4
    found = dreaming.success(frames, tasks)
    assert ((found[0] - found[1]).abs() > 1e-4).all()
    with torch.no_grad():
        expected = [
            torch.sigmoid(classifier({"main_images": images[:, step], "task_descriptions": tasks})) for step in range(3)
        ]
    torch.testing.assert_close(found, torch.stack(expected, 1))
    for row in (0, 5, 11):
        alone = dreaming.success(FrameWindow(images[row : row + 1], torch.zeros(1, 3, 0)), tasks[row : row + 1])
        assert torch.equal(alone[0], found[row])


def test_tasks_that_cannot_be_judged_are_named() -> None:
    classifier = SuccessClassifier(ClassifierConfig(image_size=(16, 16), words=("red", "green")))
    FrameUNet(FrameUNetConfig(image_size=(16, 16), action_dim=2), classifier).check_tasks(["Red", "green"])
    model().check_tasks(["anything"])
    with pytest.raises(ConfigError, match="'blue'.*does not know blue"):
        FrameUNet(FrameUNetConfig(image_size=(16, 16), action_dim=2), classifier).check_tasks(["red", "blue"])


def test_without_a_classifier_success_cannot_be_judged() -> None:
    with pytest.raises(ConfigError, match="--success-classifier"):
        model().success(past_of(1), [""])


@pytest.mark.parametrize(("size", "width"), [((10, 8), 4), ((8, 10), 4), ((8, 8), 6)])
def test_sizes_that_cannot_be_halved_are_refused(size: tuple[int, int], width: int) -> None:
    with pytest.raises(ConfigError, match="multiples of 4"):
        FrameUNetConfig(image_size=size, action_dim=1, width=width)


@pytest.mark.parametrize("damage", ["nothing", "config", "weights", "other"])
def test_a_folder_that_holds_no_model_is_refused(tmp_path: Path, damage: str) -> None:
    if damage != "nothing":
        model().save(tmp_path)
    if damage == "config":
        (tmp_path / "config.json").write_text("{")
    if damage == "weights":
        (tmp_path / "model.safetensors").unlink()
    if damage == "other":
        content = json.loads((tmp_path / "config.json").read_text())
        (tmp_path / "config.json").write_text(json.dumps(content | {"width": 8}))
    with pytest.raises(ConfigError, match=r"train_world_model\.py"):
        FrameUNet.load(tmp_path)

"""A teacher says what transformers says of it, and advantages are the differences to the policy."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rlinf.errors import ConfigError
from rlinf.workers.actor.text_learner import TextLearner
from tests.unit.data.messages.response_samples import batch_of
from tests.unit.models.tiny_language_models import save_tiny
from tests.unit.workers.actor.test_text_learner import config, make_learner, make_responses, true_logprobs

pytest.importorskip("transformers")
OPD = ("algorithm.adv_type=opd", "algorithm.loss_type=opd", "~algorithm.clip_ratio_low", "~algorithm.clip_ratio_high")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return where the policy and the teacher, of another size, are."""
    policy, teacher = tmp_path_factory.mktemp("policy"), tmp_path_factory.mktemp("teacher")
    save_tiny(policy)
    save_tiny(teacher, seed=1, num_hidden_layers=1)
    return policy, teacher


def make(folders: tuple[Path, Path], *keys: str) -> TextLearner:
    policy, teacher = folders
    model = f"{{model: {{model_type: causal_lm, model_path: {teacher}}}}}"
    return make_learner(config(policy, *OPD, f"+algorithm.teacher={model}", *keys))


def test_it_says_what_transformers_says_of_it(folders: tuple[Path, Path]) -> None:
    samples = make_responses(folders[0])
    batch = batch_of(samples)
    learner = make(folders)
    assert learner.teacher is not None
    found = learner.teacher.logprobs(batch)
    for prompt, tokens, logprobs in zip(batch.prompt_ids, batch.split(batch.token_ids), found, strict=True):
        expected = true_logprobs(folders[1], prompt, tuple(tokens.tolist()))
        assert torch.allclose(logprobs, torch.as_tensor(expected), atol=1e-5)


@pytest.mark.parametrize("offload", ["false", "true"])
def test_advantages_are_the_differences_and_the_teacher_stays_as_it_is(
    folders: tuple[Path, Path], offload: str
) -> None:
    batch = batch_of(make_responses(folders[0]))
    learner = make(folders, f"+algorithm.teacher.enable_offload={offload}", "algorithm.update_epoch=1")
    assert learner.teacher is not None
    learner.compute_advantages(batch)
    assert learner.samples is not None
    teacher, student = learner.teacher.logprobs(batch), learner._evaluate(batch).logprobs
    masks = learner.samples.tokens["loss_mask"]
    for taught, own, mask, advantage in zip(teacher, student, masks, learner.samples.tokens["advantages"], strict=True):
        assert torch.allclose(advantage[mask], (taught - own)[mask], atol=1e-5)
    before = [tensor.clone() for _, tensor in learner.teacher.engine.export_weights()]
    metrics = learner.update(1)
    assert metrics["actor_reverse_kl"] != 0
    after = [tensor for _, tensor in learner.teacher.engine.export_weights()]
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


@pytest.mark.parametrize(
    ("keys", "path"),
    [
        (OPD, "algorithm.teacher"),
        (("+algorithm.teacher={model: {model_type: causal_lm, model_path: x}}",), "algorithm.teacher"),
    ],
)
def test_a_teacher_is_there_exactly_where_it_is_compared_with(
    folders: tuple[Path, Path], keys: tuple[str, ...], path: str
) -> None:
    with pytest.raises(ConfigError, match=path):
        config(folders[0], *keys)


def test_vocabularies_of_other_sizes_are_refused(folders: tuple[Path, Path], tmp_path: Path) -> None:
    save_tiny(tmp_path, vocab_size=41)
    with pytest.raises(ConfigError, match=r"41 tokens.*40"):
        make((folders[0], tmp_path))

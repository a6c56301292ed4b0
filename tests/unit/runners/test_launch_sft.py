"""How long a run of fine-tuning is, once its data has been read."""

from __future__ import annotations

import pytest

from rlinf.config import load_recipe, validate_cfg
from rlinf.runners.launch_sft import with_length


def lengths(num_examples, *overrides):
    keys = ("actor.global_batch_size=32", "runner.max_epochs=3", *overrides)
    cfg = with_length(validate_cfg(load_recipe("tiny_math_sft", keys)), num_examples)
    return cfg.runner.total_steps, cfg.actor.optim.total_training_steps


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ((), (10, 10)),  # 3 x 100 / 32, rounded up.
        (("algorithm.update_epoch=4",), (3, 12)),
        (("runner.max_steps=7",), (7, 7)),
        (("actor.optim.total_training_steps=5",), (10, 5)),
        (("actor.optim.lr_warmup_steps=20",), (10, 21)),
        (("actor.optim.lr_scheduler=constant", "~actor.optim.min_lr_ratio"), (10, None)),
    ],
)
def test_passes_over_the_data_become_steps_and_the_learning_rate_falls_until_the_last(overrides, expected):
    assert lengths(100, *overrides) == expected


def test_a_run_that_only_evaluates_needs_no_data():
    assert lengths(0, "runner.only_eval=true")[0] == 1

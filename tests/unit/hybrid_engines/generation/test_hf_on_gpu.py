"""What the ``hf`` engine does with the memory of a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from driven_engine import DrivenEngine, make_engine

from rlinf.data.messages.generation import Completion


@pytest.mark.gpu
def test_an_engine_that_sleeps_gives_its_memory_back_and_goes_on_with_its_weights(tiny_model: Path) -> None:
    driven = DrivenEngine(make_engine("hf", tiny_model, device="cuda"), tiny_model)
    driven.run(driven.engine.start(), timeout=120)
    try:
        before = generate(driven)
        held = torch.cuda.memory_allocated()
        driven.run(driven.engine.sleep())
        assert torch.cuda.memory_allocated() < held / 4, "weights or cache stay on the device"
        driven.run(driven.engine.wake())
        after = generate(driven)
    finally:
        driven.close()
    assert after.token_ids == before.token_ids
    assert after.logprobs == pytest.approx(before.logprobs, abs=1e-5)


def generate(driven: DrivenEngine) -> Completion:
    """Return a greedy response."""
    (result,) = driven.generate([driven.request(temperature=0.0, max_new_tokens=16, ignore_eos=True)])
    return result.completions[0]

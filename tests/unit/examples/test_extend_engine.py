"""The engine under examples/extend: it is found by its name, answers as its base does, and tells what was slow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parents[3]

# In a process of its own: what it registers must not be seen by other tests.
CODE = """
import asyncio, sys
from pathlib import Path
import torch
from rlinf.utils.plugins import load_plugins
load_plugins()
from examples.reasoning.make_tiny_model import make_tiny_model
from rlinf.config import load_recipe, validate_cfg
from rlinf.data.messages.generation import GenerationRequest, SamplingParams
from rlinf.hybrid_engines.generation import generation_engines

overrides = ["rollout.rollout_backend=watched", "rollout.slow_seconds=0.0"]
cfg = validate_cfg(load_recipe("tiny_math_grpo", overrides))
assert cfg.rollout.slow_seconds == 0.0
folder = make_tiny_model(Path(sys.argv[1]))


async def answer(name, rollout):
    engine = generation_engines.get(name)(
        rollout, model_path=folder, device=torch.device("cpu"), precision="fp32", seed=1, max_context_tokens=32
    )
    await engine.start()
    params = SamplingParams(temperature=0.0, max_new_tokens=4)
    result = await engine.generate(GenerationRequest(request_id="r", prompt_ids=(5, 6), params=params))
    await engine.close()
    return engine, result.completions[0].token_ids

watched, ours = asyncio.run(answer("watched", cfg.rollout))
_, theirs = asyncio.run(answer("hf", validate_cfg(load_recipe("tiny_math_grpo")).rollout))
assert ours == theirs
assert watched.num_slow == 1
"""


def test_the_engine_answers_as_its_base_and_counts_slow_requests(tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path / "model")],
        cwd=REPO,
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": f"{REPO / 'examples' / 'extend'}:{REPO}",
            "RLINF_EXT_MODULE": "plugin",
            "HF_HUB_OFFLINE": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert "Request r took" in finished.stderr

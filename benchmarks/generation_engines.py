"""Tokens per second of our generation engines against the bare engine below each, in turns, on the same requests.

``vllm``: the same engine class with the same arguments, asked through ``LLM.generate``. ``hf``: ``model.generate`` of
transformers on the same prompts as one padded batch; every answer has the same length there, so that it wastes nothing.
Answers have the same lengths on both sides and ignore end tokens. Time is wall time and CPU time of the process.

    export OMP_NUM_THREADS=1
    python benchmarks/generation_engines.py --engine hf vllm > benchmarks/results/generation_engines.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from examples.reasoning.make_tiny_model import make_tiny_model
from rlinf.data.messages.generation import GenerationRequest, SamplingParams
from rlinf.hybrid_engines.generation import generation_engines
from rlinf.hybrid_engines.generation.generation_engine import GenerationEngine

MAX_CONTEXT_TOKENS = 512
LIMIT_RATIO = 0.95
"""Of vLLM's own speed, what our engine should at least reach."""


def make_prompts(number: int) -> list[tuple[int, ...]]:
    """Return random prompts of 8 to 40 tokens."""
    draw = random.Random(0)
    return [tuple(draw.randrange(4, 100) for _ in range(draw.randrange(8, 41))) for _ in range(number)]


def make_lengths(number: int, *, equal: bool) -> list[int]:
    """Return how many tokens each answer has."""
    draw = random.Random(1)
    return [96 if equal else draw.randrange(32, 161) for _ in range(number)]


def timed(generate: Callable[[], int]) -> dict[str, float]:
    """Return tokens per second of wall and of CPU time."""
    wall, cpu = time.perf_counter(), time.process_time()
    tokens = generate()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"tokens_per_second": tokens / wall, "tokens_per_cpu_second": tokens / cpu}


def ours(
    engine: GenerationEngine, loop: asyncio.AbstractEventLoop, prompts: list[tuple[int, ...]], lengths: list[int]
) -> int:
    """Generate through our engine and return the number of tokens."""
    requests = [
        GenerationRequest(
            request_id=str(index), prompt_ids=prompt, params=SamplingParams(max_new_tokens=length, ignore_eos=True)
        )
        for index, (prompt, length) in enumerate(zip(prompts, lengths, strict=True))
    ]

    async def all_of_them() -> int:
        results = await asyncio.gather(*map(engine.generate, requests))
        return sum(len(completion.token_ids) for result in results for completion in result.completions)

    return loop.run_until_complete(all_of_them())


def bare_vllm(engine: Any, prompts: list[tuple[int, ...]], lengths: list[int]) -> Callable[[], int]:
    """Return what generates with ``vllm.LLM`` and the arguments that our engine gives vLLM."""
    import vllm

    # The same logits processors and extension are there, and idle: only who asks differs.
    llm = vllm.LLM(**engine._schedule.backend._arguments)
    params = [
        vllm.SamplingParams(
            temperature=1.0, max_tokens=length, ignore_eos=True, logprobs=0, flat_logprobs=True, detokenize=False
        )
        for length in lengths
    ]

    def generate() -> int:
        outputs = llm.generate([{"prompt_token_ids": list(prompt)} for prompt in prompts], params, use_tqdm=False)
        return sum(len(output.outputs[0].token_ids) for output in outputs)

    return generate


def bare_hf(folder: Path, prompts: list[tuple[int, ...]], lengths: list[int], batch: int) -> Callable[[], int]:
    """Return what generates with ``model.generate``, one padded batch after another."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def generate() -> int:
        tokens = 0
        for start in range(0, len(prompts), batch):
            part = prompts[start : start + batch]
            width = max(map(len, part))
            ids = torch.tensor([[*[0] * (width - len(prompt)), *prompt] for prompt in part])
            mask = torch.tensor([[*[0] * (width - len(prompt)), *[1] * len(prompt)] for prompt in part])
            length = lengths[start]
            with torch.inference_mode():
                output = model.generate(
                    ids,
                    attention_mask=mask,
                    do_sample=True,
                    top_k=0,
                    min_new_tokens=length,
                    max_new_tokens=length,
                    output_logits=True,
                    return_dict_in_generate=True,
                )
                # Ours returns the log-probabilities of what it drew; so does every trainer's loop around this one.
                for logits, drawn in zip(output.logits, output.sequences[:, width:].T, strict=True):
                    logits.float().log_softmax(-1).gather(1, drawn[:, None])
            tokens += output.sequences[:, width:].numel()
        return tokens

    return generate


def compare(name: str, args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure one engine and what is below it, in turns."""
    loop = asyncio.new_event_loop()
    engine = generation_engines.get(name)(
        generation_engines.configs.get(name)(rollout_backend=name, max_running_requests=args.concurrent),
        model_path=folder,
        device=torch.device("cpu"),
        precision="fp32",
        seed=0,
        max_context_tokens=MAX_CONTEXT_TOKENS,
    )
    loop.run_until_complete(engine.start())
    prompts, lengths = make_prompts(args.requests), make_lengths(args.requests, equal=name == "hf")
    bare = {
        "hf": lambda: bare_hf(folder, prompts, lengths, args.concurrent),
        "vllm": lambda: bare_vllm(engine, prompts, lengths),
    }[name]()
    turns: dict[str, list[dict[str, float]]] = {"ours": [], "bare": []}
    for turn in range(args.turns + 1):
        for side in ("ours", "bare") if turn % 2 else ("bare", "ours"):
            measured = timed(bare if side == "bare" else lambda: ours(engine, loop, prompts, lengths))
            # The first turn warms up.
            if turn:
                turns[side].append(measured)
    loop.run_until_complete(engine.close())
    loop.close()
    result: dict[str, Any] = {
        side: {key: round(statistics.median(turn[key] for turn in each), 1) for key in each[0]}
        for side, each in turns.items()
    }
    for key, title in (("tokens_per_second", "ratio_wall"), ("tokens_per_cpu_second", "ratio_cpu")):
        ratios = [mine[key] / theirs[key] for mine, theirs in zip(turns["ours"], turns["bare"], strict=True)]
        result[title] = round(statistics.median(ratios), 3)
    return result


def main() -> None:
    """Print the comparison as JSON; fail if our vLLM engine is slower than it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", nargs="+", default=["hf"], choices=["hf", "vllm"])
    parser.add_argument("--requests", type=int, default=192)
    parser.add_argument("--concurrent", type=int, default=64)
    parser.add_argument("--turns", type=int, default=5)
    args = parser.parse_args()
    results: dict[str, Any] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "load_at_start": round(os.getloadavg()[0], 1),
        "requests": args.requests,
        "concurrent": args.concurrent,
        "turns": args.turns,
    }
    with tempfile.TemporaryDirectory() as folder:
        model = make_tiny_model(Path(folder), max_context_tokens=MAX_CONTEXT_TOKENS)
        results |= {name: compare(name, args, model) for name in args.engine}
    print(json.dumps(results, indent=1))
    if "vllm" in results and results["vllm"]["ratio_cpu"] < LIMIT_RATIO:
        sys.exit(f"our vLLM engine reaches {results['vllm']['ratio_cpu']:.1%} of the bare one, not {LIMIT_RATIO:.0%}")


if __name__ == "__main__":
    main()

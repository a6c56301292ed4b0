"""What one GPU does with RLinf: the tests that only a GPU can run, and figures next to the device's own limits.

Needs torch and transformers; parts whose packages are missing are skipped, and say so. Each part runs in a process of
its own, and has a share of the time that is left.

``limits``: copies on the device, to and from the host, and a bfloat16 matrix product. ``weights``: publishing a
trainer's weights in buckets on the host or on the device, checked, and loading them, against copies of as many bytes.
``update``: optimizer steps of a language model, and the share of the product's speed. ``attention``: the same with our
own attention and with FlashAttention. ``rollout``: tokens a second of the ``hf`` engine, and the share of what reading
the weights once a step allows. ``engines``: tokens a second of vLLM and SGLang with captured graphs and without, and
the memory that they give back when they sleep. ``embodied``: RLinf's environment
steps per second in ``embodied_throughput.py``. ``policies``: layers of vision-language-action policies at their full
size in ``vla_throughput.py``. ``tests``: those marked ``gpu``.

    python benchmarks/gpu.py --output benchmarks/results/gpu.json    # at most 25 minutes
    python benchmarks/gpu.py --dry                                   # everything once on the CPU, with small sizes
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

REPO = Path(__file__).resolve().parents[1]
LIMIT_SECONDS = 25 * 60
BUCKET_BYTES = 32 << 20
PACKAGES = {
    "limits": (),
    "weights": ("transformers", "xxhash"),
    "update": ("transformers",),
    "attention": ("transformers",),
    "rollout": ("transformers", "xxhash"),
    "engines": ("transformers", "xxhash"),
    "embodied": ("ray", "gymnasium", "metaworld", "mujoco"),
    "policies": ("transformers",),
    "tests": ("transformers", "pytest", "psutil", "xxhash"),
}
OPTIONAL = ("ray", "vllm", "sglang", "megatron", "flash_attn", "mujoco", "gymnasium")


@dataclass(frozen=True)
class Size:
    """How much is measured.

    Attributes:
        hidden_size: Width of the language model.
        num_layers: Its layers.
        copied_bytes: Bytes of a copy.
        matrix_side: Rows and columns of the matrices of a product.
        num_responses: Sequences of an update, and requests of a rollout.
        response_tokens: Tokens of each.
        turns: Of each figure, one to warm up apart.
    """

    hidden_size: int
    num_layers: int
    copied_bytes: int
    matrix_side: int
    num_responses: int
    response_tokens: int
    turns: int


FULL = Size(1024, 24, 1 << 30, 8192, num_responses=64, response_tokens=512, turns=9)
DRY = Size(64, 2, 1 << 20, 64, num_responses=4, response_tokens=8, turns=2)


def median_seconds(work: Callable[[], object], size: Size, device: torch.device) -> float:
    """Return the median of the seconds that ``work`` takes until the device is done."""
    seconds = []
    for _ in range(size.turns + 1):
        settle(device)
        started = time.perf_counter()
        work()
        settle(device)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[1:])


def settle(device: torch.device) -> None:
    """Wait for what the device has been given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measure_limits(size: Size, device: torch.device) -> dict[str, float]:
    """Measure what everything else is compared with."""
    on_device = torch.ones(size.copied_bytes, dtype=torch.uint8, device=device)
    other = torch.empty_like(on_device)
    on_host = torch.ones(size.copied_bytes, dtype=torch.uint8, pin_memory=device.type == "cuda")
    matrix = torch.randn(size.matrix_side, size.matrix_side, dtype=torch.bfloat16, device=device)
    copies = {
        "device_gigabytes_per_second": lambda: other.copy_(on_device),
        "to_host_gigabytes_per_second": lambda: on_host.copy_(on_device),
        "from_host_gigabytes_per_second": lambda: on_device.copy_(on_host),
    }
    found = {name: size.copied_bytes / 1e9 / median_seconds(copy, size, device) for name, copy in copies.items()}
    product = median_seconds(lambda: matrix @ matrix, size, device)
    return found | {"matmul_teraflops": 2 * size.matrix_side**3 / 1e12 / product}


def make_engine(size: Size, device: torch.device, folder: Path, attention: str = "auto") -> Any:
    """Return a training engine with a random model of this size, and an attention of the recipes'."""
    from examples.reasoning.make_tiny_model import make_tiny_model
    from rlinf.config.schema.model import CausalLMConfig
    from rlinf.config.schema.train import FSDPConfig, OptimConfig
    from rlinf.hybrid_engines.train.fsdp import FSDPEngine
    from rlinf.models import get_model

    make_tiny_model(folder, hidden_size=size.hidden_size, num_layers=size.num_layers, max_context_tokens=2048)
    keys: Any = {"precision": "fp32" if attention == "auto" else "bf16", "attn_implementation": attention}
    model: Any = get_model(CausalLMConfig(model_type="causal_lm", model_path=str(folder), **keys))
    return FSDPEngine(
        model,
        optim=OptimConfig(lr=1e-6),
        fsdp=FSDPConfig(sharding_strategy="no_shard"),
        precision="bf16",
        device=device,
    )


def measure_weights(size: Size, device: torch.device) -> dict[str, float]:
    """Publish weights and load them into a second model on the device."""
    from rlinf.config.schema.model import CausalLMConfig
    from rlinf.hybrid_engines.weights.bucket import WeightReceiver, fill_buckets, plan_buckets
    from rlinf.hybrid_engines.weights.memory import BucketMemory
    from rlinf.models import get_model

    with tempfile.TemporaryDirectory() as name:
        engine = make_engine(size, device, Path(name))
        target = get_model(CausalLMConfig(model_type="causal_lm", model_path=name)).to(device)
    described = [(entry.name, entry.tensor) for entry in engine.describe_weights()]
    sent = {entry for entry, _ in described}
    receiver, memory = WeightReceiver(target, ignore=lambda entry: entry not in sent), BucketMemory()
    versions = iter(range(10 * size.turns))
    num_bytes = sum(tensor.nbytes for _, tensor in described)
    held: dict[str, Any] = {}

    def publish(kind: Any, allocate: Callable[[int], torch.Tensor]) -> None:
        held.clear()
        plan = plan_buckets(described, version=next(versions), bucket_bytes=BUCKET_BYTES)
        held["manifest"] = manifest = replace(plan, checksum_kind=kind)
        held["buckets"] = list(fill_buckets(manifest, engine.export_weights(), allocate))

    def on_the_device(count: int) -> torch.Tensor:
        return torch.empty(count, dtype=torch.uint8, device=device)

    publishing = median_seconds(lambda: publish("parts", memory.allocate), size, device)
    loading = median_seconds(lambda: receiver.load(held["manifest"], held["buckets"]), size, device)
    staying = median_seconds(lambda: publish("words", on_the_device), size, device)
    taking = median_seconds(lambda: receiver.load(held["manifest"], held["buckets"]), size, device)
    on_device = torch.empty(num_bytes, dtype=torch.uint8, device=device)
    on_host = torch.empty(num_bytes, dtype=torch.uint8, pin_memory=device.type == "cuda")
    to_host = median_seconds(lambda: on_host.copy_(on_device), size, device)
    from_host = median_seconds(lambda: on_device.copy_(on_host), size, device)
    copy = median_seconds(on_device.clone, size, device)
    return {
        "megabytes": num_bytes / 1e6,
        "publish_seconds": publishing,
        "load_seconds": loading,
        "publish_vs_copy_to_host": to_host / publishing,
        "load_vs_copy_from_host": from_host / loading,
        "sync_vs_copy_on_device": copy / (publishing + loading),
        "device_publish_seconds": staying,
        "device_load_seconds": taking,
        "device_sync_vs_copy_on_device": copy / (staying + taking),
    }


def update_seconds(engine: Any, size: Size, device: torch.device) -> tuple[float, int]:
    """Train on packs of sequences; return the seconds of an update and its tokens."""
    from rlinf.data.packing import pack_sequences
    from rlinf.hybrid_engines.train.train_engine import Pass

    sequences = [[4 + number % 90 for number in range(size.response_tokens)]] * size.num_responses
    packed = pack_sequences(sequences).to(device)
    work: Pass[Any, Any, Any] = Pass(
        lambda model, batch: model(batch, temperature=1.0), lambda result, _: (-result.logprobs.mean(), {})
    )

    def update() -> None:
        engine.forward_backward([packed], work)
        engine.step()

    return median_seconds(update, size, device), packed.num_tokens


def measure_update(size: Size, device: torch.device) -> dict[str, float]:
    """Update a language model, and compare its operations with a matrix product's."""
    with tempfile.TemporaryDirectory() as name:
        engine = make_engine(size, device, Path(name))
    seconds, tokens = update_seconds(engine, size, device)
    product = measure_limits(size, device)["matmul_teraflops"]
    # Two operations a parameter and token in the forward pass, and twice as many backward; attention apart.
    teraflops = 6 * engine.model.num_layer_parameters * tokens / 1e12 / seconds
    return {
        "update_seconds": seconds,
        "tokens_per_second": tokens / seconds,
        "teraflops": teraflops,
        "teraflops_vs_matmul": teraflops / product,
    }


def measure_attention(size: Size, device: torch.device) -> dict[str, Any]:
    """Update with our own attention and with FlashAttention, where it is installed."""
    found: dict[str, Any] = {}
    for attention in ("sdpa", "flash_attention_2"):
        if attention != "sdpa" and importlib.util.find_spec("flash_attn") is None:
            found[attention] = {"skipped": "not installed: flash_attn"}
            continue
        with tempfile.TemporaryDirectory() as name:
            engine = make_engine(size, device, Path(name), attention)
        seconds, tokens = update_seconds(engine, size, device)
        found[attention] = {"update_seconds": seconds, "tokens_per_second": tokens / seconds}
        del engine
    return found


class Generator:
    """A generation engine with a random model, and what it is asked for.

    Args:
        backend: Its name.
        size: Of the model and the requests.
        device: Where it computes.
        keys: Of its section.
    """

    def __init__(self, backend: str, size: Size, device: torch.device, **keys: Any) -> None:
        from examples.reasoning.make_tiny_model import make_tiny_model
        from rlinf.hybrid_engines.generation import generation_engines

        self.size, self.numbers, self.loop = size, iter(range(1 << 20)), asyncio.new_event_loop()
        with tempfile.TemporaryDirectory() as name:
            make_tiny_model(
                Path(name), hidden_size=size.hidden_size, num_layers=size.num_layers, max_context_tokens=2048
            )
            self.weight_bytes = (Path(name) / "model.safetensors").stat().st_size // 2
            section = generation_engines.configs.get(backend)(
                rollout_backend=backend, max_running_requests=size.num_responses, **keys
            )
            self.engine = generation_engines.get(backend)(
                section, model_path=name, device=device, precision="bf16", seed=0, max_context_tokens=2048
            )
            self.run(self.engine.start())

    def run(self, awaitable: Any) -> Any:
        """Wait for something of the engine's."""
        return self.loop.run_until_complete(awaitable)

    async def generate(self) -> None:
        """Complete all requests."""
        from rlinf.data.messages.generation import GenerationRequest, SamplingParams

        params = SamplingParams(max_new_tokens=self.size.response_tokens, ignore_eos=True)
        requests = [
            GenerationRequest(request_id=str(next(self.numbers)), prompt_ids=(4, 5, 6, 7), params=params)
            for _ in range(self.size.num_responses)
        ]
        await asyncio.gather(*map(self.engine.generate, requests))

    def tokens_per_second(self, device: torch.device) -> float:
        """Measure how many tokens come in a second."""
        seconds = median_seconds(lambda: self.run(self.generate()), self.size, device)
        return self.size.num_responses * self.size.response_tokens / seconds


def measure_rollout(size: Size, device: torch.device) -> dict[str, float]:
    """Generate with the ``hf`` engine."""
    generator = Generator("hf", size, device)
    tokens = generator.tokens_per_second(device)
    generator.run(generator.engine.close())
    bandwidth = 2e9 * measure_limits(size, device)["device_gigabytes_per_second"]
    limit = size.num_responses * bandwidth / generator.weight_bytes
    return {"tokens_per_second": tokens, "tokens_vs_memory_limit": tokens / limit}


def used_bytes(device: torch.device) -> int:
    """Return the bytes that all processes use of the device."""
    if device.type != "cuda":
        return 0
    free, total = torch.cuda.mem_get_info(device)
    return total - free


def measure_engines(size: Size, device: torch.device) -> dict[str, Any]:
    """Generate with serving engines, with captured graphs and without, and let them sleep."""
    found: dict[str, Any] = {}
    # Without a device, the engine that runs everywhere shows that the script works.
    for backend in ("hf",) if size is DRY else ("vllm", "sglang"):
        if backend != "hf" and importlib.util.find_spec(backend) is None:
            found[backend] = {"skipped": f"not installed: {backend}"}
            continue
        found[backend] = {}
        for name, keys in {"graphs": {}, "eager": {} if backend == "hf" else {"enforce_eager": True}}.items():
            generator = Generator(backend, size, device, **keys)
            found[backend][f"{name}_tokens_per_second"] = generator.tokens_per_second(device)
            awake = used_bytes(device)
            generator.run(generator.engine.sleep())
            found[backend][f"{name}_sleep_frees_megabytes"] = (awake - used_bytes(device)) / 1e6
            generator.run(generator.engine.close())
    return found


def run_script(name: str, *arguments: str) -> dict[str, Any]:
    """Run another benchmark once; return what it printed."""
    command = [sys.executable, str(REPO / "benchmarks" / name), *arguments]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return found


def measure_embodied(size: Size, device: torch.device) -> dict[str, Any]:
    """Run RLinf's side of the embodied benchmark."""
    arguments = ("embodied_throughput.py", "--only", "rlinf")
    return {"would_run": arguments} if size is DRY else run_script(*arguments)


def measure_policies(size: Size, device: torch.device) -> dict[str, Any]:
    """Time the layers of vision-language-action policies."""
    runs = {
        kind: ("vla_throughput.py", "--device", device.type, "--only", f"layers/{kind}")
        for kind in ("openvla_oft", "openpi", "smolvla")
    }
    return {kind: {"would_run": run} if size is DRY else run_script(*run) for kind, run in runs.items()}


def run_tests(size: Size, device: torch.device) -> dict[str, Any]:
    """Run the files that hold tests marked ``gpu``."""
    files = gpu_test_files()
    if size is DRY:
        return {"files": files}
    # Files whose packages are missing are reported, and the others run.
    options = ["-q", "-m", "gpu", "-rs", "-p", "no:cacheprovider", "--continue-on-collection-errors"]
    command = [sys.executable, "-m", "pytest", *options, *files]
    done = subprocess.run(command, cwd=REPO, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return {"files": files, "exit_code": done.returncode, "output": done.stdout[-6000:].splitlines()}


def gpu_test_files() -> list[str]:
    """Return the test files and conftests that mention the marker."""
    mark = re.compile(r"pytest\.mark\.gpu\b")
    found = [path for path in (REPO / "tests").rglob("*.py") if mark.search(path.read_text(encoding="utf-8"))]
    # A conftest's marks are on parameters of all tests next to it.
    return sorted({str((path.parent if path.name == "conftest.py" else path).relative_to(REPO)) for path in found})


PARTS: dict[str, Callable[[Size, torch.device], Any]] = {
    "limits": measure_limits,
    "weights": measure_weights,
    "update": measure_update,
    "attention": measure_attention,
    "rollout": measure_rollout,
    "engines": measure_engines,
    "embodied": measure_embodied,
    "policies": measure_policies,
    "tests": run_tests,
}


def missing_packages(part: str) -> list[str]:
    """Return the packages that a part needs and this environment lacks."""
    return [name for name in PACKAGES[part] if importlib.util.find_spec(name) is None]


def run_alone(part: str, *, dry: bool, deadline: float) -> Any:
    """Run a part in a process of its own; return what it printed last, or why there is nothing."""
    if missing := missing_packages(part):
        return {"skipped": f"not installed: {', '.join(missing)}"}
    limit = deadline - time.monotonic()
    if limit <= 0:
        return {"skipped": f"the {LIMIT_SECONDS // 60} minutes are over"}
    command = [sys.executable, __file__, "--alone", part, *(["--dry"] if dry else [])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPO), os.environ.get("PYTHONPATH", "")])}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=limit, check=False, env=environment, cwd=REPO
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"took more than the {limit:.0f} s that were left"}
    if done.returncode:
        return {"failed": done.stderr[-2000:].splitlines()}
    return json.loads(done.stdout.splitlines()[-1])


def conditions(device: torch.device) -> dict[str, Any]:
    """Return what the figures depend on."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=REPO, stdout=subprocess.PIPE, text=True, check=False)
    return {
        "commit": commit.stdout.strip(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "cpu",
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "missing": [name for name in OPTIONAL if importlib.util.find_spec(name) is None],
    }


def main() -> None:
    """Run every part and print or write one JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--dry", action="store_true", help="everything once on the CPU, with small sizes")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--alone", choices=list(PARTS), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not args.dry and not torch.cuda.is_available():
        parser.error("no CUDA device on this machine; --dry tries the script on the CPU")
    device, size = (torch.device("cpu"), DRY) if args.dry else (torch.device("cuda", 0), FULL)
    if args.alone:
        print(json.dumps(PARTS[args.alone](size, device)))
        return
    deadline = time.monotonic() + LIMIT_SECONDS
    result = {part: run_alone(part, dry=args.dry, deadline=deadline) for part in args.parts}
    text = json.dumps(result | {"conditions": conditions(device)}, indent=1)
    print(text)
    if args.output:
        args.output.write_text(text + "\n")


if __name__ == "__main__":
    main()

"""Vision-language-action policies: environment steps with images, and where the time of a chunk and an update goes.

Three questions, each in processes of its own, in turns:

- ``env``: how many steps of ``langpick`` with images a second, through the vector environment with two processes, next
  to the limit: two processes that step and draw and do nothing else. Both draw once for each chunk of five actions.
  ``each_step`` draws after every action, ``full`` also with the renderer's usual quality.
- ``tiny``: rollout and update of small policies in the published layout, by part, and what a chunk keeps in memory.
- ``layers``: seconds of a forward pass of one layer of each published stack at its full size, of random weights, and of
  a forward and a backward pass, and what the whole model makes of it. The truncated models hold one layer of each,
  so that it runs on any machine.

    python benchmarks/vla_throughput.py --turns 5 > benchmarks/results/vla_throughput.json
    python benchmarks/vla_throughput.py --part layers --turns 1 > benchmarks/results/vla_layers.json
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import multiprocessing
import multiprocessing.connection
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

REPO = Path(__file__).resolve().parents[1]
NUM_ENVS, NUM_PROCESSES, CHUNK, SIZE = 16, 2, 5, 64
SECONDS = 4.0
"""Of one turn of an environment."""
BATCH, UPDATE_BATCH = 16, 32
WORDS = "pick up the red cube"


def vector_env(*, look_every: int, quality: str) -> dict[str, float]:
    """Step random chunks through the vector environment.

    Args:
        look_every: Actions of a chunk, after which images are drawn.
        quality: Of the images.
    """
    from rlinf.config.schema.env import LangPickEnvConfig
    from rlinf.envs import make_vector_env

    cfg = LangPickEnvConfig(
        env_type="langpick",
        total_num_envs=NUM_ENVS,
        num_env_processes=NUM_PROCESSES,
        image_size=SIZE,
        render_quality=cast(Any, quality),
        max_episode_steps=40,
        max_steps_per_rollout_epoch=40,
    )
    generator = torch.Generator().manual_seed(0)
    with make_vector_env(cfg, num_envs=NUM_ENVS) as env:
        env.reset(0)
        env.chunk_step(torch.zeros(NUM_ENVS, look_every, 4))
        count, started = 0, time.perf_counter()
        while time.perf_counter() < started + SECONDS:
            env.chunk_step(torch.rand(NUM_ENVS, look_every, 4, generator=generator) * 2 - 1)
            count += NUM_ENVS * look_every
        return {"env_steps_per_second": count / (time.perf_counter() - started)}


def step_bare(connection: multiprocessing.connection.Connection, num_envs: int) -> None:
    """Step and draw environments for ever, begin episodes again after 40 steps, and count."""
    from rlinf.envs.simulators.langpick_single import make_langpick_env

    envs = [
        make_langpick_env(
            render=False, image_size=SIZE, is_light=True, shows_objects=False, random_hand=False, disturbance=0.0
        )
        for _ in range(num_envs)
    ]
    rng = np.random.default_rng(0)
    for env in envs:
        env.observe(env.reset(0))
    connection.send("ready")
    connection.recv()
    count, chunks, started = 0, 0, time.perf_counter()
    while time.perf_counter() < started + SECONDS:
        for env in envs:
            for _ in range(CHUNK):
                env.step(rng.uniform(-1, 1, 4).astype(np.float32))
            env.observe(None)
            count += CHUNK
        chunks += 1
        if chunks % (40 // CHUNK) == 0:
            for env in envs:
                env.observe(env.reset(chunks))
    connection.send(count / (time.perf_counter() - started))


def bare_env() -> dict[str, float]:
    """Step environments in as many processes, without the vector environment."""
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for _ in range(NUM_PROCESSES):
        mine, theirs = context.Pipe()
        processes.append(context.Process(target=step_bare, args=(theirs, NUM_ENVS // NUM_PROCESSES)))
        processes[-1].start()
        pipes.append(mine)
    for pipe in pipes:
        pipe.recv()
    for pipe in pipes:
        pipe.send("go")
    rate = sum(pipe.recv() for pipe in pipes)
    for process in processes:
        process.join()
    return {"env_steps_per_second": rate}


def tiny_policy(kind: str, folder: Path) -> Any:
    """Return a small policy of the ``langpick`` recipes' sizes, with a value head."""
    from rlinf.config.schema.vla import OpenVLAOFTConfig, PiConfig, SmolVLAConfig
    from rlinf.models import get_policy
    from toolkits.vla.make_tiny import TinyShape, write_tiny, write_tiny_pi, write_tiny_smolvla

    shape = TinyShape(
        image_size=SIZE,
        patch_size=8,
        action_dim=4,
        state_dim=4,
        width=128,
        num_layers=4,
        vision_width=96,
        vision_layers=3,
        words=(WORDS,),
    )
    keys: dict[str, Any] = {"model_path": str(folder), "action_dim": 4, "num_action_chunks": CHUNK}
    keys |= {"max_prompt_length": 20, "add_value_head": True, "value_hidden_dims": [64]}
    flow = keys | {"state_dim": 4, "horizon": 10, "num_steps": 4}
    cfg: Any
    if kind == "openvla_oft":
        cfg = OpenVLAOFTConfig(model_type=kind, **keys)
        write_tiny(folder, shape, cfg)
    elif kind == "openpi":
        cfg = PiConfig(model_type=kind, variant="pi0", **flow)
        write_tiny_pi(folder, shape, cfg)
    else:
        cfg = SmolVLAConfig(model_type=kind, **flow)
        write_tiny_smolvla(folder, shape)
    torch.manual_seed(0)
    return get_policy(cfg)


def tiny(kind: str, device: torch.device) -> dict[str, float]:
    """Time the parts of a rollout's chunk and of an update, and count what a chunk keeps."""
    with tempfile.TemporaryDirectory() as folder:
        policy = tiny_policy(kind, Path(folder)).to(device)
    obs = {
        "main_images": torch.randint(0, 256, (BATCH, SIZE, SIZE, 3), dtype=torch.uint8),
        "states": torch.zeros(BATCH, 4),
        "task_descriptions": [WORDS] * BATCH,
    }
    generator = torch.Generator(device).manual_seed(0)

    def act() -> Any:
        return policy.predict_action_batch(obs, mode="train", generator=generator)

    _, output = act()
    kept = output.forward_inputs
    repeated = {name: value.repeat(UPDATE_BATCH // BATCH, *[1] * (value.ndim - 1)) for name, value in kept.items()}
    record = policy.inputs.record(obs, device)

    def see() -> None:
        with torch.no_grad():
            policy.prefix(record) if hasattr(policy, "prefix") else policy.see(record)

    def evaluate() -> Any:
        return policy.default_forward(repeated)

    def update() -> None:
        evaluation = evaluate()
        (evaluation.logprobs.sum() + evaluation.values.sum()).backward()

    chunk, seen, forward, both = (seconds(call, device) for call in (act, see, evaluate, update))
    return {
        "chunk_seconds": chunk,
        "share_images_and_words": seen / chunk,
        "update_seconds_per_chunk": both / UPDATE_BATCH,
        "backward_over_forward": (both - forward) / forward,
        "kilobytes_per_chunk": sum(value.numel() * value.element_size() for value in kept.values()) / BATCH / 1e3,
        "parameters": float(sum(p.numel() for p in policy.parameters())),
    }


def full_openvla_oft() -> tuple[Any, dict[str, tuple[list[nn.Module], int]], Callable[[], Any]]:
    """Return OpenVLA-OFT with one layer of each stack, its stacks with their published depths, and a forward pass."""
    from rlinf.config.schema.vla import OpenVLAOFTConfig
    from rlinf.models.vla.openvla_oft import OpenVLAOFTPolicy
    from rlinf.models.vla.prismatic import PrismaticShape
    from rlinf.models.vla.vision_tower import TOWERS

    # The last block of a tower is not run.
    towers = ["vit_large_patch14_reg4_dinov2.lvd142m", "vit_so400m_patch14_siglip_224"]
    config: dict[str, Any] = {
        "timm_model_ids": towers,
        "timm_model_args": [{**dataclasses.asdict(TOWERS[name]), "depth": 2} for name in towers],
        "image_sizes": [224, 224],
        "use_fused_vision_backbone": True,
        "pad_to_multiple_of": 64,
        "n_action_bins": 256,
        "text_config": {
            "model_type": "llama",
            "vocab_size": 32064,
            "hidden_size": 4096,
            "intermediate_size": 11008,
            "num_hidden_layers": 1,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
        },
    }
    cfg = OpenVLAOFTConfig(model_type="openvla_oft", model_path="", action_dim=7, num_action_chunks=8)
    inputs = cast(Any, SimpleNamespace(prompts=SimpleNamespace(eos_token_id=2)))
    policy = OpenVLAOFTPolicy(cfg, PrismaticShape.of_config(config), inputs)
    dino, siglip = policy.vision_backbone.towers
    stacks = {
        "dinov2": (list(dino.blocks[:1]), 23),
        "siglip": (list(siglip.blocks[:1]), 26),
        "llama": (list(policy.language_model.model.layers), 32),
    }
    return policy, stacks, lambda: policy.distribution(policy.hidden_states(full_record(policy, 224, 1, 32)))


def full_pi0() -> tuple[Any, dict[str, tuple[list[nn.Module], int]], Callable[[], Any]]:
    """Return pi-0 with one layer of each stack; a forward pass sees three images and takes one step."""
    from rlinf.config.schema.vla import PiConfig
    from rlinf.models.vla.gemma import VARIANTS
    from rlinf.models.vla.openpi import PiPolicy
    from rlinf.models.vla.pi_model import PiShape

    one = {name: {**dataclasses.asdict(shape), "depth": 1} for name, shape in VARIANTS.items()}
    vision = {"hidden_size": 1152, "intermediate_size": 4304, "num_attention_heads": 16}
    config = {
        "paligemma_variant": one["gemma_2b"],
        "action_expert_variant": one["gemma_300m"],
        "vision_config": {**vision, "num_hidden_layers": 1, "image_size": 224, "patch_size": 14},
        # Rows of words are looked up: their number costs no time.
        "vocab_size": 1024,
        "action_dim": 32,
    }
    cameras = [f"camera{index}" for index in range(3)]
    cfg = PiConfig(model_type="openpi", model_path="", variant="pi0", action_dim=7, image_keys=cameras)
    policy = PiPolicy(cfg, PiShape.of_config(config), cast(Any, None))
    policy.paligemma_with_expert.compute_buffers()
    parts = policy.paligemma_with_expert.parts
    stacks = {
        "siglip": (list(parts["vision_tower"]["vision_model"].encoder.layers), 27),
        "gemma_2b": (list(parts["language_model"].layers), 18),
        "gemma_300m": (list(policy.paligemma_with_expert.expert.layers), 18),
    }
    return policy, stacks, lambda: flow_step(policy, full_record(policy, 224, 3, 48))


def full_smolvla() -> tuple[Any, dict[str, tuple[list[nn.Module], int]], Callable[[], Any]]:
    """Return SmolVLA with two layers of each stack, as the expert's layers are of two kinds."""
    import transformers

    from rlinf.config.schema.vla import SmolVLAConfig
    from rlinf.models.vla.layer_stack import StackShape
    from rlinf.models.vla.smolvla import SmolVLAPolicy
    from rlinf.models.vla.smolvla_model import SmolVLAShape

    heads = {"depth": 2, "num_heads": 15, "num_kv_heads": 5, "head_dim": 64}
    vision = transformers.SmolVLMVisionConfig(
        hidden_size=768,
        intermediate_size=3072,
        num_hidden_layers=1,
        num_attention_heads=12,
        image_size=512,
        patch_size=16,
    )
    shape = SmolVLAShape(
        language=StackShape(width=960, mlp_dim=2560, **heads),
        expert=StackShape(width=720, mlp_dim=2048, **heads),
        vision=vision,
        vocab_size=1024,
        scale_factor=4,
        epsilon=1e-5,
        self_attention_every=2,
        image_size=(512, 512),
        horizon=50,
        action_dim=32,
        state_dim=32,
        vlm_folder=Path(),
    )
    cameras = [f"camera{index}" for index in range(3)]
    cfg = SmolVLAConfig(model_type="smolvla", model_path="", action_dim=7, image_keys=cameras)
    policy = SmolVLAPolicy(cfg, shape, cast(Any, None))
    parts = policy.vlm_with_expert.parts
    stacks = {
        "siglip": (list(parts["vision_model"].encoder.layers), 12),
        "smollm2": (list(parts["text_model"].layers), 16),
        "expert": (list(policy.vlm_with_expert.lm_expert.layers), 16),
    }
    return policy, stacks, lambda: flow_step(policy, full_record(policy, 256, 3, 48))


FULL = {"openvla_oft": full_openvla_oft, "openpi": full_pi0, "smolvla": full_smolvla}


def full_record(policy: Any, size: int, num_images: int, length: int) -> dict[str, torch.Tensor]:
    """Return what the policy sees of one environment: noise and words."""
    device = next(policy.parameters()).device
    image = torch.zeros(1, size, size, 3, dtype=torch.uint8, device=device)
    names = policy.cfg.image_keys[:num_images]
    return {f"images.{name}": image for name in names} | {
        "token_ids": torch.ones(1, length, dtype=torch.int32, device=device),
        "token_mask": torch.ones(1, length, dtype=torch.bool, device=device),
        "state": torch.zeros(1, 32, device=device),
    }


def flow_step(policy: Any, record: dict[str, torch.Tensor]) -> Any:
    """See once, and take one step of the flow."""
    point = torch.zeros(1, 1, policy.horizon, policy.padded_dim, device=record["state"].device)
    return policy.velocity(policy.prefix(record), record["state"], point, point.new_ones(1))


def layers(kind: str, device: torch.device) -> dict[str, float]:
    """Time one layer of each stack at its full size, and say what the whole model makes of it."""
    torch.manual_seed(0)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    with device:
        policy, stacks, call = FULL[kind]()
    policy = policy.to(dtype).eval()
    spent: dict[str, float] = defaultdict(float)
    with torch.no_grad(), timed(stacks, spent, device):
        call()
        spent.clear()
        for _ in range(3):
            call()
    of_layer = {name: spent[name] / 3 / len(found) for name, (found, _) in stacks.items()}
    updates = layer_updates(stacks, call, device)
    steps = {"gemma_300m": 10, "expert": 10}
    whole = {name: of_layer[name] * depth * steps.get(name, 1) for name, (_, depth) in stacks.items()}
    size = {name: sum(p.numel() for p in found[0].parameters()) for name, (found, _) in stacks.items()}
    report = {f"{name}_layer_milliseconds": 1e3 * value for name, value in of_layer.items()}
    report |= {f"{name}_layer_parameters": float(value) for name, value in size.items()}
    report |= {f"{name}_layer_update_milliseconds": 1e3 * value for name, value in updates.items()}
    update = sum(updates[name] * depth for name, (_, depth) in stacks.items())
    return report | {"chunk_seconds_of_all_layers": sum(whole.values()), "update_seconds_of_all_layers": update}


def layer_updates(
    stacks: Mapping[str, tuple[list[nn.Module], int]], call: Callable[[], Any], device: torch.device
) -> dict[str, float]:
    """Return the seconds of a forward and a backward pass of a stack's layer, by name, on all that a pass gives it.

    Images come one after the other. A flow's expert takes one point, as in an update of one noisy step.

    Args:
        stacks: Layers by name.
        call: A pass of the policy.
        device: Where it runs.
    """
    given: dict[str, tuple[Any, Any]] = {}
    calls: Counter[str] = Counter()
    layer_of = {name: found[-1] for name, (found, _) in stacks.items()}

    def keep(name: str) -> Callable[..., None]:
        def hook(_: nn.Module, args: Any, keywords: Any) -> None:
            given[name] = tree_map(_as_leaf, (args, keywords))
            calls[name] += 1

        return hook

    handles = [layer.register_forward_pre_hook(keep(name), with_kwargs=True) for name, layer in layer_of.items()]
    with torch.no_grad():
        call()
    for handle in handles:
        handle.remove()

    def update(name: str) -> None:
        args, keywords = given[name]
        outputs = tree_leaves(layer_of[name](*args, **keywords))
        torch.stack([x.float().sum() for x in outputs if torch.is_tensor(x) and x.requires_grad]).sum().backward()

    return {name: calls[name] * seconds(lambda name=name: update(name), device, repeats=3) for name in layer_of}


def _as_leaf(value: Any) -> Any:
    is_number = torch.is_tensor(value) and value.is_floating_point()
    return value.detach().requires_grad_(is_number) if torch.is_tensor(value) else value


@contextmanager
def timed(
    stacks: Mapping[str, tuple[list[nn.Module], int]], spent: dict[str, float], device: torch.device
) -> Iterator[None]:
    """Add up the seconds of the stacks' layers while the block runs.

    Args:
        stacks: Layers by name.
        spent: Seconds by name; changed.
        device: Where they run.

    Yields:
        Nothing.
    """
    begins: dict[str, float] = {}

    def begin(name: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            wait(device)
            begins[name] = time.perf_counter()

        return hook

    def end(name: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            wait(device)
            spent[name] += time.perf_counter() - begins[name]

        return hook

    handles = []
    for name, (found, _) in stacks.items():
        for layer in found:
            handles += [layer.register_forward_pre_hook(begin(name)), layer.register_forward_hook(end(name))]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def wait(device: torch.device) -> None:
    """Wait for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds(call: Callable[[], object], device: torch.device, repeats: int = 5) -> float:
    """Return the median seconds of a call, after one to warm up."""
    call()
    times = []
    for _ in range(repeats):
        wait(device)
        started = time.perf_counter()
        call()
        wait(device)
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def contenders(device: torch.device) -> dict[str, Callable[[], dict[str, float]]]:
    """Return what takes turns, by name."""
    found: dict[str, Callable[[], dict[str, float]]] = {
        "env/rlinf": lambda: vector_env(look_every=CHUNK, quality="light"),
        "env/bare": bare_env,
        "env/each_step": lambda: vector_env(look_every=1, quality="light"),
        "env/full": lambda: vector_env(look_every=1, quality="full"),
    }
    for kind in FULL:
        found[f"tiny/{kind}"] = lambda kind=kind: tiny(kind, device)
        found[f"layers/{kind}"] = lambda kind=kind: layers(kind, device)
    return found


def run_turn(name: str, device: str) -> dict[str, float]:
    """Run one contender in a process of its own."""
    command = [sys.executable, __file__, "--only", name, "--device", device]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPO)}
    result: dict[str, float] = json.loads(
        subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout.splitlines()[-1]
    )
    return result


def main() -> None:
    """Run all contenders in turns and print medians and ratios as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5, help="how often each contender runs")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="of the policies")
    parser.add_argument("--part", choices=["env", "tiny", "layers"], help="run one question alone")
    parser.add_argument("--only", help="run one contender once (used for the turns)")
    args = parser.parse_args()
    found = contenders(torch.device(args.device))
    if args.only:
        print(json.dumps(found[args.only]()))
        return
    turns: dict[str, list[dict[str, float]]] = {name: [] for name in found if name.startswith(args.part or "")}
    for _ in range(args.turns):
        for name, results in turns.items():
            results.append(run_turn(name, args.device))
            print(name, results[-1], file=sys.stderr)
    medians = {
        name: {key: statistics.median(result[key] for result in results) for key in results[0]}
        for name, results in turns.items()
    }
    rates = {name: value["env_steps_per_second"] for name, value in medians.items() if name.startswith("env/")}
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=REPO, check=True)
    report = {
        "task": f"langpick, {NUM_ENVS} environments in {NUM_PROCESSES} processes, images of {SIZE} pixels",
        "commit": commit.stdout.strip(),
        "cpu_cores": os.cpu_count(),
        "device": torch.cuda.get_device_name() if args.device == "cuda" else args.device,
        "ratio_to_bare": {name: rate / rates["env/bare"] for name, rate in rates.items()},
        "medians": medians,
        "turns": turns,
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()

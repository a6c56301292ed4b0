"""Episodes that are saved and continued."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlinf.checkpoint.tree_file import load_tree, save_tree
from rlinf.data.messages.embodied import ChunkStep
from rlinf.envs.base import VectorEnv


def chunk(number: int, *, num_envs: int = 4, num_chunks: int = 2) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(number).uniform(-1, 1, (num_envs, num_chunks, 1)).astype(np.float32))


def play(env: VectorEnv, numbers: range) -> list[ChunkStep]:
    return [env.chunk_step(chunk(number, num_envs=env.num_envs)) for number in numbers]


def assert_same(first: list[ChunkStep], second: list[ChunkStep]) -> None:
    for one, other in zip(first, second, strict=True):
        for field in fields(ChunkStep):
            value, again = getattr(one, field.name), getattr(other, field.name)
            if isinstance(value, torch.Tensor):
                assert torch.equal(value, again), field.name
            elif isinstance(value, dict):
                assert value.keys() == again.keys()
                assert all(
                    torch.equal(value[k], again[k]) if isinstance(value[k], torch.Tensor) else value[k] == again[k]
                    for k in value
                ), field.name
            else:
                assert value == again, field.name


def through_a_file(state: Any, tmp_path: Path) -> Any:
    save_tree(tmp_path / "state.safetensors", state)
    return load_tree(tmp_path / "state.safetensors")

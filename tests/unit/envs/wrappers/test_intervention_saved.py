"""Interveners remember what they did before a restart."""

from pathlib import Path
from typing import Any

import torch
from batch_env import BatchEnv, make_config
from saved_episodes import assert_same, chunk, through_a_file

from rlinf.config.schema.intervention import IntervenerConfig, InterventionConfig
from rlinf.data.messages.embodied import ChunkStep
from rlinf.envs.base import VectorEnv
from rlinf.envs.interveners import register_intervener


class Stubborn:
    """Acts in every second step, counted over everything that it has seen."""

    state_names = ("count",)

    def __init__(self, cfg: Any, *, env: Any, row: int) -> None:
        self.count = row

    def begin(self) -> None:
        """An episode begins."""

    def act(self, situation: Any) -> torch.Tensor | None:
        self.count += 1
        return torch.tensor([situation.step + situation.reward]) if self.count % 2 else None

    def close(self) -> None:
        """Nothing is held."""


def test_whoever_intervenes_remembers_too(tmp_path: Path) -> None:
    register_intervener("stubborn", Stubborn, IntervenerConfig)
    intervener = IntervenerConfig(intervener_type="stubborn")
    cfg = make_config(wrappers=[InterventionConfig(name="intervention", intervener=intervener)])

    def play(env: VectorEnv, numbers: range) -> list[ChunkStep]:
        return [env.chunk_step(chunk(number, num_chunks=1)) for number in numbers]

    with BatchEnv(cfg, num_envs=4) as env, BatchEnv(cfg, num_envs=4) as other:
        env.reset(0)
        play(env, range(5))
        state = through_a_file(env.state_dict(), tmp_path)
        after = play(env, range(50, 60))
        other.load_state_dict(state)
        assert_same(play(other, range(50, 60)), after)

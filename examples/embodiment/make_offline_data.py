r"""Records episodes of policies of mixed quality as a Minari dataset, for the offline recipes.

The recipe says which environment and model; each ``--source`` is a checkpoint (as ``runner.ckpt_path`` takes it) or the
word ``random``, and the number of episodes it plays. Policies act as they do in training, with exploration:

    bash examples/embodiment/run_embodiment.sh gym_pendulum_sac_mlp runner.save_interval=26 runner.keep_checkpoints=0
    checkpoints=results/gym_pendulum_sac_mlp/checkpoints
    python examples/embodiment/make_offline_data.py --config-name gym_pendulum_sac_mlp \
        --source random=80 --source $checkpoints/global_step_26=60 --source $checkpoints/global_step_52=40 \
        --source $checkpoints/global_step_78=20 --out results/datasets/pendulum_mixed
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))
import needed

needed.check_packages(__file__)

import numpy as np
import torch

from rlinf.cli.entry import run_and_report
from rlinf.config import load_recipe, validate_cfg
from rlinf.config.schema.root import EmbodiedConfig
from rlinf.data.datasets.minari import write_minari
from rlinf.envs import make_vector_env
from rlinf.errors import ConfigError
from rlinf.hybrid_engines.train.state import load_weights
from rlinf.models import get_model
from rlinf.utils.logging import get_logger
from rlinf.utils.seeding import derive_seed

BATCH = 20
RANDOM = "random"


def main() -> int:
    """Record the dataset that the command line describes; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config-name", required=True, help="recipe that the checkpoints were trained with")
    parser.add_argument("--out", type=Path, required=True, help="folder to write; must not exist")
    parser.add_argument("--source", action="append", required=True, help="CHECKPOINT=EPISODES or random=EPISODES")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    def action() -> None:
        cfg = validate_cfg(load_recipe(args.config_name))
        if cfg.actor.model.num_action_chunks != 1:
            raise ConfigError("actor.model.num_action_chunks: must be 1: what lies within a chunk is not observed.")
        if args.out.exists():
            raise ConfigError(f"--out: '{args.out}' exists. Remove it, or give another folder.")
        sources = [_parse(source) for source in args.source]
        episodes = (episode for source in enumerate(sources) for episode in _play(cfg, source, args.seed))
        write_minari(args.out, episodes, {"dataset_id": args.out.name, "sources": args.source, "seed": args.seed})

    return run_and_report(action)


def _parse(source: str) -> tuple[str, int]:
    place, _, count = source.rpartition("=")
    if not place or not count.isdigit():
        raise ConfigError(f"--source: received '{source}'; allowed: CHECKPOINT=EPISODES or random=EPISODES.")
    return place, int(count)


def _play(
    cfg: EmbodiedConfig, source: tuple[int, tuple[str, int]], seed: int
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield the episodes of one source; all of them begin in states of their own."""
    index, (place, count) = source
    torch.manual_seed(seed)
    policy = get_model(cfg.actor.model)
    if place != RANDOM:
        load_weights(Path(place), policy)
    generator = torch.Generator().manual_seed(derive_seed(seed, "recording", index))
    returns = []
    for first in range(0, count, BATCH):
        size = min(BATCH, count - first)
        env_seed = derive_seed(seed, "recording", index, first) % 2**31
        train = replace(
            cfg.env.train, total_num_envs=size, group_size=1, auto_reset=False, seed=env_seed, reward_coef=1.0
        )
        env = make_vector_env(train, num_envs=size)
        space = env.policy_space
        low, high = (torch.as_tensor(bound, dtype=torch.float32).flatten() for bound in (space.low, space.high))
        obs, rows = env.reset(0), []
        for _ in range(train.max_episode_steps):
            if place == RANDOM:
                actions = low + (high - low) * torch.rand(size, 1, len(low), generator=generator)
            else:
                actions, _ = policy.predict_action_batch(obs, mode="train", generator=generator)
            actions = actions.clamp(low, high)
            step = env.chunk_step(actions)
            last = step.obs["states"].clone()
            if step.final_ids is not None:
                last[step.final_ids] = step.final_obs["states"]
            rows.append((obs["states"], actions[:, 0], step, last))
            obs = step.obs
        env.close()
        for env_id in range(size):
            arrays = _episode(rows, env_id)
            returns.append(float(arrays["rewards"].sum()))
            yield arrays, {"source": place, "seed": env_seed}
    get_logger(__name__).info("%s: %d episodes, mean return %.1f", place, count, np.mean(returns))


def _episode(rows: list[Any], env_id: int) -> dict[str, Any]:
    own = [row for row in rows if row[2].executed[env_id, 0]]
    return {
        "observations": torch.stack([*(row[0][env_id] for row in own), own[-1][3][env_id]]).numpy(),
        "actions": torch.stack([row[1][env_id] for row in own]).numpy(),
        "rewards": torch.stack([row[2].rewards[env_id, 0] for row in own]).numpy(),
        "terminations": torch.stack([row[2].terminations[env_id, 0] for row in own]).numpy(),
        "truncations": torch.stack([row[2].truncations[env_id, 0] for row in own]).numpy(),
    }


if __name__ == "__main__":
    sys.exit(main())

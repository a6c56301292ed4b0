"""Drives MountainCarContinuous-v0 by a rule and saves what it did as demonstrations for ``algorithm.demo_buffer``.

    python examples/embodiment/demonstrate_mountain_car.py

The rule pushes in the direction of motion, with noise, which climbs within about a hundred steps.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import needed

needed.check_packages(__file__)

import gymnasium
import numpy as np
import torch

from rlinf.data.replay.buffer import ReplayBuffer, Transitions


def demonstrate(episode: int, *, reward_coef: float) -> Transitions:
    """Drive one episode, seeded by its number; rewards are multiplied by ``reward_coef`` as the recipe does it."""
    env = gymnasium.make("MountainCarContinuous-v0")
    rng = np.random.default_rng(episode)
    states = [env.reset(seed=episode)[0]]
    actions: list[np.ndarray] = []
    rewards: list[float] = []
    terminated = truncated = False
    while not (terminated or truncated):
        velocity = states[-1][1]
        action = np.clip(0.8 * np.sign(velocity) + 0.3 * rng.standard_normal(1), -1.0, 1.0).astype(np.float32)
        state, reward, terminated, truncated, _ = env.step(action)
        states.append(state)
        actions.append(action)
        rewards.append(reward_coef * float(reward))
    env.close()
    seen = torch.from_numpy(np.stack(states)).float()
    ends = torch.zeros(len(rewards), dtype=torch.bool)
    ends[-1] = terminated
    return Transitions(
        inputs={"states": seen[:-1]},
        actions=torch.from_numpy(np.stack(actions)).unsqueeze(1),
        rewards=torch.tensor(rewards),
        next_inputs={"states": seen[1:]},
        terminated=ends,
        lengths=torch.ones(len(rewards), dtype=torch.int64),
    )


def main() -> None:
    """Save the demonstrations and say how good they are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("results/mountain_car_demos"), help="must not exist")
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--reward-coef", type=float, default=0.1, help="env.train.reward_coef of the recipe")
    args = parser.parse_args()
    episodes = [demonstrate(episode, reward_coef=args.reward_coef) for episode in range(args.episodes)]
    demos = Transitions.concat(episodes)
    replay = ReplayBuffer(len(demos))
    replay.add(demos)
    replay.save(args.folder)
    mean = float(demos.rewards.sum()) / args.reward_coef / args.episodes
    sys.stdout.write(f"{args.folder}: {len(demos)} transitions of {args.episodes} episodes, mean return {mean:.1f}\n")


if __name__ == "__main__":
    main()

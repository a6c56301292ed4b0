"""Renders ``docs/pictures/sawyer_reach.gif``: an arm in MuJoCo, early in training and at its end.

    rlinf train metaworld_reach_ppo_mlp runner.save_interval=20 runner.keep_checkpoints=0
    python toolkits/docs/arm_picture.py results/metaworld_reach_ppo_mlp

Both halves begin in the same state. Needs the extra ``metaworld``.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import rlinf
from rlinf.envs.simulators.metaworld.metaworld_single import make_metaworld_env
from rlinf.utils.optional import require

ROOT = Path(__file__).resolve().parents[2]
OUTPUT = ROOT / "docs" / "pictures" / "sawyer_reach.gif"
FRAMES_PER_SECOND = 12
NUM_COLORS = 48
STEPS = 72
SIZE = 224

Frames = list[npt.NDArray[np.uint8]]


def play(policy: Any, seed: int) -> tuple[Frames, bool]:
    """Return the frames of one greedy episode, every third step, and whether it reached the goal."""
    env = make_metaworld_env(render=True, task_name="reach-v3")
    raw = env.reset(seed)
    frames: Frames = []
    is_solved, step = False, 0
    while step < STEPS:
        for action in np.atleast_2d(policy.predict(env.observe(raw)["states"])):
            if step % 3 == 0:
                image = env.render()
                assert image is not None
                frames.append(image)
            raw, _, _, _, success = env.step(np.clip(action, -1, 1))
            is_solved, step = is_solved or success, step + 1
    return frames, is_solved


def main() -> None:
    """Render the checkpoints of the run that the command line names."""
    parser = argparse.ArgumentParser(description="Render the picture of the README.")
    parser.add_argument("run", type=Path, help="folder of a run of metaworld_reach_ppo_mlp")
    parser.add_argument("--early", type=int, default=20, help="step of the checkpoint on the left")
    parser.add_argument("--seed", type=int, default=4, help="seed of the start state")
    args = parser.parse_args()
    image = require("PIL.Image", needed_by="toolkits/docs/arm_picture.py")
    early, solved_early = play(rlinf.load_policy(args.run / "checkpoints" / f"global_step_{args.early}"), args.seed)
    trained, solved_late = play(rlinf.load_policy(args.run), args.seed)
    pairs = [np.concatenate([left, right], axis=1) for left, right in zip(early, trained, strict=True)]
    resized = [image.fromarray(pair).resize((2 * SIZE, SIZE)) for pair in pairs]
    palette = resized[-1].quantize(NUM_COLORS)
    shown = [frame.quantize(palette=palette, dither=image.Dither.NONE) for frame in resized]
    OUTPUT.parent.mkdir(exist_ok=True)
    pause = [1000 // FRAMES_PER_SECOND] * (len(shown) - 1) + [1500]
    shown[0].save(OUTPUT, save_all=True, append_images=shown[1:], duration=pause, loop=0, optimize=True)
    print(f"{OUTPUT}: {OUTPUT.stat().st_size} bytes; reached the goal: {solved_early}, {solved_late}")


if __name__ == "__main__":
    main()

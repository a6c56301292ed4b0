"""Connect to the robots of a recipe as its environment does, and say what they and their cameras report.

    python toolkits/realworld/check_robot.py RECIPE [OVERRIDE ...] [--move]

For each entry of ``hardware.configs`` with ``type: Franka``: its state, how often a second it can be read, and how many
new images each camera shows. Nothing moves unless ``--move`` is given: then the end effector goes up by 1 cm, and back.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import numpy as np

from rlinf.cli.entry import run_and_report
from rlinf.config import load_recipe, validate_cfg
from rlinf.config.hardware import parse_hardware
from rlinf.config.schema.realworld import FrankaHardwareConfig, RealWorldEnvConfig
from rlinf.config.schema.root import EmbodiedConfig
from rlinf.envs.realworld.client import FrankaClient, make_client
from rlinf.errors import ConfigError, EnvironmentFailure

_UP_METERS, _MOTION_SECONDS = 0.01, 1.5
_RETRY_SECONDS = 0.5
_LOOK_SECONDS = 0.002
"""Between looks at the newest images: shorter than any camera's time between images."""


def robots_of(cfg: EmbodiedConfig) -> list[FrankaHardwareConfig]:
    """Return the arms that the recipe's node groups declare."""
    declared = [group.hardware for group in cfg.cluster.node_groups if group.hardware is not None]
    return [
        parse_hardware(entry, FrankaHardwareConfig)
        for hardware in declared
        if hardware.type.lower() == "franka"
        for entry in hardware.configs
    ]


def connect(env: RealWorldEnvConfig, robot: FrankaHardwareConfig, *, wait_seconds: float) -> FrankaClient:
    """Return the client that the environment would make; a server that is just starting has this long for it."""
    assert env.client is not None
    deadline = time.monotonic() + wait_seconds
    described = {"robot_ip": robot.robot_ip, "camera_serials": list(robot.camera_serials)}
    while True:
        try:
            client: FrankaClient = make_client(
                env.client, env.client_params, **described, image_size=env.image_size or 128
            )
        except EnvironmentFailure:
            if time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_SECONDS)
        else:
            return client


def count_states(client: FrankaClient, seconds: float) -> float:
    """Return how many states can be read a second."""
    began, states = time.monotonic(), 0
    while (elapsed := time.monotonic() - began) < seconds:
        client.state()
        states += 1
    return states / elapsed


def count_images(client: FrankaClient, seconds: float) -> list[float]:
    """Return how many new images a second each camera shows."""
    began, last = time.monotonic(), client.frames()
    changes = np.zeros(len(last))
    while (elapsed := time.monotonic() - began) < seconds:
        frames = client.frames()
        changes += [not np.array_equal(new, old) for new, old in zip(frames, last, strict=True)]
        last = frames
        time.sleep(_LOOK_SECONDS)
    return (changes / elapsed).tolist()


def move(client: FrankaClient) -> tuple[float, float]:
    """Go up by 1 cm and back; return how far up it got, and how far from its start it ended, in metres."""
    start = client.state().pose
    client.reset()
    goal = start.copy()
    goal[2] += _UP_METERS
    client.move_to(goal)
    time.sleep(_MOTION_SECONDS)
    height = client.state().pose[2] - start[2]
    client.move_to(start)
    time.sleep(_MOTION_SECONDS)
    return float(height), float(np.linalg.norm(client.state().pose[:3] - start[:3]))


def check(
    client: FrankaClient, env: RealWorldEnvConfig, robot: FrankaHardwareConfig, *, moves: bool, seconds: float
) -> None:
    """Print what one robot reports, and with ``moves`` how it moves."""
    try:
        state = client.state()
        np.set_printoptions(precision=4, suppress=True)
        print(f"{robot.robot_ip}: pose {state.pose} (m, quaternion x y z w)")
        print(f"  velocity {state.velocity} (m/s, rad/s), force and torque {state.wrench} (N, Nm)")
        print(f"  gripper {state.gripper:.2f} of 0 (closed) to 1 (open)")
        rate = count_states(client, seconds)
        print(f"  {rate:.0f} reads a second; the environment acts {env.control_frequency_hz:g} times a second")
        for name, images in zip(robot.camera_serials, count_images(client, seconds), strict=True):
            print(f"  camera {name}: {images:.1f} new images a second")
        if moves:
            height, distance = move(client)
            print(
                f"  up by {height * 1e3:.1f} of {_UP_METERS * 1e3:.0f} mm, then {distance * 1e3:.1f} mm from its start"
            )
    finally:
        client.close()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("--move", action="store_true", help="move each robot by 1 cm; keep the emergency stop at hand")
    parser.add_argument("--wait", type=float, default=0.0, help="seconds that a robot's server may need to start")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long states and images are counted")
    args, overrides = parser.parse_known_args(argv)

    def action() -> None:
        cfg: Any = validate_cfg(load_recipe(args.recipe, overrides))
        env, robots = cfg.env.train, robots_of(cfg)
        if not isinstance(env, RealWorldEnvConfig) or env.client is None or not robots:
            raise ConfigError(
                f"'{args.recipe}' declares {len(robots)} robot(s) with type: Franka; needed: one or more, with "
                "env.train.env_type=realworld and env.train.client. Add what is missing."
            )
        for robot in robots:
            client = connect(env, robot, wait_seconds=args.wait)
            check(client, env, robot, moves=args.move, seconds=args.seconds)

    return run_and_report(action)


if __name__ == "__main__":
    sys.exit(main())

"""``check_robot.py`` says what a recipe's robots report, and moves them only where it is told to."""

import re
from collections.abc import Iterator

import pytest

from toolkits.realworld import check_robot
from toolkits.realworld.simulated_franka_server import SimulatedArm, SimulatedFrankaServer

RECIPE = "realworld_franka_dummy_rlpd_mlp"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedFrankaServer]:
    monkeypatch.setattr(check_robot, "_MOTION_SECONDS", 0.2)
    with SimulatedFrankaServer(SimulatedArm(speed=10.0)) as server:
        yield server


def overrides(server: SimulatedFrankaServer) -> list[str]:
    group = "cluster.node_groups.0.hardware.configs"
    client = "rlinf.envs.realworld.franka_server:FrankaServerClient"
    return [
        "--seconds=0.05",
        f"{group}=[{{node_rank: 0, robot_ip: '{server.address}', camera_serials: []}}]",
        *(f"env.{name}.{key}" for name in ("train", "eval") for key in ("total_num_envs=1", f"client={client}")),
    ]


def test_nothing_moves_unless_it_is_told_to(server: SimulatedFrankaServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_robot.main([RECIPE, *overrides(server)]) == 0
    told = capsys.readouterr().out
    assert re.match(rf"{server.address}: pose \[ ?0\.5 +0\. +0\.4 ", told)
    assert re.search(r"gripper 1\.00 of 0 .*\n  [1-9]\d* reads a second", told)
    # At the end the arm is sent to where it is.
    assert {route for route, _ in server.requests} == {"/getstate", "/pose"}
    assert [data["arr"][2] for route, data in server.requests if route == "/pose"] == pytest.approx([0.4])


def test_a_robot_goes_up_by_a_centimetre_and_back(
    server: SimulatedFrankaServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.arm.trip()
    assert check_robot.main([RECIPE, "--move", *overrides(server)]) == 0
    assert "up by 10.0 of 10 mm, then 0.0 mm from its start" in capsys.readouterr().out
    heights = [data["arr"][2] for route, data in server.requests if route == "/pose"]
    assert heights == pytest.approx([0.41, 0.4, 0.4])


def test_a_recipe_without_a_client_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert check_robot.main([RECIPE]) != 0
    assert "declares 2 robot(s) with type: Franka; needed: one or more" in capsys.readouterr().err

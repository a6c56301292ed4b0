"""The driver of SERL's robot server, over a real socket to a simulated controller that speaks the same protocol."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlinf.envs import make_vector_env
from rlinf.envs.realworld.client import connections
from rlinf.envs.realworld.expert import FrankaExpert
from rlinf.envs.realworld.franka_server import FrankaServerClient
from rlinf.errors import ConfigError, EnvironmentFailure
from tests.unit.envs.realworld.robots import make_config, plain, robot, write_video
from toolkits.realworld.simulated_franka_server import SimulatedArm, SimulatedFrankaServer

SPEED = 10.0
CLIENT = "rlinf.envs.realworld.franka_server:FrankaServerClient"
Serve = Callable[..., SimulatedFrankaServer]
GOOD: dict[str, Any] = {
    "pose": [0.5, 0.1, 0.3, 1.0, 0.0, 0.0, 0.0],
    "vel": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
    "force": [1.0, 2.0, 3.0],
    "torque": [4.0, 5.0, 6.0],
    "gripper_pos": 0.25,
}


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[SimulatedFrankaServer] = []

    def start(gripper: str = "franka", **keys: Any) -> SimulatedFrankaServer:
        servers.append(SimulatedFrankaServer(SimulatedArm(gripper=gripper, speed=SPEED), **keys))
        return servers[-1].__enter__()

    yield start
    for server in servers:
        server.__exit__()


def connect(server: SimulatedFrankaServer, **keys: Any) -> FrankaServerClient:
    return FrankaServerClient(robot_ip=server.address, camera_serials=[], image_size=24, **keys)


def answers(server: SimulatedFrankaServer, **values: Any) -> None:
    """Let ``/getstate`` answer this; None leaves a value out."""
    state = {name: value for name, value in {**GOOD, **values}.items() if value is not None}
    server.respond = lambda route, data: (200, "application/json", json.dumps(state).encode())  # type: ignore[method-assign]


def commands(server: SimulatedFrankaServer) -> list[Any]:
    """Return the requests since the last call that do more than read."""
    found = [request for request in server.requests if not request[0].startswith("/get")]
    server.requests.clear()
    return found


def wait_until(holds: Callable[[], bool]) -> None:
    for _ in range(2000):
        if holds():
            return
        time.sleep(0.005)
    raise AssertionError("it never holds")


@pytest.mark.parametrize("keeps_connections", [False, True])
def test_the_arm_goes_where_it_is_sent(serve: Serve, keeps_connections: bool) -> None:
    server = serve(keeps_connections=keeps_connections)
    client = connect(server)
    start = client.state().pose
    np.testing.assert_allclose(start[:3], [0.5, 0.0, 0.4])
    goal = start + np.array([0.02, -0.03, -0.04, 0, 0, 0, 0])
    client.move_to(goal)
    wait_until(lambda: bool(np.allclose(client.state().pose, goal, atol=1e-6)))
    assert commands(server) == [("/pose", {"arr": goal.tolist()})]
    client.close()
    assert [route for route, _ in commands(server)] == ["/pose"]


def test_a_state_has_what_the_server_reports_in_its_order(serve: Serve) -> None:
    server = serve()
    client = connect(server)
    answers(server)
    state = client.state()
    assert state.pose.tolist() == GOOD["pose"]
    assert state.velocity.tolist() == GOOD["vel"]
    assert state.wrench.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert state.gripper == 0.25


@pytest.mark.parametrize(
    ("reported", "gripper_range", "opening"),
    [(0.02, (0.0, 0.08), 0.25), (0.09, (0.0, 0.08), 1.0), (255, (255, 0), 0.0), (51, (255, 0), 0.8), (1.02, (0, 1), 1)],
)
def test_the_grippers_unit_is_an_argument(
    serve: Serve, reported: float, gripper_range: tuple[float, float], opening: float
) -> None:
    server = serve()
    client = connect(server, gripper_range=gripper_range)
    answers(server, gripper_pos=reported)
    assert client.state().gripper == pytest.approx(opening)


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"pose": [0.5, 0.1]}, r"answered pose: \[0\.5, 0\.1\]; expected 7 finite numbers"),
        ({"pose": None}, "answered pose: None; expected 7"),
        ({"vel": [float("nan")] * 6}, r"answered vel: \[nan, .*; expected 6 finite"),
        ({"force": "none"}, "answered force: 'none'; expected 3"),
        ({"torque": [[0.0] * 3] * 3}, "answered torque: .*; expected 3"),
        ({"vel": [[0.0], 1.0]}, "answered vel: .*; expected 6"),
        ({"gripper_pos": None}, r"answered gripper_pos: \[None\]; expected 1"),
        ({"pose": [0.5, 0.1, 0.3, 0.0, 0.0, 0.0, 0.0]}, "answered a pose whose quaternion .* has length 0; expected 1"),
    ],
)
def test_an_answer_that_is_no_state_is_told(serve: Serve, values: Any, what: str) -> None:
    server = serve()
    client = connect(server)
    answers(server, **values)
    with pytest.raises(EnvironmentFailure, match=f"the robot {server.address}: /getstate: {what}"):
        client.state()


def test_a_franka_hand_grasps_and_opens(serve: Serve) -> None:
    server = serve()
    client = connect(server)
    client.set_gripper(0.0)
    wait_until(lambda: client.state().gripper == 0.0)
    client.set_gripper(1.0)
    client.set_gripper(1.0)
    wait_until(lambda: client.state().gripper == 1.0)
    assert [route for route, _ in commands(server)] == ["/close_gripper", "/open_gripper"]


def test_a_franka_hand_closes_again_after_it_was_opened_in_part(serve: Serve) -> None:
    server = serve()
    client = connect(server)
    client.set_gripper(0.0)
    wait_until(lambda: client.state().gripper == 0.0)
    client.set_gripper(0.5)
    wait_until(lambda: client.state().gripper == pytest.approx(0.5, abs=0.01))
    assert commands(server)[-1] == ("/move_gripper", {"gripper_pos": 102})
    client.set_gripper(0.0)
    wait_until(lambda: client.state().gripper == 0.0)


def test_fingers_that_the_server_wrongly_takes_for_open_are_opened(serve: Serve) -> None:
    server = serve()
    server.arm.dummy.gripper = server.arm.dummy.gripper_goal = 0.0  # its memory begins with open fingers
    client = connect(server)
    client.reset()
    client.set_gripper(1.0)
    wait_until(lambda: client.state().gripper == 1.0)


def test_a_robotiq_gripper_is_activated_and_counts_towards_closed(serve: Serve) -> None:
    server = serve("robotiq")
    client = connect(server, gripper="robotiq")
    for _ in range(2):
        client.reset()
        client.set_gripper(1.0)
    client.set_gripper(0.2)
    wait_until(lambda: client.state().gripper == pytest.approx(0.2))
    assert commands(server) == [
        ("/activate_gripper", None),
        ("/clearerr", None),
        ("/move_gripper", {"gripper_pos": 0}),
        ("/clearerr", None),
        ("/move_gripper", {"gripper_pos": 0}),
        ("/move_gripper", {"gripper_pos": 204}),
    ]


def test_an_arm_without_a_gripper_is_read_by_other_routes(serve: Serve) -> None:
    server = serve("none")
    with pytest.raises(EnvironmentFailure, match="/getstate: answered HTTP 500: .*its gripper is the one that"):
        connect(server)
    client = connect(server, gripper="none")
    assert client.state().gripper == 1.0
    np.testing.assert_allclose(client.state().pose[:3], [0.5, 0.0, 0.4])
    client.set_gripper(0.0)
    assert commands(server) == []


def test_before_an_episode_errors_are_cleared_and_joints_and_parameters_set(serve: Serve) -> None:
    server = serve()
    compliance = {"translational_stiffness": 1500, "translational_clip_neg_x": 0.005}
    client = connect(server, compliance=compliance, joint_reset_every=3)
    server.arm.trip()
    for _ in range(3):
        client.reset()
    first = [("/clearerr", None), ("/update_param", compliance)]
    third = [("/clearerr", None), ("/jointreset", None), *first]
    assert commands(server) == [*first, *first, *third]
    assert server.arm.parameters == compliance
    goal = client.state().pose + np.array([0, 0, -0.01, 0, 0, 0, 0])
    client.move_to(goal)  # errors are cleared
    wait_until(lambda: bool(np.allclose(client.state().pose, goal, atol=1e-6)))


def test_a_joint_reset_may_take_longer_than_other_requests(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    client = connect(serve(), joint_reset_every=1, joint_reset_seconds=70.0)
    limits: dict[str, Any] = {}
    monkeypatch.setattr(client._server, "post", lambda route, data=None, **limit: limits.update({route: limit}))
    client.reset()
    assert limits == {"/clearerr": {}, "/jointreset": {"timeout_seconds": 70.0}}


def test_a_parameter_that_the_controller_lacks_is_told(serve: Serve) -> None:
    client = connect(serve(), compliance={"stiffness": 3})
    with pytest.raises(EnvironmentFailure, match="/update_param: answered HTTP 500: .*don't know parameter: stiffness"):
        client.reset()


def test_a_pose_that_is_not_finite_never_reaches_the_robot(serve: Serve) -> None:
    server = serve()
    client = connect(server)
    with pytest.raises(EnvironmentFailure, match="/pose: not sent: .*nan.* is not finite"):
        client.move_to(np.array([0.5, np.nan, 0.3, 1.0, 0.0, 0.0, 0.0]))
    assert commands(server) == []


def test_a_server_that_does_not_run_is_found_at_the_start(serve: Serve) -> None:
    server = serve()
    server.server_close()
    with pytest.raises(EnvironmentFailure, match=f"the robot {server.address}: /getstate: no answer"):
        connect(server)


def test_the_end_of_a_run_does_not_fail_where_the_server_is_gone(
    serve: Serve, capsys: pytest.CaptureFixture[str]
) -> None:
    server = serve()
    client = connect(server)
    server.shutdown()
    server.server_close()
    client.close()
    assert "The arm could not be stopped at the end: the robot" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({"gripper": "hand"}, "gripper: received 'hand'; allowed: franka, robotiq, none"),
        ({"gripper_range": [1, 1]}, "gripper_range: received [1, 1]; allowed: two different numbers: closed, open"),
        ({"gripper_range": [1]}, "gripper_range: received [1]; allowed: two different numbers"),
        ({"timeout_seconds": 0}, "timeout_seconds: received 0; allowed: numbers above 0"),
        ({"max_frame_age_seconds": -1}, "max_frame_age_seconds: received -1; allowed: numbers above 0"),
        (
            {"grip": 1},
            f"env.*.client_params: received grip; allowed for '{CLIENT}': compliance, gripper, gripper_range",
        ),
    ],
)
def test_parameters_that_are_not_allowed_are_told(serve: Serve, params: Any, problem: str) -> None:
    cfg = make_config(is_dummy=False, client=CLIENT, client_params=params)
    with pytest.raises(ConfigError) as caught:
        make_vector_env(cfg, num_envs=1, hardware=[robot(1, robot_ip=serve().address)])
    assert problem in str(caught.value)


def test_the_environment_plays_an_episode_and_notices_that_the_server_dies(serve: Serve, tmp_path: Path) -> None:
    server = serve()
    cameras = [
        write_video(tmp_path / f"{number}.avi", [plain(*colour)] * 5)
        for number, colour in enumerate([(200, 40, 40), (40, 40, 200)])
    ]
    cfg = make_config(
        is_dummy=False,
        client=CLIENT,
        client_params={"compliance": {"translational_stiffness": 1000}},
        control_frequency_hz=10.0 * SPEED,
        random_xy_meters=0.02,
    )
    expert = FrankaExpert(cfg)
    hardware = [robot(1, robot_ip=server.address, camera_serials=cameras)]
    with make_vector_env(cfg, num_envs=1, hardware=hardware) as env:
        obs = env.reset(0)
        assert server.arm.parameters == {"translational_stiffness": 1000}
        assert obs["states"][0, 2] == pytest.approx(0.2, abs=0.011)
        # Each camera is the one that the recipe says, in its colours.
        assert obs["main_images"][0].float().mean((0, 1)).tolist() == pytest.approx([200, 40, 40], abs=12)
        assert obs["extra_view_images"][0, 0].float().mean((0, 1)).tolist() == pytest.approx([40, 40, 200], abs=12)
        successes, heights = [], []
        for _ in range(cfg.max_episode_steps):
            step = env.chunk_step(expert(obs))
            obs = step.obs
            heights.append(float(obs["states"][0, 2]))
            successes.append(bool(step.terminations.any()))
            if successes[-1]:
                break
        assert successes[-1]
        assert min(heights) > -0.08  # the workspace's floor is 0.02 m high, and the target 0.1 m
        assert {"/pose", "/open_gripper", "/clearerr"} <= {route for route, _ in server.requests}
        lowest = min(data["arr"][2] for route, data in server.requests if route == "/pose")
        assert lowest >= cfg.workspace_low[2]
        server.shutdown()
        server.server_close()
        with pytest.raises(EnvironmentFailure, match=f"the robot {server.address}: /getstate: no answer"):
            env.chunk_step(torch.zeros(1, 1, 7))
    assert connections._open == {}

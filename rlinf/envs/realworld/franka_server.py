"""A Franka arm behind the HTTP server that SERL and HIL-SERL run on its real-time computer; imports no torch.

The server (``serl_robot_infra/robot_servers/franka_server.py`` there) bridges to ROS, where an impedance controller
pulls the end effector to the pose that it was sent last, as if by a spring. The spring is never longer than the
controller's ``translational_clip_*`` (metres) and ``rotational_clip_*`` (radians), which bounds force and speed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from rlinf.envs.raw_chunk import Frame
from rlinf.envs.realworld.camera_drivers import Cameras
from rlinf.envs.realworld.client import FrankaState
from rlinf.envs.realworld.poses import Vector
from rlinf.envs.realworld.robot_server import RobotServer
from rlinf.errors import ConfigError, EnvironmentFailure
from rlinf.utils.logging import get_logger

GRIPPERS = ("franka", "robotiq", "none")
_NUMBERS = {"pose": 7, "vel": 6, "force": 3, "torque": 3}
"""What ``/getstate`` answers, as far as it is used, and how many numbers each has."""
_UNIT_TOLERANCE = 0.01
_FRANKA_COUNTS = 204
"""``/move_gripper`` of the Franka hand counts in 1/2550 m; it opens to 0.08 m."""
_ROBOTIQ_COUNTS = 255
"""``/move_gripper`` of Robotiq's: 0 is open, 255 closed."""


class FrankaServerClient:
    """A ``FrankaClient`` of the HTTP protocol of SERL's and HIL-SERL's robot server.

    The wrench is that of the end effector's own frame, as the server reports it; its length is that of any frame.

    Args:
        robot_ip: ``HOST`` or ``HOST:PORT`` of the server; its port is 5000 by default.
        camera_serials: Names of cameras, as ``Cameras`` knows them.
        image_size: Height and width of their images in pixels.
        timeout_seconds: How long the server may take to answer.
        gripper: ``franka``, ``robotiq`` or ``none``: the server's ``--gripper_type``. Its routes differ.
        gripper_range: What the server reports of closed and of open fingers: [0, 1] with HIL-SERL. SERL's reports
            [0, 0.08] (metres) for Franka's hand, and [255, 0] (counts) for Robotiq's.
        compliance: Parameters of the impedance controller, sent before each episode: stiffnesses in N/m and Nm/rad,
            dampings in Ns/m and Nms/rad, clips in m and rad. None leaves the server's.
        joint_reset_every: Before every N-th episode the joints go to the server's ``--reset_joint_target``, on a way
            that the environment's limits do not bound; 0 never does.
        joint_reset_seconds: How long that may take.
        max_frame_age_seconds: How old a camera's newest image may be.

    Raises:
        ConfigError: An argument is not allowed.
        EnvironmentFailure: The server does not answer, or a camera shows nothing.
    """

    def __init__(
        self,
        *,
        robot_ip: str,
        camera_serials: Sequence[str],
        image_size: int,
        timeout_seconds: float = 2.0,
        gripper: Literal["franka", "robotiq", "none"] = "franka",
        gripper_range: tuple[float, float] = (0.0, 1.0),
        compliance: Mapping[str, float] | None = None,
        joint_reset_every: int = 0,
        joint_reset_seconds: float = 90.0,
        max_frame_age_seconds: float = 1.0,
    ) -> None:
        _check(gripper in GRIPPERS, "gripper", gripper, ", ".join(GRIPPERS))
        is_range = len(gripper_range) == 2 and gripper_range[0] != gripper_range[1]
        _check(is_range, "gripper_range", gripper_range, "two different numbers: closed, open")
        for name, seconds in (("timeout_seconds", timeout_seconds), ("max_frame_age_seconds", max_frame_age_seconds)):
            _check(seconds > 0, name, seconds, "numbers above 0")
        self.gripper, self.gripper_range = gripper, gripper_range
        self.compliance = None if compliance is None else dict(compliance)
        self.joint_reset_every, self.joint_reset_seconds = joint_reset_every, joint_reset_seconds
        self._num_resets = 0
        self._opening: float | None = None
        self._server = RobotServer(robot_ip, timeout_seconds=timeout_seconds)
        self.state()  # a wrong address is a finding of the start, not of the first episode
        self._cameras = Cameras(camera_serials, size=image_size, max_age_seconds=max_frame_age_seconds)

    def state(self) -> FrankaState:
        """See ``FrankaClient``.

        Raises:
            EnvironmentFailure: The server does not answer, or with something else than a state.
        """
        if self.gripper == "none":  # /getstate of a server without a gripper fails
            values = {
                name: self._server.read(f"/get{'pos' if name == 'pose' else name}").get(name) for name in _NUMBERS
            }
        else:
            values = dict(self._server.read("/getstate"))
        numbers = {name: self._numbers(values, name, count) for name, count in _NUMBERS.items()}
        length = float(np.linalg.norm(numbers["pose"][3:]))
        if abs(length - 1.0) > _UNIT_TOLERANCE:
            raise self._server.failure(
                "/getstate",
                f"answered a pose whose quaternion {numbers['pose'][3:].tolist()} has length {length:.3g}; expected 1. "
                "Check that its controller runs.",
            )
        opening = 1.0 if self.gripper == "none" else self._read_opening(values)
        return FrankaState(
            numbers["pose"], numbers["vel"], np.concatenate([numbers["force"], numbers["torque"]]), opening
        )

    def move_to(self, pose: Vector) -> None:
        """See ``FrankaClient``.

        Raises:
            EnvironmentFailure: The server does not accept it, or the pose has numbers that are not finite.
        """
        if not np.isfinite(pose).all():
            raise self._server.failure(
                "/pose", f"not sent: the pose {np.asarray(pose).tolist()} is not finite. Check the policy's actions."
            )
        self._server.post("/pose", {"arr": [float(number) for number in pose]})

    def set_gripper(self, opening: float) -> None:
        """See ``FrankaClient``; what it was sent last in this episode is not sent again."""
        opening = float(np.clip(opening, 0.0, 1.0))
        if self.gripper == "none" or opening == self._opening:
            return
        if self.gripper == "robotiq":
            self._move_gripper(_ROBOTIQ_COUNTS * (1.0 - opening))
        elif opening == 0.0:
            self._server.post("/close_gripper")  # grasps, where /move_gripper only goes to a width
        else:
            # The server ignores /close_gripper after another one, until /open_gripper comes between. At first it may
            # take closed fingers for open ones, and ignore /open_gripper too.
            self._server.post("/open_gripper")
            if opening < 1.0 or self._opening is None:
                self._move_gripper(_FRANKA_COUNTS * opening)
        self._opening = opening

    def frames(self) -> list[Frame]:
        """See ``FrankaClient``; uint8 RGB [image_size, image_size, 3]."""
        return self._cameras.frames()

    def reset(self) -> None:
        """See ``FrankaClient``; a Robotiq gripper is activated first, which opens it."""
        if self.gripper == "robotiq" and self._num_resets == 0:
            self._server.post("/activate_gripper")
        self._num_resets += 1
        self._opening = None
        self._server.post("/clearerr")
        if self.joint_reset_every and self._num_resets % self.joint_reset_every == 0:
            self._server.post("/jointreset", timeout_seconds=self.joint_reset_seconds)
            self._server.post("/clearerr")
        # Last: a joint reset starts the controller again, with parameters of its own.
        if self.compliance is not None:
            self._server.post("/update_param", self.compliance)

    def close(self) -> None:
        """See ``FrankaClient``: the arm is sent to where it is."""
        try:
            self.move_to(self.state().pose)
        except EnvironmentFailure as error:
            get_logger(__name__).warning("The arm could not be stopped at the end: %s", error)
        finally:
            self._server.close()
            self._cameras.close()

    def _move_gripper(self, counts: float) -> None:
        self._server.post("/move_gripper", {"gripper_pos": round(counts)})

    def _numbers(self, values: Mapping[str, Any], name: str, count: int) -> Vector:
        try:
            numbers = np.asarray(values.get(name), np.float64)
        except (TypeError, ValueError):
            numbers = np.zeros(0)
        if numbers.shape != (count,) or not np.isfinite(numbers).all():
            raise self._server.failure(
                "/getstate",
                f"answered {name}: {values.get(name)!r}; expected {count} finite numbers. Check that its controller "
                "runs, and that it is the server of one Franka arm.",
            )
        return numbers

    def _read_opening(self, values: Mapping[str, Any]) -> float:
        closed, opened = self.gripper_range
        number = float(self._numbers({"gripper_pos": [values.get("gripper_pos")]}, "gripper_pos", 1)[0])
        return float(np.clip((number - closed) / (opened - closed), 0.0, 1.0))


def _check(is_allowed: bool, name: str, value: object, allowed: str) -> None:
    if not is_allowed:
        raise ConfigError(f"env.*.client_params.{name}: received {value!r}; allowed: {allowed}. Correct it.")

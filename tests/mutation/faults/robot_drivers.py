"""Faults of the driver of Franka arms, of its requests, and of cameras."""

from tests.mutation.fault import Fault

_FOLDER = "rlinf/envs/realworld"
_TESTS = "tests/unit/envs/realworld"
_CAMERAS = (f"{_TESTS}/test_camera_drivers.py",)
_SERVER = (f"{_TESTS}/test_robot_server.py",)
_FRANKA = (f"{_TESTS}/test_franka_server.py",)


def _camera(before: str, after: str, what: str) -> Fault:
    return Fault(f"{_FOLDER}/camera_drivers.py", before, after, _CAMERAS, what)


def _request(before: str, after: str, what: str) -> Fault:
    return Fault(f"{_FOLDER}/robot_server.py", before, after, _SERVER, what)


def _franka(before: str, after: str, what: str) -> Fault:
    return Fault(f"{_FOLDER}/franka_server.py", before, after, _FRANKA, what)


FAULTS: list[Fault] = [
    _camera("cv2.COLOR_BGR2RGB", "cv2.COLOR_BGR2BGRA", "OpenCV's order of colours is left"),
    _camera("realsense.format.rgb8", "realsense.format.bgr8", "a RealSense shows blue as red"),
    _camera(
        "        return np.array(color.get_data())", "        return np.asarray(color.get_data())", "shared memory"
    ),
    _camera("        if age > self.max_age_seconds:\n", "        if False:\n", "a frozen image is shown"),
    _camera(
        "self._newest = (image, self._now())", "self._newest = self._newest or (image, self._now())", "first image"
    ),
    _camera("            self._error = error\n", "            pass\n", "a thread that failed is not noticed"),
    _camera(
        "        if not has_image and self.is_file:\n",
        "        if not has_image and False:\n",
        "a file ends",
    ),
    _camera("        if not has_image and self.is_file:\n", "        if not has_image:\n", "a stream never ends"),
    _camera(
        "self.period_seconds = 1.0 / (self._capture.get(", "self.period_seconds = (self._capture.get(", "rate is time"
    ),
    _camera("                due += self._source.period_seconds\n", "", "a file is played as fast as it can be read"),
    _camera("self._is_closed.wait(max(due - self._now(), 0.0))", "time.sleep(max(due - self._now(), 0.0))", "no end"),
    _camera("self._thread.join(_CLOSE_SECONDS)", "self._thread.join()", "a thread that hangs holds up the end"),
    _camera(
        "        finally:\n            self._source.close()\n", "        finally:\n            pass\n", "is kept open"
    ),
    _camera(
        "        except BaseException:\n            self.close()\n", "        except BaseException:\n", "others stay"
    ),
    _camera("(height - side) // 2, (width - side) // 2", "0, 0", "the left square, not the middle one"),
    _camera("side = min(height, width)", "side = max(height, width)", "images are squeezed"),
    _camera("interpolation=self._cv2.INTER_AREA", "interpolation=self._cv2.INTER_NEAREST", "pixels are left out"),
    _camera("        if self.serial not in serials:\n", "        if False:\n", "another camera is opened"),
    _camera("int(self.name) if self.name.isdecimal() else self.name", "self.name", "an index is taken for a path"),
    _camera(
        "self.name, cv2.CAP_FFMPEG, waits", "self.name, cv2.CAP_FFMPEG", "a stream is waited for as long as it likes"
    ),
    _camera(
        "return OpenCVSource(rest) if kind == OPENCV", "return OpenCVSource(rest) if kind != OPENCV", "kinds swapped"
    ),
    _request(
        "            if not was_open:\n                raise\n",
        "            raise\n",
        "a closed connection is a failure",
    ),
    _request(
        "            if not was_open:\n                raise\n", "            pass\n", "a dead server is tried twice"
    ),
    _request("        if status != http.client.OK:\n", "        if False:\n", "a failure is taken for an answer"),
    _request(
        "        if not isinstance(values, dict):\n", "        if values is None:\n", "a list is taken for a state"
    ),
    _request("            connection.sock.settimeout(seconds)\n", "            pass\n", "one limit for all requests"),
    _request("        connection.timeout = seconds\n", "", "a request has no limit of its own"),
    _request("len(text) <= _SHOWN", "True", "a long answer fills the log"),
    _request("if not host or (has_port and not port.isdecimal()):", "if not host:", "ports are not looked at"),
    Fault(
        f"{_FOLDER}/robot_server.py",
        "        except TimeoutError as error:\n            self.close()\n",
        "        except TimeoutError as error:\n",
        _SERVER,
        "the late answer is taken for the next one",
    ),
    _franka('numbers["force"], numbers["torque"]', 'numbers["torque"], numbers["force"]', "force and torque swapped"),
    _franka("or not np.isfinite(numbers).all()", "", "a state that is not finite is taken"),
    _franka(
        "        if abs(length - 1.0) > _UNIT_TOLERANCE:\n", "        if False:\n", "a quaternion of zeros is taken"
    ),
    _franka("(number - closed) / (opened - closed)", "(number - opened) / (closed - opened)", "open is closed"),
    _franka(
        "np.clip((number - closed) / (opened - closed), 0.0, 1.0)", "(number - closed) / (opened - closed)", "above 1"
    ),
    _franka("        if not np.isfinite(pose).all():\n", "        if False:\n", "a pose of nan is sent to a robot"),
    _franka("_ROBOTIQ_COUNTS * (1.0 - opening)", "_ROBOTIQ_COUNTS * opening", "a Robotiq gripper closes to open"),
    _franka("_FRANKA_COUNTS = 204", "_FRANKA_COUNTS = 255", "the hand opens further than it is told to"),
    _franka('            self._server.post("/open_gripper")\n', "", "the server remembers closed fingers"),
    _franka(" or self._opening is None", "", "fingers that were closed at first stay so"),
    _franka("        self._opening = opening\n", "", "commands are sent at every step"),
    _franka(
        "        self._num_resets += 1\n        self._opening = None\n",
        "        self._num_resets += 1\n",
        "stale memory",
    ),
    _franka(
        'self.gripper == "robotiq" and self._num_resets == 0', 'self.gripper == "robotiq"', "activated at every reset"
    ),
    _franka('        self._server.post("/clearerr")\n        if', "        if", "errors are not cleared"),
    _franka(
        "self._num_resets % self.joint_reset_every == 0", "self._num_resets % self.joint_reset_every == 1", "too early"
    ),
    _franka(
        '            self._server.post("/jointreset", timeout_seconds=self.joint_reset_seconds)\n',
        '            self._server.post("/jointreset")\n',
        "a joint reset takes longer than any answer",
    ),
    _franka("        self.state()  # a wrong", "        # a wrong", "a wrong address is found at the first reset"),
    _franka("        except EnvironmentFailure as error:\n", "        except KeyError as error:\n", "the end fails"),
    _franka("            self.move_to(self.state().pose)\n", "            pass\n", "the arm goes on at the end"),
    Fault(
        f"{_FOLDER}/client.py",
        "name in described or not (takes_any or name in names)",
        "not (takes_any or name in names)",
        (f"{_TESTS}/test_client.py",),
        "a parameter may be what describes the robot",
    ),
    Fault(
        f"{_FOLDER}/client.py",
        "return make(**described, **params)",
        "return make(**described)",
        (f"{_TESTS}/test_client.py",),
        "parameters are not handed on",
    ),
    Fault(
        f"{_FOLDER}/robot.py",
        "            self.cfg.client_params,\n",
        "            {},\n",
        (f"{_TESTS}/test_robot.py",),
        "drivers of other kinds get no parameters",
    ),
    Fault(
        f"{_FOLDER}/franka.py",
        "self.cfg.client, self.cfg.client_params, **described",
        "self.cfg.client, {}, **described",
        _FRANKA,
        "the driver gets no parameters",
    ),
]

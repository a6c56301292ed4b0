"""What the position of a SpaceMouse amounts to."""

import inspect
import sys
import time
from collections import deque
from types import ModuleType
from typing import Any

import pytest
import torch
from frankasim_configs import frankasim_config
from spacemouse_package import OPENED_WITH, Device, make_package

from rlinf.config.schema.intervention import SpaceMouseIntervenerConfig
from rlinf.envs.interveners import Situation
from rlinf.envs.interveners.spacemouse import SpaceMouseIntervener
from rlinf.errors import EnvironmentFailure, MissingPackageError

CFG = SpaceMouseIntervenerConfig(intervener_type="spacemouse", dead_zone=0.2, sensitivity=2.0)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    device = Device()
    monkeypatch.setitem(sys.modules, "pyspacemouse", make_package(device))
    return device


def make() -> SpaceMouseIntervener:
    return SpaceMouseIntervener(CFG, env=frankasim_config(), row=0)


def act(intervener: SpaceMouseIntervener, device: Any) -> list[float] | None:
    """Act once the thread has read all reports, and has come back for another: then it has taken the last one over."""
    while device.reports:
        time.sleep(0.001)
    begun = device.num_reads
    while device.num_reads < begun + 2 and getattr(device, "error", None) is None:
        time.sleep(0.001)
    chosen = intervener.act(Situation({}, torch.zeros(7), 0.0, 0))
    return None if chosen is None else [round(value, 6) for value in chosen.tolist()]


def act_on(intervener: SpaceMouseIntervener, device: Any) -> None:
    """Act until the thread has noticed that the device does not answer."""
    while True:
        act(intervener, device)


def test_a_push_is_a_motion_and_rest_hands_back(device: Device) -> None:
    intervener = make()
    assert act(intervener, device) is None
    device.push(x=0.15)
    assert act(intervener, device) is None  # within the dead zone
    device.push(x=0.9, y=-0.3, yaw=-0.1)
    assert act(intervener, device) == [1.0, -0.6, 0, 0, 0, -0.2, 1]
    device.push()
    device.push(buttons=[1, 0])
    assert act(intervener, device) == [0, 0, 0, 0, 0, 0, -1]
    device.push(buttons=[0, 0])
    device.push(z=0.5)
    assert act(intervener, device) == [0, 0, 1.0, 0, 0, 0, -1]  # the gripper stays closed
    device.push()
    device.push(buttons=[0, 1])
    assert act(intervener, device) == [0, 0, 0, 0, 0, 0, 1]
    intervener.close()
    assert device.is_closed


def test_the_newest_of_many_reports_counts(device: Device) -> None:
    """The device sends more than ten reports between two actions; the last says that it was let go."""
    intervener = make()
    for number in range(50):
        device.push(x=number / 50)
    assert act(intervener, device) == [1.0, 0, 0, 0, 0, 0, 1]
    for number in range(50):
        device.push(x=1 - number / 50)
    device.push()
    assert act(intervener, device) is None
    intervener.close()


def test_a_click_between_two_actions_is_not_lost(device: Device) -> None:
    intervener = make()
    device.push(buttons=[1, 0])
    device.push(buttons=[0, 0])
    assert act(intervener, device) == [0, 0, 0, 0, 0, 0, -1]
    assert act(intervener, device) is None
    device.push(x=0.5)
    assert act(intervener, device) == [1.0, 0, 0, 0, 0, 0, -1]
    intervener.begin()
    assert act(intervener, device) == [1.0, 0, 0, 0, 0, 0, 1]  # an episode begins with the gripper open
    intervener.close()


def test_a_device_that_is_pulled_out_is_told(device: Device) -> None:
    intervener = make()
    device.error = OSError("Failed to read from HID device: -1")
    with pytest.raises(EnvironmentFailure, match=r"does not answer any more \(Failed to read"):
        act_on(intervener, device)
    intervener.close()


def test_a_device_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspacemouse", make_package(None))
    with pytest.raises(EnvironmentFailure, match=r"no SpaceMouse answers \(No connected.*libhidapi"):
        make()


def test_an_old_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspacemouse", ModuleType("pyspacemouse"))
    with pytest.raises(EnvironmentFailure, match=r"older than 2\.1.*pip install 'rlinf\[teleop\]'"):
        make()


def test_a_missing_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspacemouse", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'rlinf\[teleop\]'"):
        make()


class HIDDevice:
    """The calls of ``easyhid.HIDDevice`` that the package makes; reports are those of a SpaceNavigator."""

    vendor_id, product_id, path = 0x46D, 0xC626, "/dev/hidraw0"
    product_string, manufacturer_string, release_number, serial_number = "SpaceNavigator", "3Dconnexion", 1, ""

    def __init__(self) -> None:
        self.reports: deque[bytes] = deque()
        self.num_reads = 0

    def open(self) -> None: ...

    def close(self) -> None: ...

    def set_nonblocking(self, enable_nonblocking: bool) -> None: ...

    def read(self, size: int = 64, timeout: int | None = None) -> bytes:
        self.num_reads += 1
        return self.reports.popleft() if self.reports else b""


def test_the_package_itself_reads_a_device_that_sends_its_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the package is installed: only what reads the system's devices is replaced."""
    pytest.importorskip("pyspacemouse", reason="pyspacemouse is not installed")
    from pyspacemouse import api

    hid = HIDDevice()

    class Enumeration:
        device_list = [hid]

        def find(self) -> list[HIDDevice]:
            return self.device_list

    monkeypatch.setattr(api, "Enumeration", Enumeration)
    assert inspect.signature(api.open).parameters.keys() == OPENED_WITH.parameters.keys()
    intervener = make()
    # Translation, int16 each: x to the right, y towards the person, z down. Pushed away from the person, and up.
    hid.reports += [b"\x01" + (0).to_bytes(2, "little") * 3] * 20
    hid.reports.append(b"\x01" + b"".join(n.to_bytes(2, "little", signed=True) for n in (0, -140, -70)))
    assert act(intervener, hid) == [0.8, 0, 0.4, 0, 0, 0, 1]
    # Turned clockwise as seen from above: negative around the axis that points up.
    hid.reports.append(b"\x01" + bytes(6))
    hid.reports.append(b"\x02" + b"".join(n.to_bytes(2, "little", signed=True) for n in (0, 0, 140)))
    assert act(intervener, hid) == [0, 0, 0, 0, 0, -0.8, 1]
    hid.reports.append(b"\x02" + bytes(6))
    hid.reports.append(b"\x03\x01")
    assert act(intervener, hid) == [0, 0, 0, 0, 0, 0, -1]
    intervener.close()

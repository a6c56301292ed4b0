"""Servos on a serial bus: their package speaks protocol 2.0 with simulated ones, at the other end of a terminal."""

import math
import os
import struct
import sys
import threading
from collections.abc import Iterator

import pytest

from rlinf.envs.realworld.dynamixel_bus import DynamixelBus
from rlinf.errors import EnvironmentFailure, MissingPackageError

_WRITE, _SYNC_READ, _STATUS, _EVERYBODY = 0x03, 0x82, 0x55, 0xFE


class SimulatedServos:
    """Answers what is written to a terminal, as servos of the X series do."""

    def __init__(self, ticks: dict[int, int]) -> None:
        self.ticks, self.torque, self.lost = ticks, dict.fromkeys(ticks, 1), 0
        self._end, self._other = os.openpty()
        import termios
        import tty

        tty.setraw(self._other, termios.TCSANOW)
        self.port = os.ttyname(self._other)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        os.close(self._other)
        os.close(self._end)

    def _serve(self) -> None:
        pending = b""
        while True:
            try:
                pending += os.read(self._end, 256)
            except OSError:
                return
            while len(pending) >= 7 and len(pending) >= 7 + int.from_bytes(pending[5:7], "little"):
                size = 7 + int.from_bytes(pending[5:7], "little")
                self._answer(pending[:size])
                pending = pending[size:]

    def _answer(self, packet: bytes) -> None:
        assert packet[:4] == b"\xff\xff\xfd\x00"
        assert int.from_bytes(packet[-2:], "little") == crc(packet[:-2])
        number, instruction, parameters = packet[4], packet[7], packet[8:-2]
        if instruction == _WRITE and number in self.ticks:
            address, value = int.from_bytes(parameters[:2], "little"), parameters[2]
            assert address == 64
            self.torque[number] = value
            self._send(number, b"")
        elif instruction == _SYNC_READ:
            assert number == _EVERYBODY
            assert struct.unpack("<HH", parameters[:4]) == (132, 4)
            if self.lost:
                self.lost -= 1
                return
            for each in parameters[4:]:
                if each in self.ticks:
                    self._send(each, struct.pack("<i", self.ticks[each]))

    def _send(self, number: int, data: bytes) -> None:
        # What looks like a header within a packet is followed by one more byte.
        body = bytes([_STATUS, 0]) + data
        body = body.replace(b"\xff\xff\xfd", b"\xff\xff\xfd\xfd")
        packet = b"\xff\xff\xfd\x00" + bytes([number]) + (len(body) + 2).to_bytes(2, "little") + body
        os.write(self._end, packet + crc(packet).to_bytes(2, "little"))


def crc(data: bytes) -> int:
    """CRC-16 of the polynomial 0x8005, bit by bit."""
    value = 0
    for byte in data:
        value ^= byte << 8
        for _ in range(8):
            value = ((value << 1) ^ 0x8005) & 0xFFFF if value & 0x8000 else (value << 1) & 0xFFFF
    return value


@pytest.fixture
def servos() -> Iterator[SimulatedServos]:
    pytest.importorskip("dynamixel_sdk", reason="dynamixel-sdk is not installed")
    simulated = SimulatedServos({1: 0, 2: 1024, 8: -2048})
    yield simulated
    simulated.close()


def test_positions_are_read_in_the_order_of_the_servos(servos: SimulatedServos) -> None:
    bus = DynamixelBus(servos.port, baudrate=57600, ids=[2, 1, 8])
    assert servos.torque == {1: 0, 2: 0, 8: 0}  # a person can move them
    assert bus.positions().tolist() == [math.pi / 2, 0.0, -math.pi]
    servos.ticks |= {1: 4096 * 2, 2: -3 * 256 - 1}
    assert bus.positions().tolist() == pytest.approx([-769 * 2 * math.pi / 4096, 4 * math.pi, -math.pi])
    bus.close()


def test_a_lost_packet_is_asked_for_again_and_a_dead_bus_is_told(servos: SimulatedServos) -> None:
    bus = DynamixelBus(servos.port, baudrate=57600, ids=[1, 2])
    servos.lost = 2
    assert bus.positions().tolist() == [0.0, math.pi / 2]
    servos.lost = 1000
    with pytest.raises(EnvironmentFailure, match=r"one of the servos \[1, 2\] at .* does not answer"):
        bus.positions()
    bus.close()


def test_a_servo_that_is_not_there_is_named(servos: SimulatedServos) -> None:
    with pytest.raises(EnvironmentFailure, match=r"servo 5 at .*joint_ids, gripper_id"):
        DynamixelBus(servos.port, baudrate=57600, ids=[1, 5])


@pytest.mark.usefixtures("servos")
def test_a_port_that_is_not_there_is_told() -> None:
    with pytest.raises(EnvironmentFailure, match="'/dev/no-arm' cannot be opened"):
        DynamixelBus("/dev/no-arm", baudrate=57600, ids=[1])


def test_a_missing_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dynamixel_sdk", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'rlinf\[teleop\]'"):
        DynamixelBus("/dev/arm", baudrate=57600, ids=[1])

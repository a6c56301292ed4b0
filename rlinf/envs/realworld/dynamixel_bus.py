"""Positions of Dynamixel servos on one serial bus (protocol 2.0), read all at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlinf.envs.realworld.poses import Vector
from rlinf.errors import EnvironmentFailure
from rlinf.utils.optional import require

_TORQUE_ENABLE, _PRESENT_POSITION, _POSITION_BYTES = 64, 132, 4
"""Of the control table of X-series servos: addresses, and the length of a position."""
_TICKS_PER_TURN = 4096
_ATTEMPTS = 3
"""How often a bus that loses a packet is queried before it counts as broken."""


class DynamixelBus:
    """Servos that a person moves: their motors are switched off.

    Args:
        port: Serial device of the adapter.
        baudrate: Bits per second that the servos are set to.
        ids: Of the servos, in the order of the positions.

    Raises:
        EnvironmentFailure: The port cannot be opened, or a servo does not answer.
        MissingPackageError: dynamixel-sdk is not installed.
    """

    def __init__(self, port: str, *, baudrate: int, ids: Sequence[int]) -> None:
        sdk: Any = require("dynamixel_sdk", needed_by="the wrapper intervention (gello)")
        self.name, self.ids = port, list(ids)
        self._sdk, self._port, self._packets = sdk, sdk.PortHandler(port), sdk.PacketHandler(2.0)
        try:
            self._port.setBaudRate(baudrate)  # opens it
        except OSError as error:
            raise EnvironmentFailure(
                f"env.*.wrappers: intervention: port: '{port}' cannot be opened: {error}. Check the cable, the name "
                "(ls /dev/serial/by-id) and that this user is in the group dialout."
            ) from error
        self._reader = sdk.GroupSyncRead(self._port, self._packets, _PRESENT_POSITION, _POSITION_BYTES)
        for number in self.ids:
            self._require(self._packets.write1ByteTxRx(self._port, number, _TORQUE_ENABLE, 0)[0], f"servo {number}")
            self._reader.addParam(number)

    def positions(self) -> Vector:
        """Return the angles of the servos, radians [N]; more than a turn from 0 where they have been turned so far.

        Raises:
            EnvironmentFailure: One does not answer.
        """
        for _ in range(_ATTEMPTS):
            result = self._reader.txRxPacket()
            if result == self._sdk.COMM_SUCCESS:
                break
        self._require(result, f"one of the servos {self.ids}")
        ticks = [self._reader.getData(number, _PRESENT_POSITION, _POSITION_BYTES) for number in self.ids]
        signed = np.array(ticks, np.uint32).view(np.int32)
        return signed.astype(np.float64) * (2.0 * math.pi / _TICKS_PER_TURN)

    def close(self) -> None:
        """Free the port."""
        self._port.closePort()

    def _require(self, result: int, who: str) -> None:
        if result != self._sdk.COMM_SUCCESS:
            raise EnvironmentFailure(
                f"env.*.wrappers: intervention: {who} at '{self.name}' does not answer "
                f"({self._packets.getTxRxResult(result)}). Check the power of the arm, joint_ids, gripper_id and "
                "baudrate."
            )

"""Faults of kinds of accelerators: listings, variables, devices of torch and backends."""

from tests.mutation.fault import Fault

_ACCELERATORS = ("tests/unit/scheduler/test_accelerators.py",)
_UTIL = ("tests/unit/scheduler/test_accelerator_util.py",)
_PLATFORM = ("tests/unit/scheduler/test_platform.py",)
_KINDS = ("tests/unit/placement/test_accelerator_kinds.py",)

FAULTS: list[Fault] = [
    Fault(
        "rlinf/scheduler/accelerators.py",
        "        listing = (read_listing or _read_listing)(kind)\n",
        "        listing = (read_listing or _read_listing)(ACCELERATOR_KINDS[0])\n",
        _ACCELERATORS,
        "only NVIDIA's devices are looked for",
    ),
    Fault(
        "rlinf/scheduler/accelerators.py",
        "for name in kind.visible_variables if name in visible), None)",
        "for name in kind.visible_variables[:1] if name in visible), None)",
        _ACCELERATORS,
        "the former variable of a kind is not read",
    ),
    Fault(
        "rlinf/scheduler/accelerators.py",
        "NodeAccelerators(kind.type if devices else AcceleratorType.NO_ACCEL, devices)",
        "NodeAccelerators(kind.type, devices)",
        _ACCELERATORS,
        "a node whose devices are hidden has a kind",
    ),
    Fault(
        "rlinf/scheduler/platform.py",
        "    if placed_on is not None and placed_on.torch_package:\n",
        "    if False:\n",
        _PLATFORM,
        "the package that brings a device is not imported",
    ),
    Fault(
        "rlinf/scheduler/platform.py",
        "if module is not None and module.is_available():",
        "if module is not None:",
        _PLATFORM,
        "a device is taken that torch cannot use",
    ),
    Fault(
        "rlinf/placement/accelerator_kinds.py",
        '        collective_backend="hccl",\n',
        '        collective_backend="nccl",\n',
        _KINDS,
        "NPUs talk by NCCL",
    ),
    Fault(
        "rlinf/scheduler/accelerator_util.py",
        "if kind is None and accelerator_type != AcceleratorType.NO_ACCEL:",
        "if False:",
        _UTIL,
        "an unknown kind is taken for none",
    ),
    Fault(
        "rlinf/scheduler/channel/queue.py",
        "        return list(self._lanes[key].items) if key in self._lanes else []\n",
        "        return list(self._lanes[key].items)[:1] if key in self._lanes else []\n",
        ("tests/unit/scheduler/channel/test_channel.py",),
        "only the oldest item is looked at",
    ),
]

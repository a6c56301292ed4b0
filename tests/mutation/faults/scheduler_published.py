"""Calls of published code: names of workers, keyword arguments, arguments without effect."""

from tests.mutation.fault import Fault

_PUBLISHED = "rlinf/utils/published.py"
_ADDRESS = "rlinf/scheduler/address.py"
_MESSAGING = "rlinf/scheduler/messaging.py"
_WORKER = "rlinf/scheduler/worker.py"
_CHANNEL = "rlinf/scheduler/channel/channel.py"
_REGISTRY = "rlinf/scheduler/group_registry.py"
_UNIT = "tests/unit/scheduler/"

FAULTS: list[Fault] = [
    Fault(
        file=_ADDRESS,
        before="        return WorkerAddress(self.group_name, [*self.parent_ranks, self.rank, rank])",
        after="        return WorkerAddress(self.group_name, [self.rank, rank])",
        tests=(_UNIT + "test_address.py",),
        what="the grandchild of a worker is its child",
    ),
    Fault(
        file="rlinf/scheduler/hardware_info.py",
        before='        return str(self.get("model", self["type"]))',
        after='        return str(self["type"])',
        tests=(_UNIT + "test_hardware_info.py",),
        what="every accelerator is of one model",
    ),
    Fault(
        file="rlinf/scheduler/probe.py",
        before="        if max_port_num is None or port <= max_port_num:",
        after="        if port:",
        tests=(_UNIT + "test_published_calls.py",),
        what="a port is larger than allowed",
    ),
    Fault(
        file=_WORKER,
        before="    tag = method.__name__ if given is None else given",
        after="    tag = str(given)",
        tests=(_UNIT + "test_published_calls.py",),
        what="a timer without a tag has not the method's name",
    ),
    Fault(
        file=_CHANNEL,
        before="isinstance(timeout, int | float) else",
        after="timeout is not None else",
        tests=(_UNIT + "test_published_calls.py",),
        what="a channel that is connected to with a worker reads it as seconds",
    ),
    Fault(
        file=_PUBLISHED,
        before="kwargs[name] = kwargs.pop(published)",
        after="kwargs.setdefault(published, None)",
        tests=("tests/unit/utils/test_published.py",),
        what="a published keyword argument does not reach its own name",
    ),
    Fault(
        file=_PUBLISHED,
        before="                    if name in kwargs:",
        after="                    if not name:",
        tests=("tests/unit/utils/test_published.py",),
        what="of an argument under both names one is lost",
    ),
    Fault(
        file=_PUBLISHED,
        before="@functools.cache\n",
        after="",
        tests=("tests/unit/utils/test_published.py",),
        what="an argument without effect is logged at every call",
    ),
    Fault(
        file=_ADDRESS,
        before="        return self.parent_ranks[-1] if self.parent_ranks else 0",
        after="        return self.parent_ranks[0] if self.parent_ranks else self.rank",
        tests=(_UNIT + "test_address.py",),
        what="the parent of a worker without one is the worker",
    ),
    Fault(
        file=_ADDRESS,
        before="    incarnation: int = field(compare=False)",
        after="    incarnation: int",
        tests=(_UNIT + "test_address.py",),
        what="a worker that was launched again is another one",
    ),
    Fault(
        file=_ADDRESS,
        before="        if not ranks or not all(rank.isdecimal() for rank in ranks):",
        after="        if not ranks:",
        tests=(_UNIT + "test_address.py",),
        what="a name that ends with no number is read as a rank",
    ),
    Fault(
        file=_MESSAGING,
        before="        tag, options = None, tag\n",
        after="        options = tag\n",
        tests=(_UNIT + "test_messaging.py",),
        what="options in the place of a tag stay the tag",
    ),
    Fault(
        file=_MESSAGING,
        before="if options is not None and options.use_ring_broadcast:",
        after="if False:",
        tests=(_UNIT + "test_messaging.py",),
        what="an option without effect is not noted",
    ),
    Fault(
        file=_MESSAGING,
        before="return gather(sent, lambda _: obj,",
        after="return gather(sent, lambda _: None,",
        tests=(_UNIT + "test_worker.py",),
        what="the source of a broadcast gets nothing",
    ),
    Fault(
        file=_WORKER,
        before="        if self._rank == self._world_size - 1:",
        after="        if self._rank == self._world_size:",
        tests=(_UNIT + "test_worker.py",),
        what="no rank is the last one",
    ),
    Fault(
        file=_WORKER,
        before='        return str(infos[0]["type"]) if infos else',
        after='        return str(infos[-1]["kind"]) if infos else',
        tests=(_UNIT + "test_worker.py",),
        what="hardware has no type",
    ),
    Fault(
        file=_CHANNEL,
        before="self._give(item, weight or 1, key, wait=False)",
        after="self._give(item, weight, key, wait=False)",
        tests=(_UNIT + "channel/test_channel.py",),
        what="the published default weight is refused",
    ),
    Fault(
        file=_REGISTRY,
        before="0 <= address.rank < group.world_size and address.rank not in group.gone",
        after="0 <= address.rank < group.world_size",
        tests=(_UNIT + "test_worker.py",),
        what="a worker that has died is alive",
    ),
    Fault(
        file="rlinf/scheduler/cluster.py",
        before="list(range(end - node.num_accelerators, end))",
        after="list(range(node.num_accelerators))",
        tests=(_UNIT + "test_cluster_lifecycle.py::test_published_members",),
        what="accelerators are counted from 0 on every node",
    ),
    Fault(
        file="rlinf/utils/timing.py",
        before="return self._totals.pop(tag).seconds",
        after="return self._totals[tag].seconds",
        tests=(_UNIT + "test_worker.py",),
        what="the seconds of a timer are counted twice",
    ),
    Fault(
        "rlinf/scheduler/comm/device_transfers.py",
        "ends = (sender, receiver, options)",
        "ends = (sender, receiver, CollectiveGroupOptions())",
        ("tests/unit/scheduler/comm/test_device_transfers.py",),
        "the first options of two workers hold for all that they exchange",
    ),
    Fault(
        "rlinf/scheduler/comm/device_transfers.py",
        "chosen.config.max_ctas = options.accel_max_ctas",
        "chosen.config.min_ctas = options.accel_max_ctas",
        ("tests/unit/scheduler/comm/test_device_transfers.py",),
        "the most thread blocks are the fewest",
    ),
    Fault(
        "rlinf/scheduler/comm/device_transfers.py",
        "if uid in ends[:2]]",
        "if uid in ends[:1]]",
        ("tests/unit/scheduler/comm/test_device_transfers.py",),
        "links to a dead receiver stay",
    ),
    Fault(
        "rlinf/scheduler/messaging.py",
        "runtime.devices.parker(receiver.endpoint, options)",
        "runtime.devices.parker(receiver.endpoint)",
        ("tests/unit/scheduler/test_runtime_tensors.py",),
        "options get lost on their way to the link",
    ),
]

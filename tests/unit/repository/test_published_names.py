"""Names that users know, from the documents and from published code: each exists, takes its arguments, has its keys."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import typing
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repository_tree import PACKAGE, ROOT

from rlinf.cli import main
from rlinf.cli.plan import add_arguments as add_plan_arguments
from rlinf.config import metric_names, registries
from rlinf.config.schema import algorithm, cluster, root, runner, train
from rlinf.placement import AcceleratorType, Placement
from rlinf.scheduler.environment import launch_environment

MIGRATED = "`rlinf migrate` writes the section agent in its place"
ELSEWHERE = "its recipes are in examples/agents, for the launcher there"

EXPECTED_MISSING = {
    "key agentloop of a recipe": MIGRATED,
    "key tools of a recipe": MIGRATED,
    "examples/searchr1": ELSEWHERE,
    "examples/coding_online_rl": ELSEWHERE,
    "examples/multiturn_demo": ELSEWHERE,
    "examples/wideseek_r1": ELSEWHERE,
}
"""What is published and has another form here, with what it is; adding it removes its line."""


@dataclass(frozen=True)
class Member:
    """A function, class, method or attribute.

    Attributes:
        path: Its place in the module, with dots.
        arguments: As in a ``def``, without self: order and defaults count before ``*``, and ``...`` is any default;
            further arguments may follow. None is not called.
    """

    path: str
    arguments: str | None = None


MEMBERS: dict[str, list[Member]] = {
    "rlinf.scheduler": [
        Member("Cluster", "num_nodes=None, cluster_cfg=None"),
        *(Member(f"Cluster.{name}") for name in ("num_nodes", "num_accelerators", "accelerator_ranks", "close")),
        *(Member(f"Cluster.{name}") for name in ("__enter__", "__exit__")),
        *(Member(f"Cluster.{name}", "") for name in ("has_initialized", "get_alive_nodes")),
        Member("Cluster.find_free_port", "max_port_num=None"),
        Member("Cluster.get_node_group", "label=..."),
        Member("Cluster.get_node_info", "node_rank"),
        Member("Cluster.get_node_ip", "node_rank"),
        Member("Cluster.allocate", "cls"),
        *(Member(f"Worker.{name}") for name in ("worker_address", "device", "has_accelerator", "hardware_infos")),
        *(Member(f"Worker.{name}") for name in ("torch_platform", "torch_device_type", "device_lock")),
        *(Member(f"Worker.{name}") for name in ("worker_info", "hardware_type", "manager_proxy")),
        *(Member(f"Worker.{name}", "") for name in ("get_name", "get_parent_rank", "pop_execution_times")),
        Member("Worker.check_worker_alive", "worker_name"),
        Member("Worker.send", "obj, dst_group_name, dst_rank, async_op=False, tag=None, timeout=None"),
        Member("Worker.send", "*, object, dst_group_name, dst_rank, async_op=False, options=None"),
        Member("Worker.recv", "src_group_name, src_rank, async_op=False, tag=None, timeout=None, options=None"),
        Member("Worker.send_tensor", "tensor, dst_group_name, dst_rank, async_op=False, tag=None, timeout=None"),
        Member("Worker.recv_tensor", "tensor, src_group_name, src_rank, async_op=False, tag=None, timeout=None"),
        Member("Worker.broadcast", "obj=None, groups=None, src=None, async_op=False, options=None"),
        Member("Worker.broadcast", "*, object=None"),
        Member("Worker.send_tensor", "tensor, dst_group_name, dst_rank, async_op=False, *, options=None"),
        Member("Worker.recv_tensor", "tensor, src_group_name, src_rank, async_op=False, *, options=None"),
        Member("Worker.create_channel", "channel_name, maxsize=0, distributed=False, node_rank=..., local=False"),
        Member("Worker.create_channel", "name, maxsize=0"),
        Member("Worker.connect_channel", "channel_name"),
        Member("Worker.connect_channel", "name"),
        Member("Worker.send_to", "group_name, channel, batch, *, route_key=0, tag=None, batch_dim=0, async_op=False"),
        Member("Worker.recv_from", "group_name, channel, *, route_key=0, tag=None, batch_dim=0, async_op=False"),
        Member("Worker.acquire_free_port", "max_port_num=None"),
        *(Member(f"Worker.log_{level}", "message") for level in ("debug", "info", "warning", "error")),
        *(Member(f"Worker.log_on_{which}_rank", "message") for which in ("first", "last")),
        *(Member(f"Worker.log_{where}", "msg") for where in ("info", "on_first_rank", "on_last_rank")),
        *(Member(f"Worker.{name}", "tag=None, trace=True") for name in ("worker_timer", "timer")),
        Member("Worker.pop_execution_time", "tag"),
        Member("Worker.create_group"),
        Member(
            "WorkerGroup.launch",
            "cluster, placement_strategy=None, name=None, max_concurrency=None, isolate_gpu=True, restart='never', *, "
            "catch_system_failure=None, disable_distributed_log=None",
        ),
        Member("WorkerGroup.execute_on"),
        Member("WorkerGroup.from_group_name", "worker_class, name"),
        Member("WorkerGroup.from_group_name", "worker_cls, group_name"),
        *(Member(f"WorkerGroup.{name}") for name in ("worker_info_list", "close", "_close")),
        *(Member(f"WorkerGroup.{name}") for name in ("worker_cls_name", "worker_group_name")),
        *(Member(f"WorkerGroupFuncResult.{name}") for name in ("wait", "async_wait", "done")),
        Member("AsyncWork.wait", "timeout=None"),
        Member("AsyncWork.async_wait", ""),
        Member("AsyncWork.done", ""),
        Member("AsyncWork.then", "fn"),
        Member("WorkerAddress", "root_group_name, ranks"),
        *(Member(f"WorkerAddress.{name}", "") for name in ("get_name", "get_parent_rank", "get_parent_address")),
        Member("WorkerAddress.get_child_address", "rank"),
        Member("WorkerAddress.from_name", "worker_name"),
        Member("WorkerAddress.from_parent_name_rank", "parent_name, rank"),
        Member("WorkerAddress.root_group_name"),
        Member("WorkerAddress.rank"),
        Member(
            "CollectiveGroupOptions",
            "*, accel_cluster_size=None, accel_max_ctas=None, accel_min_ctas=None, is_high_priority_stream=False, "
            "use_ring_broadcast=False",
        ),
        Member("CollectiveGroupOptions.is_empty_options", ""),
        Member("Channel.create", "name, maxsize=0, distributed=False"),
        Member("Channel.create", "name, maxsize=0, *, node_rank=..., local=False, disable_distributed_log=..."),
        Member("Channel.connect", "name"),
        Member("Channel.connect", "*, name, current_worker=None"),
        Member("Channel.put", "item, weight=1, key='default', async_op=False"),
        Member("Channel.put_nowait", "item, weight=0, key='default'"),
        Member("Channel.get", "key='default', async_op=False, timeout=None"),
        Member("Channel.get_nowait", "key='default'"),
        Member("Channel.get_batch", "target_weight=0, key='default', async_op=False"),
        *(Member(f"Channel.{name}", "key='default'") for name in ("qsize", "empty", "full", "peek_all")),
        Member("Channel.close", ""),
        Member("Channel.is_local"),
        Member(
            "PackedPlacementStrategy",
            "start_hardware_rank, end_hardware_rank, num_hardware_per_process=1, stride=1, node_group=None",
        ),
        Member("FlexiblePlacementStrategy", "hardware_ranks_list, node_group_label=None"),
        Member("NodePlacementStrategy", "node_ranks, node_group_label=None"),
        *(
            Member(f"{kind}PlacementStrategy.get_placement", "cluster, isolate_accelerator=True")
            for kind in ("Packed", "Flexible", "Node")
        ),
        Member(
            "Placement",
            "*, rank, node_group_label, cluster_node_rank, placement_node_rank, local_rank, local_world_size, "
            "local_accelerator_rank, accelerator_type, visible_accelerators, isolate_accelerator, local_hardware_ranks",
        ),
        Member("ComponentPlacement", "cfg, cluster"),
        Member("ComponentPlacement", "*, config, cluster"),
        Member("ComponentPlacement.components"),
        Member("PlacementStrategy"),
        *(Member(f"HardwareInfo{name}") for name in ("", ".type", ".model", ".config")),
        Member("AcceleratorType"),
        Member("AcceleratorUtil"),
        Member("AcceleratorUtil.get_accelerator_type", ""),
        Member("AcceleratorUtil.get_accelerator_env_var", "accelerator_type, visible_accelerators"),
        *(
            Member(f"AcceleratorUtil.get_{name}", "accelerator_type")
            for name in (
                *("visible_devices", "ccl_backend", "ccl_socket_ifname_env_var"),
                *("torch_platform", "device_type"),
            )
        ),
    ],
    "rlinf.placement": [Member("plan_component", "spec, resources_per_node, kind='accelerator'")],
    "rlinf.utils.placement": [
        Member("PlacementMode"),
        *(
            Member(f"{kind}ComponentPlacement{member}", arguments)
            for kind in ("", "Hybrid", "ModelParallel")
            for member, arguments in (
                ("", "cfg, cluster"),
                (".get_strategy", "component"),
                (".get_world_size", "component"),
                (".placement_mode", None),
            )
        ),
    ],
    "rlinf.config": [
        Member("build_config", "cfg"),
        Member("validate_cfg", "cfg"),
        Member("SupportedModel"),
        Member("get_supported_model", "model_type"),
    ],
    "rlinf.envs": [Member("SupportedEnvType"), Member("get_env_cls", "env_type"), Member("register_env", "name, cls")],
    "rlinf.models": [Member("get_model", "cfg"), Member("register_model", "name, builder")],
    "rlinf.algorithms.registry": [
        *(Member(f"register_{kind}", "name") for kind in ("advantage", "policy_loss")),
        *(Member(name) for name in ("calculate_adv_and_returns", "policy_loss")),
        Member("get_adv_and_returns", "name"),
    ],
    "rlinf.algorithms.rewards": [Member("register_reward", "name"), Member("get_reward_class", "name")],
    "rlinf.telemetry": [Member("MetricLogger")],
    "rlinf.utils.logging": [Member("get_logger", "name=None")],
}

BUILT_IN_ERRORS = {
    "ConfigError": (AssertionError, ValueError),
    "PlacementError": (AssertionError, ValueError),
    "RegistryError": (ValueError,),
    "AlgorithmError": (ValueError,),
    "PayloadError": (ValueError,),
    "MetricError": (ValueError,),
    "CommTimeoutError": (TimeoutError,),
    "ConformanceError": (AssertionError,),
    "MissingPackageError": (ImportError,),
    "UnsupportedError": (AttributeError,),
}
"""By our error: what callers of the published system catch in its place."""

COMMANDS = ("doctor", "plan", "list", "status", "report", "replay", "convert")
LISTINGS = ("envs", "models", "algorithms", "rewards", "engines", "recipes")
SCRIPTS = (
    *(f"examples/embodiment/{name}" for name in ("train_embodied_agent.py", "train_async.py")),
    *(f"examples/embodiment/{name}" for name in ("run_embodiment.sh", "eval_embodiment.sh")),
    *(f"examples/reasoning/{name}" for name in ("main_grpo.py", "run_main_grpo_math.sh")),
    *(f"examples/sft/{name}" for name in ("main_sft.py", "run_sft.sh")),
    *(f"examples/{name}" for name in ("searchr1", "coding_online_rl", "multiturn_demo", "wideseek_r1")),
)

WORKER_VARIABLES = (
    *("GROUP_NAME", "WORKER_NAME", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK"),
    *("CLUSTER_NODE_RANK", "NODE_LOCAL_RANK", "NODE_LOCAL_WORLD_SIZE", "LOCAL_ACCELERATOR_RANK", "VISIBLE_DEVICES"),
    *("CUDA_VISIBLE_DEVICES", "ACCELERATOR_TYPE", "LOCAL_HARDWARE_RANKS", "NODE_GROUP_LABEL", "CLUSTER_NAMESPACE"),
)
LAUNCHED_VARIABLES = ("MASTER_ADDR", "MASTER_PORT")
"""Known only when rank 0 has started; ``test_identity_variables`` reads one in a worker."""
USER_VARIABLES = (
    *("RLINF_NODE_RANK", "RLINF_COMM_NET_DEVICES", "RLINF_CPU_SLOTS", "RLINF_TIMEOUT_SECONDS"),
    *("RLINF_CLUSTER_TIMEOUT_SECONDS", "RLINF_LOG_LEVEL", "RLINF_EXT_MODULE"),
)

SECTIONS = (
    *("cluster", "runner", "algorithm", "env", "rollout", "actor", "critic", "reward", "data", "inference"),
    *("weight_syncer", "agentloop", "tools"),
)
KEYS: list[tuple[str, type[Any], tuple[str, ...]]] = [
    ("cluster", cluster.ClusterConfig, ("num_nodes", "cpu_slots_per_node", "component_placement", "node_groups")),
    ("cluster.component_placement", cluster.ComponentPlacementConfig, ("node_group", "placement")),
    (
        "cluster.node_groups",
        cluster.NodeGroupConfig,
        ("label", "node_ranks", "env_configs", "hardware", "ignore_hardware", "accelerators_per_node"),
    ),
    ("env_configs", cluster.EnvConfigs, ("node_ranks", "env_vars", "python_interpreter_path")),
    ("hardware", cluster.HardwareConfig, ("type", "configs")),
    ("runner", runner.RunnerConfig, ("logger", "resume_dir", "keep_checkpoints", "keep_best", "overwrite")),
    ("runner.logger", runner.LoggerConfig, ("logger_backends", "log_path", "experiment_name")),
    ("actor", train.ActorConfig, ("model", "optim", "fsdp_config", "megatron")),
    ("algorithm", algorithm.EmbodiedAlgorithmConfig, ("reward_type", "logprob_type", "entropy_type")),
    ("algorithm", algorithm.GroupFilterConfig, ("filter_rewards", "rewards_lower_bound", "rewards_upper_bound")),
]

REGISTERED: list[tuple[str, Iterable[str], str]] = [
    ("adv_type", registries.advantages.configs, "gae grpo reinpp reinpp_baseline rloo raw"),
    (
        "loss_type",
        registries.losses.configs,
        "actor actor_critic decoupled_actor_critic gspo cispo embodied_sac embodied_crossq embodied_td3 embodied_bc "
        "embodied_dagger embodied_nft offline_iql",
    ),
    ("reward", registries.rewards.configs, "math code vqa searchr1 model"),
    ("logger_backend", registries.metric_backends, "tensorboard wandb swanlab"),
    ("level", typing.get_args(algorithm.Level), "token_level action_level chunk_level"),
    (
        "loss_agg_func",
        typing.get_args(algorithm.LossAggregation),
        "token-mean seq-mean-token-sum seq-mean-token-sum-norm seq-mean-token-mean",
    ),
    ("kl_penalty", typing.get_args(algorithm.KLPenalty), "k1 abs k2 k3 kl low_var_kl"),
    ("eval metric", metric_names.EPISODE_METRICS, "success_once success_at_end return reward episode_len"),
]


def missing_arguments(function: Any, arguments: str) -> Iterator[str]:
    """Yield what a function lacks of a signature, in words."""
    wanted = inspect.signature(eval(f"lambda {arguments}: None")).parameters.values()
    renamed = getattr(function, "published_keywords", {})
    accepted = inspect.signature(function).parameters
    by_position = [
        name for name, one in accepted.items() if name != "self" and one.kind is not inspect.Parameter.KEYWORD_ONLY
    ]
    for number, parameter in enumerate(wanted):
        name = renamed.get(parameter.name, parameter.name)
        if name not in accepted:
            yield f"has no argument '{parameter.name}'"
        elif parameter.default not in {inspect.Parameter.empty, ..., accepted[name].default}:
            yield f"has {parameter.name}={accepted[name].default!r} instead of {parameter.default!r}"
        elif parameter.kind is not inspect.Parameter.KEYWORD_ONLY and by_position[number : number + 1] != [name]:
            yield f"takes '{parameter.name}' in another place than {number + 1}"


def missing_members(members: dict[str, list[Member]]) -> Iterator[str]:
    """Yield a line for each member that is not there, or cannot be called as published."""
    for module, entries in members.items():
        for member in entries:
            found = importlib.import_module(module)
            for name in member.path.split("."):
                fields = getattr(found, "__dataclass_fields__", {})
                found = getattr(found, name, fields.get(name))
            if found is None:
                yield f"{module}.{member.path} is missing"
            elif member.arguments is not None:
                problems = missing_arguments(found, member.arguments)
                yield from (f"{module}.{member.path} {problem}" for problem in problems)


def missing_keys() -> Iterator[str]:
    roots = (root.EmbodiedConfig, root.ReasoningConfig, root.SftConfig)
    known = {field.name for config in roots for field in dataclasses.fields(config)}
    yield from (f"key {name} of a recipe" for name in SECTIONS if name not in known)
    for path, config, names in KEYS:
        known = {field.name for field in dataclasses.fields(config)}
        yield from (f"key {name} of {path}" for name in names if name not in known)
    for kind, present, names_text in REGISTERED:
        yield from (f"{kind} {name}" for name in names_text.split() if name not in present)


def missing_elsewhere() -> Iterator[str]:
    yield from (f"rlinf {name}" for name in COMMANDS if name not in main.COMMANDS)
    listing = importlib.import_module("rlinf.cli.listing")
    yield from (f"rlinf list {name}" for name in LISTINGS if name not in listing.LISTINGS)
    plan = inspect.getsource(add_plan_arguments)
    yield from (f"rlinf plan {flag}" for flag in ("--accelerators-per-node",) if flag not in plan)
    yield from (name for name in SCRIPTS if not (ROOT / name).exists())
    seat = Placement(
        rank=0,
        node_group_label="cluster",
        cluster_node_rank=0,
        placement_node_rank=0,
        local_rank=0,
        local_world_size=1,
        local_accelerator_rank=-1,
        accelerator_type=AcceleratorType.NO_ACCEL,
        visible_accelerators=[],
        isolate_accelerator=True,
        local_hardware_ranks=[],
    )
    variables = launch_environment("group", seat, [seat], "run", [])
    yield from (f"a worker's variable {name}" for name in WORKER_VARIABLES if name not in variables)
    shell = (PACKAGE / "scheduler" / "shell.py").read_text(encoding="utf-8")
    yield from (f"a worker's variable {name}" for name in LAUNCHED_VARIABLES if f"{name}=" not in shell)
    sources = "".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    yield from (f"the variable {name}" for name in USER_VARIABLES if f'"{name}"' not in sources)


def missing_errors() -> Iterator[str]:
    errors = importlib.import_module("rlinf.errors")
    for name, bases in BUILT_IN_ERRORS.items():
        yield from (f"{name} is no {base.__name__}" for base in bases if not issubclass(getattr(errors, name), base))


def test_every_published_name_is_there_or_announced() -> None:
    missing = [*missing_members(MEMBERS), *missing_keys(), *missing_elsewhere(), *missing_errors()]
    surprising = [line for line in missing if line not in EXPECTED_MISSING]
    assert not surprising, "published, and not as published here:\n" + "\n".join(surprising)
    there = sorted(EXPECTED_MISSING.keys() - set(missing))
    assert not there, f"these are there by now; remove them from EXPECTED_MISSING: {there}"


def not_called(members: dict[str, list[Member]], tests: Iterable[Path]) -> Iterator[str]:
    """Yield a line for each published function or argument that no test passes."""
    positions, keywords = Counter[str](), defaultdict[str, set[str | None]](set)
    for path in tests:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
                # A call without arguments counts, too.
                positions[name] = max(positions[name], len(node.args) + 1)
                keywords[name].update(keyword.arg for keyword in node.keywords)
    for module, entries in members.items():
        for member in entries:
            name = member.path.rpartition(".")[2]
            if member.arguments is None:
                continue
            if not positions[name]:
                yield f"{module}.{member.path} is called by no test"
                continue
            (function,) = ast.parse(f"def call({member.arguments}): ...").body
            assert isinstance(function, ast.FunctionDef)
            by_place = [argument.arg for argument in function.args.args][positions[name] - 1 :]
            for argument in [*by_place, *(argument.arg for argument in function.args.kwonlyargs)]:
                if argument not in keywords[name]:
                    yield f"{module}.{member.path}({argument}=) is given by no test"


def test_every_published_call_is_made_by_a_test() -> None:
    tests = [path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)]
    assert list(not_called(MEMBERS, tests)) == []


def test_a_call_that_no_test_makes_is_a_readable_line(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("worker.send(1, 'g', async_op=True)\nclose()\n", encoding="utf-8")
    published = [Member("W.send", "obj, group, rank, async_op=False, *, tag=None"), Member("W.recv", ""), Member("W.x")]
    assert list(not_called({"m": [*published, Member("close", "")]}, [tmp_path / "test_a.py"])) == [
        "m.W.send(rank=) is given by no test",
        "m.W.send(tag=) is given by no test",
        "m.W.recv is called by no test",
    ]


def test_the_attributes_of_a_worker_are_there() -> None:
    worker = importlib.import_module("rlinf.scheduler").Worker()
    assert [
        name for name in ("_rank", "_world_size", "_group_name", "_worker_address") if not hasattr(worker, name)
    ] == []


def test_a_missing_name_or_argument_is_a_readable_line() -> None:
    wrong = [
        Member("Channel.create", "name, local=False"),
        Member("Channel.create", "name, maxsize=1, *, size"),
        Member("Channel.open"),
        Member("Worker.broadcast", "object"),
    ]
    assert list(missing_members({"rlinf.scheduler": wrong})) == [
        "rlinf.scheduler.Channel.create takes 'local' in another place than 2",
        "rlinf.scheduler.Channel.create has maxsize=0 instead of 1",
        "rlinf.scheduler.Channel.create has no argument 'size'",
        "rlinf.scheduler.Channel.open is missing",
    ]

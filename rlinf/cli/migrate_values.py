"""Conversions of the table of published keys: values that follow from several keys of the published recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import fields
from typing import Any

from rlinf.cli.migrate_pi import pi_config
from rlinf.config.published_keys import value_at
from rlinf.config.schema.env import DataCollectionConfig, EnvConfig, VideoConfig
from rlinf.config.schema.realworld import hardware_types
from rlinf.envs.simulators.libero.libero_starts import NUM_TRIALS

Recipe = Mapping[str, Any]
Conversion = Callable[[Any, Recipe, tuple[str, ...]], dict[str, Any]]
"""Takes a key's value, the published recipe and what the stars of the rule stand for; returns our keys with values."""

_RANDOM_SHIFT_PIXELS = 4
"""Shift of the published image augmentation, which has no key."""
_ENV_KEYS = frozenset(field.name for field in fields(EnvConfig)) - {
    "data_collection",
    "enable_offload",
    "use_ordered_reset_state_ids",
}
"""Keys of a published section of ``env`` that are the host's, also where a guest runs the simulator."""
_HOST_KEYS = _ENV_KEYS | {"data_collection", "enable_offload", "is_eval", "only_eval"}
_COLLECTION_KEYS = frozenset(field.name for field in fields(DataCollectionConfig)) - {"save_dir"}
_VIDEO_KEYS = frozenset(field.name for field in fields(VideoConfig))
_DUMMY_ROBOT = "rlinf.envs.realworld.dummy_robot:DummyRobot"
_OPERATOR_KEYS = ("use_spacemouse", "use_gello", "use_gello_joint", "use_pico", "glove_config")
_HIDDEN_LAYERS = 3
"""Hidden layers of the published multi-layer perceptron, which has no key."""


def _chunk_steps(value: Any, recipe: Recipe, path: str) -> dict[str, Any]:
    """Trajectories of the published replay, each a rollout epoch of one environment, as chunk steps."""
    steps = value_at(recipe, "env.train.max_steps_per_rollout_epoch")
    chunk = value_at(recipe, "actor.model.num_action_chunks", 1)
    if not all(isinstance(number, int) for number in (value, steps, chunk)):
        return {path: "???"}
    return {path: max(1, value * steps // chunk)}


def _replay_capacity(value: Any, recipe: Recipe, groups: tuple[str, ...]) -> dict[str, Any]:
    del groups
    return _chunk_steps(value, recipe, "algorithm.replay_buffer.capacity")


def _replay_start(value: Any, recipe: Recipe, groups: tuple[str, ...]) -> dict[str, Any]:
    del groups
    return _chunk_steps(value, recipe, "algorithm.replay_buffer.min_buffer_size")


def _dagger_capacity(value: Any, recipe: Recipe, groups: tuple[str, ...]) -> dict[str, Any]:
    del groups
    return _chunk_steps(value, recipe, "algorithm.capacity")


def _min_lr_ratio(value: Any, recipe: Recipe, groups: tuple[str, ...]) -> dict[str, Any]:
    del groups
    lr = value_at(recipe, "actor.optim.lr", 0)
    decays = value_at(recipe, "actor.optim.lr_scheduler") or value_at(
        recipe, "actor.lr_sched.lr_decay_style", "constant"
    )
    if "constant" in str(decays) or not value or not lr:
        return {}
    return {"actor.optim.min_lr_ratio": min(1.0, float(value) / float(lr))}


def _warmup_share(value: Any, recipe: Recipe, groups: tuple[str, ...]) -> dict[str, Any]:
    del groups
    total = value_at(recipe, "actor.optim.total_training_steps") or value_at(recipe, "actor.lr_sched.lr_decay_iters", 0)
    if not value or not isinstance(total, int) or value_at(recipe, "actor.lr_sched.lr_warmup_iters"):
        return {}
    steps = int(float(value) * total)
    return {"actor.optim.lr_warmup_steps": steps} if steps else {}


def _global_batch(value: Any, recipe: Recipe, groups: tuple[str, ...]) -> dict[str, Any]:
    del groups
    prompts, answers = value_at(recipe, "data.rollout_batch_size"), value_at(recipe, "algorithm.group_size", 1)
    if not all(isinstance(number, int) for number in (prompts, answers, value)):
        return {"actor.global_batch_size": "???"}
    return {"actor.global_batch_size": prompts * answers // value}


def _clip_ratio(value: Any, recipe: Recipe, groups: tuple[str, ...]) -> dict[str, Any]:
    """The published default of those bounds that are null."""
    del groups
    paths = ("algorithm.clip_ratio_low", "algorithm.clip_ratio_high")
    return {path: value for path in paths if value_at(recipe, path) is None}


def _hidden_dims(value: Any, recipe: Recipe, groups: tuple[str, ...]) -> dict[str, Any]:
    del recipe, groups
    return {"actor.model.hidden_dims": [value] * _HIDDEN_LAYERS}


def _random_shift(value: Any, recipe: Recipe, groups: tuple[str, ...]) -> dict[str, Any]:
    del recipe, groups
    return {"actor.model.random_shift": _RANDOM_SHIFT_PIXELS} if value else {}


def _camera_size(value: Any, recipe: Recipe, groups: tuple[str, ...]) -> dict[str, Any]:
    """Size of the images that the model takes, as a key of the environment's."""
    size = value_at(recipe, "actor.model.image_size")
    if value == "state" or not isinstance(size, list):
        return {}
    return {f"env.{groups[0]}.image_size": size[-1]}


def _intervention(value: Any, recipe: Recipe, groups: tuple[str, ...]) -> dict[str, Any]:
    """Someone who takes over while training, or who collects; evaluations are left to the policy."""
    if not value or (groups[0] == "eval" and not _only_collects(recipe)):
        return {}
    return {
        f"env.{groups[0]}.wrappers": [{"name": "intervention", "intervener": {"intervener_type": "spacemouse"}}],
    }


def _operator_device(value: Any, recipe: Recipe, groups: tuple[str, ...]) -> dict[str, Any]:
    """Someone who takes over by a device that only the robot's driver reads."""
    if groups[0] == "eval" and not _only_collects(recipe):
        return {}
    return {f"env.{groups[0]}.wrappers": [{"name": "intervention", "intervener": {"intervener_type": "client"}}]}


def _only_collects(recipe: Recipe) -> bool:
    learns = value_at(recipe, "actor.model") or "algorithm" in recipe
    return value_at(recipe, "runner.task_type") == "embodied" and not learns


def _full_states(value: Any, recipe: Recipe, groups: tuple[str, ...]) -> dict[str, Any]:
    """States that contain the poses of objects."""
    del recipe
    return {f"env.{groups[0]}.init_params.obs_mode": "state"} if value else {}


def _observation_mode(value: Any, recipe: Recipe, groups: tuple[str, ...]) -> dict[str, Any]:
    """Images, unless the policy gets the full states, which images go with only in recordings."""
    full = value_at(recipe, f"env.{groups[0]}.use_full_state")
    # Segmentation is rendered for backgrounds that the published scenes alone replace.
    shown = "rgb" if "rgb" in str(value).split("+") else value
    return {f"env.{groups[0]}.init_params.obs_mode": "state" if full else shown}


def _robot(value: Any, recipe: Recipe, groups: tuple[str, ...]) -> dict[str, Any]:
    """Whether a stand-in answers; a robot needs a class that speaks to it, which only the user has."""
    del recipe
    path = f"env.{groups[0]}"
    return {f"{path}.is_dummy": True} if value else {f"{path}.is_dummy": False, f"{path}.client": "???"}


def _placement(value: Any, recipe: Recipe, groups: tuple[str, ...]) -> dict[str, Any]:
    """Placements of those components that ours have, too."""
    del groups
    removed = {"critic", "reward_server", "env_offload", "rollout_judge"}
    if not value_at(recipe, "reward.use_reward_model") and "env" in recipe:
        removed.add("reward")
    if value_at(recipe, "actor.training_backend") == "megatron":
        # The actor recomputes log-probabilities itself.
        removed.add("inference")
    if str(value_at(recipe, "actor.model.model_type")).endswith("_value_model"):
        removed |= {"env", "rollout"}
    if _only_collects(recipe):
        removed.add("reward")
        value = {"rollout": 0, **value}
    # A recipe that extends another may place a component once more: the later place holds.
    placed = {name.strip(): rule for names, rule in value.items() for name in str(names).split(",")}
    placed = {name: rule for name, rule in placed.items() if name not in removed}
    if "rollout" in placed and value_at(recipe, "reward.reward_type"):
        # Published rewards without a place of their own are computed where responses are generated.
        placed.setdefault("reward", placed["rollout"])
    if value_at(recipe, "runner.task_type") == "coding_online_rl":
        placed["reward"] = 0  # one process serves all clients
    if value_at(recipe, "runner.task_type") == "reasoning_eval":
        placed.setdefault("actor", placed["rollout"])  # it loads the weights
    kept: dict[str, Any] = {}
    for names in value:
        of_key = [name.strip() for name in str(names).split(",")]
        if of_key := [name for name in of_key if name in placed and placed[name] == value[names]]:
            kept[",".join(of_key)] = value[names]
            for name in of_key:
                del placed[name]
    kept |= placed
    return {"cluster.component_placement": kept}


def _paths(value: Any, recipe: Recipe, groups: tuple[str, ...]) -> dict[str, Any]:
    """One path as a list of one; what a recipe evaluates on has one name."""
    del recipe
    name = "val" if groups[0] == "eval" else groups[0]
    return {f"data.{name}_data_paths": value if isinstance(value, list) else [value]}


def _states(value: Any, recipe: Recipe, groups: tuple[str, ...]) -> dict[str, Any]:
    """States next to images, of the length that the environment says."""
    del value, recipe, groups
    return {"actor.model.obs_dim": None}


def _libero_start(value: Any, recipe: Recipe, groups: tuple[str, ...]) -> dict[str, Any]:
    """One of the start states of a suite, of which each task has as many."""
    del recipe
    task, trial = divmod(int(value), NUM_TRIALS)
    return {f"env.{groups[0]}.task_id_filter": [task], f"env.{groups[0]}.trial_id_filter": [trial]}


def _token_sampling(value: Any, recipe: Recipe, groups: tuple[str, ...]) -> dict[str, Any]:
    """How action tokens are sampled in training."""
    del recipe, groups
    temperature, top_k = value.get("temperature_train"), value.get("top_k", -1)
    found = {} if temperature is None else {"actor.model.temperature": float(temperature)}
    return {**found, **({"actor.model.top_k": top_k} if top_k > 0 else {})}


def _node_groups(value: Any, recipe: Recipe, groups: tuple[str, ...]) -> dict[str, Any]:
    """Node groups; of the robots what ours say of them."""
    del recipe, groups
    kept = []
    for group in value:
        hardware = group.get("hardware")
        known = hardware_types.configs.get(hardware["type"]) if _is_known_robot(hardware) else None
        if known is None and hardware:
            group = {**group, "hardware": {**hardware, "type": "Robot"}}
        elif known is not None:
            names = {field.name for field in fields(known)}
            robots = [_only(names, robot) for robot in hardware["configs"]]
            group = {**group, "hardware": {**hardware, "configs": robots}}
        kept.append(group)
    return {"cluster.node_groups": kept}


def _only(names: Set[str], section: Mapping[str, Any]) -> dict[str, Any]:
    return {key: item for key, item in section.items() if key in names}


def _collection(name: str, section: Mapping[str, Any], recipe: Recipe) -> dict[str, Any]:
    """What a section collects where it may: ``env.train`` in training, ``env.eval`` in a run that does not train."""
    keys = section.get("data_collection") or {}
    trains = not value_at(recipe, "runner.only_eval") and not _only_collects(recipe)
    collects = keys.get("enabled") and trains == (name == "train")
    return {"data_collection": _only(_COLLECTION_KEYS, keys)} if collects else {}


def _is_known_robot(hardware: Any) -> bool:
    return isinstance(hardware, Mapping) and hardware.get("type") in hardware_types.configs


def _episode_steps(value: Any, recipe: Recipe, groups: tuple[str, ...]) -> dict[str, Any]:
    """A rollout epoch as long as an episode."""
    del groups
    return {"env.eval.max_steps_per_rollout_epoch": value_at(recipe, "env.eval.max_episode_steps", value)}


def _expert_only(value: Any, recipe: Recipe, groups: tuple[str, ...]) -> dict[str, Any]:
    """Parts that keep their weights where the expert alone learns."""
    del recipe, groups
    return {"actor.model.freeze": ["vision", "projector", "language"]} if value else {}


def _guest(name: str) -> Conversion:
    """Return the conversion of a section whose simulator runs in a guest: its own keys are the adapter's arguments."""

    def convert(value: Any, recipe: Recipe, groups: tuple[str, ...]) -> dict[str, Any]:
        del groups
        model = value_at(recipe, "actor.model", {})
        action_dim = value_at(model, "action_dim") or value_at(model, "openpi.action_env_dim") or "???"
        params = {
            "env_type": value["env_type"],
            "action_dim": action_dim,
            "model_type": value_at(model, "model_type"),
            "policy_setup": value_at(model, "policy_setup"),
            **{key: item for key, item in value.items() if key not in _HOST_KEYS},
        }
        kept = _only(_ENV_KEYS, value) | _collection(name, value, recipe)
        video = {key: item for key, item in (value.get("video_cfg") or {}).items() if key in _VIDEO_KEYS}
        section = {**kept, "video_cfg": video, "env_type": "guest", "adapter": "published_rlinf", "init_params": params}
        return {f"env.{name}.{key}": item for key, item in section.items()}

    return convert


def _robot_section(name: str) -> Conversion:
    """Return the conversion of a section whose robot only a driver of the user's knows."""

    def convert(value: Any, recipe: Recipe, groups: tuple[str, ...]) -> dict[str, Any]:
        del groups
        own, model = value.get("override_cfg") or {}, value_at(recipe, "actor.model", {})
        kept = _only(_ENV_KEYS - {"video_cfg"}, value) | _collection(name, value, recipe)
        if name == "eval":  # a rollout epoch is an episode, however short the published one is
            kept["max_steps_per_rollout_epoch"] = value.get("max_episode_steps")
        section = {
            **kept,
            "env_type": "robot",
            "client": _DUMMY_ROBOT if own.get("is_dummy") else "???",
            "state_dim": value_at(model, "state_dim") or "???",
            "action_dim": value_at(model, "action_dim") or value_at(model, "openpi.action_env_dim") or "???",
        }
        if "task_description" in own:
            section["task_description"] = own["task_description"]
        operated = any(value.get(key) for key in _OPERATOR_KEYS) or own.get("enable_human_in_loop")
        if operated and (name == "train" or _only_collects(recipe)):
            section["wrappers"] = [{"name": "intervention", "intervener": {"intervener_type": "client"}}]
        return {f"env.{name}.{key}": item for key, item in section.items()}

    return convert


def _retrieval(value: Any, recipe: Recipe, groups: tuple[str, ...]) -> dict[str, Any]:
    """A search service, by its host and port."""
    del recipe, groups
    return {"agent.tools.search.tool_type": "retrieval", "agent.tools.search.url": f"http://{value}/retrieve"}


def _mixture(value: Any, recipe: Recipe, groups: tuple[str, ...]) -> dict[str, Any]:
    """Data sets of frames with their weights, of which the first stands apart; or the path of a single one."""
    del recipe, groups
    entries = [{"dataset_path": value}] if isinstance(value, str) else value
    return _first_apart([_only({"path", "weight"}, _with_path(entry)) for entry in entries])


def _judged(value: Any, recipe: Recipe, groups: tuple[str, ...]) -> dict[str, Any]:
    """Data sets of frames that are judged, with their kinds: to learn from, or to evaluate on."""
    del recipe
    sources = [_only({"path", "type", "weight"}, _with_path(entry)) for entry in value]
    if groups[0] == "train":
        return _first_apart(sources)
    largest = [entry["max_samples"] for entry in value if entry.get("max_samples") is not None]
    return {"data.val": sources} | ({"data.max_val_frames": sum(largest)} if largest else {})


def _judged_cameras(value: Any, recipe: Recipe, groups: tuple[str, ...]) -> dict[str, Any]:
    """Cameras without what the names of columns begin with."""
    del recipe, groups
    return {"actor.model.image_keys": [str(name).removeprefix("observation.images.") for name in value]}


def _image_sides(value: Any, recipe: Recipe, groups: tuple[str, ...]) -> dict[str, Any]:
    """Height and width, behind the channels."""
    del recipe, groups
    return {"actor.model.image_size": list(value)[-2:]}


def _with_path(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {**entry, "path": entry["dataset_path"]}


def _first_apart(entries: list[dict[str, Any]]) -> dict[str, Any]:
    first, *others = entries
    return {f"data.{name}": value for name, value in first.items()} | ({"data.mixture": others} if others else {})


CONVERSIONS: dict[str, Conversion] = {
    "camera_size": _camera_size,
    "clip_ratio": _clip_ratio,
    "dagger_capacity": _dagger_capacity,
    "episode_steps": _episode_steps,
    "expert_only": _expert_only,
    "full_states": _full_states,
    "global_batch": _global_batch,
    "guest_eval": _guest("eval"),
    "guest_train": _guest("train"),
    "hidden_dims": _hidden_dims,
    "image_sides": _image_sides,
    "intervention": _intervention,
    "judged": _judged,
    "judged_cameras": _judged_cameras,
    "libero_start": _libero_start,
    "min_lr_ratio": _min_lr_ratio,
    "mixture": _mixture,
    "node_groups": _node_groups,
    "observation_mode": _observation_mode,
    "paths": _paths,
    "pi_config": pi_config,
    "operator_device": _operator_device,
    "placement": _placement,
    "random_shift": _random_shift,
    "replay_capacity": _replay_capacity,
    "replay_start": _replay_start,
    "retrieval": _retrieval,
    "robot": _robot,
    "robot_eval": _robot_section("eval"),
    "robot_train": _robot_section("train"),
    "states": _states,
    "token_sampling": _token_sampling,
    "warmup_share": _warmup_share,
}
"""By the name that the table gives."""

"""``PutOnPlate25-v1``: ManiSkill's Panda puts one of 25 objects on a plate, as a sentence says; imports ManiSkill.

A stand-in for the published ``PutOnPlateInScene25`` tasks, whose meshes and photographs are on a hub: their success
rule, rewards and splits, with objects made of primitives. Importing this module registers the task with ManiSkill.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mani_skill.envs.sapien_env as sapien_env
import torch
from mani_skill.sensors.camera import CameraConfig
from mani_skill.utils import sapien_utils
from mani_skill.utils.registration import register_env
from mani_skill.utils.scene_builder.table import TableSceneBuilder
from mani_skill.utils.structs.pose import Pose
from mani_skill.utils.structs.types import SimConfig

from rlinf.envs.simulators.maniskill.plates_catalog import OBJECTS, PLATES, TABLES, Thing
from rlinf.envs.simulators.maniskill.plates_episodes import PlateEpisode, PlateSplits
from rlinf.envs.simulators.maniskill.plates_rules import HoldHistory, is_on_plate
from rlinf.envs.simulators.maniskill.plates_scene import build_overlay, build_thing, object_poses, plate_poses
from rlinf.utils.optional import require

CAMERA = "3rd_view_camera"
_EYE, _TARGET = (0.42, 0.0, 0.5), (-0.1, 0.0, 0.02)
_FLOOR = -0.92
_PARKED = 6.0
"""How far behind the camera things wait that are not in the present episode, in meters."""
_BELOW_FLOOR = -3.0
_TABLE_CENTRE = (-0.136, -0.006)


@register_env("PutOnPlate25-v1", max_episode_steps=80)
class PutOnPlate25Env(sapien_env.BaseEnv):  # type: ignore[misc, name-defined, unused-ignore]
    """One object, one plate and one colour of the table in each environment.

    A single environment is built anew at each reset, with what is in the episode alone: PhysX remembers in which order
    bodies have touched, so that in an older scene the last bits would depend on the episodes before, and after a grasp
    whole centimeters. Several environments on a GPU keep their scenes, in which everything else waits out of sight.

    Args:
        *args: Arguments of ManiSkill's environments.
        obj_set: ``train``, ``test`` or ``all``; this and the following are those of ``PlateSplits``.
        plate_set: Plates.
        table_set: Colours of the table.
        position_set: Places and turns.
        sentence_set: Sentences.
        robot_uids: ManiSkill's name of the arm.
        num_envs: ``B``.
        reconfiguration_freq: Resets after which scenes are built anew, 0 for never; None is 1 for a single environment,
            and else 0.
        **kwargs: Arguments of ManiSkill's environments.

    Raises:
        ConfigError: A set is not one of the three.
    """

    SUPPORTED_ROBOTS = ("panda",)
    SUPPORTED_REWARD_MODES = ("dense", "sparse", "none")
    starts_follow_from_seeds = True
    """Episodes read their seeds and no generator, so that those of several environments begin at once."""

    def __init__(
        self,
        *args: Any,
        obj_set: str = "train",
        plate_set: str = "train",
        table_set: str = "train",
        position_set: str = "train",
        sentence_set: str = "train",
        robot_uids: str = "panda",
        num_envs: int = 1,
        reconfiguration_freq: int | None = None,
        **kwargs: Any,
    ) -> None:
        self._splits = PlateSplits(
            obj_set=obj_set,
            plate_set=plate_set,
            table_set=table_set,
            position_set=position_set,
            sentence_set=sentence_set,
        )
        if reconfiguration_freq is None:
            reconfiguration_freq = 1 if num_envs == 1 else 0
        super().__init__(
            *args, robot_uids=robot_uids, num_envs=num_envs, reconfiguration_freq=reconfiguration_freq, **kwargs
        )

    @property
    def _default_sim_config(self) -> Any:
        # Five actions a second, as published; 100 rather than 500 steps of physics a second are enough for primitives.
        return SimConfig(sim_freq=100, control_freq=5)

    @property
    def _default_sensor_configs(self) -> Any:
        return [CameraConfig(CAMERA, sapien_utils.look_at(_EYE, _TARGET), 128, 128, 1.0, 0.01, 100)]

    @property
    def _default_human_render_camera_configs(self) -> Any:
        return CameraConfig("render_camera", sapien_utils.look_at(_EYE, _TARGET), 512, 512, 1.0, 0.01, 100)

    # -- the scene ---------------------------------------------------------------------------------------------------

    def _load_agent(self, options: dict[str, Any]) -> None:
        super()._load_agent(options, require("sapien", needed_by="PutOnPlate25-v1").Pose(p=[-0.615, 0, 0]))

    def _load_scene(self, options: dict[str, Any]) -> None:
        self._table = TableSceneBuilder(env=self, robot_init_qpos_noise=0.0)
        self._table.build()
        self._parked = {
            "object": [(_PARKED, 0.3 * number, _FLOOR + thing.half_sizes[2]) for number, thing in enumerate(OBJECTS)],
            "plate": [(_PARKED + 1, 0.3 * number, _FLOOR + thing.half_sizes[2]) for number, thing in enumerate(PLATES)],
            "table": [(0.0, 0.0, _BELOW_FLOOR)] * len(TABLES),
        }
        build = {"object": self._build_object, "plate": self._build_plate, "table": self._build_overlay}
        self._actors = {
            kind: {number: build[kind](number) for number in numbers}
            for kind, numbers in self._built_numbers(options).items()
        }
        self._half_heights = torch.tensor([thing.half_sizes[2] for thing in OBJECTS], device=self.device)
        self._plate_sizes = torch.tensor([thing.half_sizes for thing in PLATES], device=self.device)
        self._numbers = {
            kind: torch.zeros(self.num_envs, dtype=torch.int64, device=self.device) for kind in self._actors
        }
        self._sentences = [""] * self.num_envs
        self._history = HoldHistory(self.num_envs, self.device)
        self._is_held = torch.zeros(self.num_envs, dtype=torch.bool, device=self.device)

    def _built_numbers(self, options: dict[str, Any]) -> dict[str, list[int]]:
        """Return which things are built: those of the present episode, or all of which later ones may have some."""
        if self.num_envs > 1 or self.reconfiguration_freq != 1:
            return {
                "object": list(self._splits.objects),
                "plate": list(self._splits.plates),
                "table": list(self._splits.tables),
            }
        (episode,) = self._episodes([0], options)
        return {"object": [episode.object], "plate": [episode.plate], "table": [episode.table]}

    def _build_object(self, number: int) -> Any:
        return self._build_thing(OBJECTS[number], "object", number)

    def _build_plate(self, number: int) -> Any:
        return self._build_thing(PLATES[number], "plate", number)

    def _build_thing(self, thing: Thing, kind: str, number: int) -> Any:
        pose = Pose.create_from_pq(p=self._parked[kind][number])
        return build_thing(self.scene, thing, name=f"{kind}_{number}", pose=pose)

    def _build_overlay(self, number: int) -> Any:
        pose = Pose.create_from_pq(p=self._parked["table"][number])
        return build_overlay(self.scene, TABLES[number], name=f"table_{number}", pose=pose)

    # -- episodes ----------------------------------------------------------------------------------------------------

    def _episodes(self, rows: list[int], options: dict[str, Any]) -> list[PlateEpisode]:
        """Return the episodes that the seeds name, or ``options["episode_id"]``, int64 [F]."""
        ids = options.get("episode_id", self._episode_seed[rows])
        return [self._splits.episode(int(number)) for number in ids]

    def _initialize_episode(self, env_idx: torch.Tensor, options: dict[str, Any]) -> None:
        rows = env_idx.tolist()
        episodes = self._episodes(rows, options)
        with torch.device(self.device):
            self._table.initialize(env_idx)
            self._place("object", env_idx, [episode.object for episode in episodes], object_poses(episodes))
            self._place("plate", env_idx, [episode.plate for episode in episodes], plate_poses(episodes))
            sheet = torch.tensor([*_TABLE_CENTRE, 0.0, 1.0, 0.0, 0.0, 0.0]).repeat(len(rows), 1)
            self._place("table", env_idx, [episode.table for episode in episodes], sheet)
        for row, episode in zip(rows, episodes, strict=True):
            self._sentences[row] = episode.sentence
        self._history.reset(env_idx)

    def _place(self, kind: str, env_idx: torch.Tensor, numbers: list[int], poses: torch.Tensor) -> None:
        """Put what was chosen to its pose, [F, 7], and everything else of its kind where it waits."""
        chosen = torch.tensor(numbers)
        self._numbers[kind][env_idx] = chosen
        for number, actor in self._actors[kind].items():
            waiting = torch.tensor([*self._parked[kind][number], 1.0, 0.0, 0.0, 0.0]).expand_as(poses)
            actor.set_pose(Pose.create(torch.where((chosen == number).unsqueeze(-1), poses, waiting)))

    # -- steps -------------------------------------------------------------------------------------------------------

    def evaluate(self) -> dict[str, torch.Tensor]:
        """Return success, bool [B], and what it follows from."""
        objects, plates = self._of_chosen("object", self._pose), self._of_chosen("plate", self._pose)
        has_begun = self.elapsed_steps > 0  # contacts of the episode before are still there after a reset
        is_held = self._of_chosen("object", lambda kind, number: self.agent.is_grasping(self._actors[kind][number]))
        is_held &= has_begun
        is_on = is_on_plate(
            objects[:, :3] - plates[:, :3],
            plate_sizes=self._plate_sizes[self._numbers["plate"]],
            half_heights=self._half_heights[self._numbers["object"]],
            forces=self._contact_forces(),
        )
        self._history.update(is_held, self.elapsed_steps)
        self._is_held = is_held
        return {
            "success": is_on & has_begun & ~is_held,
            "is_src_obj_grasped": self._history.was_held.clone(),
            "consecutive_grasp": self._history.was_held_long.clone(),
            "src_on_target": is_on & has_begun,
            "is_held": is_held,
        }

    def compute_dense_reward(self, obs: Any, action: Any, info: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return what the present states are worth, float32 [B]; published training rewards its change."""
        del obs, action
        return self._history.reward(info["success"])

    def get_language_instruction(self) -> list[str]:
        """Return the sentences, ``B`` strings."""
        return list(self._sentences)

    def get_objects(self) -> torch.Tensor:
        """Return what the scripted policy reads, float32 [B, 9].

        Returns:
            The object's position, its turn about the vertical in rad and its half height, the plate's position, and 1
            where the gripper holds the object.
        """
        poses = self._of_chosen("object", self._pose)
        w, x, y, z = poses[:, 3:].unbind(-1)
        turn = torch.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
        height = self._half_heights[self._numbers["object"]]
        plates = self._of_chosen("plate", self._pose)[:, :3]
        return torch.cat([poses[:, :3], torch.stack([turn, height], -1), plates, self._is_held.float()[:, None]], -1)

    def _get_obs_extra(self, info: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        extra = {"tcp_pose": self.agent.tcp.pose.raw_pose}
        if "state" in self.obs_mode:
            extra |= {
                "object_pose": self._of_chosen("object", self._pose),
                "plate_pose": self._of_chosen("plate", self._pose),
                "is_held": info["is_held"],
            }
        return extra

    def _pose(self, kind: str, number: int) -> torch.Tensor:
        pose: torch.Tensor = self._actors[kind][number].pose.raw_pose
        return pose

    def _of_chosen(self, kind: str, measure: Callable[[str, int], torch.Tensor]) -> torch.Tensor:
        """Return what ``measure(kind, number)`` says of all environments, each row from the thing that is in it."""
        return _pick(self._numbers[kind], lambda number: measure(kind, number))

    def _contact_forces(self) -> torch.Tensor:
        """Return the force between object and plate, float [B]."""

        def force(pair: int) -> torch.Tensor:
            thing, plate = divmod(pair, len(PLATES))
            actors = self._actors["object"][thing], self._actors["plate"][plate]
            forces: torch.Tensor = self.scene.get_pairwise_contact_forces(*actors).norm(dim=-1)
            return forces

        return _pick(self._numbers["object"] * len(PLATES) + self._numbers["plate"], force)


def _pick(numbers: torch.Tensor, measure: Callable[[int], torch.Tensor]) -> torch.Tensor:
    """Return rows [B, ...]: row ``i`` is that of ``measure(numbers[i])``; each number that occurs is measured once."""
    first, *others = torch.unique(numbers).tolist()
    result = measure(first).clone()
    for number in others:
        is_its = numbers == number
        result[is_its] = measure(number)[is_its]
    return result

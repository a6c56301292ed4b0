"""The ``env`` section: one dataclass per environment type, all of them sharing ``EnvConfig``."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Le

from rlinf.config.schema.base import ConfigSection, Fraction, NonNegativeInt, PositiveInt
from rlinf.registry import Registry

RenderQuality = Literal["light", "full"]


@dataclass(frozen=True, kw_only=True)
class VideoConfig(ConfigSection):
    """``env.*.video_cfg``."""

    save_video: bool = False
    """Record the episodes of the first environments."""
    info_on_video: bool = True
    """Draw task, step, reward, return and success onto the frames."""
    video_base_dir: str | None = None
    """Folder; null is ``<log_path>/<experiment_name>/video/<train|eval>``."""
    fps: PositiveInt = 20
    """Frames per second of the file."""
    num_videos: PositiveInt = 1
    """Environments that are recorded, counted from the first."""
    tile: bool = False
    """One video of each rollout epoch that shows the recorded environments of a stage side by side, instead of one of
    each episode."""

    def required_packages(self) -> tuple[str, ...]:
        """Return what writes the files."""
        return ("imageio", "imageio_ffmpeg") if self.save_video else ()


@dataclass(frozen=True, kw_only=True)
class WrapperConfig(ConfigSection):
    """Keys of every entry of ``env.*.wrappers``."""

    name: str
    """Registered wrapper."""


@dataclass(frozen=True, kw_only=True)
class ActionDelayConfig(WrapperConfig):
    """``name: action_delay``: every action is executed some steps after it was chosen."""

    num_steps: PositiveInt
    """How many environment steps later."""


@dataclass(frozen=True, kw_only=True)
class ActionRepeatConfig(WrapperConfig):
    """``name: action_repeat``: every action is executed several times in a row."""

    num_repeats: PositiveInt
    """How often; ``max_episode_steps`` counts each of them."""


@dataclass(frozen=True, kw_only=True)
class FrameStackConfig(WrapperConfig):
    """``name: frame_stack``: the newest observations side by side, one for each chunk of actions."""

    num_frames: PositiveInt
    """How many."""
    keys: list[str]
    """Keys of the observation that are stacked, for example ``[main_images]``."""


_RENDERING = ("image_size", "wrist_image_size", "render_quality", "cameras", "main_camera", "wrist_camera")
"""Keys that decide how images look, of the environments that have them."""
MODEL_POLICIES = ("greedy", "sample")
"""Values of ``data_collection.policy`` that run the recipe's model."""


@dataclass(frozen=True, kw_only=True)
class DataCollectionConfig(ConfigSection):
    """``env.*.data_collection``: write the episodes that are played as a data set."""

    enabled: bool = False
    """Collect; ``examples/embodiment/collect_data.sh`` sets that of ``env.eval``."""
    save_dir: str | None = None
    """The data set's folder, which must not exist unless the training that made it is continued; null is
    ``<log_path>/<experiment_name>/dataset``."""
    policy: str = "greedy"
    """Who acts: the model (``greedy``, or ``sample`` as in training), a script (``langpick``, ``libero_object``,
    ``maniskill_plates``, ``metaworld``, ``robosuite_lift``), or the operator of the wrapper ``intervention`` alone
    (``operator``: a robot rests meanwhile)."""
    only_success: bool = False
    """Leave out episodes that were never successful."""
    fps: PositiveInt = 10
    """Frames per second that the data set states."""
    robot_type: str | None = None
    """Kind of robot that the data set states."""
    use_videos: bool = False
    """Store images as mp4 rather than as PNG."""

    @property
    def is_scripted(self) -> bool:
        """Whether a script or an operator plays what is collected, without the model."""
        return self.enabled and self.policy not in MODEL_POLICIES

    def required_packages(self) -> tuple[str, ...]:
        """Return what writes the data set."""
        return ("pyarrow", *(("imageio_ffmpeg",) if self.use_videos else ())) if self.enabled else ()


@dataclass(frozen=True, kw_only=True)
class EnvConfig(ConfigSection):
    """Keys of every environment."""

    readiness_check: ClassVar[str | None] = None
    """Import path of a function, called with the section, that checks before a launch what needs the simulator."""
    supports_offload: ClassVar[bool] = False
    """Whether its environment holds device memory and frees it in ``VectorEnv._offload``."""

    env_type: str
    """Registered environment."""
    total_num_envs: PositiveInt
    """Environments over all env workers and pipeline stages."""
    group_size: PositiveInt = 1
    """Neighbouring environments that start each episode from the same state."""
    max_episode_steps: PositiveInt
    """Environment steps after which an episode that is not done is truncated; replaces the simulator's own limit."""
    max_steps_per_rollout_epoch: PositiveInt
    """Environment steps of each environment in one rollout epoch; a multiple of ``actor.model.num_action_chunks``."""
    rollout_epoch: PositiveInt = 1
    """Rollout epochs per step."""
    auto_reset: bool = True
    """Start a new episode where one ended; otherwise the environment rests until the next rollout epoch. An evaluation
    counts as many episodes of each environment as fit into a rollout epoch at their greatest length: each start state
    once, whether its episode is short or long."""
    ignore_terminations: bool = False
    """Go on after a termination (success, say) until the episode is truncated; success is still recorded."""
    use_fixed_reset_state_ids: bool = False
    """Begin every rollout epoch from the same states; otherwise from new random ones."""
    use_ordered_reset_state_ids: bool = False
    """Go through reset states in order (0, 1, 2, ...) rather than sample them: evaluation covers each once. They are
    then the same for every ``seed``."""
    num_start_states: PositiveInt | None = None
    """Of ``env.eval``: how many start states an evaluation plays, in order and each exactly once; it is refused before
    it begins where environments, rollout epochs and steps come to another number. Fewer environments than one rollout
    epoch has may be left over, so that every env worker has as many as the others: they play, and their episodes do not
    count. null does not look."""
    seed: NonNegativeInt = 0
    """Seed of the reset states; has no effect with ``use_ordered_reset_state_ids``."""
    reward_coef: float = 1.0
    """Factor on every reward."""
    use_rel_reward: bool = False
    """Reward the change of the environment's reward since the step before, not its value."""
    reference_returns: list[float] | None = None
    """Returns of a random and of an expert policy: episodes then also report ``normalized_score``, 0 for the first and
    100 for the second."""
    num_env_processes: NonNegativeInt = 0
    """Processes per pipeline stage of an env worker that share its environments; 0 steps them in the worker itself."""
    enable_offload: bool = False
    """Free the simulator's device memory while the actor trains; refused where ``supports_offload`` is false."""
    wrappers: list[WrapperConfig] = field(default_factory=list)
    """What changes observations and actions on their way, the first next to the environment."""
    video_cfg: VideoConfig = field(default_factory=VideoConfig)
    """Recording."""
    data_collection: DataCollectionConfig = field(default_factory=DataCollectionConfig)
    """Data sets of episodes: of ``env.train`` those of training, of ``env.eval`` those of a run that only evaluates."""

    @property
    def action_convention(self) -> str:
        """What the numbers of actions mean; some environments have a key for it. ``native`` is the simulator's own."""
        return "native"

    @property
    def carries_episodes(self) -> bool:
        """Whether an episode that has not ended goes on in the next rollout epoch."""
        names_its_states = self.use_fixed_reset_state_ids or self.use_ordered_reset_state_ids
        return self.auto_reset and not names_its_states

    def num_counted_episodes(self, num_action_chunks: int) -> int:
        """Return how many episodes of each environment end in every rollout epoch, however long they last.

        An evaluation counts these. Of further ones only the short would end, so their mean would be biased.

        Args:
            num_action_chunks: Actions in a chunk (``C``); an episode that ends within a chunk ends the chunk.
        """
        repeats = math.prod(entry.num_repeats for entry in self.wrappers if isinstance(entry, ActionRepeatConfig))
        chunks_per_episode = -(-self.max_episode_steps // (num_action_chunks * repeats))
        chunks = self.max_steps_per_rollout_epoch // num_action_chunks
        return max(1, chunks // chunks_per_episode) if self.auto_reset else 1

    @property
    def rendering(self) -> dict[str, Any]:
        """What decides how the images look that a policy sees, by key; empty where it sees none."""
        found = {name: getattr(self, name) for name in _RENDERING if hasattr(self, name)}
        return found if found.get("image_size") is not None else {}

    @property
    def num_groups(self) -> int:
        """Groups over all environments."""
        return -(-self.total_num_envs // self.group_size)

    def num_ordered_starts(self, num_action_chunks: int) -> int:
        """Return how many start states the counted episodes of all rollout epochs begin from, if they go in order.

        Args:
            num_action_chunks: As of ``num_counted_episodes``.
        """
        return self.num_counted_episodes(num_action_chunks) * self.rollout_epoch * self.num_groups


@dataclass(frozen=True, kw_only=True)
class GuestConfig(ConfigSection):
    """``env.*.guest``: the interpreter that has the simulator, on this machine or another."""

    python: str | None = None
    """Python that has the simulator; null is what the environment variable RLINF_GUEST_PYTHON names."""
    env_vars: dict[str, str] = field(default_factory=dict)
    """Environment variables of the guest, such as PYTHONPATH, which it does not inherit, or MUJOCO_GL."""
    startup_timeout_seconds: PositiveInt = 60
    """How long the interpreter may take until it speaks; the simulator is loaded after that."""
    build_timeout_seconds: PositiveInt = 1800
    """How long loading the simulator and building its environments may take."""
    address: str | None = None
    """``tcp://host:port`` of guests that were started there by hand (``--listen``); null starts them here. They have
    the simulator then, and ``python`` and ``env_vars`` stay as they are."""
    key_file: str | None = None
    """With ``address``: a file with the key that host and guests share, which only its owner can read; null takes the
    key from the environment variable RLINF_GUEST_KEY."""


@dataclass(frozen=True, kw_only=True)
class SimulatorConfig(EnvConfig):
    """Keys of simulators of which each environment is a simulation of its own: a guest can step them as well."""

    single_envs: ClassVar[str]
    """Import path of a function, called with the section, ``num_envs`` and ``first_env``, that returns the
    ``SingleEnvSpec`` of environments; its module loads no torch."""
    own_versions: ClassVar[str | None] = None
    """Import path of a function, called with the section, that returns the versions of what is no package."""
    guest_check: ClassVar[str] = "rlinf.envs.guest_settings:check_guest_config"
    """As ``readiness_check``, of ``guest``."""

    guest: GuestConfig | None = None
    """The interpreter that has the simulator; null is this one."""

    def simulator_packages(self) -> tuple[str, ...]:
        """Return the packages, by the names that are imported, that the interpreter with the simulator needs."""
        return ()

    def required_packages(self) -> tuple[str, ...]:
        """Return the simulator's, unless it is a guest's."""
        return self.simulator_packages() if self.guest is None else ()


@dataclass(frozen=True, kw_only=True)
class GymnasiumEnvConfig(EnvConfig):
    """``env_type: gymnasium``: any registered Gymnasium id."""

    readiness_check: ClassVar[str | None] = "rlinf.envs.simulators.gymnasium_single:check_gymnasium"

    init_params: dict[str, Any]
    """Keyword arguments of ``gymnasium.make``; ``id`` is required."""
    import_module: str | None = None
    """Module to import first, where the id is registered by a third-party package."""
    success_key: str = "success"
    """Key of the step's info that says whether the task has been solved."""

    def required_packages(self) -> tuple[str, ...]:
        """Return the package that registers the id."""
        return () if self.import_module is None else (self.import_module.partition(".")[0],)


@dataclass(frozen=True, kw_only=True)
class D4RLEnvConfig(EnvConfig):
    """``env_type: d4rl``: the environments of D4RL's recordings, with normalised scores."""

    readiness_check: ClassVar[str | None] = "rlinf.envs.simulators.d4rl.d4rl_env:check_task"

    task_name: str
    """Task of D4RL, ``hopper-medium-v2`` say: of halfcheetah, hopper or walker2d, which Gymnasium has in MuJoCo, or of
    pen, which Gymnasium-Robotics has."""
    max_episode_steps: PositiveInt = 1000
    """Environment steps after which an episode is truncated; D4RL's scores are those of 1000, and of 100 for pen."""

    def required_packages(self) -> tuple[str, ...]:
        """Return the simulator, and what has the hand."""
        return ("mujoco", *(("gymnasium_robotics",) if self.task_name.startswith("pen-") else ()))


@dataclass(frozen=True, kw_only=True)
class MetaWorldEnvConfig(SimulatorConfig):
    """``env_type: metaworld``: the Sawyer arm of Meta-World, state observations or a camera."""

    readiness_check: ClassVar[str | None] = "rlinf.envs.simulators.metaworld.metaworld_tasks:tasks_of"
    single_envs: ClassVar[str] = "rlinf.envs.simulators.metaworld.metaworld_single:metaworld_envs"

    task_name: str = "reach-v3"
    """Any of the 50 tasks, for example ``drawer-open-v3``; ``mt10`` or ``mt50`` for all tasks of that benchmark,
    ``ml10`` or ``ml45`` for those of one of its splits, or ``mt3`` for three tasks to learn from images in minutes."""
    task_split: Literal["train", "test"] = "train"
    """Of ``ml10`` and ``ml45``: the tasks to learn from, or the five that are kept from training."""
    task_per_episode: bool = False
    """The start state of an episode names its task, too, whose simulation is built where another task was before, in
    about 0.3 s; otherwise each group of environments keeps one task, and there are as many groups for each."""
    task_sentences: Literal["own", "paper"] = "own"
    """How tasks are said: in words of ours, or in those of Meta-World's paper, which ``lerobot/metaworld_mt50`` and
    policies that were trained on it have."""
    num_goals: PositiveInt | None = None
    """Start states of each task, that is positions of objects and goal; Meta-World's benchmarks have 50. null samples
    ever new ones."""
    num_settle_steps: NonNegativeInt = 0
    """Actions without a motion after a reset; published policies begin after 16."""
    reward_shaping: bool = True
    """Meta-World's own reward, which leads to success, and ends no episode; otherwise the reward is 1 with success,
    which ends the episode."""
    action_convention: Literal["native", "padded"] = "native"
    """How policies and data sets say an action: ``native``, Meta-World's four numbers; ``padded``, seven, of which the
    fourth to sixth mean nothing, as OpenVLA has them. Of both the last closes the gripper at 1 and opens it at -1."""
    image_size: PositiveInt | None = None
    """Height and width of a camera's images; ``states`` then hold the hand and the opening of the gripper alone."""
    render_quality: RenderQuality = "full"
    """``light`` renders images without shadow maps and multisampling: many times faster without a GPU."""
    show_objects: bool = False
    """With ``image_size``: also show the whole state, under ``objects``; the scripted policy needs it."""

    def simulator_packages(self) -> tuple[str, ...]:
        """Return the simulator."""
        return ("metaworld", "mujoco")


@dataclass(frozen=True, kw_only=True)
class PixelReachEnvConfig(EnvConfig):
    """``env_type: pixel_reach``: a gripper on a table, seen by cameras; needs no simulator."""

    image_size: Annotated[int, Ge(16)] = 48
    """Height and width of the images in pixels."""
    wrist_camera: bool = False
    """Also show the surroundings of the gripper, under ``wrist_images``."""
    goal_in_states: bool = False
    """Append the goal's position to ``states``, so that images are not needed."""


@dataclass(frozen=True, kw_only=True)
class FrankaSimEnvConfig(SimulatorConfig):
    """``env_type: frankasim``: a Franka arm in MuJoCo picks up a cube."""

    single_envs: ClassVar[str] = "rlinf.envs.simulators.frankasim.frankasim_single:frankasim_envs"

    image_size: PositiveInt | None = None
    """Height and width of the images of two cameras, which then replace the cube's position in ``states``."""
    render_quality: RenderQuality = "full"
    """``light`` renders images without shadow maps and multisampling: many times faster without a GPU."""

    def simulator_packages(self) -> tuple[str, ...]:
        """Return the simulator."""
        return ("mujoco",)


@dataclass(frozen=True, kw_only=True)
class LangPickEnvConfig(SimulatorConfig):
    """``env_type: langpick``: a Franka arm in MuJoCo picks up the cube that a sentence names; seen by a camera."""

    single_envs: ClassVar[str] = "rlinf.envs.simulators.langpick_single:langpick_envs"

    image_size: PositiveInt = 64
    """Height and width of the images in pixels."""
    render_quality: RenderQuality = "light"
    """``light`` renders images without shadow maps and multisampling: many times faster without a GPU."""
    show_objects: bool = False
    """Also show where the cubes are, under ``objects``; the scripted policy needs it."""
    random_hand: bool = False
    """Begin episodes with the hand anywhere over the table, rather than at home."""
    disturbance: Fraction = 0.0
    """Probability that the hand is pushed in a step, by up to 6 cm: demonstrations then show how to go on."""

    def simulator_packages(self) -> tuple[str, ...]:
        """Return the simulator."""
        return ("mujoco",)


LiberoSuite = Literal["libero_spatial", "libero_object", "libero_goal", "libero_10", "libero_90"]


@dataclass(frozen=True, kw_only=True)
class LiberoEnvConfig(SimulatorConfig):
    """``env_type: libero``: a Panda arm in robosuite does what a sentence says (arXiv 2306.03310)."""

    readiness_check: ClassVar[str | None] = "rlinf.envs.simulators.libero.libero_starts:check_libero"
    single_envs: ClassVar[str] = "rlinf.envs.simulators.libero.libero_single:libero_envs"
    own_versions: ClassVar[str | None] = "rlinf.envs.simulators.libero.libero_assets:section_versions"

    task_suite_name: LiberoSuite
    """Suite of tasks."""
    task_id_filter: list[NonNegativeInt] | None = None
    """Numbers of the suite's tasks that are played; null plays all."""
    trial_id_filter: list[NonNegativeInt] | None = None
    """Numbers of each task's published start states, 0 to 49, that episodes begin from; null takes all. With some of
    them in ``env.train`` and the others in ``env.eval``, a policy is evaluated where it has not learned."""
    action_convention: Literal["native", "rlds"] = "native"
    """What the last number of policies and data sets says: ``native``, robosuite's own, -1 opens the gripper and 1
    closes it; ``rlds``, of OpenVLA's data sets, above 0.5 it is open and below closed. Collected actions keep it."""
    num_settle_steps: NonNegativeInt = 10
    """Actions without a motion after a reset, until objects lie still."""
    reset_gripper_open: bool = True
    """Open the gripper in these actions; otherwise its fingers stay half open."""
    image_size: PositiveInt = 256
    """Height and width of both cameras' images in pixels."""
    render_quality: RenderQuality = "full"
    """``light`` renders images without shadow maps and multisampling: several times faster without a GPU."""
    show_objects: bool = False
    """``libero_object``: also show where the object and the basket are and whether the object is held, under
    ``objects``; the scripted policy needs it."""
    disturbance: Fraction = 0.0
    """Probability that an action begins a push, of up to 6 cm by the sixth: demonstrations then show how to go on."""
    assets_path: str | None = None
    """LIBERO's folder ``assets``; null is what ``RLINF_LIBERO_ASSETS`` names, else where the installer puts it."""

    def simulator_packages(self) -> tuple[str, ...]:
        """Return the simulator."""
        return ("mujoco", "robosuite", "bddl", "libero")


RobosuiteTask = Literal[
    "Lift",
    "Stack",
    "Door",
    "PickPlace",
    "PickPlaceSingle",
    "PickPlaceMilk",
    "PickPlaceBread",
    "PickPlaceCereal",
    "PickPlaceCan",
    "NutAssembly",
    "NutAssemblySingle",
    "NutAssemblySquare",
    "NutAssemblyRound",
    "TwoArmLift",
    "TwoArmPegInHole",
    "TwoArmHandover",
]
# MuJoCo 3.3 refuses the meshes of robosuite 1.4's Sawyer.
RobosuiteArm = Literal["Panda", "IIWA", "Jaco", "Kinova3", "UR5e"]
RobosuiteController = Literal["OSC_POSE", "OSC_POSITION", "JOINT_POSITION", "JOINT_VELOCITY"]


@dataclass(frozen=True, kw_only=True)
class RobosuiteEnvConfig(SimulatorConfig):
    """``env_type: robosuite``: one or two arms do a task of robosuite (arXiv 2009.12293)."""

    single_envs: ClassVar[str] = "rlinf.envs.simulators.robosuite.robosuite_single:robosuite_envs"

    task_name: RobosuiteTask = "Lift"
    """Task, as robosuite names it."""
    robots: RobosuiteArm = "Panda"
    """Arm, of which tasks of two arms have two."""
    controller: RobosuiteController = "OSC_POSE"
    """What an action says of each arm, before the gripper: motion and rotation of the hand (6 numbers), its motion
    alone (3), or a number for each joint."""
    control_frequency_hz: Annotated[int, Ge(1), Le(500)] = 20
    """Actions per second."""
    reward_shaping: bool = False
    """Also reward what leads to success; otherwise the reward is 1 with success, or the share of objects in place."""
    max_episode_steps: PositiveInt = 500
    """Environment steps after which an episode that is not done is truncated."""
    task_description: str | None = None
    """The task in words; null is a sentence of ours."""
    image_size: PositiveInt | None = None
    """Height and width of the cameras' images; ``states`` then hold the hands alone. null renders none."""
    main_camera: Literal["agentview", "frontview", "birdview", "robot0_robotview"] = "agentview"
    """Camera of ``main_images``, and of videos."""
    wrist_camera: Literal["robot0_eye_in_hand"] | None = "robot0_eye_in_hand"
    """Camera of ``wrist_images``; null shows none."""
    render_quality: RenderQuality = "full"
    """``light`` renders images without shadow maps and multisampling: several times faster without a GPU."""
    show_objects: bool = False
    """With ``image_size``: also show the whole state, under ``objects``; the scripted policy needs it."""

    def simulator_packages(self) -> tuple[str, ...]:
        """Return the simulator."""
        return ("robosuite", "mujoco")


@dataclass(frozen=True, kw_only=True)
class ManiSkillEnvConfig(EnvConfig):
    """``env_type: maniskill``: any task of ManiSkill 3, state observations or cameras."""

    readiness_check: ClassVar[str | None] = "rlinf.envs.simulators.maniskill.maniskill_device:check_device"

    init_params: dict[str, Any]
    """Keyword arguments of ``gymnasium.make``, such as ``control_mode`` or ``sensor_configs``; ``id`` is required."""
    task_description: str | None = None
    """The task in words; null is the simulator's own instruction."""
    action_convention: Literal["native", "rlds"] = "native"
    """What the last number of policies and data sets says: ``native``, ManiSkill's own, 1 opens the gripper and -1
    closes it; ``rlds``, of OpenVLA's data sets (Bridge), above 0.5 it is open and else closed, in actions of seven
    numbers. Collected actions keep it."""
    sim_backend: Literal["cpu", "gpu"] = "cpu"
    """``cpu``: each environment is a simulation of its own; ``gpu``: those of a pipeline stage of an env worker are one
    simulation, on its CUDA device."""
    show_objects: bool = False
    """With images: also show the whole state, under ``objects``, for critics and scripted policies. That of
    ``PutOnPlate25-v1`` is where object and plate are and whether the object is held."""
    render_quality: RenderQuality | None = None
    """Shaders of the cameras' images: ``light`` is ManiSkill's pack ``minimal``, without shadows, and ``full`` its pack
    ``default``; null leaves them to the task, whose are light as a rule."""

    def required_packages(self) -> tuple[str, ...]:
        """Return the simulator."""
        return ("mani_skill",)

    @property
    def rendering(self) -> dict[str, Any]:
        """See ``EnvConfig``."""
        return {"sensor_configs": self.init_params["sensor_configs"]} if "sensor_configs" in self.init_params else {}


@dataclass(frozen=True, kw_only=True)
class GuestProcessConfig(EnvConfig):
    """Keys of environments that an interpreter of its own always steps."""

    readiness_check: ClassVar[str | None] = SimulatorConfig.guest_check

    guest: GuestConfig = field(default_factory=GuestConfig)
    """The interpreter that has the simulator."""


@dataclass(frozen=True, kw_only=True)
class GuestEnvConfig(GuestProcessConfig):
    """``env_type: guest``: a simulator in an interpreter of its own, driven through an adapter."""

    adapter: str
    """Module that drives the simulator: ``robocasa``, ``robotwin``, ``isaaclab``, ``behavior``, ``habitat``, or
    ``published_rlinf`` for the published environments (each an adapter, unproven, as none of these simulators was run),
    or any that the guest can import."""
    init_params: dict[str, Any] = field(default_factory=dict)
    """Arguments of the adapter."""


CalvinScene = Literal["A", "B", "C", "D", "ABC", "ABCD"]
CalvinCamera = Literal["static", "gripper"]


@dataclass(frozen=True, kw_only=True)
class CalvinEnvConfig(GuestProcessConfig):
    """``env_type: calvin``: a Panda arm does five tasks in a row that sentences say (arXiv 2112.03227), in a guest."""

    readiness_check: ClassVar[str | None] = "rlinf.envs.simulators.calvin_env:check_calvin"

    source_path: str | None = None
    """The folder of mees/calvin_env; null is what the environment variable RLINF_CALVIN_ENV names."""
    scene: CalvinScene = "D"
    """Which of the four tables; published policies learn on the others and are evaluated on D. Of several, each group
    of environments keeps one: the first group the first, and so on around."""
    chain_length: Annotated[int, Ge(1), Le(5)] = 5
    """How many tasks of a chain an episode has; with 1 an episode is one task."""
    max_task_steps: PositiveInt | None = 360
    """Steps that a policy has for each task, after which the episode is truncated; null sets no limit but that of the
    episode."""
    first_tasks: list[str] | None = None
    """Of the 1,000 published chains, play those that begin with one of these tasks; null plays all."""
    cameras: list[CalvinCamera] = field(default_factory=lambda: ["static", "gripper"])
    """Which are shown: ``static`` as ``main_images``, ``gripper`` as ``wrist_images``."""
    image_size: PositiveInt = 200
    """Height and width of the static camera's images in pixels."""
    wrist_image_size: PositiveInt = 84
    """Height and width of the gripper camera's images in pixels."""
    joint_states: bool = True
    """Whether ``states`` have the arm's joints and the gripper's command (eight numbers) behind where the hand is and
    how far it is open (seven), which is all that published pi-0 and pi-0.5 read."""
    action_convention: Literal["native", "rlds"] = "native"
    """What the last number of policies and data sets says: ``native``, CALVIN's own, above 0 the gripper opens and else
    it closes; ``rlds``, above 0.5 it is open and else closed. Collected actions keep it."""


@dataclass(frozen=True, kw_only=True)
class NoEnvConfig(EnvConfig):
    """``env_type: none``: an offline run steps no environments to learn from."""

    env_type: str = "none"
    """Registered environment."""
    total_num_envs: PositiveInt = 1
    """Not used."""
    max_episode_steps: PositiveInt = 1
    """Not used."""
    max_steps_per_rollout_epoch: PositiveInt = 1
    """Not used."""

    @property
    def carries_episodes(self) -> bool:
        """See ``EnvConfig``: there are none."""
        return False


@dataclass(frozen=True, kw_only=True)
class EnvSectionConfig(ConfigSection):
    """The ``env`` section."""

    group_name: str = "EnvGroup"
    """Name of the worker group."""
    train: EnvConfig = field(default_factory=NoEnvConfig)
    """Environments that the policy learns from; an offline run leaves them out."""
    eval: EnvConfig | None = None
    """Environments that the policy is evaluated on; needed where the runner evaluates."""


envs: Registry[Any] = Registry("environment", config=EnvConfig)
"""By ``env_type``: classes derived from ``rlinf.envs.VectorEnv``."""
envs.register("calvin", "rlinf.envs.simulators.calvin_env:CalvinEnv", config=CalvinEnvConfig)
envs.register("d4rl", "rlinf.envs.simulators.d4rl.d4rl_env:D4RLEnv", config=D4RLEnvConfig)
envs.register("frankasim", "rlinf.envs.simulators.frankasim.frankasim_env:FrankaSimEnv", config=FrankaSimEnvConfig)
envs.register("guest", "rlinf.envs.simulators.guest_env:GuestEnv", config=GuestEnvConfig)
envs.register("gymnasium", "rlinf.envs.simulators.gymnasium_env:GymnasiumEnv", config=GymnasiumEnvConfig)
envs.register("langpick", "rlinf.envs.simulators.langpick_env:LangPickEnv", config=LangPickEnvConfig)
envs.register("libero", "rlinf.envs.simulators.libero.libero_env:LiberoEnv", config=LiberoEnvConfig)
envs.register("maniskill", "rlinf.envs.simulators.maniskill.maniskill_env:ManiSkillEnv", config=ManiSkillEnvConfig)
envs.register("metaworld", "rlinf.envs.simulators.metaworld.metaworld_env:MetaWorldEnv", config=MetaWorldEnvConfig)
envs.register("none", config=NoEnvConfig)
envs.register("pixel_reach", "rlinf.envs.simulators.pixel_reach:PixelReachEnv", config=PixelReachEnvConfig)
envs.register("robosuite", "rlinf.envs.simulators.robosuite.robosuite_env:RobosuiteEnv", config=RobosuiteEnvConfig)

wrappers: Registry[Any] = Registry("environment wrapper")
"""By ``env.*.wrappers[].name``: classes derived from ``rlinf.envs.wrappers.base.EnvWrapper``."""
wrappers.register("action_delay", "rlinf.envs.wrappers.action_delay:ActionDelay", config=ActionDelayConfig)
wrappers.register("action_repeat", "rlinf.envs.wrappers.action_repeat:ActionRepeat", config=ActionRepeatConfig)
wrappers.register("frame_stack", "rlinf.envs.wrappers.frame_stack:FrameStack", config=FrameStackConfig)

scripted_policies: Registry[Any] = Registry("scripted policy")
"""Policies that are programs, by the name that ``data_collection.policy`` gives; called with the environment's keys."""
scripted_policies.register("franka", "rlinf.envs.realworld.expert:FrankaExpert")
scripted_policies.register("langpick", "rlinf.envs.simulators.langpick_env:LangPickExpert")
scripted_policies.register("libero_object", "rlinf.envs.simulators.libero.libero_expert:LiberoObjectExpert")
scripted_policies.register("maniskill_plates", "rlinf.envs.simulators.maniskill.plates_expert:ManiSkillPlatesExpert")
scripted_policies.register("operator", "rlinf.envs.realworld.expert:RestingPolicy")
scripted_policies.register("metaworld", "rlinf.envs.simulators.metaworld.metaworld_expert:MetaWorldExpert")
scripted_policies.register("robosuite_lift", "rlinf.envs.simulators.robosuite.robosuite_expert:RobosuiteLiftExpert")

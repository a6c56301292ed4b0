"""The ``runner`` section: how long to run, when to evaluate and save, where results go."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from rlinf.config.schema.base import ConfigSection, NonNegativeInt, PositiveInt
from rlinf.registry import Registry


@dataclass(frozen=True, kw_only=True)
class WandbConfig(ConfigSection):
    """``runner.logger.wandb``: how a run appears in W&B, with ``wandb`` in ``logger_backends``."""

    entity: str | None = None
    """User or team that owns the run; null takes ``WANDB_ENTITY``, or the account that is logged in."""
    group: str | None = None
    """Group of runs that are shown together, the seeds of a sweep for example."""
    tags: list[str] = field(default_factory=list)
    """Words to find the run by."""
    upload_videos: bool = False
    """Also send the videos of ``env.*.video_cfg.save_video``, under ``video/``, if they are in the run's folder."""


@dataclass(frozen=True, kw_only=True)
class LoggerConfig(ConfigSection):
    """``runner.logger``: where metrics go. The console table and ``metrics.jsonl`` are always written."""

    log_path: str = "results"
    """Folder that holds experiments."""
    project_name: str = "rlinf"
    """Project in W&B and SwanLab."""
    experiment_name: str = "experiment"
    """Name of the run and of its folder under ``log_path``."""
    logger_backends: list[Annotated[str, metric_backends]] = field(default_factory=lambda: ["tensorboard"])
    """Further places metrics are sent to."""
    wandb: WandbConfig = field(default_factory=WandbConfig)
    """How the run appears in W&B."""
    report: bool = True
    """Write ``report.html`` into the experiment's folder, at the end and now and then before; needs plotly."""


@dataclass(frozen=True, kw_only=True)
class RunnerConfig(ConfigSection):
    """The ``runner`` section."""

    task_type: str = "embodied"
    """Registered task: which sections the recipe has, and which runner drives it."""
    max_epochs: PositiveInt = 1000
    """Steps to run when ``max_steps`` is -1: one step is one rollout and its updates."""
    max_steps: int = -1
    """Steps to run; -1 leaves it to ``max_epochs``."""
    val_check_interval: int = -1
    """Steps between evaluations (one more before the first and after the last); -1 never evaluates."""
    save_interval: int = -1
    """Steps between checkpoints (one more after the last); -1 saves only after the last."""
    only_eval: bool = False
    """Evaluate once and exit: the weights of ``resume_dir`` or ``ckpt_path``, or those that the model brings along. The
    results go to a folder of their own, ``<log_path>/<experiment_name>/eval_only/<weights>_<n>``."""
    eval_initial_policy: bool = False
    """With ``only_eval`` and neither ``resume_dir`` nor ``ckpt_path``: evaluate the untrained policy."""
    resume_dir: str | None = None
    """Checkpoint folder to continue from, or ``auto`` for the newest complete one of this experiment."""
    ckpt_path: str | None = None
    """Model weights to start from (a checkpoint folder, ``.pt`` or ``.safetensors``); the run begins at step 0."""
    async_save: bool = False
    """Let the actor train on while weights and moments of a checkpoint are written: they are copied to host memory
    first. The checkpoint counts once it is whole; failing to write it ends the run, at the next save at the latest."""
    keep_checkpoints: NonNegativeInt = 3
    """Newest checkpoints to keep; 0 keeps all."""
    keep_best: str | None = None
    """Metric (higher is better) whose best checkpoint is also kept, for example ``eval/success_once``."""
    overwrite: bool = False
    """Start anew in an experiment folder that already holds a run, deleting that run."""
    max_restarts: NonNegativeInt = 0
    """Times that workers which died are launched again before the run gives up."""
    enable_decoupled_mode: bool = False
    """Let whichever rollout rank is free serve an env rank, rather than always the same ones: a slow environment keeps
    none of them waiting, and the numbers of ranks need not fit each other. Env ranks then collect the trajectories."""
    dump_steps: list[PositiveInt] = field(default_factory=list)
    """Steps of which the actor's state and batch are written to ``steps/``, for ``rlinf replay``."""
    stop_at: dict[str, float] = field(default_factory=dict)
    """End the run once an evaluation reaches these values, for example ``{eval/success_once: 0.95}``."""
    logger: LoggerConfig = field(default_factory=LoggerConfig)
    """Where metrics go."""

    @property
    def total_steps(self) -> int:
        """Steps that the run makes."""
        return self.max_steps if self.max_steps >= 0 else self.max_epochs


@dataclass(frozen=True, kw_only=True)
class TextRunnerConfig(RunnerConfig):
    """The ``runner`` section of language models."""

    enable_dynamic_batch_size: bool = True
    """Fill micro-batches up to ``max_tokens_per_mbs`` tokens; false takes ``actor.micro_batch_size`` sequences."""
    max_tokens_per_mbs: PositiveInt = 8192
    """Tokens of one forward and backward pass on one rank; changes memory and speed, never the gradient."""
    share_prompts: bool = True
    """Compute what sequences of a pass begin with once: a prompt for all its answers, a context for all branches of an
    episode; brings these together. Changes speed, never the gradient. Without effect on FlashAttention
    (``actor.model.attn_implementation``)."""
    val_samples: PositiveInt = 1
    """Answers to each prompt of an evaluation; with more than one they are sampled as in training, else greedily."""
    val_pass_at: list[PositiveInt] = field(default_factory=list)
    """The k of ``eval/pass@k``, each at most ``val_samples``; empty takes 1 and ``val_samples``."""
    val_correct_reward: float = 1.0
    """Reward, weighed and summed, from which on an answer of an evaluation counts as right."""
    save_hf: bool = True
    """Write the model into the folder ``hf`` of every checkpoint as well, in ``actor.model.precision`` and as
    transformers, vLLM and SGLang load it: a later run can take that folder as ``actor.model.model_path``."""


@dataclass(frozen=True, kw_only=True)
class SftRunnerConfig(TextRunnerConfig):
    """The ``runner`` section of ``task_type: sft``; a step is ``algorithm.update_epoch`` optimizer steps."""

    max_epochs: PositiveInt = 1
    """Passes over the data when ``max_steps`` is -1; the run counts the steps that they take once it has read it."""


metric_backends: Registry[Any] = Registry("metric backend")
"""By ``runner.logger.logger_backends``: classes that follow ``rlinf.telemetry.backends.MetricBackend``."""
metric_backends.register("tensorboard", "rlinf.telemetry.backends:TensorBoardBackend")
metric_backends.register("wandb", "rlinf.telemetry.backends:WandbBackend")
metric_backends.register("swanlab", "rlinf.telemetry.backends:SwanlabBackend")

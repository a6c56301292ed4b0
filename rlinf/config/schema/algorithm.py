"""The ``algorithm`` section: what all algorithms share, and one dataclass per advantage and per loss.

The recipe writes all keys flat under ``algorithm``; ``adv_type`` and ``loss_type`` decide which parts they go to. The
fields of an advantage or loss dataclass are exactly the keyword arguments that its function takes from the recipe.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from rlinf.config.schema.base import (
    ConfigSection,
    Fraction,
    Level,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
)
from rlinf.config.schema.expert import ExpertConfig
from rlinf.config.schema.generation import SamplingConfig
from rlinf.config.schema.optim import AdamWConfig
from rlinf.config.schema.teacher import PolicyTeacherConfig, TeacherConfig
from rlinf.registry import Registry

LossAggregation = Literal["token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean"]
KLPenalty = Literal["k1", "abs", "k2", "k3", "k3_unbiased", "kl", "low_var_kl"]


@dataclass(frozen=True, kw_only=True)
class AdvantageConfig(ConfigSection):
    """Keys of an advantage estimator; this base has none."""

    compares_groups: ClassVar[bool] = False
    """Whether it compares the trajectories of a group with each other."""
    unused_keys: ClassVar[tuple[str, ...]] = ()
    """Keys of ``algorithm`` that every estimator could read, and this one does not."""
    needs_reference: ClassVar[bool] = False
    """Whether it compares with the log-probabilities of another model."""


@dataclass(frozen=True, kw_only=True)
class NoAdvantageConfig(AdvantageConfig):
    """No advantages: the loss of the same name takes none."""

    unused_keys: ClassVar[tuple[str, ...]] = ("group_size", "bootstrap_type")


@dataclass(frozen=True, kw_only=True)
class NormalizedAdvantageConfig(AdvantageConfig):
    """An estimator whose result can be normalised."""

    normalize_advantages: bool = True
    """Bring advantages to mean 0 and standard deviation 1 over all valid steps of all ranks."""


@dataclass(frozen=True, kw_only=True)
class GAEConfig(NormalizedAdvantageConfig):
    """``adv_type: gae``: generalised advantage estimation, with a value head."""

    unused_keys: ClassVar[tuple[str, ...]] = ("group_size",)

    gamma: Fraction = 0.99
    """Discount per chunk step (chunk_level rewards) or per action (action_level rewards)."""
    gae_lambda: Fraction = 0.95
    """Trade-off between bias (0) and variance (1)."""


@dataclass(frozen=True, kw_only=True)
class GroupFilterConfig(AdvantageConfig):
    """An estimator that compares the trajectories of a group and can leave out groups without a learning signal."""

    compares_groups: ClassVar[bool] = True
    unused_keys: ClassVar[tuple[str, ...]] = ("bootstrap_type",)

    filter_rewards: bool = False
    """Mask groups whose mean return lies outside the bounds; without bounds, those whose returns are all equal, whose
    advantages are 0."""
    rewards_lower_bound: float | None = None
    """Smallest mean return of a group that is kept; null sets no such bound."""
    rewards_upper_bound: float | None = None
    """Largest mean return of a group that is kept; null sets no such bound."""


@dataclass(frozen=True, kw_only=True)
class GRPOConfig(GroupFilterConfig):
    """``adv_type: grpo``: the return relative to those of the group (GRPO)."""

    normalize_advantages: bool = True
    """Divide by the group's standard deviation; false only subtracts its mean (Dr.GRPO)."""


@dataclass(frozen=True, kw_only=True)
class RLOOConfig(GroupFilterConfig):
    """``adv_type: rloo``: the return less the mean of the others in the group (REINFORCE leave-one-out)."""


@dataclass(frozen=True, kw_only=True)
class ReinPPConfig(NormalizedAdvantageConfig):
    """``adv_type: reinpp``: the discounted return, normalised over the whole batch (REINFORCE++)."""

    unused_keys: ClassVar[tuple[str, ...]] = ("group_size", "bootstrap_type")

    gamma: Fraction = 1.0
    """Discount of the returns."""


@dataclass(frozen=True, kw_only=True)
class ReinPPBaselineConfig(ReinPPConfig):
    """``adv_type: reinpp_baseline``: the same, less the mean return of the group."""

    compares_groups: ClassVar[bool] = True
    unused_keys: ClassVar[tuple[str, ...]] = ("bootstrap_type",)


@dataclass(frozen=True, kw_only=True)
class DistillationConfig(AdvantageConfig):
    """``adv_type: opd``: how much likelier the teacher finds each token (on-policy distillation)."""

    unused_keys: ClassVar[tuple[str, ...]] = ("bootstrap_type",)
    needs_reference: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class RawAdvantageConfig(AdvantageConfig):
    """``adv_type: raw``: the trajectory's return as it is (REINFORCE)."""

    unused_keys: ClassVar[tuple[str, ...]] = ("group_size", "bootstrap_type")


@dataclass(frozen=True, kw_only=True)
class LossConfig(ConfigSection):
    """Keys of a policy loss; this base has none."""

    learner: ClassVar[str] = "on_policy"
    """Registered learner that the losses of this family are made for."""
    needs_next_inputs: ClassVar[bool] = False
    """Whether the rollout records what the policy saw after each chunk."""
    needs_logprobs: ClassVar[bool] = True
    """Whether the loss is made of log-probabilities."""
    needs_proximal_logprobs: ClassVar[bool] = False
    """Whether the learner computes the log-probabilities of the policy at the start of an update."""
    draws_batches: ClassVar[bool] = False
    """Whether updates draw batches from what is stored, and go without advantages."""
    trains_q_heads: ClassVar[bool] = False
    """Whether the model needs Q heads."""
    learns_offline: ClassVar[bool] = False
    """Whether it learns from the ``data`` section alone."""

    @property
    def needs_reference(self) -> bool:
        """Whether the loss compares with a frozen copy of the initial model."""
        return False

    @property
    def needs_whole_sequences(self) -> bool:
        """Whether the loss of a token depends on others of its sequence: a forward pass then has all of them."""
        return False


@dataclass(frozen=True, kw_only=True)
class PolicyLossConfig(LossConfig):
    """Keys of every loss of single entries (tokens, actions or chunks), which are aggregated."""

    loss_agg_func: LossAggregation = "token-mean"
    """How the losses of single entries become one number; denominators are global."""

    @property
    def needs_whole_sequences(self) -> bool:
        """See ``LossConfig``."""
        return self.loss_agg_func != "token-mean"


@dataclass(frozen=True, kw_only=True)
class ValueLossConfig(PolicyLossConfig):
    """Keys of every policy loss that a value loss is added to."""

    value_loss_coef: PositiveFloat = 0.5
    """Weight of the value loss, with a value head."""
    value_clip: PositiveFloat | None = None
    """Largest change of a value prediction per update that is rewarded; null does not clip."""
    huber_delta: PositiveFloat | None = None
    """Switch from squared to linear value error at this size; null is squared throughout."""


@dataclass(frozen=True, kw_only=True)
class RegularizedLossConfig(PolicyLossConfig):
    """Keys of every policy loss with an entropy bonus and a KL penalty against the initial policy."""

    entropy_bonus: NonNegativeFloat = 0.0
    """Weight of the mean entropy, subtracted from the loss."""
    kl_beta: NonNegativeFloat = 0.0
    """Weight of the KL divergence from the initial policy, added to the loss; above 0 a reference copy is kept."""
    kl_penalty: KLPenalty = "k3"
    """Estimator of the KL divergence."""

    @property
    def needs_reference(self) -> bool:
        """See ``LossConfig``."""
        return self.kl_beta > 0


@dataclass(frozen=True, kw_only=True)
class PPOLossConfig(RegularizedLossConfig):
    """``loss_type: actor``: the clipped PPO objective."""

    clip_ratio_low: PositiveFloat = 0.2
    """The ratio is clipped from below at 1 - this."""
    clip_ratio_high: PositiveFloat = 0.2
    """The ratio is clipped from above at 1 + this."""
    clip_ratio_c: float | None = None
    """Dual clip: with a negative advantage the objective is at least this times the advantage; must exceed 1."""


ActorLossConfig = PPOLossConfig
"""The published name."""


@dataclass(frozen=True, kw_only=True)
class GSPOLossConfig(RegularizedLossConfig):
    """``loss_type: gspo``: the clipped objective with one ratio per sequence, the geometric mean of its tokens'."""

    clip_ratio_low: PositiveFloat = 3e-4
    """The sequence's ratio is clipped from below at 1 - this."""
    clip_ratio_high: PositiveFloat = 4e-4
    """The sequence's ratio is clipped from above at 1 + this."""
    loss_agg_func: LossAggregation = "seq-mean-token-mean"
    """How the losses of single entries become one number; denominators are global."""

    @property
    def needs_whole_sequences(self) -> bool:
        """See ``LossConfig``: always, as ratios are those of sequences."""
        return True


@dataclass(frozen=True, kw_only=True)
class DistillationLossConfig(RegularizedLossConfig):
    """``loss_type: opd``: advantages weighted with unclipped ratios (on-policy distillation)."""


@dataclass(frozen=True, kw_only=True)
class CISPOLossConfig(RegularizedLossConfig):
    """``loss_type: cispo``: log-probabilities weighted with advantages and clipped ratios, which are constants."""

    clip_ratio_low: PositiveFloat = 1.0
    """Weights are at least 1 - this; 1 has no lower bound."""
    clip_ratio_high: PositiveFloat = 4.0
    """Weights are at most 1 + this."""


@dataclass(frozen=True, kw_only=True)
class ActorCriticLossConfig(ValueLossConfig, PPOLossConfig):
    """``loss_type: actor_critic``: the PPO objective and a value loss."""


@dataclass(frozen=True, kw_only=True)
class NFTLossConfig(ValueLossConfig):
    """``loss_type: embodied_nft``: velocities of a flow policy attracted by good actions and repelled by bad ones."""

    learner: ClassVar[str] = "velocity"
    needs_logprobs: ClassVar[bool] = False

    nft_beta: PositiveFloat = 1.0
    """How far the implicit good and bad policies lie from the one that acted; the smaller, the larger the steps."""
    adv_clip_max: PositiveFloat = 5.0
    """Advantage at which an action counts as entirely good, and minus which as entirely bad."""
    nft_loss_form: Literal["mse", "dpo"] = "mse"
    """``mse`` weights the squared errors of both implicit policies; ``dpo`` is logistic in their difference."""
    dpo_beta: PositiveFloat = 1.0
    """``nft_loss_form: dpo``: factor on the difference of errors."""
    nft_clip_ratio: PositiveFloat | None = None
    """``nft_loss_form: mse``: largest change of an action's velocity that is learned from, relative to the old one."""


@dataclass(frozen=True, kw_only=True)
class DecoupledActorCriticLossConfig(ActorCriticLossConfig):
    """``loss_type: decoupled_actor_critic``: samples of older policies; ratios are those to the start of the update."""

    needs_proximal_logprobs: ClassVar[bool] = True

    behave_weight_threshold: PositiveFloat = 2.0
    """Largest weight (policy at the start of the update against the one that acted) of a sample; at least 1."""


@dataclass(frozen=True, kw_only=True)
class ReplayBufferConfig(ConfigSection):
    """``algorithm.replay_buffer``: what is kept of former rollouts."""

    capacity: PositiveInt = 1_000_000
    """Transitions (chunk steps) kept over all ranks; the oldest make room."""
    min_buffer_size: PositiveInt = 1
    """Transitions over all ranks before the first update."""
    memory_bytes: PositiveInt | None = None
    """Host memory for transitions over all ranks; older ones beyond it are read from files. null has no bound."""
    folder: str | None = None
    """Where those files are; null is ``<log_path>/<experiment_name>/replay``."""
    auto_save: bool = False
    """Keep every transition of the run in ``folder``, complete at every checkpoint and at the end, for other runs."""


@dataclass(frozen=True, kw_only=True)
class DemoBufferConfig(ConfigSection):
    """``algorithm.demo_buffer``: what is sampled in addition to the replay.

    It is a saved replay that never changes (RLPD, Ball et al., 2023), executed interventions (HIL-SERL, Luo
    et al., 2024), or both.
    """

    load_path: str | None = None
    """Where the former was saved."""
    interventions: bool = False
    """Whether to keep the latter, which the replay holds too; while there are none, nothing is sampled."""
    capacity: PositiveInt = 100_000
    """Chunk steps of interventions kept over all ranks; the oldest make room."""
    batch_share: Fraction = 0.5
    """Share of each batch that is sampled from it."""

    def required_files(self) -> dict[str, str]:
        """Return the saved replay."""
        return {} if self.load_path is None else {"load_path": self.load_path}


@dataclass(frozen=True, kw_only=True)
class EntropyTuningConfig(ConfigSection):
    """``algorithm.entropy_tuning``: the temperature, which weighs entropy against return."""

    alpha_type: Literal["softplus", "exp", "fixed_alpha"] = "softplus"
    """How the temperature follows from its learned parameter; ``fixed_alpha`` stays at ``initial_alpha``."""
    initial_alpha: NonNegativeFloat = 1.0
    """Temperature at the start; above 0 where it is learned."""
    target_entropy: float | None = None
    """Entropy of a chunk of actions that is aimed at; null takes minus its number of dimensions."""
    optim: AdamWConfig = field(default_factory=AdamWConfig)
    """Optimizer of the temperature's parameter."""


@dataclass(frozen=True, kw_only=True)
class OffPolicyLossConfig(LossConfig):
    """Keys of every loss that learns from a replay."""

    learner: ClassVar[str] = "off_policy"
    needs_next_inputs: ClassVar[bool] = True
    model_keys: ClassVar[Mapping[str, tuple[object, ...]]] = {}
    """Keys of ``actor.model`` that decide whether the loss can train it, with the values that it can train."""
    draws_batches: ClassVar[bool] = True
    trains_q_heads: ClassVar[bool] = True

    gamma: Fraction = 0.99
    """Discount per action: a chunk of C actions discounts what follows by gamma^C."""
    replay_buffer: ReplayBufferConfig = field(default_factory=ReplayBufferConfig)
    """Former rollouts."""
    demo_buffer: DemoBufferConfig | None = None
    """Demonstrations that are sampled in addition to them."""
    num_min_q: PositiveInt | None = None
    """Critics sampled for each update whose values form its targets (REDQ, RLPD); null takes all ``num_q_heads``."""
    critic_actor_ratio: PositiveInt = 1
    """Updates of the critics for each update of the policy."""
    tau: Fraction = 0.005
    """Share by which target networks move towards the networks that learn."""
    target_update_freq: PositiveInt = 1
    """Updates of the critics for each such move."""


@dataclass(frozen=True, kw_only=True)
class SACLossConfig(OffPolicyLossConfig):
    """``loss_type: embodied_sac``: soft actor-critic with an ensemble of Q functions and a tuned temperature."""

    model_keys: ClassVar[Mapping[str, tuple[object, ...]]] = {
        "deterministic": (False,),
        "q_head_type": ("default", "layer_norm"),
    }

    agg_q: Literal["min", "mean"] = "min"
    """How the target critics' values become one."""
    actor_agg_q: Literal["min", "mean", "q1"] = "min"
    """How the critics' values become the one that the policy climbs; ``q1`` takes the first."""
    backup_entropy: bool = True
    """Whether the critics' targets contain the entropy of what follows."""
    entropy_tuning: EntropyTuningConfig = field(default_factory=EntropyTuningConfig)
    """Temperature."""


@dataclass(frozen=True, kw_only=True)
class CrossQLossConfig(SACLossConfig):
    """``loss_type: embodied_crossq``: SAC with batch-normalised critics and without target networks (CrossQ)."""

    model_keys: ClassVar[Mapping[str, tuple[object, ...]]] = {"deterministic": (False,), "q_head_type": ("crossq",)}


@dataclass(frozen=True, kw_only=True)
class TD3LossConfig(OffPolicyLossConfig):
    """``loss_type: embodied_td3``: a deterministic policy, twin critics and smoothed targets."""

    model_keys: ClassVar[Mapping[str, tuple[object, ...]]] = {
        "deterministic": (True,),
        "q_head_type": ("default", "layer_norm"),
    }

    agg_q: Literal["min", "mean"] = "min"
    """How the target critics' values become one."""
    actor_agg_q: Literal["min", "mean", "q1"] = "q1"
    """How the critics' values become the one that the policy climbs; ``q1`` takes the first."""
    target_noise: NonNegativeFloat = 0.2
    """Standard deviation of the noise on the target policy's actions, which lie in (-1, 1)."""
    target_noise_clip: PositiveFloat = 0.5
    """Bound of that noise."""


@dataclass(frozen=True, kw_only=True)
class RLTLossConfig(TD3LossConfig):
    """``loss_type: rlt_td3``: TD3 of a policy that is held near what a frozen flow proposes (RLT)."""

    model_keys: ClassVar[Mapping[str, tuple[object, ...]]] = {
        "refine_actions": (True,),
        "q_head_type": ("default", "layer_norm"),
    }

    q_weight: NonNegativeFloat = 1.0
    """Weight of the critics' value in the policy's loss."""
    bc_weight: NonNegativeFloat = 1.0
    """Weight of the mean squared distance from the proposal, in normalised actions."""


@dataclass(frozen=True, kw_only=True)
class IQLLossConfig(LossConfig):
    """``loss_type: offline_iql``: implicit Q-learning from recorded episodes."""

    learner: ClassVar[str] = "iql"
    draws_batches: ClassVar[bool] = True
    trains_q_heads: ClassVar[bool] = True
    learns_offline: ClassVar[bool] = True

    gamma: Fraction = 0.99
    """Discount per action: a chunk of C actions discounts what follows by gamma^C."""
    tau: Fraction = 0.005
    """Share by which the target critics move towards the critics."""
    expectile: Fraction = 0.7
    """Which expectile of the critics' values the value head predicts: above 0.5, in (0, 1)."""
    temperature: NonNegativeFloat = 3.0
    """Inverse temperature: actions weigh exp(this times their advantage); 0 clones behaviour."""
    max_advantage_weight: PositiveFloat = 100.0
    """Largest weight of an action."""


@dataclass(frozen=True, kw_only=True)
class ImitationLossConfig(LossConfig):
    """Keys of every loss that imitates the actions of an expert or operator."""

    learner: ClassVar[str] = "imitation"
    draws_batches: ClassVar[bool] = True

    imitation_loss: Literal["nll", "mse", "model"] = "nll"
    """Negative log-likelihood of the actions, their squared distance from the policy's greedy ones, or the loss that a
    vision-language-action model is published with: of a flow, flow matching, which alone imitates with it."""


@dataclass(frozen=True, kw_only=True)
class BCLossConfig(ImitationLossConfig):
    """``loss_type: embodied_bc``: behaviour cloning from recorded episodes."""

    learns_offline: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class SupervisedLossConfig(LossConfig):
    """``loss_type: embodied_sft``: fine-tuning of a vision-language-action policy by its model's own loss."""

    learner: ClassVar[str] = "frames"
    draws_batches: ClassVar[bool] = True
    needs_logprobs: ClassVar[bool] = False
    learns_offline: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class DAggerLossConfig(ImitationLossConfig):
    """``loss_type: embodied_dagger``: imitation of an expert in the states that the policy itself runs into."""

    learner: ClassVar[str] = "dagger"

    expert: ExpertConfig
    """Who is imitated."""
    beta: Fraction = 1.0
    """Probability that the expert acts, in the first step. A scripted one acts in whole chunks, and there alone it
    labels more than the first action."""
    beta_decay: Fraction = 0.5
    """Factor on it from step to step."""
    takeover_distance: PositiveFloat | None = None
    """Instead of by chance, let the expert act where the policy's action is further from its own than this (root mean
    square over the chunk, in units of ``action_scale``), and learn from these states only."""
    capacity: PositiveInt = 1_000_000
    """Labelled chunk steps that are kept; the oldest make room."""


@dataclass(frozen=True, kw_only=True)
class HGDAggerLossConfig(ImitationLossConfig):
    """``loss_type: embodied_hgdagger``: imitation of the operator, in the steps of interventions."""

    learner: ClassVar[str] = "interventions"

    capacity: PositiveInt = 1_000_000
    """Chunk steps of interventions that are kept; the oldest make room."""


@dataclass(frozen=True, kw_only=True)
class SftLossConfig(PolicyLossConfig):
    """``loss_type: sft``: the negative log-likelihood of given responses."""

    learner: ClassVar[str] = "sft"
    draws_batches: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class AlgorithmConfig(ConfigSection):
    """The ``algorithm`` section: the keys of every task."""

    adv_type: str
    """Registered advantage estimator."""
    loss_type: str
    """Registered policy loss."""
    group_size: PositiveInt = 1
    """Environments (or answers) that start from one state (or prompt) and are compared with each other."""
    update_epoch: PositiveInt = 1
    """Passes over the rollout in one step; with a loss that samples batches, batches in one step."""
    staleness_threshold: NonNegativeInt | None = None
    """Roll out and train at the same time (``train_async.py``, or any reasoning run): a rollout may begin with weights
    up to this many versions older than in synchronous training; 0 is the synchronous algorithm. null never overlaps."""
    advantage: AdvantageConfig = field(default_factory=AdvantageConfig)
    """Keys that belong to ``adv_type`` (written flat under ``algorithm``)."""
    loss: LossConfig = field(default_factory=LossConfig)
    """Keys that belong to ``loss_type`` (written flat under ``algorithm``)."""


@dataclass(frozen=True, kw_only=True)
class EmbodiedAlgorithmConfig(AlgorithmConfig):
    """The ``algorithm`` section of embodied RL."""

    reward_type: Level = "chunk_level"
    """Whether a chunk of actions receives one reward (and has one value) or each action its own."""
    logprob_type: Level = "chunk_level"
    """Level at which the policy ratio is formed: a token is one action dimension."""
    entropy_type: Level = "chunk_level"
    """Level at which entropy is averaged."""
    bootstrap_type: Literal["standard", "always"] = "standard"
    """``standard`` adds the last state's value when an episode is truncated; ``always`` also when it terminates."""
    recompute_logprobs: bool = False
    """Take the log-probabilities of the policy that acted from the actor, before its first update, rather than from the
    rollout: one more forward pass, after which the first ratio is 1 also where rollouts are in bf16 and training is
    not. ``rollout/mismatch_*`` say how far the two differ."""
    early_stop_kl: PositiveFloat | None = None
    """End a step's updates before the optimizer step at which ``actor_approx_kl``, the divergence of the old from the
    current policy, exceeds this; the first one is always made. null makes them all."""
    teacher: PolicyTeacherConfig | None = None
    """A policy that takes the place of the initial one wherever the policy is compared with a reference: in the
    advantages of ``adv_type: opd``, and in ``kl_beta``."""

    @property
    def needs_reference(self) -> bool:
        """Whether the policy is compared with another one."""
        return self.loss.needs_reference or self.advantage.needs_reference


@dataclass(frozen=True, kw_only=True)
class ImportanceCorrectionConfig(ConfigSection):
    """``algorithm.importance_correction``: weights for engine and trainer computing probabilities differently."""

    level: Literal["token", "sequence", "geometric"] = "token"
    """What is weighed with trainer / engine: each token by itself, or an answer's tokens alike with the product of
    their ratios (``sequence``) or its geometric mean."""
    mode: Literal["clamp", "mask"] = "clamp"
    """What happens to weights out of bounds: brought into them, or made 0."""
    lower_bound: NonNegativeFloat = 0.0
    """Smallest weight; at most 1."""
    upper_bound: PositiveFloat = 2.0
    """Largest weight; at least 1."""


@dataclass(frozen=True, kw_only=True)
class KLInRewardConfig(ConfigSection):
    """``algorithm.kl_in_reward``: the divergence from the initial policy as a price of each token."""

    beta: PositiveFloat = 0.001
    """Price of the divergence."""
    penalty: KLPenalty = "k1"
    """Its estimator."""


@dataclass(frozen=True, kw_only=True)
class LanguageAlgorithmConfig(AlgorithmConfig):
    """The ``algorithm`` section of language models: the keys of every task."""

    sampling_params: SamplingConfig = field(default_factory=SamplingConfig)
    """How responses are sampled."""

    @property
    def training_temperature(self) -> float:
        """What logits are divided by in training."""
        return 1.0

    @property
    def needs_reference(self) -> bool:
        """Whether a frozen copy of the initial model is kept."""
        return False

    @property
    def needs_whole_sequences(self) -> bool:
        """Whether a training pass has all branches of an episode; see ``LossConfig``."""
        return self.loss.needs_whole_sequences


@dataclass(frozen=True, kw_only=True)
class SftAlgorithmConfig(LanguageAlgorithmConfig):
    """The ``algorithm`` section of ``task_type: sft``, which none of its recipes needs."""

    adv_type: str = "sft"
    """There is nothing to estimate."""
    loss_type: str = "sft"
    """Registered loss."""
    advantage: AdvantageConfig = field(default_factory=NoAdvantageConfig)
    """Keys that belong to ``adv_type`` (written flat under ``algorithm``)."""
    loss: LossConfig = field(default_factory=SftLossConfig)
    """Keys that belong to ``loss_type`` (written flat under ``algorithm``)."""


@dataclass(frozen=True, kw_only=True)
class TextAlgorithmConfig(LanguageAlgorithmConfig):
    """The ``algorithm`` section of language models that learn from their own answers."""

    max_num_gen_batches: PositiveInt = 1
    """Dynamic sampling (DAPO, arXiv 2503.14476): replace groups without a learning signal, because all scores are equal
    or ``filter_rewards`` masks them, by responses to further prompts, until a step has used up this many
    generation batches (``data.gen_batch_size``). 1 replaces none."""
    carry_over: Fraction = 0.0
    """Share of a step's groups that it need not wait for: it trains on those that are done first, and the others are
    trained on by later steps, each once, at most ``staleness_threshold`` versions after they were begun. Slow episodes
    then hold up no step, and are left out no more often than others; but which step has a group depends on time, and
    generation begins a step less ahead. 0 trains on groups in the order in which they were begun."""
    recompute_logprobs: bool = True
    """Take the log-probabilities of the policy that answered from the trainer, before its first update, rather than
    from the engine, whose kernels round differently."""
    old_logprobs_in_update: bool = False
    """Take them from the forward passes of the update: those of its first minibatch are what the update computes
    anyway, and those of the others are computed in the micro-batches that they are trained in. Saves a forward pass
    over the first minibatch, and packs sequences once. False computes all of them in a pass of its own before."""
    importance_correction: ImportanceCorrectionConfig | None = None
    """Weigh advantages with trainer / engine probabilities; null only measures how far they differ."""
    kl_in_reward: KLInRewardConfig | None = None
    """Subtract the divergence from the initial policy from rewards, rather than adding it to the loss (``kl_beta``)."""

    credit: Literal["episode", "agent", "shared"] = "episode"
    """What is credited with the reward of an episode of several agents. ``episode``: the episode, whose tokens all have
    its advantage and count alike. ``agent``: each agent's part of it, which is compared with parts of the same role in
    the group ("worker" of "worker.2"); in means over sequences (``loss_agg_func``) the parts of an episode count alike,
    and together as one sequence. ``shared``: all parts have the advantage of the episode, and count in these means as
    with ``agent``: the credit of WideSeek-R1 (arXiv 2602.04634)."""
    teacher: TeacherConfig | None = None
    """A model that takes the place of the initial one wherever the policy is compared with a reference: in the
    advantages of ``adv_type: opd``, in ``kl_beta`` and in ``kl_in_reward``."""

    @property
    def replaces_groups(self) -> bool:
        """Whether groups without a learning signal are replaced."""
        return self.max_num_gen_batches > 1

    @property
    def training_temperature(self) -> float:
        """See ``LanguageAlgorithmConfig``: that of the distribution which responses are sampled from."""
        return self.sampling_params.temperature

    @property
    def needs_reference(self) -> bool:
        """See ``LanguageAlgorithmConfig``."""
        return self.kl_in_reward is not None or self.loss.needs_reference or self.advantage.needs_reference

    @property
    def needs_whole_sequences(self) -> bool:
        """See ``LanguageAlgorithmConfig``: also to compare episodes with the engine."""
        return self.old_logprobs_in_update or super().needs_whole_sequences


advantages: Registry[Any] = Registry("advantage estimator", config=AdvantageConfig)
"""By ``algorithm.adv_type``; algorithms that go without advantages have their name here too."""
advantages.register("gae", "rlinf.algorithms.advantages.gae:compute_gae_advantages", config=GAEConfig)
advantages.register("grpo", "rlinf.algorithms.advantages.grpo:compute_grpo_advantages", config=GRPOConfig)
advantages.register("opd", "rlinf.algorithms.advantages.reverse_kl:compute_opd_advantages", config=DistillationConfig)
advantages.register("raw", "rlinf.algorithms.advantages.raw:compute_raw_advantages", config=RawAdvantageConfig)
advantages.register("reinpp", "rlinf.algorithms.advantages.reinpp:compute_reinpp_advantages", config=ReinPPConfig)
advantages.register(
    "reinpp_baseline",
    "rlinf.algorithms.advantages.reinpp:compute_reinpp_baseline_advantages",
    config=ReinPPBaselineConfig,
)
advantages.register("rloo", "rlinf.algorithms.advantages.rloo:compute_rloo_advantages", config=RLOOConfig)
for _name in ("bc", "crossq", "dagger", "hgdagger", "sac", "sft", "td3"):
    advantages.register(f"embodied_{_name}", config=NoAdvantageConfig)
advantages.register("offline_iql", config=NoAdvantageConfig)
advantages.register("rlt_td3", config=NoAdvantageConfig)
advantages.register("sft", config=NoAdvantageConfig)

losses: Registry[Any] = Registry("policy loss", config=LossConfig)
"""By ``algorithm.loss_type``: a function; a class of off-policy losses where ``learner`` of the config is so."""
losses.register("actor", "rlinf.algorithms.losses.ppo:ppo_loss", config=PPOLossConfig)
losses.register("actor_critic", "rlinf.algorithms.losses.actor_critic:actor_critic_loss", config=ActorCriticLossConfig)
losses.register("cispo", "rlinf.algorithms.losses.cispo:cispo_loss", config=CISPOLossConfig)
losses.register(
    "decoupled_actor_critic",
    "rlinf.algorithms.losses.decoupled_actor_critic:decoupled_actor_critic_loss",
    config=DecoupledActorCriticLossConfig,
)
losses.register("embodied_bc", config=BCLossConfig)
losses.register("embodied_dagger", config=DAggerLossConfig)
losses.register("embodied_hgdagger", config=HGDAggerLossConfig)
losses.register("embodied_nft", "rlinf.algorithms.losses.nft:nft_loss", config=NFTLossConfig)
losses.register("embodied_sft", config=SupervisedLossConfig)
losses.register("gspo", "rlinf.algorithms.losses.gspo:gspo_loss", config=GSPOLossConfig)
losses.register("offline_iql", config=IQLLossConfig)
losses.register("opd", "rlinf.algorithms.losses.distillation:opd_loss", config=DistillationLossConfig)
losses.register("sft", "rlinf.algorithms.losses.sft:sft_loss", config=SftLossConfig)
# The losses of CrossQ are those of SAC; its critics (``q_head_type: crossq``) are what differs.
losses.register("embodied_crossq", "rlinf.algorithms.sac:SAC", config=CrossQLossConfig)
losses.register("embodied_sac", "rlinf.algorithms.sac:SAC", config=SACLossConfig)
losses.register("embodied_td3", "rlinf.algorithms.td3:TD3", config=TD3LossConfig)
losses.register("rlt_td3", "rlinf.algorithms.rlt:RLT", config=RLTLossConfig)

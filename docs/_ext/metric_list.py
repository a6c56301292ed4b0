"""The list of metrics: what each means, and which of them each registered loss reports, found out by calling it."""

from __future__ import annotations

import dataclasses

import torch

from rlinf.algorithms.aggregation import Denominators, LossDenominators
from rlinf.algorithms.losses.inputs import LossInputs
from rlinf.algorithms.registry import make_off_policy_algorithm, policy_loss
from rlinf.algorithms.types import finalize_metrics
from rlinf.config.registries import losses
from rlinf.config.schema.algorithm import OffPolicyLossConfig, RLTLossConfig
from rlinf.config.schema.value import FrameValueLossConfig, SuccessLossConfig

MEANINGS = {
    "env": {
        "return": "mean return of the episodes that ended, as rewarded (`reward_coef`, `use_rel_reward`)",
        "reward": "mean reward of a step of these episodes",
        "episode_len": "mean length of these episodes, in environment steps",
        "success_once": "share of episodes in which the task was solved at some time",
        "success_at_end": "share of episodes that ended solved",
        "normalized_score": "the return of unshaped rewards, 0 for a random and 100 for an expert policy",
        "reward/<name>": "mean of the reward `reward.rewards.<name>` for each executed action, unweighted",
    },
    "rollout": {
        "advantage": "mean advantage (0 where advantages are normalised)",
        "return": "mean of what values are trained towards, or of the scores",
        "score": "mean sum of rewards of a trajectory or an answer",
        "filtered_fraction": "share of trajectories or answers whose groups were left out",
        "kl_reward": "mean divergence of a token that was subtracted from rewards (`kl_in_reward`)",
        "staleness_mean": "mean number of versions by which weights that acted are older than those trained",
        "staleness_max": "the largest such number",
        "chunk_reward": "mean reward of a chunk of actions (off-policy)",
        "intervened": "share of chunks with an intervention",
        "expert_acts": "share of chunks in which the expert acted (DAgger)",
        "labelled": "share of chunks that became labels (DAgger)",
        "expert_distance": "mean distance of the policy's actions from the expert's (DAgger)",
        "reward": "mean reward of an answer, weighed and summed",
        "reward/<name>": "mean of the reward `reward.rewards.<name>`, unweighted",
        "reward/<name>_<metric>": "mean of what this reward measures, such as `timeouts` of `reward_type: code`",
        "prompt_length": "mean tokens of a prompt",
        "response_length": "mean tokens of an answer",
        "truncated": "share of answers that were cut off at `max_new_tokens`",
        "turns": "mean turns of an episode (`agent`)",
        "branches": "mean training sequences of an episode: more than 1 where histories were rewritten (`agent`)",
        "own_tokens": "mean tokens of an episode that the model sampled (`agent`)",
        "context_tokens": "mean tokens behind the prompt that it did not sample: of users and tools (`agent`)",
        "episode_seconds": "mean time of an episode (`agent`)",
        "episode_timeouts": "share of episodes that took longer than `agent.timeout_seconds`",
        "episode_limits": "share of episodes that used up `agent.max_turns` or `agent.max_context_tokens`",
        "forks": "mean number of prompts that changed what had been sampled (`agent`)",
        "server/requests": "mean number of requests of an episode's program (`agent.workflow: program`)",
        "server/joined_retries": "mean number of these that repeated an earlier one, and were sent its completion",
        "server/undelivered": "mean number of completions that no client took, which are not trained on",
        "server/ignored_parameters": "mean number of parameters of requests that the recipe decides on in their place",
        "tool/invalid_calls": "mean number of calls that could not be read or did not fit a tool (`agent.tools`)",
        "tool/<name>_calls": "mean number of calls of `agent.tools.<name>`",
        "tool/<name>_errors": "mean number of these that went wrong",
        "tool/<name>_timeouts": "mean number of these that took too long",
        "tool/<name>_seconds": "mean time that they took",
        "prompts_asked": "prompts whose answers were looked at (dynamic sampling)",
        "prompts_withdrawn": "prompts that were taken back and are asked again later (dynamic sampling)",
        "carried_groups": "groups that are trained on later, though they were begun earlier (`algorithm.carry_over`)",
        "filtered_groups": "share of groups that taught nothing (dynamic sampling)",
        "missing_groups": "groups that could not be replaced (dynamic sampling)",
        "correction_weight": "mean weight of `importance_correction`",
        "correction_fraction": "share of entries whose weight was out of bounds",
        "mismatch_k1": "mean of -log(trainer / engine): KL of the engine from the trainer",
        "mismatch_k3": "the same, estimated by k3",
        "mismatch_chi2": "chi-square divergence of the trainer from the engine",
        "mismatch_ess": "effective sample size under these weights, as a share",
        "mismatch_perplexity_ratio": "mean of trainer / engine perplexity of an answer",
        "mismatch_max_probability_difference": "largest difference of a token's two probabilities",
    },
    "train": {
        "total_loss": "what is minimised",
        "loss": "what is minimised (fine-tuning)",
        "token_loss": "mean negative log-likelihood of a learned token",
        "actor_loss": "the policy's part of the loss",
        "actor_reverse_kl": "mean divergence of a token from the teacher's (`loss_type: opd`)",
        "actor_ratio": "mean ratio of the current to the old policy",
        "actor_ratio_max": "largest of these ratios",
        "optimizer_steps": "optimizer steps that `algorithm.early_stop_kl` has let be made",
        "actor_approx_kl": "divergence of the old from the current policy, by k3",
        "actor_clip_fraction": "share of entries that were clipped",
        "actor_dual_clip_fraction": "share of entries that the dual clip bounded",
        "actor_entropy": "mean entropy",
        "actor_kl_ref": "mean divergence from the initial policy, by `kl_penalty`",
        "actor_behave_weight": "mean weight of proximal against behaviour policy",
        "actor_behave_approx_kl": "divergence of the behaviour from the proximal policy, by k3",
        "actor_behave_clip_fraction": "share of weights that were truncated",
        "critic_value": "mean predicted value",
        "critic_return": "mean of the values' targets",
        "critic_value_loss": "value loss",
        "critic_value_clip_fraction": "share of predictions that changed by more than `value_clip`",
        "critic_explained_variance": "share of the targets' variance that values explain; 1 is perfect",
        "nft_clip_fraction": "share of actions whose velocity changed beyond nft_clip_ratio",
        "nft_loss": "the policy's part of the loss",
        "nft_positive_loss": "squared error of the implicit policy of good actions",
        "nft_negative_loss": "squared error of the implicit policy of bad actions",
        "nft_reward": "mean optimality r",
        "nft_velocity_change": "squared change of velocities from the old policy",
        "critic_loss": "squared error of the critics",
        "q_value": "mean value of the critics",
        "q_target": "mean of their targets",
        "value": "mean value of the value head (IQL)",
        "value_loss": "expectile loss of the value head (IQL); loss of a model that judges frames",
        "advantage": "mean of Q - V (IQL)",
        "advantage_weight": "mean weight of an action (IQL)",
        "logprob": "mean log-probability of the data's actions (IQL)",
        "frames": "frames of all data sets that are learned from (fine-tuning)",
        "imitation_loss": "mean loss of an imitated action",
        "reconstruction_loss": "mean squared error of what a token is to be decoded to (`use_rlt`)",
        "positive_frames": "share of frames whose label is positive (`data.advantage_tag`)",
        "conditional_frames": "share of frames that are learned with the word for their label",
        "conditional_loss": "mean loss of an imitated action of these frames",
        "unconditional_loss": "the same of the other frames",
        "value_error": "mean distance of what a model says of frames from its targets (`task_type: value`)",
        "entropy": "mean entropy of a chunk of actions, or of a token (fine-tuning)",
        "alpha": "temperature (SAC)",
        "proposal_distance": "mean squared distance of the actions from those that the frozen flow proposes (RLT)",
        "replay_size": "transitions in the replay, over all ranks",
        "stored": "transitions or labels that are learned from",
        "grad_norm": "norm of the gradient before clipping",
        "lr": "learning rate",
        "policy_grad_norm": "the same of the policy's optimizer",
        "policy_lr": "the same of the policy's optimizer",
        "critic_grad_norm": "the same of the critics' optimizer",
        "critic_lr": "the same of the critics' optimizer",
        "expert_load_max": "tokens of the expert with most, over all layers; 1 if all had as many (`routing_replay`)",
        "expert_load_min": "the same of the expert with fewest",
        "replayed_share": "share of trained tokens that follow a token whose route is replayed (`routing_replay`)",
        "skipped_updates": "updates without anything to learn from (language models)",
        "tokens": "tokens that were learned in the step (fine-tuning)",
        "epoch": "passes over the data so far (fine-tuning)",
    },
    "eval": {
        "success_once": "share of episodes in which the task was solved at some time",
        "success_once/<task>": "the same of one of several tasks",
        "success_at_end": "share of episodes that ended solved",
        "return": "mean return",
        "reward": "mean reward of a step, or of an answer",
        "episode_len": "mean length of an episode",
        "normalized_score": "mean return, 0 for a random and 100 for an expert policy (`reference_returns`, D4RL)",
        "accuracy": "share of answers, or of a classifier's frames, that are right",
        "response_length": "mean tokens of an answer",
        "turns": "mean turns of an episode of agents",
        "tool/...": "calls of a tool and their errors, and `tool/invalid_calls`, in the mean of an episode",
        "avg@n": "accuracy over n answers to each prompt",
        "pass@k": "probability that one of k answers is right, estimated without bias",
        "<name>/...": "the same of one of several data sets",
        "loss": "negative log-likelihood of a held-out token (fine-tuning); loss on held-out frames",
        "error": "mean distance of what a model says of held-out frames from what came of them",
        "rank_correlation": "Spearman's correlation of both",
        "precision": "share of frames that a classifier finds solved which are",
        "recall": "share of solved frames that it finds",
        "wrong_sentences_refused": "share of solved frames that it finds not solved by another task's sentence",
        "token_accuracy": "share of held-out tokens that the model finds most likely (fine-tuning)",
    },
    "time": {
        "step": "seconds of the step",
        "restarts": "workers that were launched again so far",
        "env_steps_per_second": "environment steps over the time of the step",
        "samples_per_second": "samples over the time of the step",
        "tokens_per_second": "tokens over the time of the step",
        "actor/training": "seconds of updating",
        "actor/advantages": "seconds of computing advantages",
        "actor/prepare": "seconds of laying out answers and comparing them",
        "actor/receive_trajectories": "seconds of waiting for trajectories and receiving them",
        "actor/receive_responses": "seconds of fetching the responses of the step from the reward group",
        "actor/sync_weights": "seconds of publishing weights",
        "actor/evaluation": "seconds of measuring held-out samples (fine-tuning)",
        "actor/save_checkpoint": "seconds of writing weights and moments, or of copying them (`runner.async_save`)",
        "actor/save_hf": "seconds of writing the folder `hf`",
        "actor/publish": "seconds of writing the model as rewards read it",
        "actor/labels": "seconds of labelling data sets",
        "actor/tokens_per_second_per_device": "tokens trained for each second of updating",
        "actor/mfu": "model FLOPs utilisation, where the device's peak is known",
        "actor/peak_memory_gib": "most memory that a rank has held",
        "rollout/generate": "seconds of the rollout",
        "rollout/infer": "seconds of choosing actions",
        "rollout/wait_for_envs": "seconds of waiting for observations",
        "rollout/wait_for_weights": "seconds of waiting for weights",
        "rollout/sync_weights": "seconds of taking weights over",
        "rollout/pause_seconds": "seconds in which engines do not generate while their weights are replaced",
        "rollout/evaluate": "seconds of evaluating",
        "rollout/tokens_per_second_per_device": "tokens generated, over the time of the step",
        "rollout/peak_memory_gib": "most memory that a rank has held",
        "inference/sync_weights": "seconds of taking weights over",
        "inference/evaluate": "seconds of recomputing log-probabilities",
        "inference/peak_memory_gib": "most memory that a rank has held",
        "env/interact": "seconds of the rollout",
        "env/env_step": "seconds of stepping environments",
        "env/wait_for_actions": "seconds of waiting for actions",
        "env/evaluate": "seconds of evaluating",
        "reward/compute_rewards": "seconds of a rollout's rewards, waiting included",
    },
}
"""By prefix and name."""

_SHAPE = (2, 3)


def metric_list() -> str:
    """Return the Markdown of all metrics, and of those that losses report."""
    parts = []
    for prefix, names in MEANINGS.items():
        parts += [f"## `{prefix}/`", "| Metric | Meaning |\n|---|---|"]
        rows = "\n".join(f"| `{prefix}/{name}` | {meaning} |" for name, meaning in names.items())
        parts[-1] += f"\n{rows}"
    parts += ["## By loss", "| `loss_type` | Reports under `train/` |\n|---|---|"]
    parts[-1] += "".join(f"\n| `{loss}` | {', '.join(f'`{n}`' for n in loss_metrics(loss))} |" for loss in losses)
    return "\n\n".join(parts)


def loss_metrics(name: str) -> list[str]:
    """Return the metrics that a registered loss reports, from a call with a few numbers."""
    config = losses.configs.get(name)
    if issubclass(config, FrameValueLossConfig):
        objective, logits, targets = losses.get(name)(config(), num_bins=2), torch.rand(2, 1, 2), torch.zeros(2)
        if config is SuccessLossConfig:
            logits = logits[..., :1]
        return sorted(finalize_metrics(objective.metrics(logits, targets, objective.losses(logits, targets))))
    if not issubclass(config, OffPolicyLossConfig):
        return sorted(finalize_metrics(policy_loss(name, _loss_inputs(), config())[1]))
    algorithm = make_off_policy_algorithm(name, config(), action_size=2, device=torch.device("cpu"))
    rows, many = torch.rand(2), torch.rand(2, 3, requires_grad=True)
    _, critic = algorithm.critic_loss(
        q=many,
        next_q=torch.rand(2, 3),
        next_logprobs=rows,
        rewards=rows,
        terminated=rows > 2,
        lengths=torch.ones(2, dtype=torch.int64),
    )
    proposed = {"distance": rows} if issubclass(config, RLTLossConfig) else {}
    _, actor = algorithm.actor_loss(q=many, logprobs=rows, **proposed)
    return sorted(finalize_metrics(critic | actor))


def _loss_inputs() -> LossInputs:
    generator = torch.Generator().manual_seed(0)
    everywhere = torch.ones(_SHAPE, dtype=torch.bool)
    counts = Denominators(num_valid_tokens=6, num_sequences=2, max_tokens=3)
    given = {
        "loss_mask": everywhere,
        "saturated": ~everywhere,
        "denominators": LossDenominators(policy=counts, entropy=counts, value=counts),
    }
    absent = {"sequence_ids", "entropy_mask", "value_mask"}
    names = [field.name for field in dataclasses.fields(LossInputs) if field.name not in {*given, *absent}]
    return LossInputs(**given, **{name: torch.rand(_SHAPE, generator=generator) for name in names})

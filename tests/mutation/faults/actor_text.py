"""Faults of training language models: samples, learners and their metrics."""

from __future__ import annotations

from tests.mutation.fault import Fault
from tests.mutation.faults.actor import WORKERS, within

RECOMPUTED = within(
    "test_policy_learner",
    "the_first_ratio_is_one_with_recomputed_logprobs",
    "where_rollout_and_actor_compute_alike_nothing_is_mismatched",
)
TEXT = (
    f"{WORKERS}/test_text_samples.py",
    *within(
        "test_text_learner",
        "on_policy_the_ratio_is_one_recomputed_or_not",
        "off_policy_recomputing_takes_the_trainers_word_for_the_ratio",
        "the_reference_is_the_initial_model",
        "staleness_counts_versions_of_every_token",
        "updates_with_nothing_to_learn_from_are_left_out",
        "a_correction_weighs_what_the_engine_computed_differently",
        "every_epoch_has_minibatches_of_its_own",
        "values_alone_do_not_replace_the_engines_log_probabilities",
        "the_reference_of_adapters_is_the_model_without_them",
        "the_longest_answer_is_the_constant_of_an_update",
    ),
)
SAMPLES = (f"{WORKERS}/test_text_samples.py",)
IN_UPDATE = within(
    "test_text_learner",
    "old_logprobs_of_the_update_are_those_of_a_pass_before_it",
    "the_update_computes_old_logprobs_of_later_minibatches_alone_and_packs_once",
)
TEXT_RANKS = within("test_text_learner", "two_ranks_make_the_update_of_one")
METRICS = (f"{WORKERS}/test_learner.py",)
SFT = within(
    "test_sft_learner",
    "an_evaluation_measures_what_transformers_measures",
    "examples_are_learned_batch_by_batch_in_their_order",
    "an_evaluation_counts_the_examples_of_all_ranks",
)
FAULTS: list[Fault] = [
    # Text
    Fault(
        "rlinf/workers/actor/text_samples.py",
        "temperature = algorithm.training_temperature",
        "temperature = 1.0",
        TEXT,
        "training ignores the temperature",
    ),
    Fault(
        "rlinf/workers/actor/text_samples.py",
        'others["old_logprobs"] = engine if is_decoupled else before',
        'others["old_logprobs"] = before',
        TEXT,
        "a decoupled loss does not know the engine's log-probabilities",
    ),
    Fault(
        "rlinf/workers/actor/text_samples.py",
        "return advantages if weights is None else advantages * weights, metrics",
        "return advantages, metrics",
        TEXT,
        "the importance correction has no effect",
    ),
    Fault(
        "rlinf/workers/actor/text_samples.py",
        '"trainer_logprobs": trainer,\n        "engine_logprobs": engine,',
        '"trainer_logprobs": engine,\n        "engine_logprobs": trainer,',
        TEXT,
        "trainer and engine are swapped",
    ),
    Fault(
        "rlinf/workers/actor/text_samples.py",
        'tokens["loss_mask"] = torch.zeros_like(tokens["loss_mask"])',
        "pass",
        (*SAMPLES, f"{WORKERS}/test_text_gradients.py"),
        "padding of a rank is trained",
    ),
    Fault(
        "rlinf/workers/actor/text_samples.py",
        "episode_ids=episodes[packed.sequence_ids].to(device),",
        "episode_ids=packed.sequence_ids.to(device),",
        (*SAMPLES, f"{WORKERS}/test_text_gradients.py"),
        "sequences of different micro-batches count as one",
    ),
    Fault(
        "rlinf/workers/actor/text_learner.py",
        "trainer_logprobs=trainer if algorithm.recompute_logprobs else None,",
        "trainer_logprobs=trainer,",
        TEXT,
        "the engine's log-probabilities are replaced unasked",
    ),
    Fault(
        "rlinf/workers/actor/text_learner.py",
        "with model.without_adapters() if model.cfg.is_lora else self.engine.weights_of(REFERENCE):",
        "with model.without_adapters():",
        TEXT,
        "the reference is the current model",
    ),
    Fault(
        "rlinf/workers/actor/text_learner.py",
        "with model.without_adapters() if model.cfg.is_lora else self.engine.weights_of(REFERENCE):",
        "self.engine.remember(REFERENCE)\n        with self.engine.weights_of(REFERENCE):",
        TEXT,
        "the reference has the adapters of the model",
    ),
    Fault(
        "rlinf/workers/actor/text_learner.py",
        "seed=actor.seed, step=step, epoch=epoch):",
        "seed=actor.seed, step=step, epoch=0):",
        TEXT,
        "every epoch has the same minibatches of text",
    ),
    Fault(
        "rlinf/workers/actor/text_learner.py",
        "return batch.versions[batch.loss_mask].long()",
        "return batch.versions[:1].long()",
        TEXT,
        "staleness counts the first token of a response alone",
    ),
    Fault(
        "rlinf/workers/actor/token_learner.py",
        "            if minibatch.has_learning_signal:\n",
        "            if minibatch.responses:\n",
        TEXT,
        "an update without a token moves the model by its momentum",
    ),
    Fault(
        "rlinf/workers/actor/token_learner.py",
        "            data_parallel_size=engine.world_size,\n",
        "            data_parallel_size=1,\n",
        TEXT_RANKS,
        "the gradient of text shrinks with the number of ranks",
    ),
    Fault(
        "rlinf/workers/actor/token_learner.py",
        "max_tokens=self.max_response_tokens,",
        "max_tokens=1,",
        (*TEXT, f"{WORKERS}/test_text_gradients.py"),
        "Dr.GRPO's constant is 1",
    ),
    Fault(
        "rlinf/workers/actor/sft_learner.py",
        "yield range(start, min(start + size, count))",
        "yield range(start, min(start + size, count - 1))",
        SFT,
        "the last example is left out",
    ),
    Fault(
        "rlinf/workers/actor/sft_learner.py",
        "loss, right, count = self.engine.all_reduce(sums).tolist()",
        "loss, right, count = sums.tolist()",
        SFT,
        "evaluation looks at the examples of one rank",
    ),
    Fault(
        "rlinf/workers/actor/sft_learner.py",
        "-found.logprobs[mask].double().sum()",
        "-found.logprobs[mask].double().mean()",
        SFT,
        "evaluation averages in each pass",
    ),
    Fault(
        "rlinf/algorithms/types.py",
        "else totals[name] + pair\n",
        "else pair\n",
        ("tests/unit/algorithms/test_types.py",),
        "metrics are those of the last update",
    ),
    Fault(
        "rlinf/algorithms/types.py",
        "torch.maximum(totals[name], pair) if name in LARGEST else",
        "torch.maximum(totals[name], pair) if name not in LARGEST else",
        ("tests/unit/algorithms/test_types.py",),
        "the largest of several is their sum",
    ),
    Fault(
        "rlinf/workers/actor/learner.py",
        "            total[name] = torch.stack(engine.all_gather(parts[names.index(name)])).amax(0).cpu()\n",
        "            pass\n",
        METRICS,
        "the largest over ranks is their mean",
    ),
    Fault(
        "rlinf/workers/actor/text_samples.py",
        'trainer = tokens.setdefault("old_logprobs", logprobs.detach())',
        'trainer = tokens.setdefault("old_logprobs", engine)',
        IN_UPDATE,
        "an update's first minibatch has the engine's log-probabilities",
    ),
    Fault(
        "rlinf/workers/actor/text_samples.py",
        '        tokens["advantages"] = tokens["advantages"] * weights\n',
        "        pass\n",
        IN_UPDATE,
        "the correction has no effect within the update",
    ),
    Fault(
        "rlinf/workers/actor/text_learner.py",
        "self._with_old_logprobs(batches) if number else batches",
        "batches",
        IN_UPDATE,
        "the old log-probabilities of later minibatches are their own",
    ),
    Fault(
        "rlinf/workers/actor/text_learner.py",
        "self._with_old_logprobs(batches) if number else batches",
        "self._with_old_logprobs(batches)",
        IN_UPDATE,
        "the first minibatch is computed once more",
    ),
    Fault(
        "rlinf/workers/actor/text_learner.py",
        'name.startswith(("mismatch_", "correction_"))',
        'name.startswith("mismatch_")',
        IN_UPDATE,
        "metrics of the correction change their names",
    ),
    Fault(
        "rlinf/workers/actor/learner.py",
        "sum(step[name] for step in steps) / len(steps)",
        "sum(step[name] for step in steps)",
        METRICS,
        "reports of optimizer steps are summed",
    ),
    Fault(
        "rlinf/workers/actor/learner.py",
        "return batch.versions[batch.executed.any(-1)]",
        "return batch.versions.flatten()",
        METRICS,
        "staleness counts chunks that were not executed",
    ),
    Fault(
        "rlinf/workers/actor/policy_learner.py",
        "inputs = {name: rows_to_samples(rows) for name, rows in trajectory.forward_inputs.items()}",
        "inputs = {name: self._to_samples(rows) for name, rows in trajectory.forward_inputs.items()}",
        ("tests/unit/workers/actor/test_policy_learner.py",),
        "inputs of a whole rollout are moved to the device",
    ),
    Fault(
        "rlinf/workers/actor/policy_learner.py",
        "return own, mismatch_metrics(",
        "return rollout, mismatch_metrics(",
        RECOMPUTED,
        "ratios are formed to what the rollout computed, though the actor has recomputed it",
    ),
    Fault(
        "rlinf/workers/actor/policy_learner.py",
        "trainer_logprobs=own, engine_logprobs=rollout, loss_mask=executed)",
        "trainer_logprobs=own, engine_logprobs=rollout, loss_mask=torch.ones_like(executed))",
        RECOMPUTED,
        "rollout and actor are compared also in actions that were not executed",
    ),
    Fault(
        "rlinf/workers/actor/policy_passes.py",
        "tensor.to(device, non_blocking=True)",
        "tensor",
        ("tests/unit/workers/actor/test_policy_passes.py",),
        "inputs of a micro-batch stay on the host",
    ),
]

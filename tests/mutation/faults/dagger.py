"""Faults of a scripted expert that labels chunks of actions, and of what is learned from its labels."""

from __future__ import annotations

from tests.mutation.fault import Fault

_WRAPPER = ("tests/unit/envs/wrappers/test_expert_labels.py",)
_TESTS = {
    "envs/wrappers/expert_labels.py": _WRAPPER,
    "envs/base.py": _WRAPPER,
    "data/messages/embodied.py": _WRAPPER,
    "envs/scripted.py": ("tests/unit/envs/interveners/test_scripted_intervener.py",),
    "envs/interveners/scripted.py": ("tests/unit/envs/interveners/test_scripted_intervener.py",),
    "workers/rollout/collector.py": ("tests/unit/workers/rollout/test_collector.py",),
    "workers/rollout/experts.py": ("tests/unit/workers/rollout/test_experts.py",),
    "workers/actor/imitation_learner.py": ("tests/unit/workers/actor/test_imitation_learner.py",),
    "workers/env/env_worker.py": ("tests/unit/workers/env/test_env_worker.py",),
    "workers/env/policy_client.py": ("tests/e2e/test_dagger_runs.py",),
    "config/checks/offline_checks.py": ("tests/unit/config/checks/test_offline_checks.py",),
    "cli/migrate_values.py": ("tests/unit/cli/test_migrate_recipe_collection.py",),
}


def _fault(file: str, before: str, after: str, what: str) -> Fault:
    return Fault(f"rlinf/{file}", before, after, _TESTS[file], what)


FAULTS: list[Fault] = [
    _fault(
        "envs/wrappers/expert_labels.py",
        "        self.shown = step.obs\n",
        "        self.shown = self.shown if self.is_within_chunk else step.obs\n",
        "the expert labels all actions of a chunk by what was seen before it",
    ),
    _fault(
        "envs/wrappers/expert_labels.py",
        "        if self.resting is None:",
        "        if True:",
        "the expert and the policy act within one chunk",
    ),
    _fault(
        "envs/wrappers/expert_labels.py",
        "self.cfg.beta_decay ** (step - 1), 0",
        "self.cfg.beta_decay**step, 0",
        "the expert acts more rarely one step too early",
    ),
    _fault(
        "envs/wrappers/expert_labels.py",
        "self.flags & step.executed",
        "self.flags",
        "actions behind the end of an episode count as the expert's",
    ),
    _fault(
        "envs/wrappers/expert_labels.py",
        "self.env.seed, self.step, self.chunks)",
        "self.env.seed, self.step)",
        "where nothing moves the same acts for ever",
    ),
    _fault(
        "envs/wrappers/expert_labels.py",
        "self.env.seed, self.step, self.chunks)",
        "self.env.seed, self.chunks)",
        "the expert acts in the same start states in every step",
    ),
    _fault(
        "envs/wrappers/expert_labels.py",
        "put_rows(self.shown, rows.numpy(), obs)",
        "self.shown",
        "start states that are looked at are labelled as what was there before",
    ),
    _fault(
        "envs/wrappers/expert_labels.py",
        '    state_names = ("shown",)\n',
        "",
        "a resumed run labels nothing that it sees",
    ),
    _fault(
        "envs/base.py",
        "        self._looks_at_every_action |= wrapper.looks_at_every_action\n",
        "",
        "a wrapper that is added gets chunks whole",
    ),
    _fault(
        "envs/base.py",
        "            wrapper.begin_step(step)\n",
        "            pass\n",
        "wrappers do not hear of training steps",
    ),
    _fault(
        "data/messages/embodied.py",
        '"intervene_flag", "expert_action")',
        '"intervene_flag")',
        "of a chunk's labels the last is left",
    ),
    _fault(
        "envs/scripted.py",
        "default_rng([*place, checksum])",
        "default_rng([*place])",
        "all environments are taken over at the same steps",
    ),
    _fault(
        "envs/interveners/scripted.py",
        "draw(situation.obs, self.seed, situation.step)",
        "draw(situation.obs, situation.step)",
        "the seed does not decide when somebody takes over",
    ),
    _fault(
        "workers/rollout/collector.py",
        "torch.cat([torch.ones_like(acts[:, :1]), acts[:, :-1]], 1).cumprod(1).bool()",
        "torch.ones_like(acts)",
        "an action of the expert's behind others is imitated from before them",
    ),
    _fault(
        "workers/rollout/collector.py",
        "torch.cat([torch.ones_like(acts[:, :1]), acts[:, :-1]], 1).cumprod(1).bool()",
        "acts",
        "states in which the policy acts have no label",
    ),
    _fault(
        "workers/rollout/collector.py",
        'labels = self.model.forward_inputs_of(acted_on, step.expert_action)["action"]',
        "labels = step.expert_action",
        "labels are not in the units of the policy",
    ),
    _fault(
        "workers/rollout/experts.py",
        " or recipe.labelled_in_env is not None",
        "",
        "a script labels chunks twice",
    ),
    _fault(
        "workers/actor/imitation_learner.py",
        "inputs[_IMITATED] = labelled & executed",
        "inputs[_IMITATED] = labelled",
        "labels of actions that were not executed are imitated",
    ),
    _fault(
        "workers/env/env_worker.py",
        'if mode == "train" and (loss :=',
        "if (loss :=",
        "the expert acts in evaluations",
    ),
    _fault(
        "workers/env/policy_client.py",
        "state.result is not None and chunk.has_foreign_actions else None",
        "state.result is not None and chunk.has_interventions else None",
        "labels alone come without what they label in the decoupled mode",
    ),
    _fault(
        "config/checks/offline_checks.py",
        "cfg.labelled_in_env is not None and loss.takeover_distance is not None",
        "False",
        "a distance at which a script takes over has no effect",
    ),
    _fault(
        "config/checks/offline_checks.py",
        "cfg.labelled_in_env is not None and intervenes",
        "False",
        "an operator's actions are labelled as the script's",
    ),
    _fault(
        "cli/migrate_values.py",
        'trains == (name == "train")',
        "True",
        "what is not played for it is to be collected",
    ),
]

"""Faults of recipes that only collect."""

from tests.mutation.fault import Fault

_CHECKS = ("tests/unit/config/checks/test_collect_task.py",)
_RUNNER = ("tests/unit/runners/test_collect_runner.py",)
_MIGRATE = ("tests/unit/cli/test_migrate_recipe.py",)
_EXPERT = ("tests/unit/envs/realworld/test_expert.py",)

FAULTS: list[Fault] = [
    Fault(
        "rlinf/config/checks/collection_checks.py",
        '    if collection.policy == "operator" and not acts:\n',
        "    if False:\n",
        _CHECKS,
        "an operator that is not there is accepted",
    ),
    Fault(
        "rlinf/config/checks/collection_checks.py",
        "    elif not cfg.env.eval.data_collection.enabled or not cfg.runner.only_eval:\n",
        "    elif not cfg.env.eval.data_collection.enabled:\n",
        _CHECKS,
        "a recipe that only collects may train",
    ),
    Fault(
        "rlinf/config/checks/collection_checks.py",
        "    elif cfg.env.eval.data_collection.policy in MODEL_POLICIES:\n",
        "    elif False:\n",
        _CHECKS,
        "a model acts where there is none",
    ),
    Fault(
        "rlinf/config/checks/collection_checks.py",
        "    if cfg.data is not None:\n",
        "    if False:\n",
        _CHECKS,
        "data that nothing learns from is accepted",
    ),
    Fault(
        "rlinf/config/checks/collection_checks.py",
        "    if isinstance(check.cfg.actor.model, NoModelConfig) and not isinstance(check.cfg, CollectConfig):\n",
        "    if False:\n",
        _CHECKS,
        "training without a model is accepted",
    ),
    Fault(
        "rlinf/runners/collect_runner.py",
        '    launcher.start("env", EnvWorker.create_group(cfg, num_rollout, 0))\n',
        "",
        _RUNNER,
        "environments are not started",
    ),
    Fault(
        "rlinf/runners/collect_runner.py",
        "        return self.logger.log_evaluation(self.step, [episode for rank in ranks for episode in rank])\n",
        "        return self.logger.log_evaluation(self.step, list(ranks[0]))\n",
        _RUNNER,
        "episodes of other ranks are not counted",
    ),
    Fault(
        "rlinf/cli/migrate_values.py",
        '        value = {"rollout": 0, **value}\n',
        "        pass\n",
        _MIGRATE,
        "the script that collects is not placed",
    ),
    Fault(
        "rlinf/cli/migrate_values.py",
        '    return {"env.eval.max_steps_per_rollout_epoch": value_at(recipe, "env.eval.max_episode_steps", value)}\n',
        '    return {"env.eval.max_steps_per_rollout_epoch": value}\n',
        _MIGRATE,
        "a rollout epoch ends before the episode",
    ),
    Fault(
        "rlinf/cli/migrate_values.py",
        "    return {key: item for key, item in section.items() if key in names}\n",
        "    return dict(section)\n",
        _MIGRATE,
        "settings that only a driver knows stay",
    ),
    Fault(
        "rlinf/envs/realworld/expert.py",
        '        return torch.zeros(len(obs["states"]), 1, self.env.num_actions)\n',
        '        return torch.ones(len(obs["states"]), 1, self.env.num_actions)\n',
        _EXPERT,
        "a resting arm moves",
    ),
]

"""Faults of ManiSkill's environments in one simulation: start states, rows that go on, what is shown, where it runs."""

from __future__ import annotations

from tests.mutation.fault import Fault

_TESTS = "tests/unit/envs/simulators/maniskill"
_FOLDER = "rlinf/envs/simulators/maniskill"
_CHECKS = "tests/unit/config/checks/test_simulator_checks.py"


def _fault(part: str, before: str, after: str, what: str, *more_tests: str) -> Fault:
    name = f"maniskill_{part}"
    return Fault(f"{_FOLDER}/{name}.py", before, after, (f"{_TESTS}/test_{name}.py", *more_tests), what)


FAULTS: list[Fault] = [
    _fault(
        "rows",
        "torch.manual_seed(int(env._episode_seed[row]))",
        "torch.manual_seed(int(env._episode_seed[0]))",
        "a start state depends on the first row's seed",
    ),
    _fault(
        "rows",
        "            env._episode_rng = env._batched_episode_rng[row]\n",
        "",
        "tasks that read the older generator start by the first row's seed",
    ),
    _fault("rows", "self._seeds[rows] = seeds", "self._seeds = seeds.copy()", "seeds of some rows are taken for all"),
    _fault(
        "rows",
        "            env.scene._reset_mask[row] = True\n",
        "            env.scene._reset_mask[env_idx] = True\n",
        "the start of a row is written into all that start",
    ),
    _fault(
        "rows",
        "env_idx[number : number + 1]",
        "env_idx[:1]",
        "each start is that of the first row that starts",
    ),
    _fault(
        "rows",
        "            env._batched_episode_rng[others] = [generators.rngs[row] for row in others]\n",
        "",
        "a reset begins the generators of other rows anew",
    ),
    _fault(
        "rows",
        "                tensor[others] = kept\n",
        "                del tensor, kept\n",
        "a reset moves the targets of other arms",
    ),
    _fault(
        "rows",
        "tensor[rows].clone() for tensor",
        "tensor for tensor",
        "targets are kept by reference, and change with the reset",
    ),
    _fault("rows", '"_target_qpos", ', "", "targets of joints are forgotten"),
    _fault("rows", ', "_target_pose")', ")", "targets of poses are forgotten"),
    _fault(
        "rows",
        "    for part in parts.values():\n",
        "    for part in list(parts.values())[1:]:\n",
        "the first arm's targets are forgotten",
    ),
    _fault(
        "rows",
        'getattr(env, "starts_follow_from_seeds", False)',
        'getattr(env, "starts_follow_from_seeds", True)',
        "tasks that sample start all rows under one seed",
    ),
    _fault(
        "rows",
        "            self._initialize(env_idx, options)\n            return\n",
        "            pass\n",
        "tasks that read seeds alone start row by row",
    ),
    _fault("batch", "        given[~active] = 0\n", "", "rows at rest go on acting"),
    _fault("batch", "given[~active] = 0", "given[active] = 0", "the rows that act get zeros"),
    _fault(
        "batch",
        "given = actions.copy()",
        "given = actions",
        "the actions of the request are overwritten",
    ),
    _fault(
        "batch",
        "take_rows(self._task.observe(self._resets.reset(env_ids, seeds)), env_ids)",
        "self._task.observe(self._resets.reset(env_ids, seeds))",
        "a reset of some rows answers all",
    ),
    _fault("batch", "terminations=terminations,", "terminations=truncations,", "success does not end an episode"),
    _fault(
        "batch",
        'infos={"success": info["success"]} if "success" in info else {},',
        'infos={"success": terminations},',
        "tasks without success report some",
    ),
    _fault(
        "batch", "[images[row].cpu().numpy() for row in env_ids]", "[i.cpu().numpy() for i in images]", "all are filmed"
    ),
    _fault("batch", "        self._task.env.close()\n", "        pass\n", "the simulator keeps its memory"),
    _fault("batch", 'restored_by = "nothing"', 'restored_by = "replay"', "a resumed run relies on the same bits"),
    _fault("batch", "        check_device(cfg)\n", "", "without CUDA the simulator's own error is all that is said"),
    _fault("batch", "bool(self._recorder.rows)", "True", "cameras of videos are built without need"),
    _fault(
        "build",
        'flatten([raw["agent"], raw["extra"]] if self.cameras else raw)',
        'flatten(raw["agent"] if self.cameras else raw)',
        "what a robot knows of its task is not shown",
    ),
    _fault(
        "build", "is_fixed = self.description is not None", "is_fixed = bool(self.description)", "no words are a crash"
    ),
    _fault("build", "[self.description] * len(states)", "[self.description]", "one row has the sentence"),
    _fault("build", "value.shape[1:], np.uint8", "value.shape, np.uint8", "the space of images is that of a batch"),
    _fault(
        "build",
        'params["reconfiguration_freq"] = 0',
        'params["reconfiguration_freq"] = 1',
        "a batch is built anew at each reset, which ManiSkill refuses for some rows",
    ),
    _fault(
        "build",
        '"physx_cuda" if sim_backend == "gpu" else "physx_cpu"',
        '"physx_cpu"',
        "physics stays on the CPU",
    ),
    _fault(
        "build",
        "part.float().reshape(len(part), -1)",
        "part.float().reshape(1, -1)",
        "the numbers of all rows are one row",
    ),
    _fault(
        "build",
        "list(self.env.get_language_instruction())",
        '["put it on the plate"] * len(states)',
        "sentences do not say what is there",
    ),
    _fault(
        "build",
        "        if self.shows_objects:\n",
        '        if hasattr(self.env, "get_objects"):\n',
        "policies see where things are without being meant to",
    ),
    _fault(
        "build",
        'self.env.get_objects() if has_own else whole_state(self.env, raw["info"])',
        'self.env.get_objects() if has_own else raw["extra"]',
        "critics see no more than policies",
    ),
    _fault("looks", "    env.get_obs = get_obs\n", "    del get_obs\n", "images are rendered at every step"),
    _fault(
        "looks",
        "        env._obs_mode, env.obs_mode_struct = mode, structure\n",
        "        pass\n",
        "policies see where things are after critics were shown it",
    ),
    _fault("looks", "        found[rows] = 0\n", "        found[:] = 0\n", "rows that go on let go of what they hold"),
    _fault("looks", "impulses(*bodies).clone()", "impulses(*bodies)", "the simulator's own contacts are overwritten"),
    _fault("rows", "with untouched(env, rows):", "if True:", "an episode begins with the grasp of the one before"),
    _fault(
        "single",
        "with untouched(self._env, _ONLY_ROW):",
        "if True:",
        "an episode begins with the grasp of the one before, on a CPU",
    ),
    _fault(
        "batch",
        "obs=partial(self._task.observe, raw),",
        "obs=self._task.observe(raw),",
        "a batch renders images that are not looked at",
    ),
    Fault(
        "rlinf/envs/base.py",
        "request.observes or ended.any() or column == request.shape[1] - 1:",
        "request.observes or column == request.shape[1] - 1:",
        (f"{_TESTS}/test_maniskill_batch.py",),
        "the last observation of an episode is that before its last chunk",
    ),
    Fault(
        "rlinf/config/checks/simulator_checks.py",
        ") not in _OBS_MODES:",
        ") in ():",
        (_CHECKS,),
        "modes that are not shown are accepted, and fail in the worker",
    ),
    Fault(
        f"{_FOLDER}/maniskill_device.py",
        'cfg.sim_backend == "gpu" and not',
        'cfg.sim_backend != "gpu" and not',
        ("tests/unit/runners/test_readiness.py", f"{_TESTS}/test_maniskill_batch.py"),
        "simulations on the CPU need a GPU",
    ),
    _fault(
        "env",
        'cfg.sim_backend == "gpu"',
        'cfg.sim_backend == "cpu"',
        "each place gets the class of the other",
    ),
    Fault(
        "rlinf/envs/env_registry.py",
        "get_env_cls(cfg.env_type).class_for(cfg)",
        "get_env_cls(cfg.env_type)",
        (f"{_TESTS}/test_maniskill_batch.py",),
        "the class that the section asks for is not built",
    ),
    Fault(
        "rlinf/envs/readiness.py",
        ' or (isinstance(cfg, ManiSkillEnvConfig) and cfg.sim_backend == "gpu")',
        "",
        ("tests/unit/runners/test_readiness.py",),
        "the plan complains of a GPU that another machine has",
    ),
    Fault(
        "rlinf/config/checks/simulator_checks.py",
        'if env.sim_backend == "gpu" and env.num_env_processes:',
        'if env.sim_backend == "cpu" and env.num_env_processes:',
        (_CHECKS,),
        "processes are refused where they are used",
    ),
    Fault(
        "rlinf/config/checks/simulator_checks.py",
        'if sim_backend == "gpu" and (every := init_params.get("reconfiguration_freq")):',
        'if (every := init_params.get("reconfiguration_freq")) is not None:',
        (_CHECKS,),
        "scenes on the CPU cannot be built anew",
    ),
]

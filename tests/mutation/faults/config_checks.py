"""Faults of suggestions, of checks before a run starts and of sizes."""

from tests.mutation.fault import Fault

_READY = ("tests/unit/runners/test_readiness.py",)
_NAMES = ("tests/unit/config/test_foreign_keys.py",)
_SIZES = ("tests/unit/workers/env/test_spaces.py",)
_POLICY = ("tests/unit/models/test_policy_conformance.py",)

_MEMORY = ("tests/unit/config/test_decoder_sizes.py", "tests/unit/cli/test_memory_plan.py")
_REGISTRY = ("tests/unit/test_registry.py",)

FAULTS: list[Fault] = [
    Fault(
        "rlinf/config/decoder_sizes.py",
        "-(-shape[0] // num_ranks) * math.prod(shape[1:])",
        "shape[0] * math.prod(shape[1:]) // num_ranks",
        _MEMORY,
        "the plan forgets that rows are not split",
    ),
    Fault(
        "rlinf/config/decoder_sizes.py",
        'has_qkv_bias=own_bias or family == "qwen2",',
        "has_qkv_bias=own_bias,",
        _MEMORY,
        "the plan forgets the biases of Qwen2",
    ),
    Fault(
        "rlinf/cli/memory_plan.py",
        "is_whole = shards == 1 or fsdp.enable_gradient_accumulation",
        "is_whole = shards == 1",
        _MEMORY,
        "the plan forgets gradients that are kept whole",
    ),
    Fault(
        "rlinf/cli/memory_plan.py",
        "    if keeps_gathered and shards > 1:\n",
        "    if False:\n",
        _MEMORY,
        "the plan forgets parameters that stay gathered",
    ),
    Fault(
        "rlinf/config/checks/simulator_checks.py",
        "if env is not None and env.enable_offload and not env.supports_offload:",
        "if False:",
        ("tests/unit/config/checks/test_simulator_checks.py",),
        "offloading is accepted where nothing can be freed",
    ),
    Fault(
        "rlinf/registry.py",
        "entry.config or self.default\n        if config is None",
        "entry.config\n        if config is None",
        _REGISTRY,
        "a name without a config of its own has none",
    ),
    Fault(
        "rlinf/registry.py",
        "Registration(chosen or target, config or known.config)",
        "Registration(chosen or target, config)",
        _REGISTRY,
        "a target that comes after its config drops it",
    ),
    Fault(
        "rlinf/registry.py",
        "        return False\n    return _import_path(known)",
        "        return False\n    return False and _import_path(known)",
        _REGISTRY,
        "a path takes over a name that is taken",
    ),
    Fault(
        "rlinf/registry.py",
        "        if was_enabled:\n            gc.enable()",
        "        gc.enable()",
        _REGISTRY,
        "an import turns on a garbage collection that was off",
    ),
    Fault(
        "rlinf/config/validate.py",
        "for cls in reversed(type(typed).__mro__):",
        "for cls in (type(typed),):",
        ("tests/unit/config/test_validate_rules.py",),
        "rules do not hold for recipes of a derived class",
    ),
    Fault(
        "rlinf/runners/readiness.py",
        "            if _runs_here(cfg) and not is_installed(package):\n",
        "            if not is_installed(package):\n",
        _READY,
        "packages of other machines are looked for here",
    ),
    Fault(
        "rlinf/runners/readiness.py",
        "    return is_alone and not any(group.env_configs for group in cfg.cluster.node_groups)\n",
        "    return is_alone\n",
        _READY,
        "another interpreter is taken for this one",
    ),
    Fault(
        "rlinf/runners/readiness.py",
        "        if cfg.runner.only_eval and path.partition",
        "        if False and path.partition",
        _READY,
        "an evaluation needs data to learn from",
    ),
    Fault(
        "rlinf/runners/readiness.py",
        "    if not runner.only_eval:\n        yield from _raised(lambda: check_run_dir",
        "    if runner.only_eval:\n        yield from _raised(lambda: check_run_dir",
        _READY,
        "a folder that holds a run is not noticed",
    ),
    Fault(
        "rlinf/runners/readiness.py",
        "    if len(errors) == 1:\n        raise errors[0]\n",
        "    if errors:\n        raise errors[0]\n",
        _READY,
        "only the first thing that is missing is reported",
    ),
    Fault(
        "rlinf/config/sections.py",
        "    known = known_paths() if recipe is None else _paths_of_recipe(recipe)\n",
        "    known = known_paths()\n",
        _NAMES,
        "keys of other kinds of recipes are suggested",
    ),
    Fault(
        "rlinf/workers/env/spaces.py",
        "        if given is not None and given != actual\n",
        "        if given is not None and given == actual\n",
        _SIZES,
        "sizes that fit are refused",
    ),
    Fault(
        "rlinf/workers/env/spaces.py",
        "        return PolicySizes(obs_dim, int(space.n), discrete=True, images=images)\n",
        "        return PolicySizes(obs_dim, env.action_dim, discrete=True, images=images)\n",
        _SIZES,
        "discrete actions are counted as one number",
    ),
    Fault(
        "rlinf/workers/env/spaces.py",
        "        if channels != shape[2]:\n",
        "        if channels < shape[2]:\n",
        _SIZES,
        "a policy sees some of the stacked frames",
    ),
    Fault(
        "rlinf/workers/env/spaces.py",
        "        if model.image_size is not None and tuple(model.image_size) != shape[:2]:\n",
        "        if model.image_size is not None and model.image_size[0] != shape[0]:\n",
        _SIZES,
        "images of another width reach the policy",
    ),
    Fault(
        "rlinf/workers/env/spaces.py",
        "    return (model.obs_dim, model.action_dim, *images)\n",
        "    return (model.obs_dim, model.action_dim)\n",
        _SIZES,
        "the size of images is not taken from the environment",
    ),
    Fault(
        "rlinf/workers/env/spaces.py",
        "    filled = validate_cfg(cfg)\n",
        "    filled = cfg\n",
        _SIZES,
        "actions that the algorithm cannot learn pass once they are known",
    ),
    Fault(
        "rlinf/models/policy_conformance.py",
        "    size = actions.shape[2] if actions.ndim == 3 else 1\n",
        "    size = output.logprobs.shape[-1]\n",
        _POLICY,
        "log-probabilities of another size pass",
    ),
    Fault(
        "rlinf/models/policy_conformance.py",
        'evaluation.logprobs.requires_grad, "default',
        'True, "default',
        _POLICY,
        "detached log-probabilities pass",
    ),
    Fault(
        "rlinf/config/checks/recipe_check.py",
        "            if value != default:",
        "            if value == default:",
        ("tests/unit/config/checks/test_recipe_check.py",),
        "keys without effect are accepted",
    ),
    Fault(
        "rlinf/config/validate.py",
        "rule if takes_check else _take_apart(rule))",
        "rule)",
        ("tests/unit/config/test_validate_rules.py",),
        "rules of older plug-ins are called with one argument",
    ),
    Fault(
        "rlinf/config/schema/algorithm.py",
        'True\n    unused_keys: ClassVar[tuple[str, ...]] = ("bootstrap_type",)\n\n    filter',
        'False\n    unused_keys: ClassVar[tuple[str, ...]] = ("bootstrap_type",)\n\n    filter',
        ("tests/unit/config/checks/test_algorithm_checks.py",),
        "GRPO accepts groups of one",
    ),
    Fault(
        "rlinf/config/schema/root.py",
        '        return super().needs_master_weights if self.inference is None else "inference"\n',
        "        return super().needs_master_weights\n",
        ("tests/unit/config/checks/test_language_checks.py",),
        "the inference group gets rounded weights",
    ),
    Fault(
        "rlinf/config/checks/language_checks.py",
        '    if chosen not in {None, "fp32"} and reason is not None:\n',
        '    if chosen not in {None, "fp32"} and reason == "inference":\n',
        ("tests/unit/config/checks/test_language_checks.py",),
        "adapters are rounded on their way",
    ),
    Fault(
        "rlinf/config/checks/language_checks.py",
        '    if syncer.type == "patch" and syncer.bucket.bucket_device != "cpu":\n',
        '    if syncer.type == "bucket" and syncer.bucket.bucket_device != "cpu":\n',
        ("tests/unit/config/checks/test_language_checks.py",),
        "patches are made of buckets on a device",
    ),
]

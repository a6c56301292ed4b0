"""Faults of the table of published keys, of applying it, and of what the command says."""

from tests.mutation.fault import Fault

_TABLE = ("tests/unit/config/test_published_keys.py",)
_RECIPE = ("tests/unit/cli/test_migrate_recipe.py",)
_VALUES = ("tests/unit/cli/test_migrate_values.py",)
_COMPOSE = ("tests/unit/cli/test_migrate_compose.py",)
_COMMAND = ("tests/unit/cli/test_migrate.py",)

FAULTS: list[Fault] = [
    Fault(
        "rlinf/config/published_keys.py",
        "    return any(type(value) is type(option) and value == option for option in options)\n",
        "    return any(value == option for option in options)\n",
        _TABLE,
        "0 counts as false",
    ),
    Fault(
        "rlinf/config/published_keys.py",
        "        return all(_is_one_of(value_at(recipe, path), values) for path, values in self.where.items())\n",
        "        return True\n",
        _TABLE,
        "a rule holds in recipes that it is not for",
    ),
    Fault(
        "rlinf/config/published_keys.py",
        "    for rule, groups in applying or matching:\n",
        "    for rule, groups in matching:\n",
        _TABLE,
        "the explanation is that of another kind of recipe",
    ),
    Fault(
        "rlinf/config/published_keys.py",
        "_ENOUGH_TO_RECOGNIZE = 4\n",
        "_ENOUGH_TO_RECOGNIZE = 1\n",
        _TABLE,
        "our own recipes count as published ones",
    ),
    Fault(
        "rlinf/cli/migrate_recipe.py",
        "            if present is not None and present != value:\n",
        "            if False:\n",
        _RECIPE,
        "a moved key replaces the one that is given",
    ),
    Fault(
        "rlinf/cli/migrate_recipe.py",
        '        if again is not None and again[0].action == "values":\n',
        "        if False:\n",
        _RECIPE,
        "a moved value keeps its former name",
    ),
    Fault(
        "rlinf/cli/migrate_recipe.py",
        "            _fill_in(filled, path)\n",
        "            pass\n",
        _RECIPE,
        "a recipe with values to fill in is not checked",
    ),
    Fault(
        "rlinf/cli/migrate_recipe.py",
        "    filled = copy.deepcopy(dict(recipe))\n",
        "    filled = dict(recipe)\n",
        _RECIPE,
        "stand-ins get into the recipe",
    ),
    Fault(
        "rlinf/cli/migrate_recipe.py",
        "for where, _ in lines), len(lines)\n",
        "for where, _ in lines), 0\n",
        _RECIPE,
        "stand-ins that contradict the rest are taken",
    ),
    Fault(
        "rlinf/cli/migrate_recipe.py",
        '    if text.startswith("received null;"):\n',
        "    if False:\n",
        _RECIPE,
        "null is a problem instead of the default",
    ),
    Fault(
        "rlinf/cli/migrate_recipe.py",
        '(path.rpartition(".")[0] in chosen and text.startswith("unknown key"))',
        "False",
        _RECIPE,
        "keys of a section without a counterpart are problems of their own",
    ),
    Fault(
        "rlinf/cli/migrate_values.py",
        "    return {path: max(1, value * steps // chunk)}\n",
        "    return {path: max(1, value * steps)}\n",
        _VALUES,
        "replay sizes count environment steps",
    ),
    Fault(
        "rlinf/cli/migrate_values.py",
        '    if "constant" in str(decays) or not value or not lr:\n',
        "    if not value or not lr:\n",
        _VALUES,
        "a constant learning rate gets an end",
    ),
    Fault(
        "rlinf/cli/migrate_compose.py",
        "    return [*above, *(sorted(examples.glob(",
        "    return [*(sorted(examples.glob(",
        _COMPOSE,
        "presets in a folder above the recipe are not found",
    ),
    Fault(
        "rlinf/cli/migrate_compose.py",
        "        for name in added:\n",
        "        for name in ():\n",
        _COMPOSE,
        "functions of interpolations stay registered",
    ),
    Fault(
        "rlinf/cli/migrate.py",
        "    if taken and not args.force:\n",
        "    if False:\n",
        _COMMAND,
        "files in the way are overwritten",
    ),
    Fault(
        "rlinf/cli/migrate.py",
        "        if not _is_published_file(Path(recipe)):\n",
        "        if _is_published_file(Path(recipe)):\n",
        _COMMAND,
        "plan does not name the command",
    ),
    Fault(
        "rlinf/cli/migrate_values.py",
        '    "data_collection",\n    "enable_offload",\n    "use_ordered_reset_state_ids",\n',
        '    "nothing",\n',
        _VALUES,
        "a guest's section keeps keys that guests refuse",
    ),
    Fault(
        "rlinf/cli/migrate_recipe.py",
        'if value_at(section, "env_type") == "guest":',
        "if False:",
        _RECIPE,
        "a recipe does not say that its adapter is unproven",
    ),
    Fault(
        "rlinf/cli/migrate_values.py",
        '        placed["reward"] = 0  # one process serves all clients\n',
        "        pass\n",
        _RECIPE,
        "several processes serve the same clients",
    ),
    Fault(
        "rlinf/cli/migrate_values.py",
        "if name in placed and placed[name] == value[names]]:",
        "if name in placed]:",
        _RECIPE,
        "a component is where the recipe that is extended has it",
    ),
    Fault(
        "rlinf/cli/migrate_values.py",
        '        placed.setdefault("actor", placed["rollout"])  # it loads the weights\n',
        "        pass\n",
        _RECIPE,
        "an evaluation has no actor",
    ),
    Fault(
        "rlinf/cli/migrate_values.py",
        'f"http://{value}/retrieve"',
        'f"http://{value}"',
        _RECIPE,
        "queries go to the root of the search service",
    ),
]

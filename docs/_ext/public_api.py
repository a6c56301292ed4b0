"""The reference of public names: what the ``__all__`` of a package says, or the names given."""

from __future__ import annotations

import importlib
import inspect

# Packages that state no ``__all__``: what surfaces in documents and plug-ins.
_NAMES = {
    "rlinf": ("train", "evaluate", "load_policy", "RunResult", "TrainedPolicy", "Callback"),
    "rlinf.algorithms.registry": (
        "register_advantage",
        "register_policy_loss",
        "register_off_policy",
        "calculate_adv_and_returns",
        "policy_loss",
        "get_adv_and_returns",
        "get_policy_loss",
    ),
    "rlinf.algorithms.rewards": ("register_reward", "get_reward_class"),
    "rlinf.models": ("register_model", "get_model", "get_policy", "BasePolicy", "PolicyEvaluation"),
    "rlinf.utils.logging": ("get_logger",),
    "rlinf.hybrid_engines.train.train_engine": ("TrainEngine",),
    "rlinf.hybrid_engines.generation.generation_engine": ("GenerationEngine",),
}


def api(package: str) -> str:
    """Return directives that document every public name of a package."""
    module = importlib.import_module(package)
    names = _NAMES[package] if package in _NAMES else sorted(module.__all__)
    lines = ["```{eval-rst}", f".. currentmodule:: {package}", ""]
    for name in names:
        value = getattr(module, name)
        # A re-export is described where it lives.
        if package == "rlinf.scheduler" and value.__module__.startswith("rlinf.placement"):
            continue
        if inspect.isclass(value):
            lines += [f".. autoclass:: {package}.{name}", "   :members:", ""]
        elif callable(value):
            lines += [f".. autofunction:: {package}.{name}", ""]
        else:
            lines += [f".. autodata:: {package}.{name}", "   :no-value:", ""]
    return "\n".join([*lines, "```"])

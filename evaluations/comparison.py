"""Which evaluations may be compared: all that decides an episode is the same, but for what is named here."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

SECTIONS = ("env", "model", "execution", "versions", "starts")
"""What an evaluation's file says about how it was made."""
MAY_DIFFER = frozenset(
    {
        # How the work is cut: start states do not depend on it, and which were played is compared.
        *("env.total_num_envs", "env.rollout_epoch", "env.max_steps_per_rollout_epoch", "env.auto_reset"),
        *("env.num_env_processes", "env.enable_offload"),
        # Where files and interpreters are; the contents of assets, and versions, are compared.
        *("env.assets_path", "env.source_path", "env.guest"),
        # What is kept.
        *("env.video_cfg", "env.data_collection"),
        # The policy's own weights, and what only its training reads.
        *("model.model_path", "model.tokenizer_path", "model.vlm_path", "model.eagle_path"),
        *("model.add_value_head", "model.value_hidden_dims", "model.value_detach", "model.freeze"),
        *("model.is_lora", "model.lora_rank", "model.lora_alpha", "model.lora_target_modules"),
        # Evaluations act greedily.
        "execution.seed",
    }
)
"""Keys, with all below them, in which evaluations that are compared may differ."""


def differences(first: Mapping[str, Any], second: Mapping[str, Any], allowed: Collection[str] = ()) -> list[str]:
    """Return why two evaluations cannot be compared, one line each; empty where they can.

    Policies of two kinds have different keys: of these, ``execution`` alone is compared.

    Args:
        first: What ``summarize`` returned.
        second: The same of another evaluation.
        allowed: Further keys that may differ, such as ``versions.commit``.
    """
    lacking = sorted({name for name in SECTIONS if name not in first or name not in second})
    if lacking:
        return [f"{', '.join(lacking)}: not in both files; evaluations of earlier versions do not say so much"]
    sections = [name for name in SECTIONS if name != "model" or _kind(first) == _kind(second)]
    one, other = (dict(_flat({name: summary[name] for name in sections})) for summary in (first, second))
    found = [
        f"{key}: {one.get(key)!r} and {other.get(key)!r}"
        for key in sorted(one.keys() | other.keys())
        if (key not in one or key not in other or one[key] != other[key]) and not _is_named(key, allowed)
    ]
    is_changed = bool(one.get("versions.changed") or other.get("versions.changed"))
    if is_changed and "versions.changed" not in allowed and not any(line.startswith("versions.c") for line in found):
        found.append("versions.changed: the code of one differs from that of its commit")
    return found


def _kind(summary: Mapping[str, Any]) -> Any:
    return summary["model"].get("model_type")


def _is_named(key: str, allowed: Collection[str]) -> bool:
    return any(key == name or key.startswith(f"{name}.") for name in {*MAY_DIFFER, *allowed})


def _flat(tree: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of nested mappings by dotted keys; an empty mapping is a leaf."""
    for name, value in tree.items():
        key = f"{path}.{name}" if path else name
        if isinstance(value, Mapping) and value:
            yield from _flat(value, key)
        else:
            yield key, value

"""What the named configurations of published pi-0 and pi-0.5 recipes say, which the recipes themselves do not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlinf.config.published_keys import value_at

_OPENPI = "actor.model.openpi"
_DATA = "actor.model.openpi_data"
_PROMPT_LENGTHS = {"pi0": 48, "pi05": 200}


@dataclass(frozen=True, slots=True)
class PublishedPi:
    """A configuration of the published system, by its name.

    Attributes:
        statistics: Data set whose statistics the checkpoint's folder holds, unless the recipe names another.
        horizon: Actions that are predicted.
        delta: Runs of numbers that are relative to the state, and that are not, where actions are relative.
        is_delta: Whether they are unless the recipe says otherwise.
        reads_state: Whether pi-0.5 reads the state.
        prompt_length: Tokens of the longest prompt; None is as many as the variant has.
    """

    statistics: str
    horizon: int = 50
    delta: tuple[int, ...] = (6, -1)
    is_delta: bool = False
    reads_state: bool = False
    prompt_length: int | None = None


_ROBOCASA = "physical-intelligence/robocasa"
_TWO_ARMS = (6, -1, 6, -1)
PUBLISHED_PI: Mapping[str, PublishedPi] = {
    "pi0_aloha_robotwin": PublishedPi("physical-intelligence/robotwin", delta=_TWO_ARMS, is_delta=True),
    "pi0_calvin": PublishedPi("InternRobotics/InternData-Calvin_ABC", 5),
    # There, extra_delta_transform says that actions are relative already.
    "pi0_custom": PublishedPi("physical-intelligence/custom_dataset", delta=(9, -1), is_delta=True),
    "pi0_droid_polaris": PublishedPi("droid", 10, delta=(7, -1), is_delta=True),
    "pi0_libero": PublishedPi("physical-intelligence/libero", is_delta=True),
    "pi0_libero_horizon10": PublishedPi("physical-intelligence/libero", 10, is_delta=True),
    "pi0_maniskill": PublishedPi("physical-intelligence/maniskill"),
    "pi0_metaworld": PublishedPi("lerobot/metaworld_mt50", 5),
    "pi0_realworld": PublishedPi("realworld_franka_bin_relocation", 10),
    "pi0_robocasa365_pretrain_human300": PublishedPi(_ROBOCASA, prompt_length=96),
    "pi0_robocasa_human": PublishedPi("physical-intelligence/robocasa_all_human", 5),
    "pi05_calvin": PublishedPi("InternRobotics/InternData-Calvin_ABC", 5),
    "pi05_droid_polaris": PublishedPi("droid", 15, delta=(7, -1), is_delta=True, reads_state=True),
    "pi05_franka": PublishedPi("physical-intelligence/real_rl", 8, delta=(9, -1)),
    "pi05_franka_pnp": PublishedPi("RLinf/pick_red", 5),
    "pi05_franka_state": PublishedPi("physical-intelligence/real_rl", 20, delta=(9, -1), reads_state=True),
    "pi05_gsenv": PublishedPi("RLinf/GSEnv-PutCubeOnPlate-v0", 5),
    "pi05_libero": PublishedPi("physical-intelligence/libero", 10),
    "pi05_maniskill": PublishedPi("physical-intelligence/maniskill", 10),
    "pi05_maniskill_sim_real_co_training": PublishedPi("physical-intelligence/pick_and_place_real", 8, (9, -1)),
    "pi05_metaworld": PublishedPi("lerobot/metaworld_mt50", 5),
    "pi05_rlt_maniskill_joint": PublishedPi("physical-intelligence/maniskill", 10, delta=(7, -1), reads_state=True),
    "pi05_robocasa365_pretrain_human300": PublishedPi(_ROBOCASA, reads_state=True),
}
"""Those whose numbers reach the model as they are, or relative to the state."""


def pi_config(value: Any, recipe: Mapping[str, Any], groups: tuple[str, ...]) -> dict[str, Any]:
    """Return the keys of ``actor.model`` that a configuration of this name stands for; see ``Conversion``."""
    del groups
    variant = "pi05" if str(value).startswith("pi05") else "pi0"
    found = {"variant": variant} | ({"norm_scheme": "quantiles"} if variant == "pi05" else {})
    known = PUBLISHED_PI.get(str(value))
    if known is not None:
        found |= _settings(known, variant, recipe)
    return {f"actor.model.{key}": item for key, item in found.items()}


def _settings(known: PublishedPi, variant: str, recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a configuration says, apart from what the recipe itself does."""
    length = known.prompt_length or _PROMPT_LENGTHS[variant]
    found: dict[str, Any] = {
        "horizon": value_at(recipe, f"{_OPENPI}.action_horizon", known.horizon),
        "max_prompt_length": value_at(recipe, f"{_OPENPI}.max_token_len", length),
    }
    named = (f"{_DATA}.norm_stats_path", f"{_DATA}.repo_id", "actor.model.unnorm_key")
    if not any(value_at(recipe, path) for path in named):
        found["unnorm_key"] = known.statistics
    if variant == "pi05":
        found["discrete_state_input"] = value_at(recipe, f"{_OPENPI}.discrete_state_input", known.reads_state)
    said = value_at(recipe, f"{_DATA}.extra_delta_transform")
    is_delta = known.is_delta if said is None else bool(said) != (known.delta == (9, -1) and variant == "pi0")
    size = value_at(recipe, "actor.model.action_dim") or value_at(recipe, f"{_OPENPI}.action_env_dim")
    if is_delta:
        found["delta_actions"] = _cut(known.delta, size if isinstance(size, int) else sum(map(abs, known.delta)))
    return found


def _cut(runs: tuple[int, ...], size: int) -> list[int]:
    """Return the runs of the first ``size`` numbers."""
    kept: list[int] = []
    for run in runs:
        here = min(abs(run), size - sum(map(abs, kept)))
        if here:
            kept.append(here if run > 0 else -here)
    return kept

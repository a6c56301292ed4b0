"""What every rule is given: the recipe, the sizes of its worker groups, and where problems go."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from rlinf.config.checks.run_sizes import WorldSizes
from rlinf.config.parse import fields_of
from rlinf.config.problems import Problems, join
from rlinf.config.schema.base import ConfigSection
from rlinf.config.schema.root import RLinfConfig
from rlinf.utils.secrets import hide_for_reader

C = TypeVar("C", bound=RLinfConfig, covariant=True)


@dataclass(frozen=True, slots=True)
class Check(Generic[C]):
    """One validation of a recipe.

    Attributes:
        cfg: The typed tree.
        world: Sizes of the worker groups, as far as they are known offline.
        problems: The problems found so far.
    """

    cfg: C
    world: WorldSizes
    problems: Problems

    def problem(self, path: str, text: str) -> None:
        """Note that something is wrong at ``path``; see ``Problems.add``."""
        self.problems.add(path, text)

    def unused(self, section: ConfigSection, names: Iterable[str], path: str, reason: str) -> None:
        """Note those of ``names`` that differ from their default.

        A key that is written out with its default value changes nothing and is left alone.

        Args:
            section: The section that holds the keys.
            names: Keys that have no effect.
            path: Dotted path of the section.
            reason: Completes "not used ...", for example ``"by adv_type=grpo"``.
        """
        for field in fields_of(section):
            if field.name not in names:
                continue
            default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
            value = getattr(section, field.name)
            if value != default:
                shown = hide_for_reader(value)
                text = f"received {shown!r}; not used {reason}. Remove it, or change that."
                self.problem(join(path, field.name), text)

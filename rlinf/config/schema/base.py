"""What all configuration dataclasses share: their base, and the bounded number types."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

PositiveInt = Annotated[int, Gt(0)]
NonNegativeInt = Annotated[int, Ge(0)]
PositiveFloat = Annotated[float, Gt(0)]
NonNegativeFloat = Annotated[float, Ge(0)]
Fraction = Annotated[float, Ge(0), Le(1)]
PositiveShare = Annotated[float, Gt(0), Le(1)]

Precision = Literal["fp32", "bf16", "fp16"]
Level = Literal["token_level", "action_level", "chunk_level"]


class ConfigSection:
    """Base of every configuration dataclass; subclasses are ``@dataclass(frozen=True, kw_only=True)``.

    ``rlinf.config.build_config`` enforces annotations and bounds; constructing a section directly does not. What a
    section needs of the machine that it is used on is checked before anything is launched: ``rlinf.runners.readiness``.
    """

    def required_packages(self) -> tuple[str, ...]:
        """Return the optional packages, by the names that are imported, that the section's values need."""
        return ()

    def required_files(self) -> dict[str, str]:
        """Return the files and folders that must exist, by the section's key."""
        return {}

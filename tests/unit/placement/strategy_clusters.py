"""What processes see."""

from rlinf.placement import Placement


def visible(seats: list[Placement]) -> list[list[str]]:
    return [seat.visible_accelerators for seat in seats]

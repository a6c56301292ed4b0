"""What processes see."""


def visible(seats):
    return [seat.visible_accelerators for seat in seats]

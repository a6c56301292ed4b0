"""The error of objects that do not come to rest."""


class UnStableError(Exception):
    """As in RoboTwin."""

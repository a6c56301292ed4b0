"""Names that a worker group keeps for itself; a worker's public method must not take one of them."""

from __future__ import annotations

GROUP_MEMBERS = frozenset(
    {
        "close",
        "execute_on",
        "from_group_name",
        "launch",
        "name",
        "relaunch",
        "restart",
        "wait_ready",
        "worker_info_list",
        "world_size",
    }
)


def check_method_names(cls: type) -> None:
    """Check that a worker class's methods can be called through its group.

    Raises:
        TypeError: A public method clashes with the group's own names.
    """
    clashes = sorted(GROUP_MEMBERS & set(vars(cls)))
    if clashes:
        raise TypeError(
            f"{cls.__name__} defines {', '.join(clashes)}, which its WorkerGroup uses itself: "
            f"group.{clashes[0]} could not reach it. Rename the method. Reserved: {', '.join(sorted(GROUP_MEMBERS))}."
        )

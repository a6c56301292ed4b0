"""ManiSkill: environment by environment on CPUs, or one batch on a GPU; and ``PutOnPlate25-v1`` (``plates*.py``)."""

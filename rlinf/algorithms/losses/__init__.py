"""Policy losses, one file each; see ``rlinf.algorithms.registry`` for their names.

Each takes keyword arguments only: tensors of one micro-batch, the fields of its config dataclass, and the update
batch's global ``denominators``. It returns the micro-batch's part of the loss and (sum, count) metrics whose keys
depend on nothing. May import what ``rlinf.algorithms`` may; add a loss as a file here and a line in the registry.
"""

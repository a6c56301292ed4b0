"""Training engines: micro-batched forward and backward passes, optimizer steps, sharded state.

Knows nothing of RL: the loss comes in as a function. Extend by another ``TrainEngine`` (pipeline schedules, say).
"""

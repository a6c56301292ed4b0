"""Algorithms: pure functions from tensors to tensors, found by the names that recipes use.

Owns advantage estimators, policy losses, the losses of off-policy algorithms, KL estimators, loss aggregation with
global denominators, the plan of mini- and micro-batches, and the registry of rule rewards. May not import
``rlinf.models``, ``rlinf.envs``, the scheduler or anything above it; knows no Ray, no file and no device, and of the
recipe only the dataclass of its own keys. A function that needs a sum over ranks is passed one (``all_reduce``).

Extend it with ``register_advantage``, ``register_policy_loss`` and ``register_off_policy`` of
``rlinf.algorithms.registry``; built-in estimators and losses have one file each under ``advantages/`` and ``losses/``,
off-policy algorithms one file here, and each has one line in ``registry.py``.

Shape legend: ``T`` chunk steps, ``B`` environments, ``C`` actions per chunk, ``A`` action dimensions, ``S`` steps in
time (``T``, or ``T * C`` with action-level rewards), ``N`` samples (chunk steps, or sequences of text), ``K`` rewards
and values per sample (1, or ``C`` with action-level rewards), ``L`` tokens of a sequence.
"""

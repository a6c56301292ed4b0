"""The Python API: train a recipe from a program or a notebook, load the policy that it made, act with it, export it.

Its names are those of the package root: ``rlinf.train``, ``rlinf.evaluate``, ``rlinf.load_policy``, ``rlinf.Callback``.
Stands on the runners; the command line does not need it, but for ``rlinf export``.
"""

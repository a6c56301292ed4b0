"""The Python API: train a recipe from a program or a notebook, load the policy that it made, act with it, export it.

Its names are those of the package root: ``rlinf.train``, ``rlinf.evaluate``, ``rlinf.load_policy``, ``rlinf.Callback``.
Imports ``rlinf.runners`` and what is below it; only ``rlinf export`` and the package root import it. A new name is
added to ``__all__`` of the package root, and to the page ``guides/python.md``.
"""

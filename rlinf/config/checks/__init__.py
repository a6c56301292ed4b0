"""Rules about how the sections of a recipe fit together; each module holds the rules of one subject.

A rule takes a ``Check`` (the typed tree, the sizes of the worker groups, where problems go) and shows its arithmetic.
A new rule is a function, and one line in its module's ``RULES``.
"""

"""The ``rlinf`` command and the entry of the example scripts: parse arguments, validate, report errors.

May import everything, but at module level only what is light: validation comes before torch and Ray are loaded. A new
subcommand is one module here and one line in ``main.py``.
"""

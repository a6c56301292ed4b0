"""The environments that RLinf brings along: each ``<name>_env.py`` is an ``env_type``.

Imports what ``rlinf.envs`` may, and a simulator only when one is built. A new one is a file here with its dataclass in
``rlinf.config.schema.env``; one of three files or more has a folder of its own.
"""

"""Keys and passwords in recipes and command lines: what is shown of them, and what is written to a run's folder."""

from __future__ import annotations

import re
from typing import Any

from rlinf.utils.urls import mask_url

HIDDEN = "<hidden>"
_WORDS = ("KEY", "TOKEN", "SECRET", "PASSWORD")
_WORD = f"(?:{'|'.join(_WORDS)})"
_KEYS = re.compile(r"(?:^|_)(?:api_key|token|password|secret)$")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"]+")
# Keys and passwords within an address: the user and the password, and values of a query by their names.
_IN_ADDRESS = (
    re.compile(r"(?P<kept>[A-Za-z][A-Za-z0-9+.-]*://)[^\s/?#@'\"]+(?=@)"),
    re.compile(rf"(?P<kept>[?&][^\s=&'\"]*{_WORD}[^\s=&'\"]*=)[^\s&#'\",\]}}]+", re.IGNORECASE),
)
_VARIABLE = re.compile(rf"(?P<kept>\w*{_WORD}\w*['\"]?\s*[:=]\s*)(?:'[^']*'|\"[^\"]*\"|[^\s,\[\]{{}}]+)", re.IGNORECASE)


def is_secret_variable(name: str) -> bool:
    """Return whether an environment variable is a key or a password, by its name.

    Args:
        name: For example ``WANDB_API_KEY``.
    """
    return any(word in name.upper() for word in _WORDS)


def is_secret_key(path: str) -> bool:
    """Return whether the value of a recipe's key may be a key or a password; environment variables often are.

    Args:
        path: Dotted path of the key.
    """
    return ".env_vars" in path or _KEYS.search(path.rpartition(".")[2].lower()) is not None


def hide_for_reader(value: Any, *, hides: bool = False) -> Any:
    """Return a plain recipe, or a part of one, as it may be shown: ``hide_for_record``, but no variable has its value.

    Args:
        value: Nested mappings, lists and plain values.
        hides: Whether it is all secret.
    """
    if isinstance(value, dict):
        hidden = {key: hides or key == "env_vars" or is_secret_key(str(key)) for key in value}
        return {key: hide_for_reader(item, hides=hidden[key]) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [hide_for_reader(item, hides=hides) for item in value]
    if hides and value is not None:
        return HIDDEN
    return mask_addresses(value) if isinstance(value, str) else value


def hide_for_record(value: Any, *, is_environment: bool = False) -> Any:
    """Return a plain recipe as it may be kept: without keys and passwords, but otherwise as it can be run again.

    Hidden are values of secret names (``is_secret_variable`` within ``env_vars``, else ``is_secret_key``), and keys and
    passwords within addresses.

    Args:
        value: Nested mappings, lists and plain values.
        is_environment: Whether its keys are environment variables.
    """
    if isinstance(value, dict):
        is_secret = is_secret_variable if is_environment else is_secret_key
        return {
            key: HIDDEN
            if is_secret(str(key)) and item is not None
            else hide_for_record(item, is_environment=is_environment or key == "env_vars")
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [hide_for_record(item, is_environment=is_environment) for item in value]
    return _mask_keys(value) if isinstance(value, str) else value


def hide_in_argument(argument: str) -> str:
    """Return an argument of a command line as ``hide_for_record`` keeps its value.

    Args:
        argument: For example ``reward.url=https://host/score?api_key=...``.
    """
    key, is_override, _ = argument.partition("=")
    if "env_vars" in argument:
        argument = _VARIABLE.sub(rf"\g<kept>{HIDDEN}", argument)
    elif is_override and is_secret_key(key):
        return f"{key}={HIDDEN}"
    return _mask_keys(argument)


def mask_addresses(text: str) -> str:
    """Return a text in which addresses are as ``mask_url`` shows them."""
    return _ADDRESS.sub(lambda found: _mask_address(found[0]), text)


def _mask_address(address: str) -> str:
    try:
        return mask_url(address)
    except ValueError:  # it is none, as http://[host
        return HIDDEN


def _mask_keys(text: str) -> str:
    for pattern in _IN_ADDRESS:
        text = pattern.sub(r"\g<kept>***", text)
    return text

"""Addresses in messages: shown without what is secret in them."""

from __future__ import annotations

from urllib.parse import unquote_plus, urlsplit, urlunsplit

_SHORTEST_SECRET = 4
"""Characters; hiding shorter values would garble other parts of a text."""


def mask_url(url: str) -> str:
    """Return an address without user, password, fragment and the values of its query, which may be keys.

    Args:
        url: The address.
    """
    parts = urlsplit(url)
    user, _, host = parts.netloc.rpartition("@")
    query = "&".join(_masked(pair) for pair in parts.query.split("&") if pair)
    return urlunsplit((parts.scheme, f"***@{host}" if user else host, parts.path, query, ""))


def hide_url_secrets(url: str, text: str) -> str:
    """Return a text in which nothing is left that ``mask_url`` hides.

    Args:
        url: The address that the text may quote, in full or in part.
        text: For example the message of an error.
    """
    parts = urlsplit(url)
    user = parts.netloc.rpartition("@")[0]
    values = [pair.rpartition("=")[2] for pair in parts.query.split("&")]
    secrets = {user, user.partition(":")[2], parts.fragment, *values}
    secrets |= {unquote_plus(secret) for secret in secrets}
    text = text.replace(url, mask_url(url))
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, "***")
    return text


def _masked(pair: str) -> str:
    name, is_named, _ = pair.partition("=")
    return f"{name}=***" if is_named else "***"

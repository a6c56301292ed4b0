"""What messages show of addresses."""

from __future__ import annotations

import pytest

from rlinf.utils.urls import hide_url_secrets, mask_url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://127.0.0.1:80/score", "http://127.0.0.1:80/score"),
        ("https://me:pass@host/a?api_key=k%20ey&n=1&bare#part", "https://***@host/a?api_key=***&n=***&***"),
        ("no address", "no address"),
    ],
)
def test_an_address_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert mask_url(url) == shown


def test_no_part_of_a_secret_stays_in_a_message() -> None:
    url = "https://me:word@host/a?api_key=k%20ey&n=1"
    text = f"{url}: port 'word@host'; '/a?api_key=k%20ey&n=1'; k ey; attempt 1 of 1"
    shown = "https://***@host/a?api_key=***&n=***: port '***@host'; '/a?api_key=***&n=1'; ***; attempt 1 of 1"
    assert hide_url_secrets(url, text) == shown

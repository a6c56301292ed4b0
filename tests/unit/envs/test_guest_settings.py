"""What ``env.*.guest`` says is checked before a launch, and keys that mean nothing together are refused."""

import sys
from pathlib import Path
from typing import Any

import pytest
from listening_guests import KEY, write_key

from rlinf.config.schema.env import GuestConfig
from rlinf.envs.guest_settings import guest_setup
from rlinf.errors import ConfigError

ADDRESS = "tcp://127.0.0.1:5555"


def test_guests_elsewhere_need_an_address_and_a_key(tmp_path: Path) -> None:
    setup = guest_setup(GuestConfig(address=ADDRESS, key_file=write_key(tmp_path)), "calvin")
    assert (setup.address, setup.key, setup.adapter) == (("127.0.0.1", 5555), KEY, "calvin")
    assert KEY.decode() not in repr(setup)


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"address": "sim:5"}, r"env\.\*\.guest\.key_file: RLINF_GUEST_KEY has a key of 0 bytes"),
        ({"address": ADDRESS, "key_file": "/none"}, r"env\.\*\.guest\.key_file: the key cannot be read"),
        ({"address": "sim"}, r"env\.\*\.guest\.address: received 'sim'; give tcp://host:port"),
        ({"address": ADDRESS, "python": sys.executable}, r"env\.\*\.guest\.python: has no effect on guests at tcp"),
        ({"address": ADDRESS, "env_vars": {"A": "b"}}, r"env\.\*\.guest\.env_vars: has no effect"),
        ({"python": sys.executable, "key_file": "k"}, r"env\.\*\.guest\.key_file: .* started here needs no key"),
    ],
)
def test_wrong_keys_are_refused(keys: dict[str, Any], told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RLINF_GUEST_KEY", raising=False)
    with pytest.raises(ConfigError, match=told):
        guest_setup(GuestConfig(**keys), "calvin")

"""Interveners that a person drives: one environment each."""

import pytest

from rlinf.config.schema.intervention import KeyboardIntervenerConfig
from rlinf.envs.interveners.keyboard import KeyboardIntervener
from rlinf.errors import ConfigError

CFG = KeyboardIntervenerConfig(intervener_type="keyboard", speed=0.5)


@pytest.mark.usefixtures("device")
def test_one_person_drives_one_environment() -> None:
    with pytest.raises(ConfigError, match="total_num_envs"):
        KeyboardIntervener(CFG, env=None, row=1)  # type: ignore[arg-type]

"""The checker of guests passes a good one, and names the rule that another breaks."""

import platform
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from listening_guests import listening, write_key

from rlinf.config.schema.env import GuestConfig, GuestEnvConfig
from rlinf.envs import check_guest, guest_conformance
from rlinf.envs.process_pool import ProcessPool
from rlinf.errors import ConformanceError, EnvironmentFailure


def config(**init_params: Any) -> GuestEnvConfig:
    return GuestEnvConfig(
        env_type="guest",
        adapter="guest_simulator",
        guest=GuestConfig(python=sys.executable, env_vars={"PYTHONPATH": str(Path(__file__).parent)}),
        init_params=init_params,
        total_num_envs=2,
        max_episode_steps=6,
        max_steps_per_rollout_epoch=12,
    )


def test_a_guest_conforms_and_its_versions_are_told() -> None:
    versions = check_guest(config(), in_process=True)
    assert versions == {"python": platform.python_version(), "numpy": np.__version__, "no-such-simulator": ""}


def remote(address: tuple[str, int], folder: Path) -> GuestEnvConfig:
    guest = GuestConfig(address=f"tcp://{address[0]}:{address[1]}", key_file=write_key(folder))
    return replace(config(), guest=guest)


def test_guests_on_another_machine_conform(tmp_path: Path) -> None:
    with listening(tmp_path) as address:
        assert check_guest(remote(address, tmp_path))["numpy"] == np.__version__


def test_a_guest_that_takes_a_host_with_another_key_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest_conformance, "check_vector_env", lambda env, **_: None)
    with listening(tmp_path) as address:
        cfg = remote(address, tmp_path)
        monkeypatch.setattr(guest_conformance, "prove_as_host", lambda connection, key: None)
        with pytest.raises(ConformanceError, match=r"guest-key.*takes a host that has another key"):
            check_guest(cfg)


def test_an_adapter_that_breaks_a_rule_of_environments_is_told_so() -> None:
    with pytest.raises(ConformanceError, match="reset-determinism"):
        check_guest(config(counts_resets=True))


def test_one_that_depends_on_its_process_differs_from_one_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest_conformance, "check_vector_env", lambda env, **_: None)
    with pytest.raises(ConformanceError, match=r"guest-beside.*differs in 'obs' of chunk 0"):
        check_guest(config(shows_process=True))


def test_one_that_differs_from_the_adapter_here_is_told_so() -> None:
    with guest_conformance._make(config()) as env:
        pool, guest = guest_conformance._pool(env), guest_conformance._guest(env)
        played = guest_conformance._play(pool, env)
        played[1].rewards += 1
        with pytest.raises(ConformanceError, match=r"guest-in-process.*differs in 'rewards' of chunk 1"):
            guest_conformance._check_in_process(guest, env, played)


def test_a_guest_that_answers_nonsense_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest_conformance, "check_vector_env", lambda env, **_: None)
    monkeypatch.setattr(guest_conformance, "decode", lambda message: ["ok", {}])
    with pytest.raises(ConformanceError, match=r"guest-requests.*a request that is unknown"):
        check_guest(config())


def test_a_death_that_is_told_late_or_without_a_name_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def recv_chunk(pool: ProcessPool) -> None:
        raise EnvironmentFailure("something ended")

    with guest_conformance._make(config()) as env:
        monkeypatch.setattr(ProcessPool, "recv_chunk", recv_chunk)
        with pytest.raises(ConformanceError, match=r"guest-death.*something ended"):
            guest_conformance._check_death(guest_conformance._pool(env), env)

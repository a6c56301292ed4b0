"""An exported policy is a file that acts as the policy does, for batches of any size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import rlinf
from rlinf.api.policy_export import export_policy
from rlinf.cli.main import main
from rlinf.errors import ConfigError
from tests.unit.api.saved_policies import save_policy

STATES = np.random.default_rng(1).normal(size=(7, 4)).astype(np.float32)


def test_a_program_of_torch_acts_as_the_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_policy(tmp_path)
    assert main(["export", str(tmp_path), str(tmp_path / "policy.pt2")]) == 0
    assert "states [4]" in capsys.readouterr().out
    program = torch.export.load(tmp_path / "policy.pt2").module()
    policy = rlinf.load_policy(tmp_path)
    for size in (1, 7):
        assert program(torch.from_numpy(STATES[:size]))[:, 0].tolist() == policy.predict(STATES[:size]).tolist()
    assert len(set(policy.predict(STATES).tolist())) == 2


def test_an_onnx_model_acts_as_the_policy(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript", reason="needs onnxscript; run: bash requirements/install.sh test")
    runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime; run: bash requirements/install.sh test")
    save_policy(tmp_path)
    policy = rlinf.load_policy(tmp_path)
    assert export_policy(policy, tmp_path / "policy.onnx") == {"states": (4,)}
    session = runtime.InferenceSession(tmp_path / "policy.onnx")
    (actions,) = session.run(["action"], {"states": STATES})
    assert actions[:, 0].tolist() == policy.predict(STATES).tolist()


def test_other_formats_and_folders_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_policy(tmp_path)
    with pytest.raises(ConfigError, match=r"\.pt2, \.onnx"):
        export_policy(rlinf.load_policy(tmp_path), tmp_path / "policy.bin")
    assert main(["export", str(tmp_path), str(tmp_path / "absent" / "policy.pt2")]) == 1
    assert "does not exist" in capsys.readouterr().err

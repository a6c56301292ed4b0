"""Checkpoints become Hugging Face folders and adapters, and the other way round; differences are found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from examples.reasoning.make_tiny_model import make_tiny_model
from rlinf.cli.main import main
from rlinf.config import load_recipe, to_dict, validate_cfg
from rlinf.hybrid_engines.train import state
from rlinf.hybrid_engines.train.chunks import write_state
from rlinf.models import get_model
from rlinf.models.files.peft_folder import write_adapter
from rlinf.models.lora import is_adapter
from rlinf.telemetry.rundir import CONFIG_FILE
from tests.unit.models.tiny_language_models import save_tiny, tiny_config
from tests.unit.models.vla.vla_policies import random_policy

transformers = pytest.importorskip("transformers")
ROOT = Path(__file__).parents[3]
LORA = {"is_lora": True, "lora_rank": 2, "lora_alpha": 3.0, "lora_target_modules": ["v_proj", "up_proj"]}
IDS = [3, 1, 4, 1, 5]


@pytest.fixture
def start(tmp_path: Path) -> Path:
    """The folder of a model with a tokenizer."""
    sizes = {"hidden_size": 16, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2}
    return make_tiny_model(tmp_path / "start", **sizes, initializer_range=0.3)  # type: ignore[arg-type]


def checkpoint_of(run: Path, start: Path, **keys: Any) -> tuple[Path, Any]:
    """Write the checkpoint of a run; return its folder and the model that is in it."""
    model = get_model(tiny_config(start, add_value_head=True, **keys))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not keys or is_adapter(name):
                parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(7)), alpha=0.1)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    folder = run / "checkpoints" / "global_step_3"
    write_state(folder / "actor", state.training_state(model, [optimizer], {"num_steps": 3}))
    settings = {f"actor.model.{name}": value for name, value in keys.items()}
    overrides = [f"{name}={json.dumps(value)}" for name, value in settings.items()]
    cfg = validate_cfg(load_recipe("tiny_math_grpo", [f"actor.model.model_path={start}", *overrides]))
    (run / CONFIG_FILE).write_text(yaml.safe_dump(to_dict(cfg)))
    return folder, model


def logits(folder: Path) -> torch.Tensor:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        found: torch.Tensor = model(torch.tensor([IDS])).logits[0].float()
    return found


def merged(model: Any) -> dict[str, torch.Tensor]:
    return dict(model.export(lambda tensor: tensor.detach()))


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    from rlinf.hybrid_engines.train.weight_files import open_weights

    return dict(open_weights(folder))


def test_a_checkpoint_becomes_a_folder_that_transformers_loads(start: Path, tmp_path: Path) -> None:
    folder, model = checkpoint_of(tmp_path / "run", start)
    # Files of 2 kB, so that there are several.
    assert main(["convert", str(folder), str(tmp_path / "hf"), "--max-file-gb", "2e-6"]) == 0
    assert len(list((tmp_path / "hf").glob("model-*.safetensors"))) > 2
    found, expected = weights_of(tmp_path / "hf"), merged(model)
    assert found.keys() == expected.keys(), "no value head, no moments, tied embeddings once"
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    assert (logits(tmp_path / "hf") - logits(start)).abs().max() > 1e-2
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    assert tokenizer.encode("1+2=3") == transformers.AutoTokenizer.from_pretrained(start).encode("1+2=3")
    assert len(tokenizer.encode("1+2=3")) == 5


def test_a_folder_becomes_a_checkpoint_that_a_run_starts_from(start: Path, tmp_path: Path) -> None:
    assert main(["convert", str(start), str(tmp_path / "checkpoint"), "--dtype", "bf16"]) == 0
    model = get_model(tiny_config(start))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    state.load_weights(tmp_path / "checkpoint", model)
    for name, tensor in merged(get_model(tiny_config(start))).items():
        assert torch.equal(merged(model)[name], tensor.bfloat16().float()), name


def test_precision_is_that_of_the_files_and_of_the_configuration(start: Path, tmp_path: Path) -> None:
    folder, _ = checkpoint_of(tmp_path / "run", start)
    assert main(["convert", str(folder), str(tmp_path / "hf"), "--dtype", "bf16", "--like", str(start)]) == 0
    assert {tensor.dtype for tensor in weights_of(tmp_path / "hf").values()} == {torch.bfloat16}
    assert transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf", dtype="auto").dtype == torch.bfloat16


def test_adapters_of_a_checkpoint_are_merged_or_written_for_peft(start: Path, tmp_path: Path) -> None:
    folder, model = checkpoint_of(tmp_path / "run", start, **LORA)
    assert main(["convert", str(folder), str(tmp_path / "merged")]) == 0
    assert main(["convert", str(folder), str(tmp_path / "adapter"), "--to", "adapter"]) == 0
    again = ["convert", str(start), str(tmp_path / "again"), "--merge-adapter", str(tmp_path / "adapter")]
    assert main(again) == 0
    expected = merged(model)
    for name in ("merged", "again"):
        found = weights_of(tmp_path / name)
        assert found.keys() == expected.keys()
        for key, tensor in expected.items():
            torch.testing.assert_close(found[key], tensor, rtol=1e-5, atol=1e-6)
    assert (logits(tmp_path / "merged") - logits(start)).abs().max() > 1e-3


def test_the_adapter_of_a_policy_is_written_with_what_was_trained_whole(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"is_lora": True, "lora_rank": 2}
    start, run = tmp_path / "start", tmp_path / "run"
    policy = random_policy("oft", start, lora_whole_modules=["fc3"], **keys)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.1 if parameter.requires_grad else 0.0)
    folder = run / "checkpoints" / "global_step_3"
    optimizer = torch.optim.AdamW([p for p in policy.parameters() if p.requires_grad])
    write_state(folder / "actor", state.training_state(policy, [optimizer], {"num_steps": 3}))
    names = {**keys, "model_path": str(start), "lora_whole_modules": ["fc3"]}
    overrides = [f"actor.model.{name}={json.dumps(value)}" for name, value in names.items()]
    cfg = validate_cfg(load_recipe("pixel_reach_grpo_oft_tiny", overrides))
    (run / CONFIG_FILE).write_text(yaml.safe_dump(to_dict(cfg)))
    assert main(["convert", str(folder), str(tmp_path / "adapter"), "--to", "adapter"]) == 0
    again = random_policy("oft", start, lora_path=str(tmp_path / "adapter"), lora_whole_modules=["fc3"], **keys)
    found = again.state_dict()
    assert all(torch.equal(tensor, found[name]) for name, tensor in policy.state_dict().items() if name in found)
    assert main(["convert", str(folder), str(tmp_path / "hf")]) == 1


def test_what_cannot_be_converted_is_refused_with_what_to_do(
    start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = checkpoint_of(tmp_path / "run", start)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    other = get_model(tiny_config(save_other(tmp_path / "other"), **LORA))
    write_adapter(tmp_path / "foreign", other.state_dict().items(), other.cfg)
    cases = [
        ([str(folder), str(tmp_path / "full")], "holds something already"),
        ([str(tmp_path / "nowhere"), str(tmp_path / "new")], "There is nothing at"),
        ([str(folder), str(tmp_path / "new"), "--to", "adapter"], "holds no adapter"),
        ([str(start), str(tmp_path / "new"), "--merge-adapter", str(tmp_path / "foreign")], "of another model"),
        ([str(start), str(tmp_path / "new"), "--merge-adapter", str(start)], "holds no adapter of peft"),
    ]
    for arguments, message in cases:
        assert main(["convert", *arguments]) == 1
        assert message in capsys.readouterr().err
    (tmp_path / "run" / CONFIG_FILE).unlink()
    assert main(["convert", str(folder), str(tmp_path / "new")]) == 1
    assert "--like" in capsys.readouterr().err


def save_other(folder: Path) -> Path:
    save_tiny(folder, num_hidden_layers=3)
    return folder


def compare(*arguments: str) -> subprocess.CompletedProcess[str]:
    tool = str(ROOT / "toolkits" / "checkpoints" / "compare.py")
    return subprocess.run([sys.executable, tool, *arguments], capture_output=True, text=True, check=False, cwd=ROOT)


def test_the_tools_convert_and_tell_differences(start: Path, tmp_path: Path) -> None:
    folder, _ = checkpoint_of(tmp_path / "run", start)
    tool = [sys.executable, str(ROOT / "toolkits" / "checkpoints" / "convert.py")]
    subprocess.run([*tool, str(folder), str(tmp_path / "hf")], check=True, cwd=ROOT)
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("1+2=3\n\nTwo words.\n")
    same = compare(str(tmp_path / "hf"), str(tmp_path / "hf"), "--prompts", str(prompts))
    assert (same.returncode, "0 of" in same.stdout) == (0, True), same
    different = compare(str(start), str(tmp_path / "hf"), "--prompts", str(prompts), "--tolerance", "10")
    assert different.returncode == 1, "within the tolerance of weights, not within that of log-probabilities"
    assert "The largest difference of a log-probability is" in different.stdout

"""Checkpoints of Megatron-Core's own model become Hugging Face folders that compute the same."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rlinf.cli.main import main
from rlinf.errors import CheckpointError
from rlinf.hybrid_engines.train.chunks import ChunkedTensor, weight_key, write_state
from rlinf.hybrid_engines.train.torch_dist import find_torch_dist, open_torch_dist
from rlinf.hybrid_engines.train.weight_files import open_weights

transformers = pytest.importorskip("transformers")
pytest.importorskip("megatron.core")
SIZES = {
    "vocab_size": 90,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "tie_word_embeddings": False,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the checkpoints, the logits, and the models' configurations beside them."""
    folder = tmp_path_factory.mktemp("torch_dist")
    script = Path(__file__).with_name("torch_dist_writer.py")
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, str(script), str(folder)], check=True, capture_output=True, env=environment)
    transformers.Qwen2Config(**SIZES, intermediate_size=64).save_pretrained(folder / "like_dense")
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "norm_topk_prob": True}
    transformers.Qwen3MoeConfig(**SIZES, **experts).save_pretrained(folder / "like_experts")
    return folder


@pytest.mark.parametrize("name", ["dense", "experts"])
def test_a_converted_model_computes_the_same(written: Path, tmp_path: Path, name: str) -> None:
    output = tmp_path / "converted"
    assert main(["convert", str(written / name), str(output), "--like", str(written / f"like_{name}")]) == 0
    model = transformers.AutoModelForCausalLM.from_pretrained(output).eval()
    expected = torch.load(written / f"{name}.pt")
    with torch.no_grad():
        found = model((torch.arange(expected.shape[1]) * 7 % 90)[None]).logits
    assert expected.abs().max() > 1
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert (
        dict(open_weights(output).described).keys()
        == open_torch_dist(written / name, written / f"like_{name}").described.keys()
    )


def test_the_latest_checkpoint_of_a_run_is_found(written: Path, tmp_path: Path) -> None:
    assert find_torch_dist(tmp_path) is None
    shutil.copytree(written / "dense", tmp_path / "iter_0000012")
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("12\n")
    assert find_torch_dist(tmp_path) == tmp_path / "iter_0000012"
    assert find_torch_dist(tmp_path / "iter_0000012") == tmp_path / "iter_0000012"
    (tmp_path / "iter_0000012" / "metadata.json").write_text(json.dumps({"sharded_backend": "zarr"}))
    with pytest.raises(CheckpointError, match=r"has the format 'zarr'; read is torch_dist"):
        find_torch_dist(tmp_path)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"num_hidden_layers": 4},
            r"does not have decoder\.layers\.3\.\S+ of the model of --like: there is no 'decoder",
        ),
        ({"vocab_size": 97}, r"'embedding\.word_embeddings\.weight' has 96 rows, the model of --like 97"),
        (
            {"intermediate_size": 72},
            r"'decoder\.layers\.mlp\.linear_fc1\.weight' has 128 rows, the model of --like 144",
        ),
    ],
)
def test_another_model_is_an_error(written: Path, tmp_path: Path, keys: dict[str, int], message: str) -> None:
    config = transformers.Qwen2Config(**{**SIZES, "intermediate_size": 64, **keys})
    config.save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match=message):
        open_torch_dist(written / "dense", tmp_path)


def test_a_checkpoint_without_a_configuration_names_what_is_missing(
    written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["convert", str(written / "dense"), str(tmp_path / "out")]) != 0
    assert "is a checkpoint of Megatron: name a folder with the model's config, --like." in capsys.readouterr().err


def test_other_checkpoints_hold_no_language_model(written: Path, tmp_path: Path) -> None:
    write_state(tmp_path / "other", {weight_key("x"): ChunkedTensor.of(torch.zeros(2))})
    with pytest.raises(CheckpointError, match=r"holds the embeddings of 0 models"):
        open_torch_dist(tmp_path / "other", written / "like_dense")

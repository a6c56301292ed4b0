"""What is written is what transformers, and the next run, load; a name on the Hub becomes a folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from rlinf.data.packing import pack_sequences
from rlinf.models import get_model
from rlinf.models.language.hf_folder import write_hf_folder
from rlinf.models.language.model_path import find_model_folder
from tests.unit.models.tiny_language_models import save_tiny, tiny_config

transformers = pytest.importorskip("transformers")
IDS = [3, 1, 4, 1, 5, 9, 2, 6]


def save_tokenizer(folder: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"one": 0, "two": 1, "[UNK]": 2}, unk_token="[UNK]"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=words, eos_token="two")
    fast.chat_template = "{{ messages[0]['content'] }}"
    fast.save_pretrained(folder)


def whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach()


def logits(folder: Path, dtype: torch.dtype = torch.float32) -> Any:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    assert model.dtype == dtype
    with torch.no_grad():
        return model(torch.tensor([IDS])).logits[0].float()


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("keys", [{}, {"is_lora": True, "lora_rank": 2}, {"add_value_head": True}], ids=str)
def test_transformers_computes_what_training_does(tmp_path: Path, tied: bool, keys: dict[str, bool | int]) -> None:
    save_tiny(tmp_path / "start", tie_word_embeddings=tied)
    save_tokenizer(tmp_path / "start")
    model = get_model(tiny_config(tmp_path / "start", **keys))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    write_hf_folder(tmp_path / "hf", model, model.export(whole), dtype=torch.float32)
    log_softmax = logits(tmp_path / "hf").log_softmax(-1)[:-1]
    expected = log_softmax.gather(-1, torch.tensor(IDS[1:]).unsqueeze(-1)).squeeze(-1)
    found = model(pack_sequences([IDS])).logprobs[1:]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert (log_softmax - logits(tmp_path / "start").log_softmax(-1)[:-1]).abs().max() > 1e-2
    again = get_model(tiny_config(tmp_path / "hf"))
    torch.testing.assert_close(again(pack_sequences([IDS])).logprobs[1:], found, rtol=1e-5, atol=1e-5)


def test_tokenizer_and_end_tokens_come_along(tmp_path: Path) -> None:
    save_tiny(tmp_path / "start")
    save_tokenizer(tmp_path / "start")
    transformers.GenerationConfig(eos_token_id=[1, 7]).save_pretrained(tmp_path / "start")
    model = get_model(tiny_config(tmp_path / "start"))
    write_hf_folder(tmp_path / "hf", model, model.export(whole), dtype=torch.float32)
    start, tokenizer = (transformers.AutoTokenizer.from_pretrained(tmp_path / name) for name in ("start", "hf"))
    assert tokenizer.get_vocab() == start.get_vocab() != {}
    assert tokenizer.encode("one two one") == start.encode("one two one") != []
    assert tokenizer.eos_token == "two"
    assert tokenizer.chat_template == "{{ messages[0]['content'] }}"
    assert transformers.GenerationConfig.from_pretrained(tmp_path / "hf").eos_token_id == [1, 7]


def test_weights_are_written_in_the_precision_of_inference(tmp_path: Path) -> None:
    save_tiny(tmp_path / "start")
    save_tokenizer(tmp_path / "start")
    model = get_model(tiny_config(tmp_path / "start"))
    write_hf_folder(tmp_path / "hf", model, model.export(whole), dtype=torch.bfloat16)
    difference = logits(tmp_path / "hf", torch.bfloat16) - logits(tmp_path / "start")
    assert difference.abs().max() < 0.1 * logits(tmp_path / "start").abs().max()


FIND = """
import sys
from rlinf.errors import ConfigError
from rlinf.models.language.model_path import find_model_folder
for name in sys.argv[1:]:
    try:
        print(find_model_folder(name))
    except ConfigError as error:
        print(error)
"""


def test_a_folder_is_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_model_folder(str(tmp_path)) == tmp_path
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    assert find_model_folder(f"~/{tmp_path.name}") == tmp_path


def test_offline_a_name_is_looked_for_in_the_cache(tmp_path: Path) -> None:
    repository = tmp_path / "models--org--name"
    snapshot = repository / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("a" * 40)
    # The Hub's library reads its settings when it is imported.
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", FIND, "org/name", "org/other", "/no/such/folder"]
    output = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=True).stdout
    found, other, folder = output.splitlines()
    assert found == str(snapshot)
    for message, name in ((other, "org/other"), (folder, "/no/such/folder")):
        assert message.startswith(f"actor.model.model_path: there is no folder '{name}'")
        assert "Download the model first" in message

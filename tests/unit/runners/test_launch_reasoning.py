"""What a reasoning run reads before it starts."""

from __future__ import annotations

import json

import pytest

from rlinf.config import load_recipe, validate_cfg
from rlinf.errors import DatasetError
from rlinf.runners.launch_reasoning import read_prompt_sets

datasets = pytest.importorskip("datasets")
tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Read the prompts of a recipe that has questions to evaluate on, and none to train on."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "1+1": 1}, unk_token="[UNK]"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(tmp_path / "model")
    (tmp_path / "val.jsonl").write_text(json.dumps({"question": "1+1", "answer": "2"}) + "\n")

    def read(*overrides):
        keys = (
            f"actor.model.model_path={tmp_path}/model",
            f"data.val_data_paths=[{tmp_path}/val.jsonl]",
            "data.apply_chat_template=false",
        )
        return read_prompt_sets(validate_cfg(load_recipe("tiny_math_grpo", [*keys, *overrides])))

    return read


@pytest.mark.parametrize("paths", ["[]", "[absent.jsonl]"])
def test_a_run_that_only_evaluates_reads_nothing_to_train_on(read, paths):
    train, val = read("runner.only_eval=true", f"data.train_data_paths={paths}")
    assert train is None
    assert [prompt.token_ids for prompt in val["val"].prompts] == [(1,)]


def test_a_run_that_trains_reads_what_it_trains_on(read, tmp_path):
    train, _ = read(f"data.train_data_paths=[{tmp_path}/val.jsonl,{tmp_path}/val.jsonl]")
    assert [prompt.text for prompt in train.prompts] == ["1+1", "1+1"]
    with pytest.raises(DatasetError, match="no such file"):
        read("data.train_data_paths=[absent.jsonl]")


def test_evaluations_read_their_own_columns(read):
    with pytest.raises(DatasetError, match=r"^data\.val_prompt_key: there is no 'problem' in row 0 of "):
        read("runner.only_eval=true", "data.val_prompt_key=problem")

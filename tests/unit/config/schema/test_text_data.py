"""Data sets of language models: columns of evaluations, and names of what is evaluated on."""

from __future__ import annotations

from reasoning_problems import RECIPE

from rlinf.config import load_recipe, validate_cfg


def test_evaluations_may_read_other_columns() -> None:
    keys = ["data.val_prompt_key=problem", "data.val_answer_key=solution"]
    data = validate_cfg(load_recipe(RECIPE, keys)).data
    assert (data.for_evaluation().prompt_key, data.for_evaluation().answer_key) == ("problem", "solution")
    assert (data.prompt_key, data.answer_key) == ("question", "answer")
    alike = validate_cfg(load_recipe(RECIPE)).data
    assert alike.for_evaluation() == alike


def test_what_is_evaluated_on_is_named_after_its_file_or_its_name_on_the_hub() -> None:
    paths = "[data/aime24.test.jsonl,openai/gsm8k:main,saved/math_500/]"
    assert validate_cfg(load_recipe(RECIPE, [f"data.val_data_paths={paths}"])).data.val_names == [
        "aime24", "gsm8k", "math_500",
    ]  # fmt: skip

"""Stop strings on a byte-level tokenizer, whose tokens may begin and end within a character."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rlinf.data.messages.generation import SamplingParams
from rlinf.hybrid_engines.generation.model_folder import load_decoder
from rlinf.hybrid_engines.generation.token_sequence import TokenSequence

tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")

TEXT = "a\u00e9b \u505c\u6b62 c\U0001f600d \u00e9"


@pytest.fixture(scope="module", params=["bytes", "merged"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a byte-level tokenizer: one token per byte, or with merges across characters."""
    byte_level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = byte_level
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=256 if request.param == "bytes" else 264, initial_alphabet=byte_level.alphabet()
    )
    tokenizer.train_from_iterator([TEXT[:-1], TEXT[3:]] * 3, trainer)
    path = tmp_path_factory.mktemp(request.param)
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def tokens(folder: Path) -> list[int]:
    return list(transformers.AutoTokenizer.from_pretrained(folder).encode(TEXT))


def sequence(decode: Callable[[list[int]], str], *stop: str, min_new_tokens: int = 0) -> TokenSequence:
    return TokenSequence(
        key=0,
        request_id="",
        prompt_ids=(1,),
        params=SamplingParams(max_new_tokens=100, stop=stop, min_new_tokens=min_new_tokens),
        limit=100,
        end_ids=frozenset(),
        seed=0,
        decode=decode,
    )


def generate(sequence: TokenSequence, tokens: list[int]) -> str | None:
    """Append tokens until the sequence ends; return its text."""
    for token in tokens:
        sequence.append(token, 0.0, 0.0, 0)
        if sequence.finish_reason is not None:
            assert sequence.decode is not None
            return sequence.decode(sequence.token_ids)
    return None


@pytest.mark.parametrize("stop", ["\u00e9", "\u505c", "\u6b62 c", "\U0001f600", "\u505c\u6b62 c", "d \u00e9", "b"])
def test_a_stop_string_ends_an_answer_with_the_token_that_completes_it(
    folder: Path, tokens: list[int], stop: str
) -> None:
    decode = load_decoder(folder)
    needed = next(count for count in range(len(tokens) + 1) if stop in decode(tokens[:count]))
    text = generate(sequence(decode, "never", "x", stop), tokens)
    assert text == decode(tokens[:needed])


@pytest.mark.parametrize("stop", ["x", "\u00ea", "\u505c c"])
def test_bytes_that_are_no_character_yet_match_nothing(folder: Path, tokens: list[int], stop: str) -> None:
    assert generate(sequence(load_decoder(folder), stop), tokens) is None


@pytest.mark.parametrize("distance", [0, 1])
def test_a_stop_string_that_was_complete_too_early_ends_nothing_later(
    folder: Path, tokens: list[int], distance: int
) -> None:
    """The first one comes before ``min_new_tokens``; only the second, the text's last character, ends the sequence."""
    decode = load_decoder(folder)
    early = next(count for count in range(len(tokens)) if "\u00e9" in decode(tokens[:count]))
    assert generate(sequence(decode, "\u00e9", min_new_tokens=early + distance), tokens) == TEXT


def test_a_stop_string_may_begin_an_answer(folder: Path, tokens: list[int]) -> None:
    text = generate(sequence(load_decoder(folder), "a"), tokens)
    assert text is not None
    assert text.startswith("a")

"""Build a tiny language model with a character tokenizer on disk: what tests and the laptop recipe start from.

python examples/reasoning/make_tiny_model.py /tmp/tiny_model
python examples/reasoning/make_tiny_model.py /tmp/tiny_model --hidden-size 192 --num-layers 6
"""

from __future__ import annotations

import argparse
import string
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import needed

needed.check_packages(__file__)

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

# The first two are Qwen2's own: its tokenizer class, which some loaders take for the architecture, would add them.
PAD, END, USER, ASSISTANT = "<|endoftext|>", "<|im_end|>", "<user>", "<assistant>"
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<' + message['role'] + '>' + message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ '<|im_end|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
)
"""``<user>1+2=<assistant>3<|im_end|>``; the roles are tokens of their own."""

VOCAB_SIZE = 128
"""Room beyond the printable characters, a multiple of what engines pad a vocabulary to."""


def make_tokenizer(roles: Sequence[str] = (), tags: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    """Return a tokenizer with one token for each printable character, and special ones for roles and ends.

    Args:
        roles: Further roles of messages, such as ``tool``.
        tags: Further tokens that are part of a text, such as ``<tool_call>``.
    """
    further = [f"<{role}>" for role in roles]
    special = [PAD, END, USER, ASSISTANT]
    # Byte-level byte-pair encoding that never merges: the kind of tokenizer that loaders expect with a Qwen2 model.
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    characters = [byte_level.pre_tokenize_str(c)[0][0] for c in string.printable if c not in "\r\x0b\x0c"]
    vocabulary = {token: index for index, token in enumerate([*special, *characters])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = byte_level
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[USER, ASSISTANT, *further],
        clean_up_tokenization_spaces=False,
    )
    fast.add_tokens([AddedToken(tag, normalized=False) for tag in tags])
    fast.chat_template = CHAT_TEMPLATE
    return fast


def make_tiny_model(
    folder: Path,
    *,
    hidden_size: int = 128,
    num_layers: int = 4,
    num_heads: int = 4,
    num_kv_heads: int = 2,
    seed: int = 0,
    max_context_tokens: int = 1024,
    initializer_range: float = 0.02,
    tokenizer: PreTrainedTokenizerFast | None = None,
) -> Path:
    """Write a Qwen2 model with random weights and its tokenizer in Hugging Face's layout.

    Args:
        folder: Where to; made if it does not exist.
        hidden_size: Width; 128 with 4 layers makes 0.6 million parameters.
        num_layers: Layers.
        num_heads: Attention heads.
        num_kv_heads: Heads of keys and values, which several attention heads share.
        seed: Of the weights.
        max_context_tokens: Longest sequence that the model says it can take.
        initializer_range: Standard deviation of the weights; larger ones make a model that is surer of its tokens.

        tokenizer: With a chat template; None makes one without further tokens.

    Returns:
        The folder.
    """
    tokenizer = tokenizer or make_tokenizer()
    config = Qwen2Config(
        vocab_size=VOCAB_SIZE,
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        num_hidden_layers=num_layers,
        num_attention_heads=num_heads,
        num_key_value_heads=num_kv_heads,
        max_position_embeddings=max_context_tokens,
        tie_word_embeddings=True,
        initializer_range=initializer_range,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen2ForCausalLM(config)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hidden-size", type=int, default=128)
    parser.add_argument("--num-layers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-context-tokens", type=int, default=1024)
    args = parser.parse_args()
    make_tiny_model(
        args.folder,
        hidden_size=args.hidden_size,
        num_layers=args.num_layers,
        seed=args.seed,
        max_context_tokens=args.max_context_tokens,
    )


if __name__ == "__main__":
    main()

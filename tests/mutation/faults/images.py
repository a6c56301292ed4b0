"""Faults of images: their tokens, positions and features, who shares them, and what engine and trainer see."""

from __future__ import annotations

from tests.mutation.fault import Fault

VISION_LM = ("tests/unit/models/language/test_vision_lm.py",)
INPUTS = ("tests/unit/models/language/test_vision_inputs.py",)
IMAGES = ("tests/unit/data/test_prompt_images.py",)
EXAMPLES = ("tests/unit/data/datasets/test_examples.py",)
CHOICES = ("tests/unit/data/datasets/test_choices.py",)
PROMPTS = ("tests/unit/data/datasets/test_prompts.py",)
ENGINE = ("tests/unit/hybrid_engines/generation/test_vision_model.py",)
CHECKS = ("tests/unit/config/checks/test_language_checks.py",)

FAULTS = [
    Fault(
        "rlinf/data/shared_prefixes.py",
        "token + (key << 32)",
        "token + (key >> 32)",
        ("tests/unit/data/test_packing.py",),
        "prompts with other images share their tokens",
    ),
    Fault(
        "rlinf/data/prompt_images.py",
        "if count != len(images):",
        "if count < len(images):",
        IMAGES,
        "a placeholder without an image is taken",
    ),
    Fault(
        "rlinf/data/prompt_images.py",
        "self._num_cached_bytes > _MAX_CACHED_BYTES",
        "self._num_cached_bytes < 0",
        IMAGES,
        "patches are kept without bound",
    ),
    Fault(
        "rlinf/data/datasets/prompts.py",
        "token_ids=processor.expand(prompt.token_ids, images), images=images",
        "token_ids=processor.expand(prompt.token_ids, images)",
        PROMPTS,
        "prompts lose their images",
    ),
    Fault(
        "rlinf/models/language/vision_inputs.py",
        "begin + count, position + max(height, width)",
        "begin + count, position + count",
        INPUTS,
        "text goes on behind an image as if it were text",
    ),
    Fault(
        "rlinf/models/language/vision_inputs.py",
        "torch.zeros_like(where), where // width, where % width",
        "torch.zeros_like(where), where % width, where // width",
        INPUTS,
        "rows and columns of an image are exchanged",
    ),
    Fault(
        "rlinf/models/language/vision_inputs.py",
        "rows[begin : begin + count] = where + start",
        "rows[begin : begin + count] = where",
        INPUTS,
        "every image shows the first one's features",
    ),
    Fault(
        "rlinf/models/language/vision_inputs.py",
        "[level[index[is_image]] for level in levels]",
        "[level[index[is_image]] * 0 for level in levels]",
        VISION_LM,
        "features of earlier layers of the tower are left out",
    ),
    Fault(
        "rlinf/models/language/vision_lm.py",
        "if cfg.freeze_vision:",
        "if not cfg.freeze_vision:",
        VISION_LM,
        "freeze_vision trains the tower alone",
    ),
    Fault(
        "rlinf/hybrid_engines/generation/vision_model.py",
        "positions + offsets",
        "positions",
        ENGINE,
        "sampled tokens have the positions of text",
    ),
    Fault(
        "rlinf/hybrid_engines/generation/vision_model.py",
        "if found != needed:",
        "if found < 0:",
        ENGINE,
        "the engine takes prompts that were not expanded",
    ),
    Fault(
        "rlinf/hybrid_engines/generation/hf.py",
        "return tuple(sequence.context), sequence.images",
        "return tuple(sequence.context), ()",
        ENGINE,
        "prompts with equal tokens see the first one's images",
    ),
    Fault(
        "rlinf/config/checks/language_checks.py",
        "        if received != allowed:\n",
        "        if received is None:\n",
        CHECKS,
        "engines and trainers without images are allowed",
    ),
    Fault(
        "rlinf/data/datasets/examples.py",
        "grown += [is_learned] * (next(sizes) if token == processor.token_id else 1)",
        "grown += [is_learned] * (next(sizes) if is_learned else 1)",
        EXAMPLES,
        "what is learned is not moved behind expanded images",
    ),
    Fault(
        "rlinf/data/datasets/examples.py",
        "return kept.count(processor.token_id) == token_ids.count(processor.token_id)",
        "return kept.count(processor.token_id) > 0",
        EXAMPLES,
        "a cut takes images, or parts of one",
    ),
    Fault(
        "rlinf/data/datasets/examples.py",
        "        images=row.images,\n",
        "",
        EXAMPLES,
        "examples lose their images",
    ),
    Fault(
        "rlinf/data/datasets/examples.py",
        "token_ids = processor.expand(token_ids, row.images)",
        "token_ids = tuple(token_ids)",
        EXAMPLES,
        "evaluations ask with one token for each image",
    ),
    Fault(
        "rlinf/workers/actor/sft_learner.py",
        "images=tuple(example.images for example in examples) if has_images else ()",
        "images=()",
        ("tests/unit/workers/actor/test_sft_learner.py",),
        "fine-tuning does not show the images",
    ),
    Fault(
        "rlinf/data/datasets/choices.py",
        "0 <= number < len(listed)",
        "0 <= number <= len(listed)",
        CHOICES,
        "an index behind the last choice is taken",
    ),
    Fault(
        "rlinf/data/datasets/choices.py",
        "isinstance(number, bool) or not",
        "not",
        CHOICES,
        "true is the second choice",
    ),
    Fault(
        "rlinf/data/datasets/choices.py",
        'return "\\n".join([question, "Choices:", *lines, ""]), lines[number]',
        'return "\\n".join([question, "Choices:", *lines, ""]), str(listed[number])',
        CHOICES,
        "the right choice is learned without its letter",
    ),
    Fault(
        "rlinf/data/datasets/text_rows.py",
        "found = sorted(file for",
        "found = list(file for",
        ("tests/unit/data/datasets/test_text_rows.py",),
        "the order of a folder's files is the file system's",
    ),
    Fault(
        "rlinf/config/checks/language_checks.py",
        "cfg.data.image_keys if isinstance(cfg, LanguageConfig) else []",
        "cfg.data.image_keys if isinstance(cfg, ReasoningConfig) else []",
        CHECKS,
        "fine-tuning gives images to a model that reads none",
    ),
]

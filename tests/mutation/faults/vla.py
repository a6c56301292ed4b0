"""Faults of vision-language-action policies: masks, positions, tokens, statistics, images, and what files hold."""

from __future__ import annotations

from tests.mutation.fault import Fault

VLA = "tests/unit/models/vla"
SOURCE = "rlinf/models/vla"
OFT = (f"{VLA}/test_openvla_oft.py",)
OPENVLA = (f"{VLA}/test_openvla.py",)
TOKENS = (f"{VLA}/test_action_tokens.py",)
IMAGES = (f"{VLA}/test_image_resizing.py",)
STATISTICS = (f"{VLA}/test_norm_statistics.py",)
PUBLISHED = (f"{VLA}/test_published_folder.py",)
PROMPTS = (f"{VLA}/test_action_prompts.py",)
PI = (f"{VLA}/test_openpi.py",)
SMOLVLA = (f"{VLA}/test_smolvla.py",)
PI_INPUTS = (f"{VLA}/test_flow_inputs.py",)
TOWERS = (f"{VLA}/test_vision_tower.py",)

FAULTS: list[Fault] = [
    Fault(
        f"{SOURCE}/openvla_oft.py",
        "output.last_hidden_state[:, -slots.shape[1] - 2 : -2]",
        "output.last_hidden_state[:, -slots.shape[1] - 1 : -1]",
        OFT,
        "a slot's own output decides its number",
    ),
    Fault(
        f"{SOURCE}/openvla_oft.py",
        "position_ids=(there.cumsum(1) - 1).clamp(min=0),",
        "position_ids=None,",
        OFT,
        "padding is counted in positions",
    ),
    Fault(
        f"{SOURCE}/openvla_oft.py",
        "return there[:, None, None, :].expand(-1, 1, there.shape[1], -1)",
        "return there[:, None, None, :].expand(-1, 1, there.shape[1], -1) | True",
        OFT,
        "padding is attended to",
    ),
    Fault(
        f"{SOURCE}/openvla_oft.py",
        "(words * mask.unsqueeze(-1)).sum(1) + end.squeeze(1)",
        "(words * mask.unsqueeze(-1)).sum(1)",
        OFT,
        "the end of the sequence is left out of the words of FiLM",
    ),
    Fault(
        f"{SOURCE}/openvla.py",
        "attention_mask=causal_mask(there)[:, :, -new:],",
        "attention_mask=causal_mask(there)[:, :, -new:] | True,",
        OPENVLA,
        "tokens see those behind them",
    ),
    Fault(
        f"{SOURCE}/openvla.py",
        "clamp(min=0)[:, -new:],",
        "clamp(min=0)[:, :new],",
        OPENVLA,
        "new tokens stand at the positions of the first ones",
    ),
    Fault(
        f"{SOURCE}/action_tokens.py",
        "scaled = logits / temperature",
        "scaled = logits",
        TOKENS,
        "the temperature is not applied",
    ),
    Fault(
        f"{SOURCE}/action_tokens.py",
        "logprobs.masked_fill(logprobs == -torch.inf, 0.0)",
        "logprobs",
        TOKENS,
        "removed bins make the entropy no number",
    ),
    Fault(
        f"{SOURCE}/action_tokens.py",
        "right=True) - 1",
        "right=False) - 1",
        TOKENS,
        "a number on an edge falls into the bin below",
    ),
    Fault(
        f"{SOURCE}/image_resizing.py",
        "kernel](distances / max(1.0, ratio))",
        "kernel](distances)",
        IMAGES,
        "images that become smaller are not smoothed",
    ),
    Fault(
        f"{SOURCE}/image_resizing.py",
        "255.5).floor()",
        "255.0).round()",
        IMAGES,
        "cropped images are rounded in another way",
    ),
    Fault(
        f"{SOURCE}/norm_statistics.py",
        "0.5 * (numbers + 1.0) * (high - low + tiny) + low, numbers)",
        "0.5 * (numbers + 1.0) * (high - low + tiny) + low, numbers * 0)",
        STATISTICS,
        "entries that are not normalised are lost",
    ),
    Fault(
        f"{SOURCE}/norm_statistics.py",
        "if given < size or low[size:].any() or high[size:].any():",
        "if given < size:",
        STATISTICS,
        "states that are shorter than those of the data set pass",
    ),
    Fault(
        f"{SOURCE}/norm_statistics.py",
        "size, given = size or len(low), len(low)",
        "size, given = size or 1, len(low)",
        STATISTICS,
        "the length of states is not that of the statistics",
    ),
    Fault(
        f"{SOURCE}/observed.py",
        " or states.shape[-1] != size:",
        ":",
        (f"{VLA}/test_prismatic_policy.py",),
        "states of another length fail as tensors that cannot be subtracted",
    ),
    Fault(
        f"{SOURCE}/published_folder.py",
        "require_same_names(model, self)",
        "pass",
        PUBLISHED,
        "files of another model are loaded",
    ),
    Fault(
        f"{SOURCE}/published_folder.py",
        "name.removeprefix(_DISTRIBUTED)",
        "name",
        PUBLISHED,
        "components of distributed training are not read",
    ),
    Fault(
        "rlinf/hybrid_engines/inference_backends.py",
        "num_values=num_values, on_meta=True)",
        "num_values=num_values)",
        PUBLISHED,
        "ranks that act read the checkpoint",
    ),
    Fault(
        "rlinf/models/lora.py",
        "if isinstance(m, nn.Linear)}",
        "if hasattr(m, 'weight')}",
        PUBLISHED,
        "convolutions get adapters that cannot be merged",
    ),
    Fault(
        f"{SOURCE}/action_prompts.py",
        "target[row, self._length - words :] = source[1:]",
        "target[row, 1 : 1 + words] = source[1:]",
        PROMPTS,
        "padding separates the prompt from the actions",
    ),
    Fault(
        f"{SOURCE}/vision_tower.py",
        "for block in self.blocks[:-1]:",
        "for block in self.blocks:",
        TOWERS,
        "features are those of the last block",
    ),
    Fault(
        f"{SOURCE}/flow_vla.py",
        "mean = self.executed(end.unsqueeze(1))[:, 0].clone()",
        "mean = self.executed(end.unsqueeze(1))[:, 0]",
        PI,
        "the mean of a step is overwritten by what it reached",
    ),
    Fault(
        f"{SOURCE}/flow_vla.py",
        "times.append(times[-1] + step)",
        "times.append(times[-1] + step * 0.99)",
        PI,
        "steps begin at other times",
    ),
    Fault(
        f"{SOURCE}/openpi.py",
        "        own[0, 1:] = False\n",
        "        own[0, 1:] = True\n",
        PI,
        "the state sees actions",
    ),
    Fault(
        f"{SOURCE}/openpi.py",
        "first = prefix.there.sum(1)[:, None, None]",
        "first = prefix.there.shape[1]",
        PI,
        "padding is counted in the expert's positions",
    ),
    Fault(
        f"{SOURCE}/flow_vla.py",
        "return torch.cat([rest, ends[:, :, chunk:]], 2)",
        "return torch.cat([rest, begins[:, :, chunk:]], 2)",
        PI,
        "actions that are not executed stand still",
    ),
    Fault(
        f"{SOURCE}/pi_model.py",
        "words * math.sqrt(words.shape[-1])",
        "words",
        PI,
        "word embeddings are not scaled",
    ),
    Fault(
        f"{SOURCE}/flow_vla.py",
        "return (self.output * there).sum(1) / there.sum(1)",
        "return self.output.mean(1)",
        PI,
        "values see padding",
    ),
    Fault(
        f"{SOURCE}/gemma.py",
        "(1.0 + self.weight.float())",
        "self.weight.float()",
        PI,
        "norms lose their 1",
    ),
    Fault(
        f"{SOURCE}/layer_stack.py",
        "attended if gate is None else attended * gate",
        "attended",
        PI,
        "attention has no gate",
    ),
    Fault(
        f"{SOURCE}/smolvla_model.py",
        "visible[:, :, :-1, -1] = False",
        "visible[:, :, :-1, -1] = True",
        SMOLVLA,
        "images and words see the state",
    ),
    Fault(
        f"{SOURCE}/smolvla_model.py",
        "positions - positions.amin(1, keepdim=True)",
        "positions",
        SMOLVLA,
        "positions of cross attention count the prefix",
    ),
    Fault(
        f"{SOURCE}/smolvla_model.py",
        "self._pixels(image).to(dtype)",
        "self._pixels(image)",
        ("tests/unit/models/test_base_policy.py",),
        "SmolVLA does not act in half precision",
    ),
    Fault(
        f"{SOURCE}/smolvla_model.py",
        "connector(vision(pixel_values=each).last_hidden_state) * scale",
        "connector(vision(pixel_values=each).last_hidden_state)",
        SMOLVLA,
        "images are not scaled",
    ),
    Fault(
        f"{SOURCE}/smolvla_model.py",
        "language.embed_tokens(tokens.long()) * scale",
        "language.embed_tokens(tokens.long())",
        SMOLVLA,
        "words are not scaled",
    ),
    Fault(
        f"{SOURCE}/smolvla_model.py",
        "(self.image_size[1] - inner[1], 0, self.image_size[0] - inner[0], 0)",
        "(0, self.image_size[1] - inner[1], 0, self.image_size[0] - inner[0])",
        SMOLVLA,
        "borders are on the right and at the bottom",
    ),
    Fault(
        f"{SOURCE}/smolvla_model.py",
        "index % self.self_attention_every == 0",
        "index % self.self_attention_every == 1",
        SMOLVLA,
        "the other layers attend to themselves",
    ),
    Fault(
        f"{SOURCE}/smolvla_model.py",
        "(resized[1], resized[0])",
        "None",
        SMOLVLA,
        "images keep the camera's size",
    ),
    Fault(
        f"{SOURCE}/smolvla_model.py",
        "return unit * 2.0 - 1.0",
        "return unit",
        SMOLVLA,
        "pixels lie between 0 and 1",
    ),
    Fault(
        f"{SOURCE}/smolvla.py",
        "dtype=torch.bool, device=x.device).tril()",
        "dtype=torch.bool, device=x.device)",
        SMOLVLA,
        "actions see later ones",
    ),
    Fault(
        f"{SOURCE}/smolvla.py",
        "first = prefix.there.sum(1)[:, None, None]",
        "first = prefix.there.shape[1]",
        SMOLVLA,
        "padding is counted in the expert's positions",
    ),
    Fault(
        f"{SOURCE}/smolvla.py",
        'task if task.endswith("\\n") else f"{task}\\n"',
        "task",
        SMOLVLA,
        "prompts do not end their line",
    ),
    Fault(
        f"{SOURCE}/norm_statistics.py",
        "(?:(?:un)?normalize_",
        "(?:normalize_",
        SMOLVLA,
        "statistics of outputs are not found among the weights",
    ),
    Fault(
        f"{SOURCE}/image_resizing.py",
        "top, left = ((size - side) // 2 for side in inner)",
        "top, left = (0, 0)",
        IMAGES,
        "borders are on one side",
    ),
    Fault(
        f"{SOURCE}/flow_inputs.py",
        "right=True) - 1).tolist()",
        "right=True)).tolist()",
        PI_INPUTS,
        "states in words are one bin off",
    ),
    Fault(
        "rlinf/hybrid_engines/inference_backends.py",
        "cfg = cfg.without_adapters()",
        "pass",
        PUBLISHED,
        "ranks that act wait for adapters that never come",
    ),
]

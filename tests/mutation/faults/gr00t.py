"""Faults of GR00T and of its statistics."""

from __future__ import annotations

from tests.mutation.fault import Fault

SOURCE = "rlinf/models/vla"
GR00T = ("tests/unit/models/vla/test_gr00t.py",)
STATISTICS = ("tests/unit/models/vla/test_norm_statistics.py",)

FAULTS: list[Fault] = [
    Fault(
        f"{SOURCE}/gr00t_dit.py",
        "None if shape.is_interleaved and index % 2 else source_width",
        "source_width",
        GR00T,
        "no block attends to its own tokens",
    ),
    Fault(
        f"{SOURCE}/gr00t_dit.py",
        "own = normed.flatten(0, 1)",
        "own = normed.flatten(1, 2)",
        GR00T,
        "points of a flow see each other",
    ),
    Fault(
        f"{SOURCE}/gr00t_dit.py",
        "self.attn1(own, own, mask if seen is None else None)",
        "self.attn1(own, own, None)",
        GR00T,
        "what is seen is mixed with padding",
    ),
    Fault(
        f"{SOURCE}/gr00t_dit.py",
        "self.attn1(normed.flatten(1, 2), seen, mask)",
        "self.attn1(normed.flatten(1, 2), seen, None)",
        GR00T,
        "actions look at padding",
    ),
    Fault(
        f"{SOURCE}/gr00t_dit.py",
        "scale, shift = self.linear(F.silu(moment)).chunk(2, -1)",
        "shift, scale = self.linear(F.silu(moment)).chunk(2, -1)",
        GR00T,
        "scale and shift of a norm are exchanged",
    ),
    Fault(
        f"{SOURCE}/gr00t_dit.py",
        "shift, scale = self.proj_out_1(F.silu(moment)).chunk(2, -1)",
        "scale, shift = self.proj_out_1(F.silu(moment)).chunk(2, -1)",
        GR00T,
        "scale and shift of the output are exchanged",
    ),
    Fault(
        f"{SOURCE}/gr00t_dit.py",
        "torch.cat([cosines, sines], -1)",
        "torch.cat([sines, cosines], -1)",
        GR00T,
        "the moment's sines come first",
    ),
    Fault(
        f"{SOURCE}/gr00t_dit.py",
        "last_divisor=_TIME_WIDTH // 2 - 1",
        "last_divisor=_TIME_WIDTH // 2",
        GR00T,
        "periods of the moment are those of the action encoder",
    ),
    Fault(
        f"{SOURCE}/gr00t_model.py",
        '"num_hidden_layers": backbone["select_layer"]',
        '"num_hidden_layers": backbone["select_layer"] - 1',
        GR00T,
        "a layer of the language model is missing",
    ),
    Fault(
        f"{SOURCE}/gr00t_model.py",
        "torch.cat(patches, 1).to(words.dtype)",
        "torch.cat(patches[::-1], 1).to(words.dtype)",
        GR00T,
        "images stand in the order of another prompt",
    ),
    Fault(
        f"{SOURCE}/gr00t_model.py",
        "/ 255.0 - 0.5) / 0.5",
        "/ 255.0 - 0.5)",
        GR00T,
        "pixels lie between -0.5 and 0.5",
    ),
    Fault(
        f"{SOURCE}/gr00t_model.py",
        "actions = actions + self.position_embedding(torch.arange(horizon, device=x.device))",
        "actions = actions + self.position_embedding(torch.zeros(horizon, dtype=torch.long, device=x.device))",
        GR00T,
        "actions do not know their place",
    ),
    Fault(
        f"{SOURCE}/gr00t_model.py",
        "return x @ self.W[embodiment] + self.b[embodiment]",
        "return x @ self.W[2] + self.b[2]",
        GR00T,
        "all robots share encoders",
    ),
    Fault(
        f"{SOURCE}/gr00t_model.py",
        "return output[:, :, -horizon:]",
        "return output[:, :, :horizon]",
        GR00T,
        "velocities are read from tokens that are no actions",
    ),
    Fault(
        f"{SOURCE}/gr00t.py",
        "own = (1.0 - time.double())",
        "own = time.double()",
        GR00T,
        "the model's time runs the other way",
    ),
    Fault(
        f"{SOURCE}/gr00t.py",
        "(own + _ROUNDING).long()",
        "own.float().long()",
        GR00T,
        "rounding moves a moment to the bucket before",
    ),
    Fault(
        f"{SOURCE}/gr00t.py",
        "return -velocity.float()",
        "return velocity.float()",
        GR00T,
        "actions flow to noise",
    ),
    Fault(
        f"{SOURCE}/gr00t.py",
        '"time": share / _NOISE_LIMIT',
        '"time": share * _NOISE_LIMIT',
        GR00T,
        "no time is noise alone",
    ),
    Fault(
        f"{SOURCE}/gr00t.py",
        "return torch.cat([Prefix.mean(self), self.state], -1)",
        "return torch.cat([Prefix.mean(self), torch.zeros_like(self.state)], -1)",
        GR00T,
        "values do not know the state",
    ),
    Fault(
        f"{SOURCE}/gr00t.py",
        "unnorm_key=cfg.unnorm_key or cfg.embodiment_tag",
        "unnorm_key=cfg.unnorm_key",
        GR00T,
        "the robot's statistics are not found",
    ),
    Fault(
        f"{SOURCE}/gr00t.py",
        "middle = unit[..., top : top + height, left : left + width]",
        "middle = unit[..., :height, :width]",
        GR00T,
        "a corner of images is shown",
    ),
    Fault(
        f"{SOURCE}/gr00t.py",
        'freeze({"vision": parts.vision, "projector": parts.projector, "language": parts.language}, cfg.freeze)',
        'freeze({"vision": parts.vision, "projector": parts.vision, "language": parts.language}, cfg.freeze)',
        GR00T,
        "the projector is trained",
    ),
    Fault(
        f"{SOURCE}/gr00t.py",
        "finish_flow(policy, folder, tied=_TIED, unused=UNUSED)",
        "finish_flow(policy, folder, unused=UNUSED)",
        GR00T,
        "tied embeddings are not found",
    ),
    Fault(
        f"{SOURCE}/norm_statistics.py",
        "torch.where(mask, torch.where(changes, scaled, 0.0), numbers)",
        "torch.where(mask, scaled, numbers)",
        STATISTICS,
        "what never changes is moved",
    ),
    Fault(
        f"{SOURCE}/norm_statistics.py",
        "for part in parts.values() for number in part[name]",
        "for part in reversed(parts.values()) for number in part[name]",
        STATISTICS,
        "a robot's parts stand in another order",
    ),
]

"""Faults of the first stage of RLT: the token's network, its training and its file."""

from __future__ import annotations

from tests.mutation.fault import Fault

SOURCE = "rlinf/models/vla/rl_token.py"
FLOW = "rlinf/models/vla/flow_vla.py"
FOLDER = "rlinf/models/vla/published_folder.py"
FRAMES = "rlinf/workers/actor/supervised_frames.py"
RULES = "rlinf/config/checks/vla_checks.py"
TOKEN = ("tests/unit/models/vla/test_rl_token.py",)
LEARNER = ("tests/unit/workers/actor/test_frame_learner.py",)
CHECKS = ("tests/unit/config/checks/test_vla_checks.py",)

FAULTS: list[Fault] = [
    Fault(SOURCE, "self.input_proj(output.to(positions.dtype)) + positions", "output", TOKEN, "no positions"),
    Fault(SOURCE, "(self.rl_token_embed + self.rl_token_pos_enc)", "self.rl_token_embed", TOKEN, "no place"),
    Fault(
        SOURCE,
        "earlier = torch.ones(count, count, dtype=torch.bool, device=x.device).tril()",
        "earlier = torch.ones(count, count, dtype=torch.bool, device=x.device)",
        TOKEN,
        "outputs see themselves",
    ),
    Fault(SOURCE, "torch.where(there, error, 0.0).sum(1) / there.sum(1)", "error.mean(1)", TOKEN, "padding counts"),
    Fault(
        SOURCE,
        "mask = F.pad(there, (0, 1), value=True)[:, None, None, :]",
        "mask = torch.ones_like(F.pad(there, (0, 1)))[:, None, None, :]",
        TOKEN,
        "padding is read",
    ),
    Fault(SOURCE, "units * F.gelu(gate)", "gate * F.gelu(units)", TOKEN, "the wrong half gates"),
    Fault(SOURCE, "target = output.detach()", "target = output", TOKEN, "the flow learns to be easy to reconstruct"),
    Fault(SOURCE, "with_decoder=not cfg.add_q_head", "with_decoder=True", TOKEN, "the second stage has a decoder"),
    Fault(
        SOURCE,
        "torch.stack([angles.sin(), angles.cos()], -1)",
        "torch.stack([angles.cos(), angles.sin()], -1)",
        TOKEN,
        "positions are encoded otherwise",
    ),
    Fault(SOURCE, 'if name.endswith("norm.weight"):', "if False:", TOKEN, "norms begin at 0"),
    Fault(SOURCE, "if self.width % cfg.num_heads:", "if False:", TOKEN, "heads that do not fit are accepted"),
    Fault(SOURCE, "if count > len(positions):", "if False:", TOKEN, "a prefix is longer than its positions"),
    Fault(
        "rlinf/models/vla/small_policies.py",
        "            flow.requires_grad_(False)\n",
        "",
        TOKEN,
        "an optimizer has moments for a frozen flow, and each sync sends it",
    ),
    Fault(
        FLOW,
        "return self.rlt_module.encode(prefix.output, prefix.there).float()",
        "return prefix.mean().float()",
        TOKEN,
        "the policy does not see the token",
    ),
    Fault(
        FLOW,
        "heads += self.rlt_module.layers() if self.rlt_module is not None else []",
        "",
        ("tests/unit/models/vla/test_sharded_policies.py",),
        "the token is not sharded",
    ),
    Fault(
        "rlinf/models/vla/gr00t.py",
        "            output_width=shape.seen_width,\n",
        "",
        TOKEN,
        "the token expects the state",
    ),
    Fault(
        FOLDER,
        "if not own.startswith(tuple(unused_parts)):",
        "if True:",
        TOKEN,
        "a decoder that is not needed is loaded",
    ),
    Fault(FOLDER, "if component in components:", "if False:", TOKEN, "a token is not written"),
    Fault(
        FRAMES,
        "parts.append(total * weight / self.batch_size)",
        "parts.append(total * weight / len(errors))",
        LEARNER,
        "micro-batches count whole",
    ),
    Fault(FRAMES, "self.learns_token = token is not None", "self.learns_token = False", LEARNER, "no token is learned"),
    Fault(
        RULES,
        "if not learns and not (model.add_q_head and model.refine_actions):",
        "if False:",
        CHECKS,
        "a token without use is accepted",
    ),
    Fault(
        RULES,
        "if keys.embed_dim is not None and keys.embed_dim % keys.num_heads:",
        "if False:",
        CHECKS,
        "a width that heads do not divide is accepted",
    ),
    Fault(
        RULES,
        'check.unused(model, ("freeze", "is_lora"), path, reason)',
        "pass",
        CHECKS,
        "adapters of a frozen flow are accepted",
    ),
    Fault(
        "rlinf/cli/migrate_values.py",
        '[{"dataset_path": value}] if isinstance(value, str) else value',
        "value",
        ("tests/unit/cli/test_migrate_offline_recipes.py",),
        "a single path is taken apart",
    ),
]

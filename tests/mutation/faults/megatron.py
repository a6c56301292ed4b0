"""Faults of Megatron-Core as a training engine: fused tensors, layouts, gradients of copies, checkpoints."""

from __future__ import annotations

from tests.mutation.fault import Fault

_UNIT = "tests/unit/hybrid_engines/train/megatron"
CASES = (f"{_UNIT}/test_megatron_conformance.py",)
LAYOUTS = (f"{_UNIT}/test_engine.py",)
RULES = ("tests/unit/models/fused/test_fusion_rules.py",)
CONTEXT = ("tests/unit/models/language/test_context_parallel.py",)
CHECKS = ("tests/unit/config/checks/test_megatron_checks.py",)
_ENGINE = "rlinf/hybrid_engines/train/megatron/engine.py"
_OPTIMIZER = "rlinf/hybrid_engines/train/megatron/sharded_optimizer.py"
_STAGE = "rlinf/hybrid_engines/train/megatron/stage.py"
_LAYERS = "rlinf/hybrid_engines/train/megatron/layers.py"
_RULES = "rlinf/models/fused/fusion_rules.py"
_CONTEXT = "rlinf/models/language/context_parallel.py"
_OFFLOAD = "rlinf/hybrid_engines/train/megatron/offload.py"
HOST = (f"{_UNIT}/test_offload.py",)
MASTERS = (f"{_UNIT}/test_sharded_optimizer.py",)
STAGES = f"{LAYOUTS[0]}::test_copies_of_tied_embeddings_stay_equal_over_stages"
FAMILIES = (f"{_UNIT}/test_layer_config.py",)

FAULTS: list[Fault] = [
    Fault(
        _OPTIMIZER,
        "entry[moment] = values[share.name].view(-1)[part].to(share.master.device, copy=True)",
        "entry[moment] = torch.zeros_like(share.master)",
        CASES,
        "moments are dropped on load",
    ),
    Fault(
        _OPTIMIZER, "torch.tensor(float(self.num_updates), device", "torch.tensor(0.0, device", CASES, "step is lost"
    ),
    Fault(_OPTIMIZER, "            self.num_updates += 1\n", "", CASES, "updates are not counted"),
    Fault(
        _OPTIMIZER,
        "return is_expert or is_split(name) or dist.get_rank(model.groups.tp) == 0",
        "return True",
        CASES,
        "copies on tensor ranks count in the norm",
    ),
    Fault(
        _OPTIMIZER,
        '    if name == "head.weight" and model.share_embeddings_and_output_weights:\n        return False\n',
        "",
        CASES,
        "both copies of tied embeddings count in the norm",
    ),
    Fault(
        _ENGINE, "factor = len(padded) * self.scaler.scale", "factor = self.scaler.scale", LAYOUTS, "a mean of losses"
    ),
    Fault(
        _ENGINE,
        "        return self._from_last_stage(found)\n",
        "        return found\n",
        LAYOUTS,
        "metrics stay on the last stage",
    ),
    Fault(
        _ENGINE,
        "return loss * (0.0 if is_padding else factor)",
        "return loss * factor",
        (f"{LAYOUTS[0]}::test_padding_of_the_interleaved_schedule_counts_nowhere",),
        "padding of the interleaved schedule has a gradient",
    ),
    Fault(
        _LAYERS,
        "self.weight.sequence_parallel = config.sequence_parallel",
        "self.weight.sequence_parallel = False",
        LAYOUTS,
        "gradients of norms are not summed under sequence parallelism",
    ),
    Fault(
        _STAGE,
        "end=min(self.vocabulary, (rank + 1) * share),",
        "end=(rank + 1) * share,",
        LAYOUTS,
        "padding of the vocabulary has a probability",
    ),
    Fault(
        _STAGE,
        "hidden, tensor_parallel_output_grad=False, group=self.groups.tp",
        "hidden, group=self.groups.tp",
        LAYOUTS,
        "the gradient of values counts once for each tensor rank",
    ),
    Fault(_STAGE, "parts[2] = str(int(parts[2]) + self.first_layer)", "pass", CASES, "each stage has the first layers"),
    Fault(
        "rlinf/hybrid_engines/train/megatron/shards.py",
        "        if is_copy and layout.pipeline > 1:\n            return False\n",
        "",
        CASES,
        "both copies of tied embeddings are handed on",
    ),
    Fault(
        "rlinf/hybrid_engines/train/megatron/layer_config.py",
        "torch.cuda.is_available() or layout.virtual_pipeline == 1",
        "True",
        FAMILIES,
        "gloo sends outputs that were given up meanwhile: gradients of whatever is written there, now and then",
    ),
    Fault(
        "rlinf/hybrid_engines/train/megatron/layer_config.py",
        "overlap_p2p_comm=layout.virtual_pipeline > 1,",
        "overlap_p2p_comm=False,",
        LAYOUTS,
        "stages of the interleaved schedule exchange shapes in different order",
    ),
    Fault(
        _RULES,
        "for name, height in zip(names, heights, strict=True):",
        "for name, height in zip(names[::-1], heights[::-1], strict=True):",
        RULES,
        "values lie before queries",
    ),
    Fault(
        _RULES,
        "rows // 2 + part.rank * share",
        "share + part.rank * share",
        RULES,
        "up rows of an expert are gate rows",
    ),
    Fault(
        _RULES,
        "begin, end = min(rows, part.rank * share), min(rows, (part.rank + 1) * share)",
        "begin, end = part.rank * share, (part.rank + 1) * share",
        RULES,
        "padding rows of the vocabulary belong to the tensor",
    ),
    Fault(
        _CONTEXT, "distance = positions - torch", "distance = positions + 1 - torch", CONTEXT, "tokens see the next one"
    ),
    Fault(
        _CONTEXT,
        "Part(number, shared, length)",
        "Part(number, 0, length)",
        CONTEXT,
        "shared prompts are computed twice",
    ),
    Fault(
        _CONTEXT,
        "[pieces[rank], pieces[count - 1 - rank]]",
        "[pieces[2 * rank], pieces[2 * rank + 1]]",
        CONTEXT,
        "the last rank attends to most",
    ),
    Fault(
        _CONTEXT,
        "dist.reduce_scatter_tensor(own, spread, group=gather.group)",
        "own.copy_(spread[gather.group.rank() * gather.longest :][: gather.longest])",
        LAYOUTS,
        "gradients of keys come from the own queries alone",
    ),
    Fault(
        "rlinf/config/checks/megatron_checks.py",
        "problems(world_size=world or sizes.replica_size)",
        "problems(world_size=sizes.layout(world or 1).world_size)",
        CHECKS,
        "ranks that cannot share the model are accepted",
    ),
    Fault(
        _OPTIMIZER,
        '            entry = {"step": torch.tensor(float(self.num_updates), device=share.master.device)}\n',
        "            first = self.scheduled.adam.state.get(self.shares[0].master, {})\n"
        '            entry = {"step": first.get("step", torch.tensor(float(self.num_updates)))}\n',
        CASES,
        "parameters share one count of updates after loading",
    ),
    Fault(
        "rlinf/hybrid_engines/train/megatron/shard_state.py",
        "state |= {moment_key(name, moment): tensor for name, tensor in",
        'prefix = "" if shards._group else "chained."\n        '
        "state |= {moment_key(prefix + name, moment): tensor for name, tensor in",
        (f"{LAYOUTS[0]}::test_a_run_goes_on_from_fsdp_over_layouts_and_back",),
        "moments have other names where ranks share experts",
    ),
    Fault(
        "rlinf/placement/parallel.py",
        "if heads is not None and heads % self.tensor:",
        'if heads is not None and heads % self.tensor and what == "attention heads":',
        ("tests/unit/placement/test_parallel.py",),
        "fewer key and value heads than tensor ranks are accepted",
    ),
    Fault(
        _ENGINE,
        "factor = len(padded) * self.scaler.scale",
        "factor = len(padded) * self.scaler.scale * self.layout.context",
        LAYOUTS,
        "losses count once for each context rank",
    ),
    Fault(
        _STAGE,
        "        if self.pre_process:\n            return self.embedding.weight  # type: ignore[no-any-return]\n"
        "        return None if self.head is None else self.head.weight\n",
        "        return None\n",
        (STAGES,),
        "gradients of tied embeddings are not added over stages",
    ),
    Fault(
        _STAGE,
        "        return self._num_layer_parameters\n",
        "        return sum(parameter.numel() for parameter in self.decoder.layers.parameters())\n",
        (STAGES,),
        "parameters of a stage are taken for the model's",
    ),
    Fault(
        _CONTEXT,
        "part.begin + (part.end - part.begin) * index // count",
        "part.begin + (part.end - part.begin) // count * index",
        CONTEXT,
        "tokens of sequences that context ranks do not divide are lost",
    ),
    Fault(
        _CONTEXT,
        "packed.places[start : start + part.end]",
        "packed.places[: start + part.end]",
        CONTEXT,
        "context ranks take the pack for one sequence",
    ),
    Fault(
        "rlinf/models/language/packed_attention.py",
        "    order = sorted(range(packed.num_sequences), key=lambda number: -packed.lengths[number])\n",
        '    pack = __import__("rlinf.data.packing", fromlist=["pack_sequences"]).pack_sequences\n'
        "    packed = pack([packed.token_ids.tolist()])\n"
        "    order = sorted(range(packed.num_sequences), key=lambda number: -packed.lengths[number])\n",
        ("tests/unit/models/language/test_packed_attention.py",),
        "attention takes the pack for one sequence",
    ),
    Fault(
        _ENGINE,
        "multiple = self.layout.pipeline if self.layout.virtual_pipeline > 1 else 1",
        "multiple = 1",
        (f"{LAYOUTS[0]}::test_padding_of_the_interleaved_schedule_counts_nowhere",),
        "the interleaved schedule gets any number of micro-batches",
    ),
    Fault(
        "rlinf/algorithms/minibatch.py",
        "    number = max(len(parts) for parts in fewest)\n    return [_micro_batches(groups, parts, number, budget)",
        "    return [_micro_batches(groups, parts, len(parts), budget)",
        ("tests/unit/algorithms/test_minibatch.py",),
        "ranks make different numbers of passes",
    ),
    Fault(
        _OPTIMIZER,
        "        dist.all_reduce(total)\n",
        "",
        (f"{LAYOUTS[0]}::test_a_gradient_that_is_not_finite_on_one_stage_stops_all",),
        "the norm is that of a rank's share",
    ),
    Fault(
        _OPTIMIZER,
        "        finite = math.isfinite(norm)\n",
        "        finite = all(bool(share.grad.isfinite().all()) for share in self.shares)\n",
        (f"{LAYOUTS[0]}::test_a_gradient_that_is_not_finite_on_one_stage_stops_all",),
        "the stage whose gradient is not finite stops alone",
    ),
    Fault(
        "rlinf/hybrid_engines/train/megatron/layer_config.py",
        'elif getattr(hf, "attention_dropout", 0.0):',
        "elif False:",
        FAMILIES,
        "dropout is accepted, and drawn anew by each rank and when layers are recomputed",
    ),
    Fault(_OFFLOAD, "            storage.resize_(0)\n", "", HOST, "what is on the host is kept on the device, too"),
    Fault(
        _OFFLOAD,
        "            place.copy_(content)\n",
        "",
        HOST,
        "buffers come back without their content",
    ),
    Fault(
        _OPTIMIZER,
        "            chunk.start_param_sync(force_sync=True)\n",
        "            chunk.start_param_sync(force_sync=True)\n        self.take_weights()\n",
        MASTERS,
        "rounded weights become the masters",
    ),
    Fault(
        _STAGE,
        "own.eq(table.padding_idx).view(-1, 1, 1), hidden.detach(), hidden)",
        "own.eq(table.padding_idx).view(-1, 1, 1), hidden, hidden)",
        LAYOUTS,
        "the padding token's embedding is trained",
    ),
    Fault(
        _ENGINE,
        "results: list[torch.Tensor] = found[: len(micro_batches)]",
        "results: list[torch.Tensor] = found[: len(micro_batches)][::-1]",
        (f"{_UNIT}/test_megatron_text_learner.py",),
        "old log-probabilities are those of another micro-batch",
    ),
    Fault(
        "rlinf/models/language/packed_attention.py",
        "entries[tokens.flatten()[own]] = start + own",
        "entries[tokens.flatten()[own]] = own",
        ("tests/unit/models/language/test_packed_attention.py",),
        "all tokens take their attention from the longest sequences",
    ),
    Fault(
        "rlinf/models/language/packed_attention.py",
        "return functional.pad(attended, (0, 0, 0, 0, 0, padding)) if padding else attended",
        "return attended",
        ("tests/unit/models/language/test_token_plan.py",),
        "tokens that pad the pack are lost",
    ),
]

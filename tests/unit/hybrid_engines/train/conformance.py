"""What every training engine must do with a language model, in every layout: cases over ``make_engine``.

A subclass of ``EngineConformance`` names the layouts and the function that builds an engine on a rank; the cases are
numbered as in the contract's documentation. The yardstick is transformers with plain autograd and AdamW, in float64.
"""

from __future__ import annotations

import functools
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import psutil
import pytest
import torch

from rlinf.config.schema.model import CausalLMConfig
from rlinf.data.packing import PackedSequences, pack_responses, pack_sequences
from rlinf.errors import NumericalError, WeightSyncError
from rlinf.hybrid_engines.train.train_engine import Loss, Pass, TrainEngine
from rlinf.models.language.language_model import TokenEvaluation
from rlinf.placement.parallel import ParallelLayout
from tests.unit.hybrid_engines.train.rank_processes import outcomes, run_ranks

TEMPERATURE = 0.8
EPSILON = 1e-4
"""Of Adam, which divides gradients by their size: a smaller one shows the rounding errors of the tiniest."""
SEQUENCES = [[5, 6, 7, 8, 9, 10], [1, 2], [3, 4, 5, 6, 7, 8, 9, 11, 12, 33, 90], [2, 1, 30], [64], [7, 7, 7, 1, 127]]
PROMPT, RESPONSES = (9, 8, 7, 6), [(1, 2, 3), (4,), (5, 6)]
Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Setting:
    """How a rank builds its engine.

    Attributes:
        layout: Ranks.
        folder: Of the model, a Hugging Face checkpoint.
        sharded: Whether replicas are sharded.
        model: Further keys of ``actor.model``.
        optim: Keys of ``actor.optim``.
        engine: Further keys of the engine's own section.
    """

    layout: ParallelLayout
    folder: Path
    sharded: bool = False
    model: dict[str, Any] = field(default_factory=dict)
    optim: dict[str, Any] = field(default_factory=dict)
    engine: dict[str, Any] = field(default_factory=dict)


MakeEngine = Callable[[Setting, int], TrainEngine]


def model_config(setting: Setting) -> CausalLMConfig:
    """Return the ``actor.model`` section of a setting."""
    return CausalLMConfig(model_type="causal_lm", model_path=str(setting.folder), **setting.model)


def save_model(folder: Path, *, tied: bool, experts: bool = False, seed: int = 1) -> None:
    """Write a random model: Qwen2 (biases) untied, Qwen3 (norms of queries and keys) tied, or Qwen3-MoE untied."""
    import transformers

    torch.manual_seed(seed)
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2}
    sizes |= {"vocab_size": 129, "num_hidden_layers": 4, "tie_word_embeddings": tied}
    if experts:
        each = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": True}
        config: Any = transformers.Qwen3MoeConfig(**sizes, **each, head_dim=16)
        model = transformers.Qwen3MoeForCausalLM(config)
    elif tied:
        config = transformers.Qwen3Config(**sizes, head_dim=16)
        model = transformers.Qwen3ForCausalLM(config)
    else:
        model = transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**sizes))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.15)
    model.save_pretrained(folder)


def stored_weights(folder: Path) -> Tensors:
    """Return the weights of a model by the names under which they are exported, tied ones once."""
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tied = "lm_head.weight" if model.config.tie_word_embeddings else None
    return {name: tensor.clone() for name, tensor in model.state_dict().items() if name != tied}


@dataclass(frozen=True)
class Weighted:
    """A pack, with the weight of each token's log-probability in the loss; the losses of a batch add up."""

    packed: PackedSequences
    weights: torch.Tensor


def weights_of_tokens(ids: torch.Tensor) -> torch.Tensor:
    """Return weights that tell tokens apart, some of them zero."""
    return ((ids * 7 + torch.arange(len(ids)) * 3) % 11 - 4).double() / 5


def call(model: torch.nn.Module, batch: Weighted) -> TokenEvaluation:
    """Run the model, wherever it is."""
    device = next(model.parameters()).device
    result: TokenEvaluation = model(batch.packed.to(device), temperature=TEMPERATURE)
    return result


def scaled_loss(result: TokenEvaluation, batch: Weighted, scale: float) -> Loss:
    """Return the loss times ``scale``, which undoes that engines average over data-parallel ranks."""
    has_context = batch.packed.position_ids > 0
    weights = (batch.weights * has_context).to(result.logprobs)
    loss = -(weights * result.logprobs).sum() - 0.1 * (weights.abs() * result.entropy).sum()
    if result.values is not None:
        loss = loss + (weights.abs() * (result.values - 0.3).square()).sum()
    metrics = torch.stack([loss.detach().double(), weights.ne(0).sum().double()])
    return loss * scale, {"loss": metrics}


def loss_pass(world_size: int) -> Pass[Weighted, TokenEvaluation, Loss]:
    """Return the pass whose gradient, averaged over data-parallel ranks, is that of the sum of all losses."""
    return Pass(call, functools.partial(scaled_loss, scale=float(world_size)))


def tokens_of(result: TokenEvaluation, batch: Weighted) -> torch.Tensor:
    """Return [3, T] log-probabilities, entropies and values."""
    assert result.values is not None
    return torch.stack([result.logprobs, result.entropy, result.values]).detach().cpu()


LOGPROBS: Pass[Weighted, TokenEvaluation, torch.Tensor] = Pass(call, lambda result, batch: result.logprobs.detach())


def batches_of(groups: list[list[list[int]]]) -> list[Weighted]:
    """Return one pack for each group of sequences."""
    packs = [pack_sequences(group) for group in groups]
    return [
        Weighted(pack, torch.cat([weights_of_tokens(torch.tensor(s)) for s in group]))
        for pack, group in zip(packs, groups, strict=True)
    ]


def share_of(engine: TrainEngine, groups: list[list[list[int]]] | None = None) -> list[Weighted]:
    """Return a rank's micro-batches: groups are dealt out in turn, short ranks get padding that counts nowhere."""
    groups = groups if groups is not None else [[sequence] for sequence in SEQUENCES]
    per_rank = math.ceil(len(groups) / engine.world_size)
    mine = batches_of(groups[engine.rank :: engine.world_size])
    padding = [Weighted(batch.packed, torch.zeros_like(batch.weights)) for batch in batches_of(groups[:1])]
    return mine + padding * (per_rank - len(mine))


def prepared(make: MakeEngine, setting: Setting, rank: int) -> TrainEngine:
    """Return an engine whose value head is not zero."""
    engine = make(setting, rank)
    head = {"value_head.weight": torch.linspace(-0.2, 0.3, 64).unsqueeze(0), "value_head.bias": torch.tensor([0.1])}
    if setting.model.get("add_value_head"):
        engine.import_weights(head.items())
    return engine


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor unsharded, on the host."""
    full = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return full.detach().to("cpu", copy=True)


@functools.singledispatch
def parameters_of(engine: TrainEngine) -> Tensors:
    """Return all parameters, unsharded; engines whose modules have other names register their own."""
    return {name: whole(parameter) for name, parameter in engine.model.named_parameters()}


@functools.singledispatch
def gradients_of(engine: TrainEngine) -> Tensors:
    """Return the gradients of all parameters, unsharded; see ``parameters_of``."""
    return {name: whole(p.grad) for name, p in engine.model.named_parameters() if p.grad is not None}


# What ranks do.


def evaluate(rank: int, make: MakeEngine, setting: Setting) -> list[torch.Tensor]:
    engine = prepared(make, setting, rank)
    return engine.forward(batches_of([SEQUENCES]), Pass(call, tokens_of))


def differentiate(
    rank: int, make: MakeEngine, setting: Setting, groups: list[list[list[int]]] | None = None
) -> tuple[Tensors, list[float]]:
    engine = prepared(make, setting, rank)
    sums = engine.forward_backward(share_of(engine, groups), loss_pass(engine.world_size))
    return gradients_of(engine), engine.all_reduce(sums["loss"]).tolist()


def differentiate_shared(rank: int, make: MakeEngine, setting: Setting, share: bool) -> Tensors:
    engine = prepared(make, setting, rank)
    packed, is_response = pack_responses([PROMPT] * len(RESPONSES), RESPONSES, share_prompts=share)
    weights = torch.zeros(packed.num_tokens, dtype=torch.float64)
    weights[is_response] = torch.linspace(-1, 1, int(is_response.sum()), dtype=torch.float64)
    batch = Weighted(packed, weights if engine.rank == 0 else torch.zeros_like(weights))
    engine.forward_backward([batch], loss_pass(engine.world_size))
    return gradients_of(engine)


def train(engine: TrainEngine, steps: int) -> list[dict[str, float]]:
    """Make optimizer steps and return their reports."""
    reports = []
    for _ in range(steps):
        engine.forward_backward(share_of(engine), loss_pass(engine.world_size))
        reports.append(engine.step())
    return reports


def learn(
    rank: int,
    make: MakeEngine,
    setting: Setting,
    steps: int,
    load: Path | None = None,
    save: Path | None = None,
) -> tuple[Tensors, list[dict[str, float]]]:
    engine = make(setting, rank) if load else prepared(make, setting, rank)
    if load is not None:
        engine.load(load)
    reports = train(engine, steps)
    if save is not None:
        engine.save(save)
    return parameters_of(engine), reports


def export(rank: int, make: MakeEngine, setting: Setting) -> tuple[Tensors, list[Any], Tensors]:
    engine = make(setting, rank)
    exported = [(name, whole(tensor)) for name, tensor in engine.export_weights()]
    described = [(name, tensor.shape, tensor.dtype, tensor.is_meta) for name, tensor, _ in engine.describe_weights()]
    parts = [(name, torch.clone(tensor)) for name, tensor in engine.export_weights("parts")]
    train(engine, 1)
    engine.import_weights(parts)
    imported = {name: whole(tensor) for name, tensor in engine.export_weights()}
    return dict(exported), [described, [name for name, _ in exported]], imported


def export_owned(rank: int, make: MakeEngine, setting: Setting) -> tuple[Tensors, list[str], list[str]]:
    """Return what a process owns, and the names of what it and all own by the description."""
    engine = make(setting, rank)
    owned = {name: whole(tensor) for name, tensor in engine.export_weights(owned=True)}
    entries = list(engine.describe_weights())
    return owned, [entry.name for entry in entries if entry.owner == rank], [entry.name for entry in entries]


def publish_rounded(rank: int, make: MakeEngine, setting: Setting) -> list[bool]:
    """Return whether weights stay as they are, bit by bit, while others receive them in bf16."""
    engine = prepared(make, setting, rank)
    train(engine, 1)
    before = {name: tensor.clone() for name, tensor in engine.export_weights()}
    rounded = dict(engine.export_weights(dtype=torch.bfloat16))
    after = dict(engine.export_weights())
    return [
        all(torch.equal(before[name], tensor) for name, tensor in after.items()),
        all(torch.equal(before[name].bfloat16(), tensor) for name, tensor in rounded.items()),
        any(not torch.equal(before[name], tensor.float()) for name, tensor in rounded.items()),
    ]


def save_watched(rank: int, make: MakeEngine, setting: Setting, path: Path) -> list[str]:
    """Return what a save starts: processes, that is."""
    engine, started = make(setting, rank), []
    train(engine, 1)

    def watch(event: str, _: tuple[Any, ...]) -> None:
        if event in {"os.fork", "os.forkpty", "os.posix_spawn", "subprocess.Popen", "os.spawn"}:
            started.append(event)

    sys.addaudithook(watch)
    engine.save(path, in_background=True)
    engine.finish_save()
    return [*started, *(child.name() for child in psutil.Process().children())]


def remember(rank: int, make: MakeEngine, setting: Setting) -> list[bool]:
    engine = prepared(make, setting, rank)
    batches = batches_of([SEQUENCES])
    (start,) = engine.forward(batches, LOGPROBS)
    engine.remember("start")
    engine.offload()
    engine.onload()
    engine.forward_backward(share_of(engine), loss_pass(engine.world_size))
    engine.offload()
    engine.onload()
    engine.step()
    before = parameters_of(engine)
    (present,) = engine.forward(batches, LOGPROBS)
    with engine.weights_of("start"):
        (again,) = engine.forward(batches, LOGPROBS)
    after = parameters_of(engine)
    return [
        torch.equal(start, again),
        not torch.equal(start, present),
        torch.equal(engine.forward(batches, LOGPROBS)[0], present),
        all(torch.equal(before[name], after[name]) for name in before),
    ]


def break_gradient(rank: int, make: MakeEngine, setting: Setting, broken_rank: int) -> bool:
    engine = prepared(make, setting, rank)
    before = parameters_of(engine)
    share = share_of(engine)
    if engine.rank == broken_rank:
        share[0].weights[-1] = math.nan
    engine.forward_backward(share, loss_pass(engine.world_size))
    try:
        engine.step()
    except NumericalError:
        return all(torch.equal(before[name], tensor) for name, tensor in parameters_of(engine).items())
    return False


def import_wrong(rank: int, make: MakeEngine, setting: Setting) -> list[str]:
    engine, found = prepared(make, setting, rank), []
    for name, tensor in (("model.nrm.weight", torch.ones(64)), ("model.norm.weight", torch.ones(8))):
        try:
            engine.import_weights([(name, tensor)])
        except WeightSyncError as error:
            found.append(str(error))
    return found


def die(rank: int, make: MakeEngine, setting: Setting, dying_rank: int) -> None:
    engine = prepared(make, setting, rank)
    if rank == dying_rank:
        os._exit(1)
    train(engine, 1)


def hold_attributes(rank: int, make: MakeEngine, setting: Setting) -> tuple[int, int, bool, ParallelLayout]:
    engine = make(setting, rank)
    return engine.rank, engine.world_size, engine.is_main, engine.layout


# The yardstick.


@dataclass(frozen=True)
class Reference:
    """What transformers computes in float64."""

    tokens: torch.Tensor
    gradients: Tensors
    metrics: list[float]


@functools.cache
def reference(folder: Path) -> Reference:
    """Return log-probabilities, entropies and values [3, T] of ``SEQUENCES``, and the gradient of their loss."""
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float64, experts_implementation="eager"
    )
    head = torch.nn.Linear(64, 1).double()
    with torch.no_grad():
        head.weight.copy_(torch.linspace(-0.2, 0.3, 64).unsqueeze(0))
        head.bias.fill_(0.1)
    columns, losses = [], []
    for sequence in SEQUENCES:
        ids = torch.tensor([sequence])
        output = model(ids, output_hidden_states=True)
        log_softmax = (output.logits[0, :-1] / TEMPERATURE).log_softmax(-1)
        logprobs = log_softmax.gather(-1, ids[0, 1:].unsqueeze(-1)).squeeze(-1)
        entropy = -(log_softmax.exp() * log_softmax).sum(-1)
        values = head(output.hidden_states[-1][0, :-1]).squeeze(-1)
        evaluated = torch.stack([logprobs, entropy, values])
        columns.append(torch.cat([torch.zeros(3, 1, dtype=torch.float64), evaluated], dim=1))
        result = TokenEvaluation(*columns[-1])
        losses.append(scaled_loss(result, *batches_of([[sequence]]), scale=1.0))
    torch.stack([loss for loss, _ in losses]).sum().backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    gradients |= {f"value_head.{name}": p.grad for name, p in head.named_parameters() if p.grad is not None}
    metrics = torch.stack([metrics["loss"] for _, metrics in losses]).sum(0)
    return Reference(torch.cat(columns, dim=1).detach(), gradients, metrics.tolist())


def assert_close(found: Tensors, expected: Tensors, tolerance: float) -> None:
    """Compare tensors by name, relative to the largest entry of each."""
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        error = (found[name].double() - tensor.double()).abs().max() / tensor.abs().max().clamp(min=1e-9)
        assert error < tolerance, (name, float(error))


def assert_same(found: Tensors, expected: Tensors) -> None:
    """Compare tensors by name, bit by bit."""
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


class EngineConformance:
    """The cases; a subclass sets ``make`` and ``settings``."""

    make: ClassVar[MakeEngine]
    settings: ClassVar[dict[str, dict[str, Any]]]
    """Keys of ``Setting`` by the name of a layout; the first is the plainest."""
    models: ClassVar[tuple[str, ...]] = ("untied", "tied")
    """What is trained; cases that need one take the last."""

    @pytest.fixture(scope="class")
    @classmethod
    def folders(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """Return where the models are."""
        folder = tmp_path_factory.mktemp("models")
        for name in cls.models:
            save_model(folder / name, tied=name == "tied", experts=name == "experts")
        return folder

    def ranks(self, setting: Setting, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Run a function on the ranks of a setting."""
        return run_ranks(setting.layout.world_size, function, type(self).make, setting, *arguments)

    def all_settings(self, folder: Path, **keys: Any) -> Iterator[tuple[str, Setting]]:
        """Yield the settings of a model."""
        for name, setting in self.settings.items():
            yield name, Setting(folder=folder, **setting, **keys)

    def test_c1_tokens_are_those_of_transformers(self, folders: Path) -> None:
        for model in self.models:
            expected = reference(folders / model).tokens
            for name, setting in self.all_settings(folders / model, model={"add_value_head": True}):
                for (found,) in self.ranks(setting, evaluate):
                    assert (found - expected).abs().max() < 5e-6, (model, name)

    def test_c2_and_c12_gradients_and_metrics_are_those_of_all_losses(self, folders: Path) -> None:
        for model in self.models:
            expected = reference(folders / model)
            for name, setting in self.all_settings(folders / model, model={"add_value_head": True}):
                for gradients, metrics in self.ranks(setting, differentiate):
                    assert_close(gradients, expected.gradients, 1e-5)
                    assert metrics == pytest.approx(expected.metrics, rel=1e-5), (model, name)

    def test_c3_gradients_do_not_depend_on_micro_batches_or_their_order(self, folders: Path) -> None:
        expected = reference(folders / self.models[0]).gradients
        cuts = [[SEQUENCES], [SEQUENCES[:2], SEQUENCES[2:]], [[s] for s in reversed(SEQUENCES)]]
        for _, setting in self.all_settings(folders / self.models[0], model={"add_value_head": True}):
            for groups in cuts:
                gradients, _ = self.ranks(setting, differentiate, groups)[0]
                assert_close(gradients, expected, 1e-5)

    def test_c3_shared_prompts_have_the_gradient_of_repeated_ones(self, folders: Path) -> None:
        for _, setting in self.all_settings(folders / self.models[0]):
            one, other = (self.ranks(setting, differentiate_shared, share)[0] for share in (True, False))
            assert_close(one, other, 1e-5)

    def test_c4_steps_with_two_rates_and_a_warm_up_are_the_same_in_every_layout(self, folders: Path) -> None:
        optim = {"lr": 1e-2, "value_lr": 3e-2, "critic_warmup_steps": 1, "clip_grad": 5.0, "adam_eps": EPSILON}
        results = {}
        for name, setting in self.all_settings(folders / self.models[-1], model={"add_value_head": True}, optim=optim):
            results[name] = self.ranks(setting, learn, 3)
        weights, reports = next(iter(results.values()))[0]
        assert [report["lr"] for report in reports] == [0.0, 1e-2, 1e-2]
        for ranks in results.values():
            for found, steps in ranks:
                assert_close(found, weights, 1e-5)
                for one, other in zip(steps, reports, strict=True):
                    assert one == pytest.approx(other, rel=1e-4)

    def test_c6_a_loaded_engine_goes_on_bit_for_bit(self, folders: Path, tmp_path: Path) -> None:
        for name, setting in self.all_settings(
            folders / self.models[-1], model={"add_value_head": True}, optim={"lr": 1e-2}
        ):
            self.ranks(setting, learn, 2, None, tmp_path / name)
            expected = self.ranks(setting, learn, 4)
            for (found, steps), (weights, reports) in zip(
                self.ranks(setting, learn, 2, tmp_path / name), expected, strict=True
            ):
                assert_same(found, weights)
                assert steps == reports[2:]

    def test_c7_a_checkpoint_of_one_layout_goes_on_in_another(self, folders: Path, tmp_path: Path) -> None:
        optim = {"lr": 1e-3, "adam_eps": EPSILON}
        settings = dict(self.all_settings(folders / self.models[-1], model={"add_value_head": True}, optim=optim))
        for name, setting in settings.items():
            self.ranks(setting, learn, 1, None, tmp_path / name)
        expected, _ = self.ranks(next(iter(settings.values())), learn, 3)[0]
        for saved in settings:
            for name, setting in settings.items():
                if name != saved:
                    found, _ = self.ranks(setting, learn, 2, tmp_path / saved)[0]
                    assert_close(found, expected, 1e-5)

    def test_c8_and_c9_exported_is_what_was_loaded_described_and_imported(self, folders: Path) -> None:
        for model in self.models:
            stored = stored_weights(folders / model)
            for name, setting in self.all_settings(folders / model):
                for exported, (described, names), imported in self.ranks(setting, export):
                    assert_same(exported, stored)
                    assert_same(imported, stored)
                    assert len(names) == len(set(names)), (model, name)
                    assert [row[0] for row in described] == names
                    for entry, shape, dtype, is_meta in described:
                        assert (shape, dtype, is_meta) == (exported[entry].shape, exported[entry].dtype, True)

    def test_c8_every_tensor_has_one_owner(self, folders: Path) -> None:
        stored = stored_weights(folders / self.models[-1])
        for name, setting in self.all_settings(folders / self.models[-1]):
            ranks = self.ranks(setting, export_owned)
            assert sum(len(owned) for owned, _, _ in ranks) == len(stored), name
            assert_same({name: tensor for owned, _, _ in ranks for name, tensor in owned.items()}, stored)
            for owned, own_names, names in ranks:
                assert list(owned) == own_names
                assert names == ranks[0][2]

    def test_c8_rounding_for_receivers_changes_no_weight(self, folders: Path) -> None:
        for name, setting in self.all_settings(folders / self.models[-1], optim={"lr": 1e-2}):
            for checks in self.ranks(setting, publish_rounded):
                assert checks == [True, True, True], name

    def test_c6_a_save_starts_no_process(self, folders: Path, tmp_path: Path) -> None:
        name, setting = next(self.all_settings(folders / self.models[-1]))
        for started in self.ranks(setting, save_watched, tmp_path / name):
            assert started == []

    def test_c10_remembered_weights_and_offloading_change_no_bit(self, folders: Path) -> None:
        for name, setting in self.all_settings(folders / self.models[-1], optim={"lr": 1e-2}):
            for checks in self.ranks(setting, remember):
                assert all(checks), (name, checks)

    def test_c11_a_gradient_that_is_not_finite_stops_all_ranks_alike(self, folders: Path) -> None:
        for name, setting in self.all_settings(folders / self.models[-1]):
            for broken in range(setting.layout.data):
                assert all(self.ranks(setting, break_gradient, broken)), (name, broken)

    def test_c11_weights_of_another_model_are_refused_on_all_ranks(self, folders: Path) -> None:
        for _, setting in self.all_settings(folders / self.models[-1]):
            for messages in self.ranks(setting, import_wrong):
                assert len(messages) == 2
                assert "no such weight" in messages[0]
                assert "shape (64,)" in messages[1]

    def test_c11_a_rank_that_dies_ends_the_others(self, folders: Path) -> None:
        for name, setting in self.all_settings(folders / self.models[-1]):
            ranks = setting.layout.world_size
            if ranks == 1:
                continue
            started = time.monotonic()
            results = outcomes(ranks, die, type(self).make, setting, ranks - 1)
            assert [is_ok for is_ok, _ in results] == [False] * ranks, name
            assert results[-1][1] == "died"
            assert time.monotonic() - started < 150

    def test_exactly_one_rank_is_the_main_one(self, folders: Path) -> None:
        for _, setting in self.all_settings(folders / self.models[-1]):
            found = self.ranks(setting, hold_attributes)
            assert sum(is_main for _, _, is_main, _ in found) == 1
            for number, (rank, world_size, _, layout) in enumerate(found):
                assert layout == setting.layout
                assert (rank, world_size) == (layout.seat(number).data, layout.data)

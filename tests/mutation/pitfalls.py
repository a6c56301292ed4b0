"""What goes wrong in engines that spread models over ranks, and the planted faults that stand for it.

Most of it was seen in published systems. ``bash tests/run_tests.sh --mutation AREA`` plants the rows of an area; a test
looks whether each one named here is still in the table.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pitfall:
    """A mistake that is easily made.

    Attributes:
        what: The mistake in a few words.
        faults: Rows that make it, each as ``area: what``; see ``Fault``.
    """

    what: str
    faults: tuple[str, ...]


PITFALLS: list[Pitfall] = [
    Pitfall(
        "After a load all parameters share one step tensor, and each update counts many times.",
        ("megatron: parameters share one count of updates after loading", "megatron: step is lost"),
    ),
    Pitfall(
        "Moments are dropped silently on load.",
        (
            "megatron: moments are dropped on load",
            "train_engine: the optimizer's state is not restored",
            "train_engine: what a checkpoint lacks, moments for example, stays as it is",
        ),
    ),
    Pitfall(
        "Expert parallelism renames the optimizer's state, so another layout cannot load it.",
        ("megatron: moments have other names where ranks share experts",),
    ),
    Pitfall(
        "The checkpoint writer starts processes, which hang or outlive the run.",
        ("train_engine: a save starts a process",),
    ),
    Pitfall(
        "Rows of fused query, key and value or gate and up matrices are interleaved wrongly.",
        (
            "megatron: values lie before queries",
            "megatron: up rows of an expert are gate rows",
            "megatron: fewer key and value heads than tensor ranks are accepted",
        ),
    ),
    Pitfall(
        "Padding rows of the vocabulary leak into probabilities, exports or checkpoints.",
        (
            "megatron: padding rows of the vocabulary belong to the tensor",
            "megatron: padding of the vocabulary has a probability",
        ),
    ),
    Pitfall(
        "A schedule divides the loss by the micro-batches and multiplies it by the context ranks.",
        ("megatron: a mean of losses", "megatron: losses count once for each context rank"),
    ),
    Pitfall(
        "Gradients of norms are not summed over tensor ranks that share tokens.",
        ("megatron: gradients of norms are not summed under sequence parallelism",),
    ),
    Pitfall(
        "Two copies of tied embeddings drift apart over stages.",
        (
            "megatron: gradients of tied embeddings are not added over stages",
            "megatron: both copies of tied embeddings count in the norm",
        ),
    ),
    Pitfall(
        "Context ranks lose tokens of sequences that are short or that they do not divide.",
        ("megatron: tokens of sequences that context ranks do not divide are lost",),
    ),
    Pitfall(
        "A pack is taken for one long sequence.",
        (
            "megatron: attention takes the pack for one sequence",
            "megatron: context ranks take the pack for one sequence",
        ),
    ),
    Pitfall(
        "Two stages of the interleaved schedule exchange the shapes of packs in different order.",
        ("megatron: stages of the interleaved schedule exchange shapes in different order",),
    ),
    Pitfall(
        "The number of micro-batches is not a multiple of the stages.",
        (
            "megatron: the interleaved schedule gets any number of micro-batches",
            "megatron: padding of the interleaved schedule has a gradient",
        ),
    ),
    Pitfall(
        "Ranks that share experts make different numbers of passes.",
        ("megatron: ranks make different numbers of passes",),
    ),
    Pitfall(
        "Metrics and errors are known on the last stage alone.",
        (
            "megatron: metrics stay on the last stage",
            "megatron: the norm is that of a rank's share",
            "megatron: the stage whose gradient is not finite stops alone",
        ),
    ),
    Pitfall(
        "Operations and parameters of a stage are reported as the model's.",
        ("megatron: parameters of a stage are taken for the model's",),
    ),
    Pitfall(
        "Dropout differs over tensor ranks, or is drawn anew when layers are recomputed.",
        ("megatron: dropout is accepted, and drawn anew by each rank and when layers are recomputed",),
    ),
    Pitfall(
        "Offloading keeps buffers alive through views, or loses what views look at.",
        (
            "megatron: what is on the host is kept on the device, too",
            "megatron: buffers come back without their content",
        ),
    ),
    Pitfall(
        "Replayed routes belong to another layer, token, stage or micro-batch.",
        (
            "experts: a recomputed layer takes the routes of the last micro-batch",
            "experts: all layers take the routes of the first",
            "experts: layers are counted within a share of a stage",
            "experts: routers keep the routes of the first micro-batch",
            "experts: all tensor ranks take the routes of the first one's tokens",
        ),
    ),
    Pitfall(
        "The balance loss depends on packing.",
        ("experts: loads are counted in each micro-batch: the balance loss depends on packing",),
    ),
    Pitfall(
        "Memory of received weights is used again while an engine still reads it.",
        (
            "engines: memory is used again while parameters lie in it",
            "engines: parameters are views of memory that is used again",
        ),
    ),
    Pitfall(
        "Fused experts that arrive in parts or in small buckets are garbled.",
        ("engines: of a bucket with several tensors one is loaded", "rollout: every bucket is loaded as the first"),
    ),
    Pitfall(
        "A patch is applied to another version than it was made of, or misses changes of bits.",
        (
            "rollout: patches of an update that was missed are accepted",
            "engines: numbers are compared, not bits",
            "engines: a patch is applied to weights that are in use",
        ),
    ),
    Pitfall(
        "Weights that were rounded for engines become the masters.",
        (
            "train_engine: weights that are published in a lower precision are rounded themselves",
            "megatron: rounded weights become the masters",
        ),
    ),
]

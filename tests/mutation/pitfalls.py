"""What goes wrong in engines that spread models over ranks, and in agents, and the planted faults that stand for it.

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


MODEL_PARALLEL: list[Pitfall] = [
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


AGENTS: list[Pitfall] = [
    Pitfall(
        "The text of a turn is encoded again, into other tokens than were sampled.",
        (
            "agents_chat: the text of a turn is encoded again",
            "agents: a prompt that was encoded again is sampled from",
            "agents: drift is taken for another history",
        ),
    ),
    Pitfall(
        "The close of a turn is missing or doubled.",
        (
            "agents_chat: a turn that ended by itself is closed twice",
            "agents: the close of a turn is doubled",
            "agents_pitfalls: a turn that was cut off is not closed",
            "agents_pitfalls: a turn of a program that was cut off is not closed",
        ),
    ),
    Pitfall(
        "The template leaves out thoughts of earlier turns: training sees another context than sampling did.",
        (
            "agents_pitfalls: the template renders earlier turns again, without their thoughts",
            "agents: a context holds the tokens behind a fork",
            "agents_chat: a template whose tail depends on the turn passes the check",
        ),
    ),
    Pitfall(
        "Tokens of tools are trained on, or fillers of tokens that were not sampled are read.",
        (
            "agents: tokens of tools are trained on",
            "agents: tokens that were not sampled have a version",
            "algorithms_losses: what is not finite outside the mask spoils a sum",
            "algorithms_losses: entries outside the mask are not cleared",
        ),
    ),
    Pitfall(
        "A client writes the history anew.",
        (
            "agents: arguments in another order are another history",
            "agents: a client that repeats the stop string leaves the turn",
            "agents: a client that leaves out what was said beside a call leaves the turn",
            "agents: a history with other calls continues the turn",
        ),
    ),
    Pitfall(
        "A call that cannot be read ends the episode.",
        (
            "agents_chat: a call that is nested deeply ends the episode",
            "agents_chat: a closing tag within a string ends a call",
            "agents: arguments are not checked",
            "agents_pitfalls: a list in place of a call ends the episode",
        ),
    ),
    Pitfall(
        "A tool hangs or blocks, or what it raises ends the episode.",
        (
            "agents_pitfalls: what a tool raises ends the episode",
            "agents_pitfalls: a coroutine that exits ends what plays episodes",
            "agents_pitfalls: a tool that has blocked once is never called again",
            "agents: a result of 100 megabytes is handed on",
            "agents: an episode that is over goes on",
            "agents: what a program has started outlives it",
        ),
    ),
    Pitfall(
        "A request that a client sends again is sampled twice, and both are trained on.",
        (
            "agents: a request that is sent again is sampled again",
            "agents: a request that is meant twice is sampled once",
            "agents: a completion that no client was sent is trained on",
            "agents: a turn that no client has read is trained on",
        ),
    ),
    Pitfall(
        "Baselines and optimizer steps count turns or branches in place of episodes.",
        (
            "agents: branches count as episodes of minibatches",
            "agents: means count branches instead of episodes",
            "agents_credit: each turn of a main agent is a unit: baselines count turns",
            "agents_credit: an episode takes an optimizer step for each of its branches",
        ),
    ),
    Pitfall(
        "A failure of a service counts as a reward of 0.",
        (
            "agents: a service that is away is the model's fault",
            "agents: a search service that is away is the model's fault",
            "agents_search: the death of a server is the model's fault",
            "agents_search: an engine that fails in a sub-agent is text for the model",
            "agents: a workflow that does not judge gives 0",
            "agents: an episode goes on without its engine",
            "agents_pitfalls: a workflow that fails counts as an episode that was cut off",
        ),
    ),
    Pitfall(
        "Long episodes are left out, or staleness is that of the last token.",
        (
            "agents_pitfalls: a step trains on what is played fastest",
            "agents: the oldest version is that of tokens that were not sampled",
            "responses: the first token's version is taken for the oldest",
            "agents_sessions: max_token_age has no effect",
        ),
    ),
    Pitfall(
        "The text of a tool forges special tokens.",
        (
            "agents_chat: text of tools forges special tokens",
            "agents_search: what a search finds may hold special tokens",
        ),
    ),
    Pitfall(
        "Turns go on with caches of older weights, or with an engine that has not got any.",
        (
            "engines: responses go on with the key-value cache of older weights",
            "engines: tokens carry the version of the next weights",
            "agents: an episode that is submitted again is played twice",
        ),
    ),
    Pitfall(
        "Placeholders of images are not as many as their features, or positions are wrong in packs.",
        (
            "images: a placeholder without an image is taken",
            "images: the engine takes prompts that were not expanded",
            "images: text goes on behind an image as if it were text",
            "images: prompts with other images share their tokens",
            "images: every image shows the first one's features",
        ),
    ),
    Pitfall(
        "Requests run over one engine or leave their prefix, and trajectories hold memory turn by turn.",
        (
            "agents: requests leave the engine that has their prefix",
            "agents: loads that go up and down by chance move turns off their prefix",
            "agents: requests stay on an engine that is run over",
            "agents: every turn keeps the memory of its whole prompt",
        ),
    ),
]

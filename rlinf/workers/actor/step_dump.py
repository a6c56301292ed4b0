"""What a train step starts from, as files: the learner's state and the batch, so that the step can be made again."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from rlinf.checkpoint.tree_file import load_tree, save_tree
from rlinf.data.datasets.examples import Example
from rlinf.data.messages.embodied import Trajectory
from rlinf.data.messages.responses import Response, ResponseBatch
from rlinf.errors import CheckpointError

STATE_FOLDER = "actor"
_BATCH_FILE = "batch_{rank:05d}.safetensors"


@dataclasses.dataclass(frozen=True, slots=True)
class DumpedStep:
    """A step's batch.

    Attributes:
        batch: What ``Learner.compute_advantages`` takes, of all ranks together.
        version: Version of the weights that the step starts from.
        num_threads: Threads of torch that computed it: the order of sums depends on them.
    """

    batch: Any
    version: int
    num_threads: int


def write_batch(folder: Path, batch: Any, *, version: int, rank: int) -> None:
    """Write one rank's batch.

    Args:
        folder: Of the step.
        batch: A ``Trajectory``, which is this rank's share; or what all ranks have alike, a ``ResponseBatch`` or
            examples, which rank 0 writes.
        version: Of the weights that the step starts from.
        rank: Of the actor.

    Raises:
        CheckpointError: A batch of another kind.
    """
    if rank and not isinstance(batch, Trajectory):
        return
    if isinstance(batch, Trajectory):
        kind, tree = "trajectory", _fields(batch)
    elif isinstance(batch, ResponseBatch):
        kind, tree = "responses", _fields(batch) | {"responses": [_fields(each) for each in batch.responses]}
        tree["images"] = [[_as_tensor(image) for image in own] for own in batch.images]
    elif isinstance(batch, Sequence) and all(isinstance(each, Example) for each in batch):
        kind, tree = "examples", {"examples": [_fields(each) for each in batch]}
    else:
        raise CheckpointError(
            f"runner.dump_steps: a batch of type {type(batch).__name__} cannot be written; remove the key."
        )
    about = {"kind": kind, "version": version, "num_threads": torch.get_num_threads()}
    save_tree(folder / _BATCH_FILE.format(rank=rank), about | {"batch": tree})


def read_step(folder: Path) -> DumpedStep:
    """Read the batch of all ranks.

    Args:
        folder: Of the step.

    Raises:
        CheckpointError: The folder holds no batch, or one that cannot be read.
    """
    files = sorted(folder.glob(_BATCH_FILE.replace("{rank:05d}", "*")))
    if not files:
        raise CheckpointError(f"{folder} holds no batch: runner.dump_steps did not name the step, or it was not made.")
    trees = [load_tree(path) for path in files]
    first = trees[0]
    return DumpedStep(_join(first["kind"], [tree["batch"] for tree in trees]), first["version"], first["num_threads"])


def _as_tensor(image: bytes) -> torch.Tensor:
    """Return a file's bytes, uint8 [bytes]."""
    return torch.frombuffer(bytearray(image), dtype=torch.uint8)


def _join(kind: str, trees: list[dict[str, Any]]) -> Any:
    if kind == "trajectory":
        return Trajectory.concat([Trajectory(**tree) for tree in trees])
    (tree,) = trees
    if kind == "responses":
        responses = tuple(_response(each) for each in tree["responses"])
        prompt_ids = tuple(tuple(ids) for ids in tree["prompt_ids"])
        # A file of an older version has none.
        images = tuple(tuple(image.numpy().tobytes() for image in own) for own in tree.get("images", ()))
        return ResponseBatch(**tree | {"responses": responses, "prompt_ids": prompt_ids, "images": images})
    return [Example(**{name: tuple(column) for name, column in each.items()}) for each in tree["examples"]]


def _response(fields: dict[str, Any]) -> Response:
    # A file knows lists alone; one of an older version does not have all fields.
    branches = {"branch_lengths": tuple(fields.get("branch_lengths", ()))}
    spans = {"turn_spans": tuple((start, stop) for start, stop in fields.get("turn_spans", ()))}
    turns = {name: tuple(fields.get(name, ())) for name in ("turn_agents", "turn_rewards")}
    return Response(**fields | branches | spans | turns)


def _fields(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}

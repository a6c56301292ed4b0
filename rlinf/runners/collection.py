"""Makes one data set of the episodes that env workers have collected, each its own part."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rlinf.checkpoint import checkpoint_step
from rlinf.config.schema.env import DataCollectionConfig, EnvConfig
from rlinf.config.schema.root import EmbodiedConfig
from rlinf.data.datasets.lerobot import LeRobotDataset, merge_datasets
from rlinf.envs.episode_collector import PART_PREFIX, part_step, writer_options
from rlinf.errors import DatasetError
from rlinf.runners.output_paths import find_checkpoint, with_dataset_folder, with_run_paths
from rlinf.utils.files import rename_durably
from rlinf.utils.logging import get_logger

_STEPS_FILE = "meta/rlinf_steps.json"
"""Up to which training step a published data set goes."""
_BEFORE = f"{PART_PREFIX}before"


def prepare_episodes(cfg: EmbodiedConfig, stack: ExitStack) -> tuple[EmbodiedConfig, dict[str, object]]:
    """Fill in the folders that an embodied recipe leaves to the run; see ``TaskType.data``.

    Args:
        cfg: The recipe.
        stack: Publishes the collected episodes when it closes.
    """
    cfg = stack.enter_context(training_episodes(with_run_paths(cfg)))
    return stack.enter_context(collected_episodes(cfg)), {}


@contextmanager
def collected_episodes(cfg: EmbodiedConfig) -> Iterator[EmbodiedConfig]:
    """Publish ``env.eval.data_collection.save_dir`` at the end of the block, where episodes are collected in it.

    Args:
        cfg: The recipe; ``save_dir`` is set.

    Yields:
        The recipe for the workers, whose parts go to a folder next to ``save_dir``.

    Raises:
        DatasetError: ``save_dir`` exists, or no episode was kept.
    """
    if cfg.env.eval is None or not cfg.env.eval.data_collection.enabled:
        yield cfg
        return
    collection = cfg.env.eval.data_collection
    root, parts = _folders(collection)
    if root.exists():
        raise DatasetError(f"'{root}' exists; move it away, or set env.eval.data_collection.save_dir.")
    shutil.rmtree(parts, ignore_errors=True)
    try:
        yield dataclasses.replace(cfg, env=dataclasses.replace(cfg.env, eval=with_dataset_folder(cfg.env.eval, parts)))
        if not _publish(parts, root, cfg.env.eval):
            raise DatasetError(
                "No episode was kept. Set env.eval.rollout_epoch higher, or "
                "env.eval.data_collection.only_success=false."
            )
    finally:
        shutil.rmtree(parts, ignore_errors=True)


@contextmanager
def training_episodes(cfg: EmbodiedConfig) -> Iterator[EmbodiedConfig]:
    """Publish ``env.train.data_collection.save_dir`` at the end of training, where its episodes are collected.

    A run that is killed leaves the parts of its steps next to ``save_dir``. One that continues it keeps those up to its
    checkpoint, and those of a data set that was published after fewer steps.

    Args:
        cfg: The recipe; ``save_dir`` is set.

    Yields:
        The recipe for the workers, whose parts go to a folder next to ``save_dir``.

    Raises:
        DatasetError: ``save_dir`` exists, and is not of the steps that the run continues from.
    """
    if not cfg.env.train.data_collection.enabled:
        yield cfg
        return
    collection = cfg.env.train.data_collection
    root, parts = _folders(collection)
    checkpoint = find_checkpoint(cfg)
    step = 0 if checkpoint is None else checkpoint_step(checkpoint)
    if root.exists():
        last_step = _last_step(root)
        if last_step is None or not 0 < last_step <= step:
            raise DatasetError(
                f"'{root}' exists, and holds episodes that training from step {step} would make again. Move it away, "
                "or set env.train.data_collection.save_dir."
            )
        shutil.rmtree(parts, ignore_errors=True)
        parts.mkdir(parents=True)
        rename_durably(root, parts / f"{_BEFORE}_step_{last_step:06d}")
    for part in parts.glob("*"):
        if checkpoint is None or not part.name.startswith(PART_PREFIX) or part_step(part) > step:
            shutil.rmtree(part)
    yield dataclasses.replace(cfg, env=dataclasses.replace(cfg.env, train=with_dataset_folder(cfg.env.train, parts)))
    last_step = max(map(part_step, parts.glob(f"{PART_PREFIX}*")), default=0)
    if not _publish(parts, root, cfg.env.train, last_step=last_step):
        get_logger(__name__).warning(
            "env.train.data_collection: no episode has ended%s; there is no data set.",
            " in success" if collection.only_success else ""
        )  # fmt: skip
    shutil.rmtree(parts, ignore_errors=True)


def _folders(collection: DataCollectionConfig) -> tuple[Path, Path]:
    """Return the data set's folder, and the one of its parts."""
    root = Path(str(collection.save_dir)).absolute()
    return root, root.with_name(f".{root.name}_parts")


def _last_step(root: Path) -> int | None:
    """Return up to which training step a published data set goes; None if it is not of a training."""
    path = root / _STEPS_FILE
    return int(json.loads(path.read_text(encoding="utf-8"))["last_step"]) if path.is_file() else None


def _publish(folder: Path, root: Path, env: EnvConfig, *, last_step: int | None = None) -> bool:
    """Join the parts in ``folder``, the earlier steps before the later; return whether there are any."""
    parts = sorted(folder.glob(f"{PART_PREFIX}*"), key=lambda part: (part_step(part), part.name))
    if not parts:
        return False
    joined = parts[0]
    if len(parts) > 1:
        joined = folder / "joined"
        shutil.rmtree(joined, ignore_errors=True)
        merge_datasets(parts, joined, writer_options(env))
    if last_step is not None:
        (joined / _STEPS_FILE).write_text(json.dumps({"last_step": last_step}), encoding="utf-8")
    rename_durably(joined, root)
    dataset = LeRobotDataset(root)
    get_logger(__name__).info("%d episodes, %d frames: %s", dataset.num_episodes, dataset.num_frames, root)
    return True

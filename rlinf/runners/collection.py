"""Makes one data set of the episodes that env workers have collected, each its own part."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rlinf.config.schema.env import EnvConfig
from rlinf.config.schema.root import EmbodiedConfig
from rlinf.data.datasets.lerobot import LeRobotDataset, merge_datasets
from rlinf.envs.episode_collector import PART_PREFIX, writer_options
from rlinf.errors import DatasetError
from rlinf.runners.output_paths import with_run_paths
from rlinf.utils.files import rename_durably
from rlinf.utils.logging import get_logger


def prepare_episodes(cfg: EmbodiedConfig, stack: ExitStack) -> tuple[EmbodiedConfig, dict[str, object]]:
    """Fill in the folders that an embodied recipe leaves to the run; see ``TaskType.data``.

    Args:
        cfg: The recipe.
        stack: Publishes the collected episodes when it closes.
    """
    return stack.enter_context(collected_episodes(with_run_paths(cfg))), {}


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
    root = Path(str(collection.save_dir)).absolute()
    if root.exists():
        raise DatasetError(f"'{root}' exists; move it away, or set env.eval.data_collection.save_dir.")
    parts = root.with_name(f".{root.name}_parts")
    shutil.rmtree(parts, ignore_errors=True)
    evaluation = dataclasses.replace(cfg.env.eval, data_collection=dataclasses.replace(collection, save_dir=str(parts)))
    try:
        yield dataclasses.replace(cfg, env=dataclasses.replace(cfg.env, eval=evaluation))
        _publish(sorted(parts.glob(f"{PART_PREFIX}*")), root, cfg.env.eval)
    finally:
        shutil.rmtree(parts, ignore_errors=True)
    dataset = LeRobotDataset(root)
    get_logger(__name__).info("%d episodes, %d frames: %s", dataset.num_episodes, dataset.num_frames, root)


def _publish(parts: list[Path], root: Path, env: EnvConfig) -> None:
    if not parts:
        raise DatasetError(
            "No episode was kept. Set env.eval.rollout_epoch higher, or env.eval.data_collection.only_success=false."
        )
    if len(parts) == 1:
        rename_durably(parts[0], root)
    else:
        merge_datasets(parts, root, writer_options(env))

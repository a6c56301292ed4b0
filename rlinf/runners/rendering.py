"""Whether a policy sees images that are rendered as those that it learned from; imports neither torch nor Ray."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlinf.config.schema.data import LeRobotDataConfig
from rlinf.config.schema.env import MODEL_POLICIES, EnvConfig
from rlinf.config.schema.root import EmbodiedConfig
from rlinf.config.schema.vla import VLAConfig
from rlinf.data.datasets.lerobot.format import Info
from rlinf.errors import ConfigError, DatasetError

RENDERING_FILE = "rendering.json"
"""In a policy's folder: how the images of its demonstrations were rendered, as ``meta/info.json`` of the data set says;
``toolkits/vla/write_statistics.py`` writes it, and exported policies keep it."""


def rendering_differences(cfg: EmbodiedConfig) -> Iterator[ConfigError]:
    """Yield an error for each key by which environments render otherwise than a policy's demonstrations were.

    Data sets and policies that do not say it, and those of other environments, are not compared.

    Args:
        cfg: The recipe.
    """
    known = dict(_known_renderings(cfg))
    for path, env in (("env.train", cfg.env.train), ("env.eval", cfg.env.eval)):
        if env is None or not _acts_by_model(env):
            continue
        shown = json.loads(json.dumps(env.rendering))
        for source, rendering in known.items():
            if not shown or rendering.get("env_type") != env.env_type:
                continue
            for key in sorted(shown.keys() | rendering.keys() - {"env_type"}):
                if shown.get(key) != rendering.get(key):
                    yield ConfigError(
                        f"{path}.{key}: received {shown.get(key)!r}; {source} has images that were rendered with "
                        f"{key}={rendering.get(key)!r}, and a policy that learned from these would see others. Set it "
                        "to that, or collect demonstrations that look as these do."
                    )


def _acts_by_model(env: EnvConfig) -> bool:
    return not env.data_collection.enabled or env.data_collection.policy in MODEL_POLICIES


def _known_renderings(cfg: EmbodiedConfig) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield what policy and data say about their images, by where they lie."""
    model = cfg.actor.model
    file = Path(model.model_path).expanduser() / RENDERING_FILE if isinstance(model, VLAConfig) else None
    if file is not None and file.is_file():
        yield f"the policy '{file.parent}'", json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(cfg.data, LeRobotDataConfig) or cfg.runner.only_eval:
        return
    for path in cfg.data.required_files().values():
        try:
            rendering = Info.read(Path(path).expanduser()).rendering
        except DatasetError:
            continue  # what reads it reports it
        if rendering is not None:
            yield f"the data set '{path}'", rendering

"""What the result of an evaluation depends on, written down by the run that makes it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rlinf.config import to_dict
from rlinf.config.schema.root import EmbodiedConfig
from rlinf.envs.versions import hash_files
from rlinf.telemetry.rundir import git_state, package_versions
from rlinf.utils.secrets import hide_for_record

_PACKAGES = ("rlinf", "torch", "transformers", "numpy")
"""Which act; those of the simulator are its own."""
_WEIGHTS = frozenset({".safetensors", ".pt", ".bin"})


def evaluation_record(cfg: EmbodiedConfig, simulator: Mapping[str, str], checkpoint: Path | None) -> dict[str, Any]:
    """Return what decides the episodes of an evaluation.

    Args:
        cfg: The recipe.
        simulator: Versions, assets and renderer, as ``VectorEnv.versions`` returns them.
        checkpoint: The folder that the weights were resumed from; None if there is none.

    Returns:
        ``finished_at``; ``env`` and ``model``, all keys of these sections; ``execution``, how the model runs;
        ``versions``; and ``weights``, each folder or file of weights with a hash of its contents.
    """
    assert cfg.env.eval is not None
    versions = package_versions()
    commit = git_state() or {"commit": None, "changed": None}
    model, rollout = cfg.actor.model, cfg.rollout
    paths = {
        "actor.model.model_path": to_dict(model).get("model_path"),
        "runner.ckpt_path": cfg.runner.ckpt_path,
        "checkpoint": None if checkpoint is None else str(checkpoint / "actor"),
    }
    record = {
        "finished_at": datetime.now(timezone.utc).isoformat(),
        "env": to_dict(cfg.env.eval),
        "model": to_dict(model),
        "execution": {
            "precision": rollout.model.precision or model.precision,
            "num_action_chunks": model.num_action_chunks,
            "inference_delay": model.inference_delay,
            "enable_torch_compile": rollout.enable_torch_compile,
            "enable_cuda_graph": rollout.enable_cuda_graph,
            "seed": cfg.actor.seed,
        },
        "versions": {**{name: versions.get(name) for name in _PACKAGES}, **commit, **simulator},
        "weights": {name: hash_weights(Path(path)) for name, path in paths.items() if path is not None},
    }
    return dict(hide_for_record(record))


def hash_weights(path: Path) -> dict[str, str | int]:
    """Return path, number of files and hash of a file or folder of weights; of a name on a hub the name alone.

    Args:
        path: In a folder, safetensors and PyTorch's files count.
    """
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.suffix in _WEIGHTS]
    if not files:
        return {"path": str(path), "files": 0}
    root = path.parent if path.is_file() else path
    return {"path": str(path), "files": len(files), "sha256": hash_files(files, root)}

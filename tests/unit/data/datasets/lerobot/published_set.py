"""A data set laid out by hand as OpenPI's set of LIBERO: version 2.0, images in tables, columns of other names."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

COLUMNS = {"main_images": "image", "wrist_images": "wrist_image", "states": "state", "actions": "actions"}
"""As ``data.columns`` has to name them."""
LENGTHS = (4, 3)
_TASKS = ("put the bowl on the plate", "open the drawer")


def image_of(camera: str, frame: int) -> np.ndarray:
    """Return the image uint8 [16, 16, 3] of a frame, by its number in the whole set."""
    return np.full((16, 16, 3), (200 if camera == "image" else 50, frame * 10, 7), np.uint8)


def state_of(frame: int) -> list[float]:
    """Return the state of a frame: eight numbers."""
    return [frame + place / 10 for place in range(8)]


def action_of(frame: int) -> list[float]:
    """Return the action of a frame: seven numbers."""
    return [(-1.0) ** place * frame / 10 for place in range(7)]


def write_published_set(root: Path) -> Path:
    """Write the set into a folder that does not exist yet."""
    (root / "meta").mkdir(parents=True)
    (root / "data/chunk-000").mkdir(parents=True)
    image = {"dtype": "image", "shape": [16, 16, 3], "names": ["height", "width", "channel"]}
    features = {
        "image": image,
        "wrist_image": image,
        "state": {"dtype": "float32", "shape": [8], "names": ["state"]},
        "actions": {"dtype": "float32", "shape": [7], "names": ["actions"]},
        "timestamp": {"dtype": "float32", "shape": [1], "names": None},
    }
    features |= {
        name: {"dtype": "int64", "shape": [1], "names": None}
        for name in ("frame_index", "episode_index", "index", "task_index")
    }
    total = sum(LENGTHS)
    info = {
        "codebase_version": "v2.0",
        "robot_type": "panda",
        "total_episodes": len(LENGTHS),
        "total_frames": total,
        "total_tasks": len(_TASKS),
        "total_videos": 0,
        "total_chunks": 1,
        "chunks_size": 1000,
        "fps": 10,
        "splits": {"train": f"0:{len(LENGTHS)}"},
        "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "video_path": None,
        "features": features,
    }
    (root / "meta/info.json").write_text(json.dumps(info))
    tasks = [json.dumps({"task_index": number, "task": task}) for number, task in enumerate(_TASKS)]
    (root / "meta/tasks.jsonl").write_text("\n".join(tasks))
    episodes, start = [], 0
    for number, length in enumerate(LENGTHS):
        _write_episode(root, number, range(start, start + length))
        episodes.append(json.dumps({"episode_index": number, "tasks": [_TASKS[number]], "length": length}))
        start += length
    (root / "meta/episodes.jsonl").write_text("\n".join(episodes))
    # Version 2.0 has statistics of all frames in one file, and counts nothing.
    values = {
        "state": [state_of(frame) for frame in range(total)],
        "actions": [action_of(frame) for frame in range(total)],
    }
    stats = {
        name: {kind: getattr(np.array(rows), kind)(0).tolist() for kind in ("min", "max", "mean", "std")}
        for name, rows in values.items()
    }
    (root / "meta/stats.json").write_text(json.dumps(stats))
    return root


def _write_episode(root: Path, number: int, frames: range) -> None:
    columns = {
        "state": pa.array([state_of(frame) for frame in frames], pa.list_(pa.float32(), 8)),
        "actions": pa.array([action_of(frame) for frame in frames], pa.list_(pa.float32(), 7)),
        "timestamp": pa.array([step / 10 for step in range(len(frames))], pa.float32()),
        "frame_index": list(range(len(frames))),
        "episode_index": [number] * len(frames),
        "index": list(frames),
        "task_index": [number] * len(frames),
    }
    for camera in ("image", "wrist_image"):
        columns[camera] = pa.array([{"bytes": _png(image_of(camera, frame)), "path": None} for frame in frames])
    pq.write_table(pa.table(columns), root / f"data/chunk-000/episode_{number:06d}.parquet")


def _png(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()

"""Episodes of evaluations, and the videos of a run."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rlinf.telemetry.report.run_folder import RunFolder, read_records, spread
from rlinf.telemetry.report.samples import step_files
from rlinf.telemetry.rundir import EVALUATIONS_FOLDER, VIDEO_FOLDER

_MAX_STEPS = 24
_MAX_EPISODES = 60
_MAX_METRICS = 8
_MAX_VIDEOS = 24
# Videos within the page, newest first; those that do not fit are linked.
_MAX_EMBEDDED_BYTES = 900_000
_MAX_VIDEO_BYTES = 300_000


def describe_episodes(folder: Path) -> list[dict[str, Any]] | None:
    """Return episodes of evaluations by step; None where there are none.

    Args:
        folder: The run's folder.
    """
    files = step_files(folder / EVALUATIONS_FOLDER)
    steps = []
    for step in spread(list(files), _MAX_STEPS):
        records = read_records(files[step], max_rows=_MAX_EPISODES)
        rows = [_episode(record) for record in records.rows if isinstance(record.get("metrics"), dict)]
        if rows:
            steps.append({"step": step, "rows": rows, "total": records.num_lines})
    return steps or None


def _episode(record: dict[str, Any]) -> dict[str, Any]:
    metrics = {
        str(name): float(f"{value:.5g}")
        for name, value in record["metrics"].items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }
    return {
        "epoch": record.get("epoch"),
        "env": record.get("env"),
        "task": str(record.get("task") or ""),
        "metrics": dict(list(metrics.items())[:_MAX_METRICS]),
    }


def describe_videos(run: RunFolder, page_folder: Path, *, num_runs: int = 1) -> dict[str, Any] | None:
    """Return the newest videos of a run; None where it has none.

    Args:
        run: The run.
        page_folder: Folder of the page, for links relative to it.
        num_runs: Runs that the page shows.

    Returns:
        ``total``, and ``videos``: each with its ``name`` and its ``source``, a relative link or the video itself.
    """
    videos = sorted(_find_videos(run), key=lambda path: (-path.stat().st_mtime, path))
    if not videos:
        return None
    room = _MAX_EMBEDDED_BYTES // num_runs
    entries = []
    for path in videos[:_MAX_VIDEOS]:
        size = path.stat().st_size
        fits = 0 < size <= min(_MAX_VIDEO_BYTES, room)
        room -= size if fits else 0
        link = quote(os.path.relpath(path, page_folder).replace(os.sep, "/"))
        source = f"data:video/mp4;base64,{base64.b64encode(path.read_bytes()).decode()}" if fits else link
        entries.append({"name": _name(run, path), "source": source, "link": link})
    return {"total": len(videos), "videos": entries}


def _find_videos(run: RunFolder) -> Iterator[Path]:
    """Yield videos within the run's folder, and in the folder that the recipe names."""
    sections = (run.config or {}).get("env")
    folders = {run.path / VIDEO_FOLDER}
    for section in sections.values() if isinstance(sections, dict) else ():
        video = section.get("video_cfg") if isinstance(section, dict) else None
        if isinstance(video, dict) and video.get("save_video") and video.get("video_base_dir"):
            folders.add(Path(str(video["video_base_dir"])).expanduser())
    yield from {path.resolve() for folder in folders if folder.is_dir() for path in folder.rglob("*.mp4")}


def _name(run: RunFolder, path: Path) -> str:
    root = run.path.resolve()
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)

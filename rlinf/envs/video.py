"""Videos of the first environments, one by one or side by side, with step, reward and success on the frames."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np

from rlinf.config.schema.env import VideoConfig
from rlinf.envs.raw_chunk import FloatArray, Frame, IntArray, RawChunk, RawObservation, RawReset
from rlinf.errors import ConfigError
from rlinf.utils.logging import get_logger
from rlinf.utils.optional import require

_LINE_PIXELS = 12


class VideoRecorder:
    """Writes ``epoch_<e>_env_<i>_episode_<k>.mp4`` for each episode of the recorded environments.

    With ``tile`` it writes ``epoch_<e>_envs_<i>-<j>.mp4`` for each rollout epoch: a tile for each environment, which
    keeps its last frame while it waits for the others or rests.

    If rendering or encoding fails it says so once and records no more: a missing graphics driver must not end a run.

    Args:
        cfg: ``video_cfg``; nothing happens unless ``save_video``.
        num_envs: Environments of this instance.
        first_env: Global index of the first; the environments below ``num_videos`` are recorded.

    Raises:
        ConfigError: ``video_base_dir`` is not set.
        MissingPackageError: The encoder is not installed.
    """

    def __init__(self, cfg: VideoConfig, *, num_envs: int, first_env: int) -> None:
        self._cfg = cfg
        self._first_env = first_env
        self.rows = list(range(min(max(cfg.num_videos - first_env, 0), num_envs))) if cfg.save_video else []
        self.enabled = bool(self.rows)
        self._epoch = 0
        self._keeps_files = False
        self._episodes: dict[int, _Episode] = {}
        self._reports_success = False
        self._tiles: _Video | None = None
        self._shown: dict[int, list[Frame]] = {}
        self._latest: dict[int, Frame] = {}
        if not self.enabled:
            return
        if cfg.video_base_dir is None:
            raise ConfigError("env.*.video_cfg.video_base_dir is null; name the folder that the videos go to.")
        self._folder = Path(cfg.video_base_dir)
        require("imageio_ffmpeg", needed_by="env.*.video_cfg.save_video=true")
        self._imageio: Any = require("imageio.v2", needed_by="env.*.video_cfg.save_video=true")

    def start_epoch(
        self, epoch: int, result: RawReset, *, numbers: IntArray | None = None, is_midway: bool = False
    ) -> None:
        """Close the videos of the previous epoch and begin those of this.

        Args:
            epoch: Its number.
            result: First observations and frames.
            numbers: int64 [B]; numbers of the episodes, where a resumed run continues an epoch: the videos of these are
                made again.
            is_midway: Whether ``result`` shows these episodes midway: then what there is of their videos stays.
        """
        if not self.enabled:
            return
        self._finish_all()
        self._epoch = epoch
        self._keeps_files = numbers is not None and (is_midway or self._cfg.tile)
        self._report(result.render_error)
        for row in self.rows if self.enabled else ():
            number = 0 if numbers is None else int(numbers[row])
            self._begin(row, number=number, frame=result.frames.get(row), obs=result.obs)
        self._write_tiles()

    def add_chunk(self, chunk: RawChunk, rewards: FloatArray) -> None:
        """Append what was executed; an episode that ended closes its file, and the next one begins.

        Args:
            chunk: What happened.
            rewards: float32 [B, C]; rewards as reported.
        """
        if not self.enabled:
            return
        self._report(chunk.render_error)
        self._reports_success = self._reports_success or chunk.reports_success
        for row, frames in chunk.frames.items():
            if not self.enabled:
                return
            episode = self._episodes[row]
            for column, frame in enumerate(frames):
                success = bool(chunk.successes[row, column]) if self._reports_success else None
                episode.account(float(rewards[row, column]), success)
                self._append(episode, frame)
            if row in chunk.final_ids:
                episode.video.close()
                self._begin(row, number=episode.number + 1, frame=chunk.reset_frames.get(row), obs=chunk.obs)
        self._write_tiles()

    def close(self) -> None:
        """Close the files."""
        self._finish_all()

    def _begin(self, row: int, *, number: int, frame: Frame | None, obs: RawObservation) -> None:
        name = f"epoch_{self._epoch:06d}_env_{self._first_env + row:04d}_episode_{number:03d}.mp4"
        tasks = obs.get("task_descriptions")
        task = "" if tasks is None else str(tasks[row])
        self._episodes[row] = _Episode(
            row, number, task, self._video(name), success=False if self._reports_success else None
        )
        if frame is not None:
            self._append(self._episodes[row], frame)

    def _append(self, episode: _Episode, frame: Frame) -> None:
        if not self.enabled:
            return
        shown = draw_text(frame, episode.lines()) if self._cfg.info_on_video else frame
        if self._cfg.tile:
            self._shown.setdefault(episode.row, []).append(shown)
        else:
            self._write(episode.video, shown)

    def _write_tiles(self) -> None:
        """Write what was shown since the last call, as many frames as the environment that moved on furthest has."""
        if self._tiles is None:
            last = self._first_env + len(self.rows) - 1
            name = f"epoch_{self._epoch:06d}_envs_{self._first_env:04d}-{last:04d}.mp4"
            self._tiles = self._video(name)
        for index in range(max((len(frames) for frames in self._shown.values()), default=0)):
            for row, frames in self._shown.items():
                self._latest[row] = frames[min(index, len(frames) - 1)]
            # The same number of tiles throughout: a video cannot change its size.
            blank = np.zeros_like(next(iter(self._latest.values())))
            self._write(self._tiles, tile([self._latest.get(row, blank) for row in self.rows]))
        self._shown = {}

    def _video(self, name: str) -> _Video:
        path = self._folder / name
        parts = (path.with_stem(f"{path.stem}_part_{number}") for number in itertools.count(2))
        if self._keeps_files and path.exists():
            path = next(part for part in parts if not part.exists())
        return _Video(path, self._imageio, self._cfg.fps)

    def _write(self, video: _Video, frame: Frame) -> None:
        if not self.enabled:
            return
        try:
            video.append(frame)
        except (OSError, RuntimeError, ValueError) as error:
            self._report(f"cannot write {video.path}: {error}")

    def _finish_all(self) -> None:
        for episode in self._episodes.values():
            episode.video.close()
        if self._tiles is not None:
            self._tiles.close()
        self._episodes, self._tiles, self._shown, self._latest = {}, None, {}, {}

    def _report(self, error: str | None) -> None:
        if error is None or not self.enabled:
            return
        self.enabled = False
        get_logger(__name__).warning(
            "No further video is recorded: %s. On a machine without a display MuJoCo needs MUJOCO_GL=egl or "
            "MUJOCO_GL=osmesa (apt-get install libosmesa6), and Gymnasium's classic control needs pygame.",
            error,
        )
        self._finish_all()


class _Video:
    """A file that is opened by its first frame."""

    def __init__(self, path: Path, imageio: Any, fps: int) -> None:
        self.path = path
        self._imageio = imageio
        self._fps = fps
        self._writer: Any = None

    def append(self, frame: Frame) -> None:
        if self._writer is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # macro_block_size 1: keep the frame's size where it is not a multiple of 16.
            self._writer = self._imageio.get_writer(self.path, fps=self._fps, macro_block_size=1)
        self._writer.append_data(_even(frame))

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class _Episode:
    """The episode that an environment is in, and the numbers written onto its frames."""

    def __init__(self, row: int, number: int, task: str, video: _Video, *, success: bool | None) -> None:
        self.row = row
        self.number = number
        self.task = task
        self.video = video
        self._steps = 0
        self._reward = 0.0
        self._return = 0.0
        # None where the environment does not say.
        self._success = success

    def account(self, reward: float, success: bool | None) -> None:
        self._steps += 1
        self._reward = reward
        self._return += reward
        self._success = success

    def lines(self) -> list[str]:
        return [
            *([self.task] if self.task else []),
            f"step {self._steps}",
            f"reward {self._reward:.3f}",
            f"return {self._return:.2f}",
            *([] if self._success is None else [f"success {'yes' if self._success else 'no'}"]),
        ]


def draw_text(frame: Frame, lines: list[str]) -> Frame:
    """Return a copy of an image with lines of text in its upper left corner; the image itself without Pillow.

    Args:
        frame: uint8 [H, W, 3].
        lines: From top to bottom.
    """
    try:
        from PIL import Image, ImageDraw
    except ModuleNotFoundError:
        return frame
    image = Image.fromarray(frame)
    draw = ImageDraw.Draw(image)
    for number, line in enumerate(lines):
        draw.text((4, 2 + number * _LINE_PIXELS), line, fill="white", stroke_width=1, stroke_fill="black")
    return np.asarray(image)


def tile(frames: list[Frame]) -> Frame:
    """Return images of one size as the tiles of one, row by row in about a square; tiles that are left are black.

    Args:
        frames: uint8 [H, W, 3], one at least.
    """
    columns = math.ceil(math.sqrt(len(frames)))
    height, width, _ = frames[0].shape
    image = np.zeros((-(-len(frames) // columns) * height, columns * width, 3), np.uint8)
    for number, frame in enumerate(frames):
        top, left = number // columns * height, number % columns * width
        image[top : top + height, left : left + width] = frame
    return image


def _even(frame: Frame) -> Frame:
    """Cut an odd last row or column off: the pixel format of mp4 halves both."""
    return frame[: frame.shape[0] // 2 * 2, : frame.shape[1] // 2 * 2]

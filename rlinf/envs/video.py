"""Videos of the first environments: one file per episode, with what happened drawn onto the frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rlinf.config.schema.env import VideoConfig
from rlinf.envs.raw_chunk import FloatArray, Frame, RawChunk
from rlinf.errors import ConfigError
from rlinf.utils.logging import get_logger
from rlinf.utils.optional import require

_LINE_PIXELS = 12


class VideoRecorder:
    """Writes ``epoch_<e>_env_<i>_episode_<k>.mp4`` for each episode of the recorded environments.

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
        self._episodes: dict[int, _Episode] = {}
        if not self.enabled:
            return
        if cfg.video_base_dir is None:
            raise ConfigError("env.*.video_cfg.video_base_dir is null; name the folder that the videos go to.")
        self._folder = Path(cfg.video_base_dir)
        install = "pip install imageio imageio-ffmpeg"
        require("imageio_ffmpeg", install=install, needed_by="env.*.video_cfg.save_video=true")
        self._imageio: Any = require("imageio.v2", install=install, needed_by="env.*.video_cfg.save_video=true")

    def start_epoch(self, epoch: int, frames: dict[int, Frame], render_error: str | None) -> None:
        """Close the episodes of the previous epoch and begin the first ones of this."""
        if not self.enabled:
            return
        self._finish_all()
        self._epoch = epoch
        self._report(render_error)
        for row in self.rows if self.enabled else ():
            self._begin(row, number=0, frame=frames.get(row))

    def add_chunk(self, chunk: RawChunk, rewards: FloatArray) -> None:
        """Append what was executed; an episode that ended closes its file, and the next one begins.

        Args:
            chunk: What happened.
            rewards: float32 [B, C]; rewards as reported.
        """
        if not self.enabled:
            return
        self._report(chunk.render_error)
        for row, frames in chunk.frames.items():
            if not self.enabled:
                return
            episode = self._episodes[row]
            for column, frame in enumerate(frames):
                episode.account(float(rewards[row, column]), bool(chunk.successes[row, column]))
                self._append(episode, frame)
            if row in chunk.final_ids:
                episode.close()
                self._begin(row, number=episode.number + 1, frame=chunk.reset_frames.get(row))

    def close(self) -> None:
        """Close the files."""
        self._finish_all()

    def _begin(self, row: int, *, number: int, frame: Frame | None) -> None:
        name = f"epoch_{self._epoch:06d}_env_{self._first_env + row:04d}_episode_{number:03d}.mp4"
        self._episodes[row] = _Episode(self._folder / name, number)
        if frame is not None:
            self._append(self._episodes[row], frame)

    def _append(self, episode: _Episode, frame: Frame) -> None:
        if not self.enabled:
            return
        try:
            if episode.writer is None:
                episode.path.parent.mkdir(parents=True, exist_ok=True)
                # macro_block_size 1: keep the frame's size where it is not a multiple of 16.
                episode.writer = self._imageio.get_writer(episode.path, fps=self._cfg.fps, macro_block_size=1)
            shown = draw_text(frame, episode.lines()) if self._cfg.info_on_video else frame
            episode.writer.append_data(_even(shown))
        except (OSError, RuntimeError, ValueError) as error:
            self._report(f"cannot write {episode.path}: {error}")

    def _finish_all(self) -> None:
        for episode in self._episodes.values():
            episode.close()
        self._episodes = {}

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


class _Episode:
    """The video of one episode and the numbers drawn onto it."""

    def __init__(self, path: Path, number: int) -> None:
        self.path = path
        self.number = number
        self.writer: Any = None
        self._steps = 0
        self._reward = 0.0
        self._return = 0.0
        self._success = False

    def account(self, reward: float, success: bool) -> None:
        self._steps += 1
        self._reward = reward
        self._return += reward
        self._success = success

    def lines(self) -> list[str]:
        return [
            f"step {self._steps}",
            f"reward {self._reward:.3f}",
            f"return {self._return:.2f}",
            f"success {'yes' if self._success else 'no'}",
        ]

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None


def draw_text(frame: Frame, lines: list[str]) -> Frame:
    """Return a copy of a picture with lines of text in its upper left corner; the picture itself without Pillow.

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


def _even(frame: Frame) -> Frame:
    """Cut an odd last row or column off: the pixel format of mp4 halves both."""
    return frame[: frame.shape[0] // 2 * 2, : frame.shape[1] // 2 * 2]

"""Images of episodes: PNG for single images, H.264 for videos."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rlinf.errors import DatasetError
from rlinf.utils.optional import require

Images = npt.NDArray[np.uint8]
"""[T, H, W, 3]."""

KEYFRAME_INTERVAL = 2
"""Frames from one that is coded alone to the next: what is sampled at random must be found fast (as LeRobot has it)."""


def encode_png(image: Images) -> bytes:
    """Return an image [H, W, 3] as PNG."""
    buffer = io.BytesIO()
    _pillow().fromarray(image).save(buffer, "PNG")
    return buffer.getvalue()


def decode_image(data: bytes) -> Images:
    """Return a PNG (or another image) as uint8 [H, W, 3]."""
    image: Images = np.asarray(_pillow().open(io.BytesIO(data)).convert("RGB"))
    return image


class VideoFile:
    """One mp4 that images are appended to.

    Args:
        path: The file.
        fps: Frames per second.
        size: (height, width).

    Raises:
        DatasetError: A side is odd, which the pixel format cannot have.
    """

    def __init__(self, path: Path, *, fps: int, size: tuple[int, int]) -> None:
        height, width = size
        if height % 2 or width % 2:
            raise DatasetError(f"images of {height} x {width} pixels cannot be a video: sides are even. Use images.")
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.num_frames = path, 0
        self._writer: Any = _ffmpeg().write_frames(
            str(path),
            (width, height),
            fps=fps,
            codec="libx264",
            pix_fmt_out="yuv420p",
            macro_block_size=1,
            output_params=["-g", str(KEYFRAME_INTERVAL)],
        )
        self._writer.send(None)

    def append(self, images: Images) -> None:
        """Append [T, H, W, 3]."""
        for image in images:
            self._writer.send(np.ascontiguousarray(image))
        self.num_frames += len(images)

    @property
    def size_bytes(self) -> int:
        """Size of what the encoder has written out so far, which lags behind."""
        return self.path.stat().st_size if self.path.exists() else 0

    def close(self) -> None:
        """Finish the file."""
        self._writer.close()


def read_video(path: Path, *, start_seconds: float, count: int, fps: float) -> Images:
    """Return images uint8 [count, H, W, 3] of a video, the first being that at ``start_seconds``.

    Raises:
        DatasetError: The file ends before, or cannot be read.
    """
    # Half a frame earlier: the image's own time stamp is rounded, and must not fall just before the start.
    seek = max(start_seconds - 0.5 / fps, 0.0)
    frames = _ffmpeg().read_frames(
        str(path), input_params=["-ss", f"{seek:.6f}"], output_params=["-frames:v", str(count)], pix_fmt="rgb24"
    )
    try:
        width, height = next(frames)["size"]
        images = [np.frombuffer(frame, np.uint8).reshape(height, width, 3) for frame in frames]
    except (OSError, RuntimeError, StopIteration) as error:
        raise DatasetError(f"'{path}' cannot be read as a video: {error}.") from error
    if len(images) < count:
        raise DatasetError(f"'{path}' has {len(images)} frames from {start_seconds:.3f} s on, not {count}.")
    return np.stack(images[:count])


def _pillow() -> Any:
    return require("PIL.Image", needed_by="a data set with images")


def _ffmpeg() -> Any:
    return require("imageio_ffmpeg", needed_by="a data set with videos")

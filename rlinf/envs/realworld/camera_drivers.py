"""Cameras of robots: each is read by a thread of its own, which keeps the newest image; imports no torch."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from rlinf.envs.raw_chunk import Frame
from rlinf.errors import ConfigError, EnvironmentFailure, MissingPackageError
from rlinf.utils.logging import get_logger
from rlinf.utils.optional import require

REALSENSE, OPENCV = "realsense:", "opencv:"
_NEEDED_BY = "a camera of cluster.node_groups[].hardware.configs[].camera_serials"
_REALSENSE_SIZE, _REALSENSE_HZ = (640, 480), 30
"""Width and height in pixels, and images per second: a mode that all RealSense cameras with colour have."""
_FILE_HZ = 30.0
"""Images per second of a file that does not say it."""
_POLL_MILLISECONDS = 500
_STREAM_TIMEOUT_MILLISECONDS = 5000
"""After which OpenCV gives up waiting for a stream of the network."""
_CLOSE_SECONDS = 10.0
"""How long a thread may take to end: longer than any wait for an image."""


class ImageSource(Protocol):
    """Where a camera's images come from; one thread opens, reads and closes it."""

    period_seconds: float
    """Time between images that would come at once otherwise; 0 for a source that has a beat of its own."""

    def open(self) -> None:
        """Connect to the camera."""

    def read(self) -> Frame | None:
        """Wait for the next image, uint8 RGB [H, W, 3], and return it; None if there is none yet."""

    def close(self) -> None:
        """Free the camera."""


class OpenCVSource:
    """What OpenCV's ``VideoCapture`` opens. A file is shown at its own rate, and again from its start at its end.

    Args:
        name: Index of a device, its path, the address of a stream, or a video file.

    Raises:
        MissingPackageError: OpenCV is not installed.
    """

    def __init__(self, name: str) -> None:
        self.name, self.is_file = name, Path(name).is_file()
        self.period_seconds = 0.0
        self._cv2: Any = require("cv2", needed_by=_NEEDED_BY)
        self._capture: Any = None

    def open(self) -> None:
        """See ``ImageSource``.

        Raises:
            EnvironmentFailure: OpenCV cannot open it.
        """
        cv2 = self._cv2
        if "://" in self.name:
            waits = [cv2.CAP_PROP_OPEN_TIMEOUT_MSEC, _STREAM_TIMEOUT_MILLISECONDS]
            waits += [cv2.CAP_PROP_READ_TIMEOUT_MSEC, _STREAM_TIMEOUT_MILLISECONDS]
            self._capture = cv2.VideoCapture(self.name, cv2.CAP_FFMPEG, waits)
        elif self.name.startswith("/dev/"):
            self._capture = cv2.VideoCapture(self.name, cv2.CAP_V4L2)
        else:
            self._capture = cv2.VideoCapture(int(self.name) if self.name.isdecimal() else self.name)
        if not self._capture.isOpened():
            raise EnvironmentFailure(f"OpenCV cannot open '{self.name}'")
        if self.is_file:
            self.period_seconds = 1.0 / (self._capture.get(cv2.CAP_PROP_FPS) or _FILE_HZ)

    def read(self) -> Frame | None:
        """See ``ImageSource``.

        Raises:
            EnvironmentFailure: The stream has ended.
        """
        has_image, image = self._capture.read()
        if not has_image and self.is_file:
            self._capture.set(self._cv2.CAP_PROP_POS_FRAMES, 0)
            has_image, image = self._capture.read()
        if not has_image:
            raise EnvironmentFailure("its stream has ended")
        frame: Frame = self._cv2.cvtColor(image, self._cv2.COLOR_BGR2RGB)
        return frame

    def close(self) -> None:
        """See ``ImageSource``."""
        if self._capture is not None:
            self._capture.release()


class RealSenseSource:
    """The colour images of an Intel RealSense.

    Args:
        serial: Its serial number.

    Raises:
        MissingPackageError: Its package is not installed.
        EnvironmentFailure: Its package cannot be loaded.
    """

    def __init__(self, serial: str) -> None:
        self.serial = serial
        self.period_seconds = 0.0
        self._pipeline: Any = None
        try:
            self._realsense: Any = require("pyrealsense2", needed_by=_NEEDED_BY)
        except MissingPackageError:
            raise
        except ImportError as error:
            raise EnvironmentFailure(
                f"The package 'pyrealsense2', which the camera '{serial}' needs, cannot be loaded: {error}. Install "
                "the system's library that it names: sudo apt-get install libusb-1.0-0"
            ) from error

    def open(self) -> None:
        """See ``ImageSource``.

        Raises:
            EnvironmentFailure: It is not connected.
        """
        realsense = self._realsense
        devices = realsense.context().query_devices()
        serials = [device.get_info(realsense.camera_info.serial_number) for device in devices]
        if self.serial not in serials:
            raise EnvironmentFailure(f"no RealSense has this serial number; connected: {', '.join(serials) or 'none'}")
        config = realsense.config()
        config.enable_device(self.serial)
        config.enable_stream(realsense.stream.color, *_REALSENSE_SIZE, realsense.format.rgb8, _REALSENSE_HZ)
        pipeline = realsense.pipeline()
        pipeline.start(config)
        self._pipeline = pipeline

    def read(self) -> Frame | None:
        """See ``ImageSource``."""
        has_frames, frames = self._pipeline.try_wait_for_frames(_POLL_MILLISECONDS)
        color = frames.get_color_frame() if has_frames else None
        # A copy: the driver writes further images into the memory of those that it has shown.
        return np.array(color.get_data()) if color else None

    def close(self) -> None:
        """See ``ImageSource``."""
        if self._pipeline is not None:
            self._pipeline.stop()


class Camera:
    """The newest image of a source, which a thread reads for as long as the camera is open.

    Args:
        name: What the recipe calls it, for messages.
        source: Where its images come from.
        max_age_seconds: How old the newest image may be.
        now: Seconds since some moment.
    """

    def __init__(
        self, name: str, source: ImageSource, *, max_age_seconds: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.name, self.max_age_seconds = name, max_age_seconds
        self._source, self._now = source, now
        self._newest: tuple[Frame, float] | None = None
        self._error: Exception | None = None
        self._has_news, self._is_closed = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"camera {name}", daemon=True)
        self._thread.start()

    def wait_until_open(self, timeout_seconds: float) -> None:
        """Return when there is an image.

        Raises:
            EnvironmentFailure: There is none in this time, or the camera cannot be opened.
        """
        self._has_news.wait(timeout_seconds)
        self._raise_error()
        if self._newest is None:
            raise EnvironmentFailure(
                f"the camera '{self.name}' has shown no image within {timeout_seconds} s. Check its cable, and whether "
                "another program uses it."
            )

    def newest(self) -> Frame:
        """Return the newest image, uint8 RGB [H, W, 3].

        Raises:
            EnvironmentFailure: It is too old, or the camera has failed since.
        """
        self._raise_error()
        assert self._newest is not None  # it is open
        image, taken = self._newest
        age = self._now() - taken
        if age > self.max_age_seconds:
            raise EnvironmentFailure(
                f"the camera '{self.name}' has shown no new image for {age:.1f} s; allowed: {self.max_age_seconds} s. "
                "Check its cable and the load of its computer, or allow older images."
            )
        return image

    def close(self) -> None:
        """End the thread, which frees the camera."""
        self._is_closed.set()
        self._thread.join(_CLOSE_SECONDS)
        if self._thread.is_alive():
            get_logger(__name__).warning(
                "The camera '%s' does not end within %s s; it stays in use until this process ends.",
                self.name, _CLOSE_SECONDS
            )  # fmt: skip

    def _raise_error(self) -> None:
        if self._error is not None:
            raise EnvironmentFailure(
                f"the camera '{self.name}' has failed: {self._error}. Check its cable, its name in camera_serials and "
                "whether another program uses it."
            ) from self._error

    def _run(self) -> None:
        try:
            self._read_images()
        except Exception as error:  # noqa: BLE001 - the boundary of a thread: who needs an image gets it raised
            self._error = error
        finally:
            self._has_news.set()

    def _read_images(self) -> None:
        try:
            self._source.open()
            due = self._now()
            while not self._is_closed.is_set():
                image = self._source.read()
                if image is not None:
                    self._newest = (image, self._now())
                    self._has_news.set()
                due += self._source.period_seconds
                self._is_closed.wait(max(due - self._now(), 0.0))
        finally:
            self._source.close()


class Cameras:
    """The cameras of one robot; their images are the middle squares, resized by area.

    Args:
        names: Of each: ``SERIAL`` or ``realsense:SERIAL`` of an Intel RealSense; ``opencv:NAME`` of what OpenCV opens:
            the index or path of a device, the address of a stream, or a video file, which stands in for a camera.
        size: Height and width of the images in pixels.
        max_age_seconds: How old an image may be. A camera that freezes is a failure, never an image that stays.
        open_seconds: How long each may take to show its first image.

    Raises:
        ConfigError: A name is empty.
        EnvironmentFailure: One cannot be opened; those that could are closed again.
        MissingPackageError: The package of one is not installed.
    """

    def __init__(
        self, names: Sequence[str], *, size: int, max_age_seconds: float = 1.0, open_seconds: float = 10.0
    ) -> None:
        self.size = size
        sources = [open_source(name) for name in names]
        self._cv2: Any = require("cv2", needed_by=_NEEDED_BY) if names else None
        self._cameras = [
            Camera(name, source, max_age_seconds=max_age_seconds) for name, source in zip(names, sources, strict=True)
        ]
        try:
            for camera in self._cameras:
                camera.wait_until_open(open_seconds)
        except BaseException:
            self.close()
            raise

    def frames(self) -> list[Frame]:
        """Return the newest image of each, uint8 RGB [size, size, 3].

        Raises:
            EnvironmentFailure: One has failed, or shows nothing new.
        """
        return [self._fit(camera.newest()) for camera in self._cameras]

    def close(self) -> None:
        """Free the cameras."""
        for camera in self._cameras:
            camera.close()

    def _fit(self, image: Frame) -> Frame:
        height, width = image.shape[:2]
        side = min(height, width)
        top, left = (height - side) // 2, (width - side) // 2
        square = image[top : top + side, left : left + side]
        fitted: Frame = self._cv2.resize(square, (self.size, self.size), interpolation=self._cv2.INTER_AREA)
        return fitted


def open_source(name: str) -> ImageSource:
    """Return the source that a name of ``camera_serials`` stands for."""
    kind, rest = (OPENCV, name[len(OPENCV) :]) if name.startswith(OPENCV) else (REALSENSE, name.removeprefix(REALSENSE))
    if not rest:
        raise ConfigError(
            f"cluster.node_groups[].hardware.configs[].camera_serials: received '{name}'; allowed: SERIAL, "
            "realsense:SERIAL or opencv:NAME. Name the camera."
        )
    return OpenCVSource(rest) if kind == OPENCV else RealSenseSource(rest)

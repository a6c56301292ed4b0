"""Cameras: what is shown is the newest image, in its colours; what freezes, ends or fails is named, never shown."""

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rlinf.envs.realworld import camera_drivers
from rlinf.envs.realworld.camera_drivers import Camera, Cameras, OpenCVSource, RealSenseSource
from rlinf.errors import ConfigError, EnvironmentFailure, MissingPackageError
from tests.unit.envs.realworld.robots import plain, write_video

JPEG_ERROR = 12
"""By how much compression changes a colour."""


class Source:
    """Shows what it was given, one image for each ``let_through``, and after them nothing new.

    Args:
        images: What it shows; an exception is raised.
        period_seconds: See ``ImageSource``.
    """

    def __init__(self, *images: Any, period_seconds: float = 0.0) -> None:
        self.images, self.period_seconds = list(images), period_seconds
        self.num_opened = self.num_read = self.num_closed = 0
        self.is_idle, self.goes_on = threading.Event(), threading.Event()

    def open(self) -> None:
        self.num_opened += 1

    def read(self) -> Any:
        if self.num_read >= len(self.images):
            self.is_idle.set()
            self.goes_on.wait(0.01)
            return None
        image = self.images[self.num_read]
        self.num_read += 1
        if isinstance(image, Exception):
            raise image
        return image

    def close(self) -> None:
        self.num_closed += 1


@pytest.fixture
def camera() -> Iterator[Callable[..., Camera]]:
    made: list[Camera] = []

    def make(source: Any, **keys: Any) -> Camera:
        made.append(Camera("wrist", source, **{"max_age_seconds": 1.0, **keys}))
        return made[-1]

    yield make
    for each in made:
        each.close()


def cameras_alive() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("camera ")]


def test_the_newest_image_is_shown(camera: Callable[..., Camera]) -> None:
    source = Source(plain(1), plain(2), plain(3))
    found = camera(source)
    found.wait_until_open(10)
    assert source.is_idle.wait(10)
    assert (found.newest() == 3).all()


def test_a_frozen_image_is_never_shown(camera: Callable[..., Camera]) -> None:
    seconds = [100.0]
    found = camera(Source(plain(1)), now=lambda: seconds[0])
    found.wait_until_open(10)
    seconds[0] = 100.9
    assert (found.newest() == 1).all()
    seconds[0] = 101.2
    with pytest.raises(EnvironmentFailure, match=r"camera 'wrist' has shown no new image for 1\.2 s; allowed: 1\.0 s"):
        found.newest()


def test_a_camera_that_fails_is_named_with_its_reason(camera: Callable[..., Camera]) -> None:
    source = Source(plain(1), RuntimeError("the bus is reset"))
    found = camera(source)
    found._thread.join(10)
    with pytest.raises(EnvironmentFailure, match="camera 'wrist' has failed: the bus is reset") as caught:
        found.newest()
    assert isinstance(caught.value.__cause__, RuntimeError)
    with pytest.raises(EnvironmentFailure, match="the bus is reset"):
        found.wait_until_open(10)
    assert source.num_closed == 1


def test_a_camera_that_shows_nothing_is_not_waited_for_any_longer(camera: Callable[..., Camera]) -> None:
    found = camera(Source())
    with pytest.raises(EnvironmentFailure, match=r"'wrist' has shown no image within 0\.05 s\. Check its cable"):
        found.wait_until_open(0.05)


def test_a_source_without_a_beat_of_its_own_is_read_in_its_period(camera: Callable[..., Camera]) -> None:
    source = Source(plain(1), plain(2), period_seconds=3600.0)
    found = camera(source)
    found.wait_until_open(10)
    found.close()  # does not wait for the next image
    assert not found._thread.is_alive()
    assert (source.num_opened, source.num_read, source.num_closed) == (1, 1, 1)


def test_a_thread_that_hangs_does_not_hold_up_the_end(
    camera: Callable[..., Camera], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(camera_drivers, "_CLOSE_SECONDS", 0.05)
    source = Source()
    goes_on = threading.Event()
    source.read = goes_on.wait  # type: ignore[method-assign]
    found = camera(source)
    found.close()
    assert "The camera 'wrist' does not end within" in capsys.readouterr().err
    goes_on.set()
    found._thread.join(10)
    assert source.num_closed == 1


def test_colours_are_not_swapped_and_the_middle_square_is_shown(tmp_path: Path) -> None:
    # Beside the square everything is green; it is red above and blue below.
    image = plain(0, 255, 0, height=48, width=96)
    image[:24, 24:72], image[24:, 24:72] = (255, 0, 0), (0, 0, 255)
    turned = plain(0, 255, 0, height=96, width=48)
    turned[24:48], turned[48:72] = (255, 0, 0), (0, 0, 255)
    names = [write_video(tmp_path / f"{number}.avi", [each] * 4) for number, each in enumerate((image, turned))]
    cameras = Cameras(names, size=12)
    try:
        for frame in cameras.frames():
            assert (frame.shape, frame.dtype) == ((12, 12, 3), np.uint8)
            np.testing.assert_allclose(frame[1:5].mean((0, 1)), (255, 0, 0), atol=JPEG_ERROR)
            np.testing.assert_allclose(frame[7:11].mean((0, 1)), (0, 0, 255), atol=JPEG_ERROR)
            assert frame[..., 1].max() < 100
    finally:
        cameras.close()
    assert cameras_alive() == []


def test_images_are_resized_by_area(tmp_path: Path) -> None:
    stripes = np.zeros((64, 64, 3), np.uint8)
    stripes[:, ::2] = 200
    cameras = Cameras([write_video(tmp_path / "a.avi", [stripes] * 4)], size=8)
    try:
        np.testing.assert_allclose(cameras.frames()[0], 100, atol=2 * JPEG_ERROR)
    finally:
        cameras.close()


def test_a_file_is_shown_at_its_own_rate_and_begins_again_at_its_end(tmp_path: Path) -> None:
    levels = (20, 120, 220)
    name = write_video(tmp_path / "a.avi", [plain(level, level, level) for level in levels], frames_per_second=8.0)
    source = OpenCVSource(name.removeprefix("opencv:"))
    source.open()
    try:
        assert source.period_seconds == pytest.approx(1 / 8)
        shown = [source.read() for _ in range(7)]
    finally:
        source.close()
    np.testing.assert_allclose([np.mean(image) for image in shown], [*levels, *levels, levels[0]], atol=JPEG_ERROR)


def test_a_stream_that_ends_is_a_failure(tmp_path: Path, camera: Callable[..., Camera]) -> None:
    source = OpenCVSource(write_video(tmp_path / "a.avi", [plain(1, 1, 1)] * 3).removeprefix("opencv:"))
    source.is_file = False
    found = camera(source)
    found._thread.join(10)
    with pytest.raises(EnvironmentFailure, match="camera 'wrist' has failed: its stream has ended"):
        found.newest()


@pytest.mark.parametrize(
    ("name", "opened", "backend"),
    [
        ("2", 2, None),
        ("/dev/video2", "/dev/video2", "v4l2"),
        ("rtsp://10.0.0.9/main", "rtsp://10.0.0.9/main", "ffmpeg"),
    ],
)
def test_devices_and_streams_are_opened_as_opencv_opens_them(
    monkeypatch: pytest.MonkeyPatch, name: str, opened: Any, backend: str | None
) -> None:
    calls: list[Any] = []
    constants = {"CAP_V4L2": "v4l2", "CAP_FFMPEG": "ffmpeg", "CAP_PROP_OPEN_TIMEOUT_MSEC": 53}
    capture = SimpleNamespace(isOpened=lambda: True)
    fake = SimpleNamespace(
        VideoCapture=lambda *arguments: (calls.append(arguments), capture)[1],
        CAP_PROP_READ_TIMEOUT_MSEC=54,
        **constants,
    )
    monkeypatch.setitem(sys.modules, "cv2", fake)
    source = OpenCVSource(name)
    source.open()
    assert calls[0][:2] == ((opened, backend) if backend else (opened,))
    if backend == "ffmpeg":  # it may not wait for ever
        assert calls[0][2] == [53, 5000, 54, 5000]
    assert source.period_seconds == 0.0  # a device has a beat of its own


def test_what_cannot_be_opened_is_named_and_the_others_are_closed(tmp_path: Path) -> None:
    good = write_video(tmp_path / "a.avi", [plain(1, 1, 1)] * 3)
    with pytest.raises(EnvironmentFailure, match="camera 'opencv:/no/such.mp4' has failed: OpenCV cannot open"):
        Cameras([good, "opencv:/no/such.mp4"], size=8)
    assert cameras_alive() == []


@pytest.mark.parametrize("name", ["", "opencv:", "realsense:"])
def test_an_empty_name_is_refused(name: str) -> None:
    with pytest.raises(
        ConfigError, match=r"camera_serials: received '.*'; allowed: SERIAL, realsense:SERIAL or opencv"
    ):
        Cameras([name], size=8)


@pytest.mark.parametrize(("name", "package"), [("8391", "pyrealsense2"), ("opencv:0", "cv2")])
def test_a_missing_package_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch, name: str, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackageError, match=f"'{package}'.*install.sh embodied --env realworld"):
        Cameras([name], size=8)


def test_no_cameras_need_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    cameras = Cameras([], size=8)
    assert cameras.frames() == []
    cameras.close()


class RealSense:
    """The calls of ``pyrealsense2`` 2.59 that are used; its pipeline shows the images that it was given."""

    camera_info = SimpleNamespace(serial_number="serial_number")
    stream, format = SimpleNamespace(color="color"), SimpleNamespace(rgb8="rgb8")

    def __init__(self, *images: Any) -> None:
        self.images, self.enabled, self.num_started, self.num_stopped = list(images), [], 0, 0
        self.buffer = np.zeros((480, 640, 3), np.uint8)

    def context(self) -> Any:
        devices = [SimpleNamespace(get_info={"serial_number": serial}.get) for serial in ("111", "222")]
        return SimpleNamespace(query_devices=lambda: devices)

    def config(self) -> Any:
        return SimpleNamespace(
            enable_device=lambda serial: self.enabled.append(serial),
            enable_stream=lambda *mode: self.enabled.append(mode),
        )

    def pipeline(self) -> Any:
        return SimpleNamespace(start=self._start, try_wait_for_frames=self._wait, stop=self._stop)

    def _start(self, config: Any) -> None:
        del config
        self.num_started += 1

    def _stop(self) -> None:
        self.num_stopped += 1

    def _wait(self, timeout_ms: int) -> tuple[bool, Any]:
        assert 0 < timeout_ms <= 1000  # milliseconds
        if not self.images:
            return False, None
        self.buffer[:] = self.images.pop(0)  # as the driver's own memory
        return True, SimpleNamespace(get_color_frame=lambda: SimpleNamespace(get_data=lambda: self.buffer))


@pytest.fixture
def realsense(monkeypatch: pytest.MonkeyPatch) -> RealSense:
    fake = RealSense((250, 10, 20), (1, 2, 3))
    monkeypatch.setitem(sys.modules, "pyrealsense2", fake)
    return fake


def test_a_realsense_shows_its_colours(realsense: RealSense) -> None:
    source = RealSenseSource("222")
    source.open()
    assert realsense.enabled == ["222", ("color", 640, 480, "rgb8", 30)]
    first, second = source.read(), source.read()
    assert first is not None
    assert second is not None
    assert first.shape == (480, 640, 3)
    assert (first[0, 0].tolist(), second[0, 0].tolist()) == ([250, 10, 20], [1, 2, 3])
    assert source.read() is None
    source.close()
    assert (realsense.num_started, realsense.num_stopped) == (1, 1)


@pytest.mark.parametrize("name", ["333", "realsense:333"])
def test_a_realsense_that_is_not_connected_is_named_with_those_that_are(realsense: RealSense, name: str) -> None:
    pytest.importorskip("cv2", reason="needs opencv-python-headless")
    with pytest.raises(EnvironmentFailure, match=f"'{name}' has failed: no RealSense .* connected: 111, 222"):
        Cameras([name], size=8)
    assert realsense.num_started == realsense.num_stopped == 0


def test_a_library_that_the_package_lacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyrealsense2.py").write_text("raise ImportError('libusb-1.0.so.0: cannot open')\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pyrealsense2", raising=False)
    with pytest.raises(
        EnvironmentFailure, match=r"libusb-1\.0\.so\.0: cannot open\. Install .* apt-get install libusb"
    ):
        RealSenseSource("222")

"""Videos: one file per episode of the recorded environments, and training that survives a failing renderer."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from batch_env import BatchEnv, make_config, make_single

from rlinf.config.schema.env import VideoConfig
from rlinf.envs.raw_chunk import RawChunk, RawReset
from rlinf.envs.video import VideoRecorder, draw_text, tile
from rlinf.errors import ConfigError

imageio = pytest.importorskip("imageio.v2")
pytest.importorskip("imageio_ffmpeg")


def recorded(folder: Path, **kwargs: Any) -> Any:
    video = VideoConfig(save_video=True, video_base_dir=str(folder), num_videos=1, info_on_video=False)
    return make_config(video_cfg=video, use_ordered_reset_state_ids=True, **kwargs)


def brightness(path: Path) -> list[int]:
    return [round(float(frame.mean())) for frame in imageio.get_reader(path)]


@pytest.mark.parametrize(
    ("make_env", "num_env_processes"),
    [(BatchEnv, 0), (make_single, 0), (make_single, 2)],
    ids=["batch", "single", "pool"],
)
def test_each_episode_of_the_first_environment_becomes_a_file(
    make_env: Any, num_env_processes: int, tmp_path: Path
) -> None:
    cfg = recorded(tmp_path, total_num_envs=2, num_env_processes=num_env_processes)
    with make_env(cfg, num_envs=2) as env:
        env.reset(0)
        env.chunk_step(torch.zeros(2, 5, 1))  # 3 steps end episode 0
        env.chunk_step(torch.zeros(2, 2, 1))  # 2 steps of episode 1
        env.reset(1)
        env.chunk_step(torch.zeros(2, 1, 1))
    names = [f"epoch_00000{epoch}_env_0000_episode_00{episode}.mp4" for epoch, episode in ((0, 0), (0, 1), (1, 0))]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    # Images show the time since the reset; the encoder may be off by little.
    for name, expected in zip(names, ([0, 1, 2, 3], [0, 1, 2], [0, 1]), strict=True):
        assert np.allclose(brightness(tmp_path / name), expected, atol=2)
        assert len(brightness(tmp_path / name)) == len(expected)


@pytest.mark.parametrize("make_env", [BatchEnv, make_single], ids=["batch", "single"])
def test_environments_side_by_side_become_one_file_for_each_epoch(make_env: Any, tmp_path: Path) -> None:
    video = VideoConfig(save_video=True, video_base_dir=str(tmp_path), num_videos=3, info_on_video=False, tile=True)
    cfg = make_config(video_cfg=video, use_ordered_reset_state_ids=True, total_num_envs=4, group_size=1)
    with make_env(cfg, num_envs=4) as env:
        env.reset(0)
        env.chunk_step(torch.zeros(4, 2, 1))
        env.reset(1)
        env.chunk_step(torch.zeros(4, 1, 1))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "epoch_000000_envs_0000-0002.mp4", "epoch_000001_envs_0000-0002.mp4"
    ]  # fmt: skip
    frames = [frame for frame in imageio.get_reader(tmp_path / "epoch_000000_envs_0000-0002.mp4")]
    height, width = frames[0].shape[0] // 2, frames[0].shape[1] // 2
    assert len(frames) == 3
    for number, frame in enumerate(frames):
        # Images show the time since the reset; the encoder may be off by little. The fourth tile is left black.
        for top, left, expected in ((0, 0, number), (0, width, number), (height, 0, number), (height, width, 0)):
            shown = frame[top : top + height, left : left + width]
            assert float(shown.mean()) == pytest.approx(expected, abs=2)


def test_tiles_lie_row_by_row_in_a_square() -> None:
    frames = [np.full((2, 4, 3), number, np.uint8) for number in range(1, 6)]
    image = tile(frames)
    assert image.shape == (4, 12, 3)
    assert image[::2, ::4, 0].tolist() == [[1, 2, 3], [4, 5, 0]]
    assert np.array_equal(tile(frames[:1]), frames[0])


def test_a_tile_waits_for_the_others_with_its_last_frame(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    video = VideoConfig(save_video=True, video_base_dir=str(tmp_path), num_videos=2, info_on_video=False, tile=True)
    recorder = VideoRecorder(video, num_envs=2, first_env=0)
    shades = [np.full((16, 16, 3), value, np.uint8) for value in (0, 50, 100, 150, 200)]
    recorder.start_epoch(0, RawReset({}, frames={0: shades[0], 1: shades[0]}))
    chunk = RawChunk.empty((2, 3))
    chunk.frames = {0: [shades[1]], 1: [shades[2], shades[3], shades[4]]}
    recorder.add_chunk(chunk, np.zeros((2, 3), np.float32))
    recorder.close()
    frames = [frame for frame in imageio.get_reader(next(tmp_path.iterdir()))]
    left, right = ([round(float(frame[:, part].mean())) for frame in frames] for part in (slice(16), slice(16, 32)))
    assert left == pytest.approx([0, 50, 50, 50], abs=4)
    assert right == pytest.approx([0, 100, 150, 200], abs=4)


def test_the_task_is_drawn_with_the_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[list[str]] = []
    monkeypatch.setattr("rlinf.envs.video.draw_text", lambda frame, lines: (drawn.append(lines), frame)[1])
    video = VideoConfig(save_video=True, video_base_dir=str(tmp_path))
    recorder = VideoRecorder(video, num_envs=1, first_env=0)
    frame = np.zeros((16, 16, 3), np.uint8)
    recorder.start_epoch(0, RawReset({"task_descriptions": ["open the drawer"]}, frames={0: frame}))
    chunk = RawChunk.empty((1, 1))
    chunk.obs, chunk.frames, chunk.reset_frames = {"task_descriptions": ["close it"]}, {0: [frame]}, {0: frame}
    chunk.successes[0, 0], chunk.final_ids, chunk.reports_success = True, np.array([0]), True
    recorder.add_chunk(chunk, np.full((1, 1), 0.5, np.float32))
    recorder.close()
    assert drawn == [
        ["open the drawer", "step 0", "reward 0.000", "return 0.00"],
        ["open the drawer", "step 1", "reward 0.500", "return 0.50", "success yes"],
        ["close it", "step 0", "reward 0.000", "return 0.00", "success no"],
    ]


def test_returns_add_up_and_success_stays_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[list[str]] = []
    monkeypatch.setattr("rlinf.envs.video.draw_text", lambda frame, lines: (drawn.append(lines[1:]), frame)[1])
    recorder = VideoRecorder(VideoConfig(save_video=True, video_base_dir=str(tmp_path)), num_envs=1, first_env=0)
    frame = np.zeros((16, 16, 3), np.uint8)
    recorder.start_epoch(0, RawReset({}, frames={}))
    for reports in (False, True, False):
        chunk = RawChunk.empty((1, 1))
        chunk.frames, chunk.reports_success = {0: [frame]}, reports
        recorder.add_chunk(chunk, np.full((1, 1), 0.5, np.float32))
    recorder.close()
    assert drawn == [
        ["reward 0.500", "return 0.50"],
        ["reward 0.500", "return 1.00", "success no"],
        ["reward 0.500", "return 1.50", "success no"],
    ]


def test_videos_are_numbered_over_all_workers(tmp_path: Path) -> None:
    video = VideoConfig(save_video=True, video_base_dir=str(tmp_path), num_videos=3, info_on_video=False)
    with make_single(make_config(video_cfg=video), num_envs=2, first_env=2) as env:
        env.reset(0)
    assert [path.name for path in tmp_path.iterdir()] == ["epoch_000000_env_0002_episode_000.mp4"]


def test_environments_beyond_num_videos_are_not_rendered(tmp_path: Path) -> None:
    with make_single(recorded(tmp_path), num_envs=2, first_env=2) as env:
        env.reset(0)
        env.chunk_step(torch.zeros(2, 6, 1))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("make_env", [BatchEnv, make_single], ids=["batch", "single"])
def test_a_failing_renderer_is_reported_once_and_stepping_goes_on(
    make_env: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import toy_envs

    def fail(*_: Any) -> Any:
        raise RuntimeError("no graphics driver")

    monkeypatch.setattr(BatchEnv, "render_idx", fail)
    monkeypatch.setattr(toy_envs.CountingEnv, "render", fail)
    with make_env(recorded(tmp_path), num_envs=2) as env:
        env.reset(0)
        for _ in range(3):
            assert env.chunk_step(torch.zeros(2, 2, 1)).executed.any()
    warnings = [line for line in capsys.readouterr().err.splitlines() if "no graphics driver" in line]
    assert len(warnings) == 1
    assert "MUJOCO_GL" in warnings[0]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_required() -> None:
    with pytest.raises(ConfigError, match="video_base_dir"):
        BatchEnv(make_config(video_cfg=VideoConfig(save_video=True)), num_envs=1)


def test_text_is_drawn_onto_a_copy() -> None:
    pytest.importorskip("PIL")
    frame = np.zeros((64, 96, 3), np.uint8)
    drawn = draw_text(frame, ["step 3", "reward 1.0"])
    assert drawn.shape == frame.shape
    assert drawn[:16].max() > 200
    assert frame.max() == 0

"""Videos: one file per episode of the recorded environments, and training that survives a failing renderer."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from batch_env import BatchEnv, make_config, make_single

from rlinf.config.schema.env import VideoConfig
from rlinf.envs.video import draw_text
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
    # Pictures show the time since the reset; the encoder may be off by little.
    for name, expected in zip(names, ([0, 1, 2, 3], [0, 1, 2], [0, 1]), strict=True):
        assert np.allclose(brightness(tmp_path / name), expected, atol=2)
        assert len(brightness(tmp_path / name)) == len(expected)


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

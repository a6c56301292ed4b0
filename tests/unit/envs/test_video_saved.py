"""Videos of continued episodes are whole."""

from pathlib import Path
from typing import Any

import pytest
from batch_env import make_config, make_single
from saved_episodes import play

from rlinf.config.schema.env import VideoConfig


def test_videos_of_continued_episodes_are_whole(tmp_path: Path) -> None:
    imageio: Any = pytest.importorskip("imageio.v2")
    pytest.importorskip("imageio_ffmpeg")

    def lengths(folder: Path) -> dict[str, int]:
        return {path.name: imageio.get_reader(path).count_frames() for path in sorted(folder.iterdir())}

    def config(name: str) -> Any:
        video = VideoConfig(save_video=True, video_base_dir=str(tmp_path / name), num_videos=2)
        return make_config(video_cfg=video)

    for name in ("undisturbed", "killed"):
        with make_single(config(name), num_envs=4) as env:
            env.reset(0)
            play(env, range(4))
            state = env.state_dict()
            if name == "undisturbed":
                play(env, range(50, 55))
    assert state is not None
    with make_single(config("killed"), num_envs=4) as other:
        other.load_state_dict(state)
        play(other, range(50, 55))
    assert lengths(tmp_path / "killed") == lengths(tmp_path / "undisturbed")


def test_a_video_of_tiles_goes_on_in_a_file_of_its_own(tmp_path: Path) -> None:
    pytest.importorskip("imageio_ffmpeg")
    video = VideoConfig(save_video=True, video_base_dir=str(tmp_path), num_videos=2, tile=True)
    for _ in range(3):
        with make_single(make_config(video_cfg=video), num_envs=4) as env:
            if not list(tmp_path.iterdir()):
                env.reset(0)
                play(env, range(2))
                state = env.state_dict()
            else:
                assert state is not None
                env.load_state_dict(state)
            play(env, range(2))
    names = sorted(path.stem for path in tmp_path.iterdir())
    assert names == [f"epoch_000000_envs_0000-0001{part}" for part in ("", "_part_2", "_part_3")]

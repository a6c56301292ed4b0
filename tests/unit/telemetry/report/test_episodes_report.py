"""Episodes and videos on a page."""

import os
from pathlib import Path

from rlinf.telemetry.report import RunFolder
from rlinf.telemetry.report.episodes import describe_episodes, describe_videos
from tests.unit.telemetry.report.report_runs import add_episodes, make_run


def test_episodes_are_shown_by_step(tmp_path: Path) -> None:
    add_episodes(tmp_path, 10, 3)
    add_episodes(tmp_path, 20, 100)
    first, second = describe_episodes(tmp_path)
    assert (first["step"], first["total"]) == (10, 3)
    assert first["rows"][1] == {
        "epoch": 0,
        "env": 1,
        "task": "reach",
        "metrics": {"return": 1.5, "success_once": 1.0},
    }
    assert (len(second["rows"]), second["total"]) == (60, 100)


def test_small_videos_are_within_the_page_and_others_are_linked(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    for number, size in enumerate([100, 400_000]):
        path = folder / "video" / "eval" / f"epoch 0_{number}.mp4"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\0" * size)
        os.utime(path, (number, number))
    videos = describe_videos(RunFolder.read(folder), tmp_path)
    large, small = videos["videos"]
    assert videos["total"] == 2
    assert large == {
        "name": "video/eval/epoch 0_1.mp4",
        "source": "cart/video/eval/epoch%200_1.mp4",
        "link": "cart/video/eval/epoch%200_1.mp4",
    }
    assert small["source"].startswith("data:video/mp4;base64,AAAA")


def test_videos_in_a_folder_of_their_own_are_found(tmp_path: Path) -> None:
    overrides = ["env.eval.video_cfg.save_video=true", f"env.eval.video_cfg.video_base_dir={tmp_path / 'films'}"]
    folder = make_run(tmp_path / "runs", overrides=overrides)
    (tmp_path / "films").mkdir()
    (tmp_path / "films" / "a.mp4").write_bytes(b"x" * 400_000)
    (video,) = describe_videos(RunFolder.read(folder), folder)["videos"]
    assert video["link"] == "../../films/a.mp4"

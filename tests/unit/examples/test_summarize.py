"""What an evaluation of LIBERO is summed up to, and which of them may be compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evaluations import summarize
from rlinf.config import load_recipe, validate_cfg
from rlinf.config.schema.root import EmbodiedConfig
from rlinf.telemetry.evaluation import EvalEpisode, write_episodes

FOLDER = Path(__file__).parents[3] / "evaluations" / "libero"
VERSIONS = {"mujoco": "3.3.0", "assets": "stand-ins (22)"}


def recipe(name: str = "libero_object_eval", *overrides: str) -> EmbodiedConfig:
    cfg = validate_cfg(load_recipe(str(FOLDER / f"{name}.yaml"), ["actor.model.model_path=somewhere", *overrides]))
    assert isinstance(cfg, EmbodiedConfig)
    return cfg


def episodes(cfg: EmbodiedConfig) -> list[EvalEpisode]:
    """Return an evaluation in which the even environments succeed."""
    assert cfg.env.eval is not None
    return [
        EvalEpisode(epoch, env, 0, f"task {env % 10}", {"success_once": float(env % 2 == 0), "return": 0.0})
        for epoch in range(cfg.env.eval.rollout_epoch)
        for env in range(cfg.env.eval.total_num_envs)
    ]


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*_eval.yaml")), ids=lambda file: file.stem)
def test_every_suite_plays_every_start_state_once(file: Path) -> None:
    cfg = recipe(file.stem)
    result = summarize.summarize(cfg, episodes(cfg), VERSIONS)
    count = 4500 if "90" in file.stem else 500
    assert result["starts"] == {"played": count, "distinct": count, "of": count}
    assert result["settings"]["task_suite_name"] == file.stem.removesuffix("_eval")


def test_success_is_counted_by_task_with_intervals() -> None:
    cfg = recipe()
    result = summarize.summarize(cfg, episodes(cfg), VERSIONS)
    assert result["all"]["success"] == 0.5
    assert result["tasks"]["task 0"] == {"episodes": 50, "successes": 50, "success": 1.0, "interval": [0.9287, 1.0]}
    assert result["tasks"]["task 1"]["success"] == 0.0
    assert result["versions"] == VERSIONS


def test_a_start_state_played_twice_is_noticed() -> None:
    cfg = recipe("libero_object_eval", "env.eval.use_fixed_reset_state_ids=true", "env.eval.num_start_states=null")
    assert summarize.summarize(cfg, episodes(cfg), VERSIONS)["starts"] == {"played": 500, "distinct": 20, "of": 500}


def test_other_versions_or_settings_are_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cfg = recipe()
    first = summarize.summarize(cfg, episodes(cfg), VERSIONS)

    def save(name: str, summary: dict[str, Any]) -> Path:
        path = tmp_path / name
        path.write_text(json.dumps(summary), encoding="utf-8")
        return path

    same, other = save("same", first), save("other", {**first, "versions": {**VERSIONS, "mujoco": "3.9.0"}})
    assert summarize.compare(same, same) == 0
    assert "all: 0.500 [" in capsys.readouterr().out
    assert summarize.compare(same, other) == 1
    assert "versions.mujoco: '3.3.0' and '3.9.0'" in capsys.readouterr().err


def test_the_newest_evaluation_is_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    overrides = [f"runner.logger.log_path={tmp_path}", "actor.model.model_path=somewhere"]
    file = str(FOLDER / "libero_goal_eval.yaml")
    with pytest.raises(FileNotFoundError, match="holds no evaluation"):
        summarize.main([file, *overrides])
    folder = tmp_path / "libero_goal_eval/eval_only/initial_1"
    write_episodes(folder / "evaluations/step_00000000.jsonl", episodes(recipe("libero_goal_eval")))
    monkeypatch.setattr(summarize, "libero_versions", lambda assets_path: VERSIONS)
    assert summarize.main([file, *overrides]) == 0
    saved = json.loads((folder / summarize.SUMMARY_FILE).read_text(encoding="utf-8"))
    assert saved["starts"]["distinct"] == 500
    assert saved["settings"]["max_episode_steps"] == 300

"""The shell scripts: their usage errors, what they would run for a recipe, and how the test runner reports failures."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from repository_tree import ROOT

RUN = "examples/embodiment/run_embodiment.sh"
EVAL = "examples/embodiment/eval_embodiment.sh"
COLLECT = "examples/embodiment/collect_data.sh"
REASON = "examples/reasoning/run_main_grpo_math.sh"
SFT = "examples/sft/run_sft.sh"
AGENTS = "examples/agents/run_agents.sh"
LANGUAGE = [(REASON, "reasoning/main_grpo.py", "tiny_math_grpo"), (SFT, "sft/main_sft.py", "tiny_math_sft")]
INSTALL = "requirements/install.sh"


def bash(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", *arguments], cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """Return an environment whose programs note how they were called; one named in $FAIL fails."""
    folder = tmp_path / "venv" / "bin"
    folder.mkdir(parents=True)
    for name in ("python", "ruff", "mypy", "lint-imports", "shellcheck"):
        program = folder / name
        program.write_text(
            f'#!/bin/sh\necho "{name} $*" >> "{tmp_path}/calls"\ncase "{name} $*" in $FAIL) exit 3;; esac\n',
            encoding="utf-8",
        )
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return folder.parent


@pytest.mark.parametrize("script", [RUN, EVAL, COLLECT, REASON, SFT, AGENTS, INSTALL, "tests/run_tests.sh"])
def test_help_shows_the_usage(script: str) -> None:
    run = bash(script, "--help")
    assert run.returncode == 0
    assert run.stdout.startswith(f"Usage: bash {script}")


def test_policies_are_fine_tuned_under_the_published_name_too() -> None:
    assert bash("examples/sft/run_vla_sft.sh", "--help").stdout == bash(RUN, "--help").stdout
    assert bash("examples/sft/run_vla_sft.sh", "one", "two").returncode != 0


@pytest.mark.parametrize(
    ("script", "arguments", "told"),
    [
        (RUN, (), "run_embodiment.sh: name a recipe."),
        (EVAL, (), "eval_embodiment.sh: name a recipe."),
        (RUN, ("one", "two"), "run_embodiment.sh: one recipe at a time, got 'one' and 'two'."),
        (REASON, ("one", "two"), "run_main_grpo_math.sh: one recipe at a time, got 'one' and 'two'."),
        (COLLECT, ("--colour",), "collect_data.sh: unknown option '--colour'."),
        (SFT, ("--config-dir",), "run_sft.sh: --config-dir needs a folder."),
        (SFT, ("--eval",), "run_sft.sh: unknown option '--eval'."),
    ],
)
def test_launchers_explain_wrong_arguments(script: str, arguments: tuple[str, ...], told: str) -> None:
    run = bash(script, *arguments)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.splitlines() == [told, f'Run "bash {script} --help" for the options.']


@pytest.mark.parametrize("script", [RUN, REASON, SFT, AGENTS])
def test_help_lists_the_recipes_of_the_folder_and_of_the_users_own(script: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("# What mine does.\nrunner: {}\n", encoding="utf-8")
    told = bash(script, "--help", "--config-dir", str(tmp_path)).stdout
    recipes = [line.split()[0] for line in told[told.index("\nRecipes\n") :].splitlines()[2:]]
    assert recipes == ["mine", *sorted(path.stem for path in (ROOT / script).parent.glob("config/*.yaml"))]
    assert f"  {'mine':<28} What mine does." in told.splitlines()


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        ((), "name a target: embodied, reason, test or docs"),
        (("embodid",), "unknown target 'embodid'; known: embodied, reason, test, docs"),
        (
            ("embodied", "--env", "metaword"),
            "unknown --env 'metaword'; known: gymnasium, robotics, metaworld, frankasim, langpick, maniskill, "
            "robosuite, libero",
        ),
        (("embodied", "--model", "gpt"), "unknown --model 'gpt' for embodied; known: mlp_policy"),
        (("embodied", "--env"), "--env needs a value"),
        (("test", "--env", "metaworld"), "takes neither --env nor --model"),
        (("embodied", "--colour"), "unknown option '--colour'"),
    ],
)
def test_installer_explains_wrong_arguments(arguments: tuple[str, ...], remedy: str, tmp_path: Path) -> None:
    run = bash(INSTALL, *arguments, RLINF_VENV=str(tmp_path / "venv"))
    assert run.returncode == 2
    assert remedy in run.stderr
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize(
    ("recipe", "env_type"),
    [
        ("gym_cartpole_ppo_mlp", "gymnasium"),
        ("gym_pendulum_ppo_mlp", "gymnasium"),
        ("metaworld_reach_ppo_mlp", "metaworld"),
        ("metaworld_reach_grpo_mlp", "metaworld"),
        ("maniskill_pushcube_ppo_mlp", "maniskill"),
        ("robosuite_lift_rlpd_mlp", "robosuite"),
    ],
)
def test_launcher_installs_what_the_recipe_needs_and_trains(recipe: str, env_type: str, tmp_path: Path) -> None:
    run = bash(RUN, recipe, "--dry-run", "runner.max_epochs=3", RLINF_VENV=str(tmp_path))
    assert run.returncode == 0, run.stderr
    install, train = run.stdout.splitlines()
    assert f"{INSTALL} embodied --env {env_type} --venv {tmp_path}" in install
    assert train.split() == [
        f"{tmp_path}/bin/python",
        f"{ROOT}/examples/embodiment/train_embodied_agent.py",
        "--config-name",
        recipe,
        "runner.max_epochs=3",
    ]


def test_launcher_runs_an_offline_recipe_with_its_own_script(tmp_path: Path) -> None:
    run = bash(RUN, "gym_pendulum_bc_mlp", "--dry-run", RLINF_VENV=str(tmp_path))
    assert "embodied --env gymnasium" in run.stdout
    assert f"{ROOT}/examples/embodiment/train_offline.py --config-name gym_pendulum_bc_mlp" in run.stdout


@pytest.mark.parametrize(
    ("recipe", "overrides", "script"),
    [
        ("gym_cartpole_async_ppo_mlp", (), "train_async.py"),
        ("gym_cartpole_async_ppo_mlp", ("~algorithm.staleness_threshold",), "train_embodied_agent.py"),
        ("gym_cartpole_ppo_mlp", ("+algorithm.staleness_threshold=2",), "train_async.py"),
        ("mine", (), "train_async.py"),
    ],
)
def test_launcher_trains_asynchronously_where_the_recipe_says_how_stale(
    recipe: str, overrides: tuple[str, ...], script: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.yaml").write_text("defaults:\n  - gym_cartpole_async_ppo_mlp\n  - _self_\n", encoding="utf-8")
    run = bash(RUN, recipe, "--dry-run", "--config-dir", str(tmp_path), *overrides)
    assert run.returncode == 0, run.stderr
    assert f"{ROOT}/examples/embodiment/{script} " in run.stdout


@pytest.mark.parametrize(
    "override", ["env.train.env_type=metaworld", "env@env.train=metaworld_reach", "++env.eval.env_type=metaworld"]
)
def test_launcher_sees_an_environment_chosen_by_an_override(override: str, tmp_path: Path) -> None:
    run = bash(RUN, "gym_cartpole_ppo_mlp", "--dry-run", override, RLINF_VENV=str(tmp_path))
    assert "embodied --env metaworld" in run.stdout


def test_launcher_takes_recipes_of_the_users_own(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("env:\n  train:\n    env_type: metaworld\n", encoding="utf-8")
    run = bash(RUN, "mine", "--dry-run", "--config-dir", str(tmp_path))
    assert "embodied --env metaworld" in run.stdout
    assert f"--config-dir {tmp_path} --config-name mine" in run.stdout


def test_evaluation_is_the_same_run_with_only_eval(tmp_path: Path) -> None:
    run = bash(EVAL, "gym_cartpole_ppo_mlp", "--dry-run", RLINF_VENV=str(tmp_path))
    assert run.returncode == 0
    assert run.stdout.splitlines()[-1].split()[-1] == "runner.only_eval=true"


def test_collection_evaluates_and_installs_what_data_sets_need(tmp_path: Path) -> None:
    run = bash(COLLECT, "gym_cartpole_ppo_mlp", "--dry-run", RLINF_VENV=str(tmp_path))
    assert run.returncode == 0
    install, command = run.stdout.splitlines()
    assert install.split()[-1] == "--data"
    assert command.split()[-2:] == ["runner.only_eval=true", "env.eval.data_collection.enabled=true"]


@pytest.mark.parametrize(
    ("script", "recipe", "known"),
    [
        (RUN, "gym_cartpol", "gym_cartpole_ppo_mlp"),
        (REASON, "tiny_maths", "tiny_math_grpo"),
        (SFT, "tiny_maths", "tiny_math_sft"),
    ],
)
def test_an_unknown_recipe_lists_the_recipes(script: str, recipe: str, known: str) -> None:
    run = bash(script, recipe, "--dry-run")
    assert run.returncode == 1
    assert f'unknown recipe "{recipe}"' in run.stderr
    assert known in run.stderr
    assert run.stdout == ""


def in_folder(
    folder: Path, *arguments: str, script: str = REASON, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a launcher of language models in ``folder``, where its recipes look for what they start from."""
    environment = {**os.environ, "RLINF_VENV": str(folder / "venv"), **environment}
    command = ["bash", str(ROOT / script), *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("script", "entry", "recipe"), LANGUAGE)
def test_a_tiny_language_model_is_made_before_it_is_trained(
    script: str, entry: str, recipe: str, tmp_path: Path
) -> None:
    run = in_folder(tmp_path, recipe, "--dry-run", "runner.max_epochs=3", script=script)
    assert run.returncode == 0, run.stderr
    assert [line.strip() for line in run.stdout.splitlines()] == [
        f"bash {ROOT}/{INSTALL} reason --venv {tmp_path}/venv",
        "rm -rf results/tiny_math.part",
        f"{tmp_path}/venv/bin/python {ROOT}/examples/reasoning/make_tiny_math.py --folder results/tiny_math.part",
        "mv results/tiny_math.part results/tiny_math",
        f"{tmp_path}/venv/bin/python {ROOT}/examples/{entry} --config-name {recipe} runner.max_epochs=3",
    ]
    (tmp_path / "results" / "tiny_math").mkdir(parents=True)
    again = in_folder(tmp_path, "--no-install", "--dry-run", script=script)
    assert again.stdout.split() == ["python", f"{ROOT}/examples/{entry}", "--config-name", recipe]


def test_the_launcher_of_agents_installs_what_their_programs_need(tmp_path: Path) -> None:
    run = in_folder(tmp_path, "tiny_sdk_grpo", "--dry-run", script=AGENTS)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[0].strip() == f"bash {ROOT}/{INSTALL} reason --venv {tmp_path}/venv --extras agents"
    assert run.stdout.splitlines()[-1].strip().endswith("/agents/main_agents.py --config-name tiny_sdk_grpo")


def test_what_a_tiny_agent_starts_from_is_made_by_its_task(tmp_path: Path) -> None:
    run = in_folder(tmp_path, "tiny_guessing_grpo", "--no-install", "--dry-run", script=AGENTS)
    assert run.returncode == 0, run.stderr
    assert [line.strip() for line in run.stdout.splitlines()] == [
        "rm -rf results/tiny_guessing.part",
        f"python {ROOT}/examples/agents/make_tiny_agents.py guessing --folder results/tiny_guessing.part",
        "mv results/tiny_guessing.part results/tiny_guessing",
        f"python {ROOT}/examples/agents/main_agents.py --config-name tiny_guessing_grpo",
    ]


@pytest.mark.parametrize(
    ("recipe", "overrides", "options"),
    [
        ("plain", (), []),
        ("mine", (), ["--engine", "vllm"]),
        ("heir", (), ["--engine", "vllm"]),
        ("mine", ("rollout.rollout_backend=hf",), []),
        ("tiny_math_grpo", ("++rollout.rollout_backend=sglang",), ["--engine", "sglang"]),
    ],
)
@pytest.mark.parametrize("script", [REASON, SFT])
def test_the_engine_of_a_recipe_is_installed(
    script: str, recipe: str, overrides: tuple[str, ...], options: list[str], tmp_path: Path
) -> None:
    (tmp_path / "tiny_math_grpo.yaml").write_text("rollout:\n  rollout_backend: hf\n", encoding="utf-8")
    (tmp_path / "plain.yaml").write_text("runner: {}", encoding="utf-8")
    (tmp_path / "mine.yaml").write_text("rollout: {rollout_backend: vllm}\n", encoding="utf-8")
    (tmp_path / "heir.yaml").write_text("defaults: [mine, _self_]\n", encoding="utf-8")
    run = in_folder(tmp_path, recipe, "--dry-run", "--config-dir", str(tmp_path), *overrides, script=script)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[0].split()[3:] == ["--venv", f"{tmp_path}/venv", *options]
    assert f"--config-dir {tmp_path} --config-name {recipe}" in run.stdout.splitlines()[-1]


def test_sglang_has_an_environment_of_its_own(tmp_path: Path) -> None:
    run = in_folder(tmp_path, "--dry-run", "rollout.rollout_backend=sglang", RLINF_VENV="")
    assert run.stdout.splitlines()[0].split()[3:] == ["--venv", f"{ROOT}/.venv-sglang", "--engine", "sglang"]
    assert run.stdout.splitlines()[-1].startswith(f"{ROOT}/.venv-sglang/bin/python ")


@pytest.mark.parametrize(("script", "entry"), [language[:2] for language in LANGUAGE])
def test_a_tiny_model_that_could_not_be_made_is_no_model(script: str, entry: str, venv: Path) -> None:
    run = in_folder(venv.parent, "--no-install", script=script, RLINF_VENV=str(venv), FAIL="*make_tiny_math*")
    assert run.returncode == 3
    assert not (venv.parent / "results" / "tiny_math").exists()
    assert entry not in (venv.parent / "calls").read_text(encoding="utf-8")


@pytest.mark.parametrize("code", ["0", "3"])
def test_launcher_ends_with_the_trainers_exit_code(code: str, venv: Path) -> None:
    fail = "python*" if code == "3" else "none"
    run = bash(RUN, "gym_cartpole_ppo_mlp", "--no-install", RLINF_VENV=str(venv), FAIL=fail)
    assert run.returncode == int(code)
    (venv.parent / "results" / "tiny_math").mkdir(parents=True)
    for script in (REASON, SFT):
        run = in_folder(venv.parent, "--no-install", script=script, RLINF_VENV=str(venv), FAIL=fail)
        assert run.returncode == int(code)


def test_a_failing_gate_fails_the_run_and_the_later_gates_still_report(venv: Path) -> None:
    run = bash("tests/run_tests.sh", "--no-install", RLINF_VENV=str(venv), FAIL="ruff check*")
    assert run.returncode == 1
    summary = run.stdout[run.stdout.rindex("Gate ") :]
    assert summary.count("passed") == 8
    assert summary.count("FAILED (exit code 3)") == 1
    calls = (venv.parent / "calls").read_text(encoding="utf-8")
    assert calls.index("ruff check") < calls.index("lint-imports") < calls.index("python -m pytest tests/e2e")


@pytest.mark.parametrize(
    "gate",
    [
        "ruff format*",
        "mypy*",
        "lint-imports*",
        "shellcheck*",
        "*tests/unit*",
        "*tests/docs*",
        "*tests/e2e*",
        "*tests/chaos*",
    ],
)
def test_each_gate_decides_the_exit_code(gate: str, venv: Path) -> None:
    assert bash("tests/run_tests.sh", "--no-install", RLINF_VENV=str(venv), FAIL=gate).returncode == 1


def test_all_gates_passing_is_success(venv: Path) -> None:
    assert bash(".ci/run", "--no-install", RLINF_VENV=str(venv), FAIL="none").returncode == 0


def test_fast_leaves_out_the_end_to_end_tests(venv: Path) -> None:
    arguments = ("--no-install", "--fast", "--processes", "1", "-k", "grammar")
    run = bash("tests/run_tests.sh", *arguments, RLINF_VENV=str(venv), FAIL="none")
    assert run.returncode == 0
    calls = (venv.parent / "calls").read_text(encoding="utf-8")
    assert "python -m pytest tests/unit --areas -k grammar" in calls
    assert "tests/e2e" not in calls


def test_each_folder_is_run_by_several_processes(venv: Path) -> None:
    run = bash("tests/run_tests.sh", "--no-install", "--processes", "3", "-x", RLINF_VENV=str(venv), FAIL="none")
    assert run.returncode == 0
    calls = (venv.parent / "calls").read_text(encoding="utf-8")
    expected = {"unit": (3, "loadfile"), "docs": (3, "worksteal"), "e2e": (4, "loadfile"), "chaos": (4, "loadfile")}
    for folder, (processes, how) in expected.items():
        shards = f"-n {processes} --dist {how} --no-loadscope-reorder"
        assert f"python -m pytest tests/{folder} --areas {shards} -x" in calls
    assert bash("tests/run_tests.sh", "--no-install", "--processes", "-x").returncode == 2


def test_paths_replace_the_folders_that_pytest_runs(venv: Path) -> None:
    bash("tests/run_tests.sh", "--no-install", "tests/unit/config", "-x", RLINF_VENV=str(venv), FAIL="none")
    pytest_calls = [
        line for line in (venv.parent / "calls").read_text(encoding="utf-8").splitlines() if "pytest" in line
    ]
    assert pytest_calls == ["python -m pytest tests/unit/config -x"]


@pytest.mark.parametrize("code", ["0", "3"])
def test_planted_faults_take_the_place_of_the_gates(code: str, venv: Path) -> None:
    fail = "python -m tests.mutation*" if code == "3" else "none"
    arguments = ("--no-install", "--mutation", "rlinf/algorithms", "--jobs", "1")
    run = bash("tests/run_tests.sh", *arguments, RLINF_VENV=str(venv), FAIL=fail)
    assert run.returncode == int(code)
    calls = (venv.parent / "calls").read_text(encoding="utf-8").splitlines()
    assert calls == ["python -m tests.mutation.run rlinf/algorithms --jobs 1"]


@pytest.mark.parametrize(
    ("recipe", "told"),
    [
        ("gym_cartpol_ppo_mlp", 'Did you mean "gym_cartpole_ppo_mlp"?'),
        ("tiny_math_grpo", "bash examples/reasoning/run_main_grpo_math.sh"),
        ("tiny_math_sft", "bash examples/sft/run_sft.sh"),
        ("tiny_sdk_grpo", "bash examples/agents/run_agents.sh"),
    ],
)
def test_an_unknown_recipe_is_told_what_was_meant(recipe: str, told: str) -> None:
    run = bash(RUN, recipe, "--dry-run")
    assert run.returncode == 1
    assert told in run.stderr


@pytest.mark.parametrize(
    ("names", "status", "told"),
    [("vlm", 2, "--with does not know 'vlm'; known: vllm, sglang"), ("", 2, "--with needs the names of packages")],
)
def test_unknown_guests_are_refused(names: str, status: int, told: str) -> None:
    run = bash("tests/run_tests.sh", "--with", names)
    assert run.returncode == status
    assert told in run.stderr


def test_tests_that_must_run_and_are_skipped_fail() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/docs/test_first_hour.py"]
    skipped, failed = (
        subprocess.run([*command, *more], cwd=ROOT, capture_output=True, text=True, check=False)
        for more in ([], ["--must-run"])
    )
    assert (skipped.returncode, failed.returncode) == (0, 5)
    assert "no test ran" in failed.stdout


def test_each_guest_is_tested_in_an_environment_of_its_own(tmp_path: Path) -> None:
    for folder in ("tests", "requirements"):
        (tmp_path / folder).mkdir()
    (tmp_path / "tests/run_tests.sh").write_text((ROOT / "tests/run_tests.sh").read_text(), encoding="utf-8")
    for name, mark in (("conftest", "lerobot"), ("test_a", "wandb"), ("test_b", "wandbox")):
        (tmp_path / f"tests/{name}.py").write_text(f"@pytest.mark.{mark}", encoding="utf-8")
    python = '#!/bin/sh\\necho "$0 $*" >> "$CALLS"\\ncase "$*" in *wandb*) exit 1 ;; esac\\n'
    (tmp_path / "requirements/install.sh").write_text(
        f'echo "install $*" >> "$CALLS"; mkdir -p "$5/bin"; printf \'{python}\' > "$5/bin/python"; '
        'chmod +x "$5/bin/python"\\n'.replace("\\n", "\n"),
        encoding="utf-8",
    )
    calls = tmp_path / "calls"
    run = subprocess.run(
        ["bash", str(tmp_path / "tests/run_tests.sh"), "--with", "wandb,lerobot", "-x"],
        env={**os.environ, "CALLS": str(calls)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert calls.read_text(encoding="utf-8").replace(str(tmp_path), "").splitlines() == [
        "install embodied --extras testing,wandb --venv /.venv-wandb",
        "/.venv-wandb/bin/python -m pytest tests/test_a.py -m wandb --must-run -x",
        "install embodied --extras testing,data,reasoning --venv /.venv-lerobot",
        "/.venv-lerobot/bin/python -m pip install --quiet --no-deps --requirement /requirements/lerobot.txt",
        "/.venv-lerobot/bin/python -m pytest tests -m lerobot --must-run -x",
    ]
    assert run.returncode == 1
    assert [line.split()[:4] for line in run.stdout.splitlines()[-2:]] == [
        ["tests", "with", "wandb", "FAILED"],
        ["tests", "with", "lerobot", "passed"],
    ]

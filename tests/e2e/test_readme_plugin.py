"""The plug-in that the README shows trains through Ray: its environment, its model and its algorithm."""

import re
from pathlib import Path

import pytest

from tests.e2e.conftest import REPO, read_metrics

pytestmark = pytest.mark.timeout(300)


def write_files_of_the_readme(folder: Path) -> None:
    """Write each Python and YAML block to the file that its first line names."""
    readme = (REPO / "README.md").read_text(encoding="utf-8")
    for block in re.findall(r"^```(?:python|yaml)\n(.*?)^```$", readme, flags=re.MULTILINE | re.DOTALL):
        path = folder / block.splitlines()[0].removeprefix("# ")
        path.parent.mkdir(exist_ok=True)
        path.write_text(block, encoding="utf-8")


def test_the_plugin_of_the_readme_trains(start_run, tmp_path):
    write_files_of_the_readme(tmp_path)
    run = start_run(
        "point",
        f"--config-dir={tmp_path / 'configs'}",
        "runner.max_epochs=2",
        f"runner.logger.log_path={tmp_path / 'results'}",
        env={"RLINF_EXT_MODULE": "my_plugin", "PYTHONPATH": f"{tmp_path}:{REPO}"},
    )
    assert run.wait() == 0, run.output[-4000:]
    first, second = [record for record in read_metrics(tmp_path / "results" / "point") if record["step"] > 0]
    assert (first["step"], second["step"]) == (1, 2)
    assert second["env/episode_len"] <= 50
    assert not run.survivors()

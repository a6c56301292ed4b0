"""What a launch writes about itself, so that its folder and the run that is alive lead to each other."""

from __future__ import annotations

import json
from contextlib import ExitStack

from rlinf.config import load_recipe, validate_cfg
from rlinf.runners.records import open_cluster, record_run
from rlinf.runners.run_logger import RunLogger
from rlinf.scheduler.run_status import ask_status

RECIPE = "gym_cartpole_ppo_mlp"


def test_the_folder_names_the_run_and_the_run_its_experiment(tmp_path):
    cfg = validate_cfg(load_recipe(RECIPE, [f"runner.logger.log_path={tmp_path}", "runner.logger.report=false"]))
    with ExitStack() as afterwards, open_cluster(cfg) as cluster:
        logger = RunLogger(cfg)
        record_run(logger, cluster, afterwards)
        with logger:
            assert ask_status(cluster.namespace)["experiment_name"] == RECIPE
    (launch,) = json.loads((tmp_path / RECIPE / "run.json").read_text())["launches"]
    assert launch["run_id"] == cluster.namespace
    assert launch["placement"]

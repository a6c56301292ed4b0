"""Episodes of a toy robot, and data sets of them."""

import pytest
from lerobot_episodes import write

from rlinf.data.datasets.lerobot import LeRobotDataset


@pytest.fixture(scope="module", params=["image", "video"])
def dataset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LeRobotDataset:
    root = tmp_path_factory.mktemp("lerobot") / request.param
    return LeRobotDataset(write(root, use_videos=request.param == "video"))

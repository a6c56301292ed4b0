"""An evaluation on LIBERO: a policy's result from a start state depends on neither the process nor the order."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from libero_configs import libero_config, needs_assets

from rlinf.config.schema.vla import OpenVLAOFTConfig
from rlinf.envs import make_vector_env
from rlinf.envs.simulators.libero.libero_starts import libero_starts
from rlinf.models import get_policy
from toolkits.vla.make_tiny import TinyShape, write_tiny

_CHUNKS, _ACTIONS = 2, 4
_SENTENCES = ("pick up the alphabet soup", "pick up the cream cheese and place it in the basket")


def policy_config(folder: Path) -> OpenVLAOFTConfig:
    return OpenVLAOFTConfig(
        model_type="openvla_oft", model_path=str(folder), action_dim=7, num_action_chunks=_ACTIONS, max_prompt_length=32
    )


def evaluate(folder: Path, tasks: list[int], trials: list[int], file: Path) -> None:
    """Play every start state by the folder's policy, in the order given, and write what each ended with."""
    torch.set_num_threads(1)
    policy = get_policy(policy_config(folder))
    cfg = libero_config(
        task_id_filter=tasks,
        trial_id_filter=trials,
        total_num_envs=len(tasks),
        group_size=1,
        max_episode_steps=_CHUNKS * _ACTIONS,
        max_steps_per_rollout_epoch=_CHUNKS * _ACTIONS,
        auto_reset=False,
        use_ordered_reset_state_ids=True,
    )
    starts, ends = libero_starts(cfg), dict[str, np.ndarray]()
    with make_vector_env(cfg, num_envs=len(tasks)) as env:
        for epoch in range(len(trials)):
            obs = env.reset(epoch)
            for _ in range(_CHUNKS):
                rows = [
                    {key: value[row : row + 1] for key, value in obs.items() if value is not None}
                    for row in range(len(tasks))
                ]
                step = env.chunk_step(torch.cat([policy.predict_action_batch(row, mode="eval")[0] for row in rows]))
                obs = step.obs
            for row in range(len(tasks)):
                task, trial = starts.start(epoch * len(tasks) + row)
                for key in ("states", "main_images", "wrist_images"):
                    ends[f"{task} {trial} {key}"] = step.final_obs[key][row].numpy()
    np.savez(file, **ends)


@pytest.mark.libero
def test_another_process_evaluates_alike_in_another_order(tmp_path: Path) -> None:
    needs_assets()
    write_tiny(tmp_path / "oft", TinyShape(words=_SENTENCES), policy_config(tmp_path / "oft"))
    code = (
        "import sys; from pathlib import Path; sys.path[:0] = sys.argv[3:]\n"
        "from test_libero_evaluation import evaluate\n"
        "evaluate(Path(sys.argv[1]), [1, 0], [9, 3], Path(sys.argv[2]))\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "oft"), str(tmp_path / "other.npz"), *sys.path]
    )
    try:
        evaluate(tmp_path / "oft", [0, 1], [3, 9], tmp_path / "own.npz")
    finally:
        assert other.wait() == 0
    own, found = np.load(tmp_path / "own.npz"), np.load(tmp_path / "other.npz")
    assert sorted(own) == sorted(found)
    assert len({own[f"{task} {trial} states"].tobytes() for task in (0, 1) for trial in (3, 9)}) == 4
    assert [name for name in own if not np.array_equal(own[name], found[name])] == []

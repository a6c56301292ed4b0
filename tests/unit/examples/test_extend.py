"""The plug-in under examples/extend: its environment, model, algorithm and reward, by the names of its recipe."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parents[3]

# In a process of its own: what it registers must not be seen by other tests.
CODE = """
import torch
from rlinf.utils.plugins import load_plugins
load_plugins()
from rlinf.algorithms.aggregation import Denominators, LossDenominators
from rlinf.algorithms.registry import calculate_adv_and_returns, policy_loss
from rlinf.algorithms.rewards import get_reward_class
from rlinf.data.messages.rewards import RewardRequest
from rlinf.config import load_recipe, validate_cfg
from rlinf.envs import check_vector_env, get_env_cls
from rlinf.models import get_model

cfg = validate_cfg(load_recipe("point", config_dir="config"))
make = lambda: get_env_cls("point")(cfg.env.train, num_envs=4)
check_vector_env(make())

env, policy = make(), get_model(cfg.actor.model)
obs = env.reset(0)
actions, output = policy.predict_action_batch(obs, mode="train", generator=torch.Generator().manual_seed(1))
again = policy(forward_inputs=output.forward_inputs)
torch.testing.assert_close(again.logprobs, output.logprobs)
assert again.values.shape == policy.predict_values(obs).shape == (4, 1)
assert env.chunk_step(actions).rewards.shape == (4, 1)

outcome = env.chunk_step(torch.tensor([[[3.0, 4.0]]] * 4))
request = RewardRequest.from_step(outcome, torch.tensor([[[3.0, 4.0]], [[0.6, 0.8]], [[0.0, 0.0]], [[0.0, 2.0]]]))
effort = get_reward_class("effort")(cfg.reward.rewards["effort"])
# Actions of size 5, 1, 0 and 2; what exceeds 1 costs.
torch.testing.assert_close(effort(request), torch.tensor([[-4.0], [0.0], [0.0], [-1.0]]))

everywhere = torch.ones(2, 2, dtype=torch.bool)
advantages, returns = calculate_adv_and_returns(
    cfg.algorithm.adv_type, rewards=torch.tensor([[1.0, 3.0], [1.0, 5.0]]), loss_mask=everywhere,
    scale=cfg.algorithm.advantage.scale,
)
assert returns.tolist() == [[2.0, 8.0], [1.0, 5.0]]
# Two values lie half their distance from their mean, and their standard deviation is the distance over sqrt(2).
torch.testing.assert_close(advantages, torch.tensor([[-1.0, 1.0], [-1.0, 1.0]]) / 2**0.5)

counts = Denominators(num_valid_tokens=2, num_sequences=2, max_tokens=1)
loss, metrics = policy_loss(
    cfg.algorithm.loss_type,
    logprobs=torch.tensor([0.0, float(torch.tensor(2.0).log())]), old_logprobs=torch.zeros(2),
    advantages=torch.tensor([3.0, 1.0]), loss_mask=torch.ones(2, dtype=torch.bool),
    denominators=LossDenominators(policy=counts, entropy=counts, value=counts), penalty=cfg.algorithm.loss.penalty,
)
# -3 * 1 + 0.5 * 0 and -1 * 2 + 0.5 * 1: their mean.
torch.testing.assert_close(loss, torch.tensor(-2.25))
assert metrics["actor_ratio"].tolist() == [3.0, 2.0]
"""


def test_its_parts_work_together() -> None:
    finished = subprocess.run(
        [sys.executable, "-c", CODE],
        cwd=REPO / "examples" / "extend",
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f".:{REPO}", "RLINF_EXT_MODULE": "plugin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr

"""A scripted expert within chunks: what it labels, what it does itself, and that a resumed run goes on with it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from saved_episodes import assert_same, through_a_file

from rlinf.config.registries import scripted_policies
from rlinf.config.schema.algorithm import DAggerLossConfig
from rlinf.config.schema.env import PixelReachEnvConfig
from rlinf.config.schema.expert import ScriptedExpertConfig
from rlinf.data.messages.embodied import ChunkStep, Observation
from rlinf.envs import make_vector_env
from rlinf.envs.base import VectorEnv
from rlinf.envs.wrappers.expert_labels import ExpertLabels

CHUNK = 4


def to_the_goal(obs: Observation) -> torch.Tensor:
    """Act for the positions of gripper and goal [B, 4]."""
    states = obs["states"]
    return ((states[:, 2:] - states[:, :2]) / 0.5).clamp(-1.0, 1.0).unsqueeze(1)


@pytest.fixture(autouse=True)
def expert(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripted_policies, "_entries", dict(scripted_policies._entries))
    scripted_policies.register("to_the_goal", lambda env: to_the_goal)
    scripted_policies.register("nowhere", lambda env: lambda obs: torch.zeros(len(obs["states"]), 1, 2))


def make_env(
    *, num_envs: int = 6, first_env: int = 0, step: int = 1, policy: str = "to_the_goal", **keys: Any
) -> VectorEnv:
    loss = {key: keys.pop(key) for key in ("beta", "beta_decay") if key in keys}
    defaults: dict[str, Any] = {"max_episode_steps": 10, "image_size": 16, "goal_in_states": True}
    cfg = PixelReachEnvConfig(
        env_type="pixel_reach", total_num_envs=6, max_steps_per_rollout_epoch=20, **{**defaults, **keys}
    )
    env = make_vector_env(cfg, num_envs=num_envs, first_env=first_env)
    who = ScriptedExpertConfig(expert_type="scripted", policy=policy)
    env.add_wrapper(ExpertLabels(DAggerLossConfig(expert=who, **loss), env=cfg, num_envs=num_envs))
    env.begin_step(step)
    return env


def chunk(number: int, num_envs: int = 6) -> torch.Tensor:
    actions = torch.rand(6, CHUNK, 2, generator=torch.Generator().manual_seed(number)) * 2 - 1
    return actions[:num_envs]


@pytest.mark.parametrize("auto_reset", [True, False])
@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_labels_are_what_the_expert_would_do_in_the_state_that_each_action_meets(beta: float, auto_reset: bool) -> None:
    with make_env(beta=beta, auto_reset=auto_reset) as env:
        seen, acted, ended = env.reset(0)["states"], [], 0
        for number in range(6):
            step, wanted, states = env.chunk_step(chunk(number)), chunk(number), seen.clone()
            flags = step.intervene_flag
            for place in range(CHUNK):
                lives = step.executed[:, place]
                label = to_the_goal({"states": states})[:, 0]
                torch.testing.assert_close(step.expert_action[lives, place], label[lives])
                # The expert acts in whole chunks, as far as they go; otherwise the policy does.
                assert torch.equal(flags[:, place], flags[:, 0] & lives)
                executed = torch.where(flags[:, place, None], step.expert_action[:, place], wanted[:, place])
                assert torch.equal(step.intervene_action[lives, place], executed[lives])
                states[:, :2] = (states[:, :2] + 0.15 * executed).clamp(-1.0, 1.0)
            goes_on = step.executed.all(-1) & ~(step.terminations | step.truncations).any(-1)
            torch.testing.assert_close(step.obs["states"][goes_on], states[goes_on])
            acted.append(flags[step.executed[:, 0], 0])
            ended += int((step.executed[:, 0] & ~step.executed[:, -1]).sum())
            seen = step.obs["states"]
    assert ended, "no chunk was cut short"
    share = float(torch.cat(acted).float().mean())
    assert share == beta if beta in {0.0, 1.0} else 0.2 < share < 0.8


@pytest.mark.parametrize(("step", "share"), [(1, 0.8), (2, 0.4), (3, 0.2)])
def test_the_expert_acts_ever_more_rarely(step: int, share: float) -> None:
    with make_env(step=step, beta=0.8, beta_decay=0.5, ignore_terminations=True) as env:
        env.reset(0)
        flags = torch.cat([env.chunk_step(chunk(number)).intervene_flag[:, 0] for number in range(50)])
    assert float(flags.float().mean()) == pytest.approx(share, abs=0.08)


def play(env: VectorEnv, numbers: range) -> list[ChunkStep]:
    return [env.chunk_step(chunk(number)[env.first_env :][: env.num_envs]) for number in numbers]


def test_who_acts_does_not_depend_on_how_environments_are_cut_over_workers() -> None:
    with (
        make_env(beta=0.5) as env,
        make_env(num_envs=3, beta=0.5) as one,
        make_env(num_envs=3, first_env=3, beta=0.5) as other,
    ):
        for part in (env, one, other):
            part.reset(0)
        parts = zip(play(one, range(4)), play(other, range(4)), strict=True)
        for whole, joined in zip(play(env, range(4)), map(ChunkStep.concat, parts), strict=True):
            assert torch.equal(whole.intervene_flag, joined.intervene_flag)
            assert torch.equal(whole.expert_action, joined.expert_action)


def test_the_steps_of_a_run_and_its_chunks_have_chances_of_their_own() -> None:
    nothing = torch.zeros(6, CHUNK, 2)
    with make_env(policy="nowhere", beta=0.5, beta_decay=1.0, max_episode_steps=100) as env:
        flags = []
        for number in (1, 2, 1):
            env.begin_step(number)
            env.reset(0)
            flags.append(torch.stack([env.chunk_step(nothing).intervene_flag[:, 0] for _ in range(4)]))
    assert torch.equal(flags[0], flags[2])
    assert not torch.equal(flags[0][0], flags[1][0])
    # Nothing moves: the number of the chunk alone is another.
    assert (flags[0][:-1] != flags[0][1:]).any()


def test_episodes_that_are_continued_are_labelled_on(tmp_path: Path) -> None:
    with make_env(beta=0.5) as env, make_env(step=2, beta=0.5) as resumed:
        env.reset(0)
        play(env, range(3))
        state = through_a_file(env.state_dict(), tmp_path)
        env.begin_step(2)
        expected = play(env, range(3, 6))
        resumed.load_state_dict(state)
        assert_same(play(resumed, range(3, 6)), expected)


def test_a_look_at_other_start_states_is_labelled_from_there() -> None:
    with make_env(beta=1.0) as env:
        env.reset(0)
        shown = env.restart(np.array([1, 4]), np.array([77, 78]))
        step = env.chunk_step(chunk(0))
        assert torch.equal(step.expert_action[[1, 4], 0], to_the_goal(shown)[:, 0])

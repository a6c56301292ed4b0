"""Rewards: what they are asked with, each kind of them, and their weighted sum."""

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest
import torch

from rlinf.algorithms.rewards import get_reward_class
from rlinf.algorithms.rewards.base import EmbodiedReward, at_last_action
from rlinf.config.schema.reward import (
    ActionPenaltyConfig,
    ApiRewardConfig,
    EmbodiedRewardConfig,
    EnvRewardConfig,
    ModelRewardConfig,
)
from rlinf.data.embodied import ChunkStep
from rlinf.data.rewards import RewardRequest
from rlinf.errors import ConfigError, RewardError
from rlinf.models.success_classifier import ClassifierConfig, SuccessClassifier
from rlinf.telemetry.metrics import MetricAccumulator
from rlinf.workers.reward import json_service
from rlinf.workers.reward.reward_worker import WeightedRewards

CPU = torch.device("cpu")


def outcome():
    """Three environments, two actions: one goes on, one ends after its first action, one rests."""
    executed = torch.tensor([[True, True], [True, False], [False, False]])
    ends = torch.tensor([[False, False], [True, False], [False, False]])
    return ChunkStep(
        obs={"states": torch.tensor([[1.0], [2.0], [3.0]]), "task": ["a", "b", "c"]},
        rewards=torch.tensor([[0.5, 1.0], [2.0, 0.0], [0.0, 0.0]]),
        terminations=ends,
        truncations=torch.zeros_like(ends),
        executed=executed,
        final_obs={"states": torch.tensor([[9.0]]), "task": ["end"]},
        final_ids=torch.tensor([1]),
    )


def request():
    return RewardRequest.from_outcome(outcome(), torch.tensor([[[1.0, 3.0], [0.0, 2.0]]] * 3))


def test_a_request_shows_the_state_in_which_an_episode_ended():
    asked = request()
    assert asked.obs["states"].squeeze(-1).tolist() == [1.0, 9.0, 3.0]
    assert asked.obs["task"] == ["a", "end", "c"]
    assert outcome().obs["states"].squeeze(-1).tolist() == [1.0, 2.0, 3.0]
    part = asked.rows(1, 3)
    assert part.obs["task"] == ["end", "c"]
    assert part.rewards.tolist() == [[2.0, 0.0], [0.0, 0.0]]


def test_the_score_of_a_chunk_goes_to_its_last_executed_action():
    scores = at_last_action(torch.tensor([5.0, 6.0, 7.0]), outcome().executed)
    assert scores.tolist() == [[0.0, 5.0], [6.0, 0.0], [0.0, 0.0]]


def test_rewards_are_weighted_masked_and_shown_one_by_one():
    terms = {
        "env": EnvRewardConfig(reward_type="env", weight=2.0),
        "effort": ActionPenaltyConfig(reward_type="action_penalty", weight=0.1),
        "end": EnvRewardConfig(reward_type="env", weight=10.0, reward_mode="terminal"),
    }
    metrics = MetricAccumulator()
    total = WeightedRewards(terms, CPU)(request(), metrics)
    # env: 2 * own; effort: -0.1 * (1 + 9) / 2, then -0.1 * (0 + 4) / 2; end: 10 * own where an episode ended.
    torch.testing.assert_close(total, torch.tensor([[1.0 - 0.5, 2.0 - 0.2], [4.0 - 0.5 + 20.0, 0.0], [0.0, 0.0]]))
    shown = {name: metric.value() for name, metric in metrics.triples().items()}
    assert shown == pytest.approx(
        {"env/reward/env": 3.5 / 3, "env/reward/effort": -(5 + 2 + 5) / 3, "env/reward/end": 2.0 / 3}
    )


@pytest.mark.parametrize(
    ("values", "words"), [(torch.zeros(3), "one number for each action"), (torch.full((3, 2), torch.nan), "NaN")]
)
def test_a_reward_of_wrong_shape_or_that_is_no_number_is_named(monkeypatch, values, words):
    class Broken(EmbodiedReward):
        def __call__(self, request):
            return values

    monkeypatch.setattr("rlinf.workers.reward.reward_worker.get_reward_class", lambda name: Broken)
    rewards = WeightedRewards({"mine": EmbodiedRewardConfig(reward_type="broken")}, CPU)
    with pytest.raises(RewardError, match=words) as failure:
        rewards(request(), MetricAccumulator())
    assert "reward.rewards.mine" in str(failure.value)


# -- model -------------------------------------------------------------------------------------------------------------


def save_classifier(path):
    torch.manual_seed(0)
    classifier = SuccessClassifier(ClassifierConfig(image_keys=("main_images",), image_size=(16, 20), state_dim=1))
    classifier.save(path)
    return classifier.eval()


def model_reward(path, **keys):
    cfg = ModelRewardConfig(reward_type="model", model_path=str(path), **keys)
    return get_reward_class("model")(cfg, device=CPU)


def image_request():
    images = torch.randint(0, 256, (3, 16, 20, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    asked = request()
    asked.obs["main_images"] = images
    return asked


def test_a_learned_reward_is_the_probability_of_success(tmp_path):
    classifier, asked = save_classifier(tmp_path / "c.pt"), image_request()
    probability = torch.sigmoid(classifier(asked.obs)).detach()
    rewards = model_reward(tmp_path / "c.pt")(asked)
    torch.testing.assert_close(rewards, at_last_action(probability, asked.executed))
    lowest = float(probability[:2].min())
    kept = model_reward(tmp_path / "c.pt", reward_threshold=lowest + 1e-6)(asked)
    assert (kept[:2] > 0).sum() == 1


def test_a_learned_reward_wants_the_file_and_the_cameras_it_was_trained_on(tmp_path):
    with pytest.raises(ConfigError, match=r"train_reward_model\.py"):
        model_reward(tmp_path / "absent.pt")
    torch.save({"weights": {}}, tmp_path / "other.pt")
    with pytest.raises(ConfigError, match="holds no classifier"):
        model_reward(tmp_path / "other.pt")
    save_classifier(tmp_path / "c.pt")
    with pytest.raises(RewardError, match="main_images"):
        model_reward(tmp_path / "c.pt")(request())


# -- api ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def service(monkeypatch):
    """Return a function that serves the given answers, one after the other, and the bodies it was sent."""
    monkeypatch.setattr(json_service, "FIRST_PAUSE_SECONDS", 0.001)
    bodies, answers = [], []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            status, text = answers.pop(0)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *args):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()

    def make(*given, **keys):
        answers.extend(given)
        cfg = ApiRewardConfig(
            reward_type="api",
            url=f"http://127.0.0.1:{server.server_port}/score",
            **{"obs_keys": ["states", "task"], "timeout_seconds": 10.0, **keys},
        )
        return get_reward_class("api")(cfg, device=CPU), bodies

    yield make
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_service_is_sent_observations_and_answers_one_number_per_environment(service):
    reward, bodies = service((200, '{"rewards": [1.5, 2.5, 3.5]}'))
    assert reward(request()).tolist() == [[0.0, 1.5], [2.5, 0.0], [0.0, 0.0]]
    (body,) = bodies
    states = body["obs"]["states"]
    array = np.frombuffer(base64.b64decode(states["data"]), states["dtype"]).reshape(states["shape"])
    assert array.tolist() == [[1.0], [9.0], [3.0]]
    assert body["obs"]["task"] == ["a", "end", "c"]
    assert body["rewards"] == [1.5, 2.0, 0.0]
    assert body["done"] == [False, True, False]


def test_failures_of_a_service_are_tried_again_and_then_told(service):
    reward, bodies = service((503, ""), (200, "no json"), (200, '{"rewards": [1, 2, 3]}'))
    assert reward(request())[0, 1] == 1.0
    assert len(bodies) == 3
    reward, _ = service((500, ""), (500, ""), max_retries=1)
    with pytest.raises(RewardError, match="attempt 2 of 2") as failure:
        reward(request())
    assert "127.0.0.1" in str(failure.value)


@pytest.mark.parametrize("answer", [(404, ""), (200, '{"rewards": [1, 2]}'), (200, '{"reward": 1}'), (200, "[1]")])
def test_what_would_fail_again_is_not_repeated(service, answer):
    reward, bodies = service(answer)
    with pytest.raises(RewardError):
        reward(request())
    assert len(bodies) == 1


def test_keys_that_the_environment_does_not_show_are_an_error(service):
    reward, _ = service(obs_keys=["main_images"])
    with pytest.raises(RewardError, match=r"main_images.*states, task"):
        reward(request())

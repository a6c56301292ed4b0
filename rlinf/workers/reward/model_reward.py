"""``reward_type: model``: a learned classifier of success."""

from __future__ import annotations

from pathlib import Path

import torch

from rlinf.algorithms.rewards.base import EmbodiedReward, at_last_action
from rlinf.config.schema.reward import ModelRewardConfig
from rlinf.data.rewards import RewardRequest
from rlinf.errors import RewardError
from rlinf.models.success_classifier import SuccessClassifier


class ModelReward(EmbodiedReward):
    """The probability that the task is solved in the observation after a chunk, given to its last action.

    Args:
        cfg: Its keys.
        device: Where to compute.
    """

    cfg: ModelRewardConfig

    def __init__(self, cfg: ModelRewardConfig, *, device: torch.device) -> None:
        super().__init__(cfg, device=device)
        self.model = SuccessClassifier.load(Path(cfg.model_path).expanduser()).to(device).eval()

    @torch.no_grad()
    def __call__(self, request: RewardRequest) -> torch.Tensor:
        """See ``EmbodiedReward``.

        Raises:
            RewardError: The environment does not show what the classifier was trained on.
        """
        self._check(request)
        scores = torch.sigmoid(self.model(request.obs))
        scores = torch.where(scores >= self.cfg.reward_threshold, scores, 0.0)
        return at_last_action(scores, request.executed.to(scores.device))

    def _check(self, request: RewardRequest) -> None:
        seen = self.model.cfg
        expected: dict[str, tuple[int, ...]] = {key: (*seen.image_size, 3) for key in seen.image_keys}
        if seen.state_dim:
            expected["states"] = (seen.state_dim,)
        for key, shape in expected.items():
            got = tuple(request.obs[key].shape[1:]) if key in request.obs else "nothing"
            if got != shape:
                raise RewardError(
                    f"The classifier {self.cfg.model_path} was trained on '{key}' of shape {list(shape)}; the "
                    f"environment shows {got}. Train it on this environment, or change the environment's cameras."
                )

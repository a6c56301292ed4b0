"""What acting while the policy computes changes on ``langpick``: success, and how far actions jump between chunks.

Evaluates one model on the same start states: waiting for each chunk; acting on, with chunks as they come; and with
chunks that are led to go on from the one before (``actor.model.real_time_chunking``). The loop is the env worker's own.

    python benchmarks/real_time_chunking.py --model results/langpick/openpi_sft
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import torch

from rlinf.config import load_recipe, validate_cfg
from rlinf.data.messages.embodied import ChunkStep
from rlinf.models import get_policy
from rlinf.models.base_policy import BasePolicy
from rlinf.workers.env.env_worker import EnvWorker

RECIPE = "langpick_grpo_openpi_tiny"
MODES: tuple[tuple[str, int, float | None], ...] = (
    ("waits", 0, None),
    *((name, delay, bound) for delay in (1, 2) for name, bound in (("as they come", 0.0), ("led", 1.0), ("led", 5.0))),
)
"""Name, actions that are executed while the policy computes, and bound of the guidance; None does neither."""


class LocalPolicy:
    """Answers the env worker in its own process, and notes what is executed.

    Args:
        model: The policy.
        chunk: Actions from one chunk to the next (``C``).
        delay: Of them, executed while the next is computed; None waits.
    """

    def __init__(self, model: BasePolicy, *, chunk: int, delay: int | None) -> None:
        self.model, self.chunk, self.delay = model, chunk, delay
        self.joints: list[float] = []
        self.inside: list[float] = []
        self._obs: dict[str, Any] = {}
        self._plan: torch.Tensor | None = None
        self._rows = torch.zeros(0, dtype=torch.bool)

    def begin_epoch(self, mode: str, *, step: int, epoch: int) -> None:
        """Forget the plan."""
        self._plan = None

    def send(self, stage: int, chunk: ChunkStep, *, is_last: bool) -> None:
        """Take what is seen, and which environments still act."""
        self._obs, self._rows = chunk.obs, chunk.executed.all(1)

    def receive(self, stage: int) -> torch.Tensor:
        """Return actions, or all planned ones."""
        if self.delay is None:
            plan, before, first = self.model.predict_action_batch(self._obs, mode="eval")[0], -1, 0
        else:
            plan, before, first = self.model.plan_action_batch(self._obs), self.chunk + self.delay - 1, self.delay
        moves = plan[..., :3].clamp(-1.0, 1.0)
        if self._plan is not None:
            steps = (moves[:, first] - self._plan[:, before]).norm(dim=-1)
            self.joints += steps[self._rows].tolist()
        executed = moves[:, first : self.chunk + first]
        self.inside += (executed[:, 1:] - executed[:, :-1]).norm(dim=-1)[self._rows].flatten().tolist()
        self._plan = moves
        return plan

    def end_epoch(self) -> None:
        """Nothing is collected."""

    def end_rollout(self, step: int) -> None:
        """No one waits."""


def evaluate(path: str, *, delay: int, bound: float | None) -> dict[str, float]:
    """Return success on the recipe's start states, and the mean change of the hand's motion between actions."""
    keys = [f"actor.model.model_path={path}", "runner.only_eval=true"]
    if bound is not None:
        chunking = f"{{enabled: true, inference_delay: {delay}, max_guidance_weight: {bound}}}"
        keys.append(f"+actor.model.real_time_chunking={chunking}")
    cfg: Any = validate_cfg(load_recipe(RECIPE, keys))
    worker = EnvWorker(cfg, num_rollout_workers=1, num_actor_workers=1)
    model = cfg.actor.model
    policy = LocalPolicy(get_policy(model), chunk=model.num_action_chunks, delay=model.inference_delay)
    worker.policy = policy  # type: ignore[assignment]
    episodes = worker.evaluate()
    worker.on_shutdown()
    return {
        "success": sum(episode.metrics["success_once"] for episode in episodes) / len(episodes),
        "jump_between_chunks": sum(policy.joints) / len(policy.joints),
        "jump_within_chunks": sum(policy.inside) / len(policy.inside),
    }


def main() -> None:
    """Evaluate one way after the other, and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder of a pi-0 that was fine-tuned on langpick")
    args = parser.parse_args()
    torch.set_num_threads(1)
    results = []
    for name, delay, bound in MODES:
        found = evaluate(args.model, delay=delay, bound=bound)
        rounded = {key: round(value, 3) for key, value in found.items()}
        results.append({"chunks": name, "inference_delay": delay, "max_guidance_weight": bound, **rounded})
    usual = [row["jump_between_chunks"] for row in results if row["chunks"] == "as they come"]
    led = [row["jump_between_chunks"] for row in results if row["max_guidance_weight"] == 5.0]
    ratios = [round(after / before, 2) for before, after in zip(usual, led, strict=True)]
    print(json.dumps({"recipe": RECIPE, "start_states": 64, "modes": results, "jump_ratio_led": ratios}, indent=1))


if __name__ == "__main__":
    main()

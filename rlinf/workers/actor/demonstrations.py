"""What an off-policy learner samples next to its replay: saved demonstrations and interventions."""

from __future__ import annotations

from pathlib import Path

import torch

from rlinf.config.schema.algorithm import DemoBufferConfig
from rlinf.data.replay.buffer import ReplayBuffer, Transitions
from rlinf.errors import DatasetError


class Demonstrations:
    """One rank's demonstrations: every rank holds all that were saved, and the interventions in its own environments.

    Args:
        cfg: ``algorithm.demo_buffer``.
        num_ranks: Ranks that share ``capacity``.

    Raises:
        DatasetError: There is no saved replay where ``load_path`` says.
    """

    def __init__(self, cfg: DemoBufferConfig, *, num_ranks: int) -> None:
        self.batch_share = cfg.batch_share
        self.saved = None if cfg.load_path is None else ReplayBuffer.open(Path(cfg.load_path))
        self.interventions = ReplayBuffer(-(-cfg.capacity // num_ranks)) if cfg.interventions else None

    def __len__(self) -> int:
        return sum(len(part) for part in self._parts())

    def add(self, new: Transitions, intervened: torch.Tensor) -> None:
        """Keep the transitions that hold an intervention, bool [N]."""
        if self.interventions is not None and bool(intervened.any()):
            self.interventions.add(new.select(intervened))

    def sample(self, count: int, generator: torch.Generator) -> list[Transitions]:
        """Sample ``count`` transitions uniformly from all parts; none while there are none."""
        total, sampled = len(self), 0
        samples = []
        seen = 0
        for part in self._parts():
            seen += len(part)
            share = round(count * seen / total) - sampled
            sampled += share
            samples += [part.sample(share, generator)] if share else []
        return samples

    def check_alike(self, new: Transitions) -> None:
        """Check that saved transitions can share a batch with new ones.

        Raises:
            DatasetError: It cannot, or there is nothing.
        """
        if self.saved is None:
            return
        path = "algorithm.demo_buffer.load_path"
        if len(self.saved) == 0:
            raise DatasetError(f"{path} holds no transitions. Give a folder that was saved with some.")
        ours = {name: (tensor.dtype, list(tensor.shape[1:])) for name, tensor in new.named().items()}
        rows = self.saved.sample(1, torch.Generator().manual_seed(0))
        theirs = {name: (tensor.dtype, list(tensor.shape[1:])) for name, tensor in rows.named().items()}
        for name in sorted({*ours, *theirs}):
            if ours.get(name) != theirs.get(name):
                raise DatasetError(
                    f"{path} has for {name} {theirs.get(name, 'nothing')}; this recipe's policy and environments have "
                    f"{ours.get(name, 'nothing')}. Collect demonstrations by the same policy, environment and chunk "
                    "length."
                )

    def save(self, path: Path, *, rank: int) -> None:
        """Write this rank's interventions under ``path``; what was loaded from elsewhere stays there."""
        if self.interventions is not None and len(self.interventions):
            self.interventions.save(path / f"rank_{rank}")

    def load(self, path: Path, *, rank: int, num_ranks: int) -> None:
        """Hold the interventions that ``save`` wrote; under another number of ranks they are dealt out anew."""
        if self.interventions is None:
            return
        self.interventions.clear()
        if path.is_dir():
            self.interventions.load(path, rank=rank, num_ranks=num_ranks)

    def _parts(self) -> list[ReplayBuffer]:
        return [part for part in (self.saved, self.interventions) if part is not None and len(part)]

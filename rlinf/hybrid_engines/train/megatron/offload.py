"""Moving a rank's buffers, masters and moments to host memory and back, behind tensors that stay the same."""

from __future__ import annotations

from collections.abc import Iterable

import torch


class HostMemory:
    """Keeps the content of device tensors on the host; views of them are valid again when it is back.

    Megatron-Core's parameters and gradients are views of buffers, so buffers are emptied, not replaced.
    """

    def __init__(self) -> None:
        self._kept: list[tuple[torch.UntypedStorage, torch.Tensor]] = []

    def take(self, tensors: Iterable[torch.Tensor]) -> None:
        """Copy the storages of tensors to the host and free them; does nothing if storages are kept already.

        Args:
            tensors: On a device; several may share a storage.
        """
        if self._kept:
            return
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if storage.size() == 0:
                continue
            content = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
            self._kept.append((storage, content.to("cpu", copy=True)))
            del content
            storage.resize_(0)

    def give_back(self) -> None:
        """Copy what is kept to where it was."""
        for storage, content in self._kept:
            storage.resize_(len(content))
            place = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
            place.copy_(content)
        self._kept = []

"""Stands in for SGLang's compiled kernels on a CPU, where no build of them exists: enough for dense models.

requirements/install.sh puts it into SGLang's own environment, and only where the real package is missing.
"""

import torch

__version__ = "0.0.0"


def assign_req_to_token_pool_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    start_offset: torch.Tensor,
    end_offset: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
) -> None:
    """Write each request's slice of cache locations into its row of the table."""
    position = 0
    rows = zip(req_pool_indices.tolist(), start_offset.tolist(), end_offset.tolist(), strict=True)
    for row, start, end in rows:
        taken = out_cache_loc[position : position + end - start]
        req_to_token[row, start:end] = taken.to(req_to_token.dtype)
        position += end - start


def __getattr__(name: str) -> object:
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*args: object, **kwargs: object) -> None:
        raise NotImplementedError(f"sgl_kernel.{name} is compiled, and there is no build of it for this machine.")

    missing.__name__ = name
    return missing

"""Seeds by meaning: every random draw comes from a generator named by (run seed, component, rank, purpose, step)."""

from __future__ import annotations

import hashlib


def derive_seed(*parts: int | str) -> int:
    """Return a seed in [0, 2**31) that depends on every part and on nothing else.

    Args:
        *parts: What names the stream, for example ``(run_seed, "rollout", rank, "actions", step)``.
    """
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") & 0x7FFFFFFF

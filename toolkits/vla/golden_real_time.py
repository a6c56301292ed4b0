"""Run the published code of real-time chunking and write what it computes: the fixture of a golden test.

    python toolkits/vla/golden_real_time.py --code real-time-chunking-kinetix --out tests/golden

``--code`` is a checkout of github.com/Physical-Intelligence/real-time-chunking-kinetix (cc6c5f5), of which one file
runs; it needs jax, flax and einops. In place of its network stands a velocity that any framework computes.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

HORIZON, SIZE, BATCH, STEPS = 6, 2, 2, 5
CASES: list[dict[str, Any]] = [
    {"delay": 2, "planned": 5, "schedule": schedule, "bound": bound}
    for schedule in ("exp", "linear", "ones", "zeros")
    for bound in (1.5, 5.0)
]
CASES.append({"delay": 0, "planned": 4, "schedule": "exp", "bound": 5.0})


def main() -> None:
    """Write ``real_time.json``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--code", type=Path, required=True, help="checkout of the published code")
    parser.add_argument("--out", type=Path, required=True, help="folder of the fixture")
    args = parser.parse_args()
    sys.path.insert(0, str(args.code / "src"))
    import jax  # type: ignore[import-not-found]
    import model  # type: ignore[import-not-found]

    generator = np.random.default_rng(0)
    mixing = generator.normal(0.0, 0.5, (HORIZON * SIZE, HORIZON * SIZE)).astype(np.float32)
    shift = generator.normal(0.0, 1.0, (BATCH, 1)).astype(np.float32)
    planned = generator.normal(0.0, 1.0, (BATCH, HORIZON, SIZE)).astype(np.float32)

    class Flow:
        """The published sampler around another velocity, towards actions."""

        action_chunk_size, action_dim = HORIZON, SIZE

        def __call__(self, obs: Any, x: Any, time: Any) -> Any:
            """Return a velocity in which every number depends on all others."""
            flat = x.reshape(len(x), -1)
            return (jax.numpy.tanh(flat @ mixing + obs) * (1.0 + time)).reshape(x.shape)

    rng = jax.random.PRNGKey(0)
    fixture: dict[str, Any] = {
        "num_steps": STEPS,
        "mixing": mixing.tolist(),
        "shift": shift.tolist(),
        "planned": planned.tolist(),
        "noise": np.asarray(jax.random.normal(rng, (BATCH, HORIZON, SIZE))).tolist(),
        "cases": [],
    }
    for case in CASES:
        keys = (case["delay"], case["planned"], case["schedule"])
        weights = model.get_prefix_weights(keys[0], keys[1], HORIZON, keys[2])
        actions = model.FlowPolicy.realtime_action(Flow(), rng, shift, STEPS, planned, *keys, case["bound"])
        fixture["cases"].append(
            {**case, "weights": np.asarray(weights).tolist(), "actions": np.asarray(actions).tolist()}
        )
    (args.out / "real_time.json").write_text(json.dumps(fixture) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

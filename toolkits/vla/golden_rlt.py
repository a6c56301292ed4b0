"""Run the published network of RLT's token at a tiny size and write what it computes: the fixture of its golden test.

    python toolkits/vla/golden_rlt.py --code RLinf --out tests/golden

``--code`` is a checkout of github.com/RLinf/RLinf (a3816b5). Weights are ``seeded_weight`` of their names; the fixture
holds inputs and outputs.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from toolkits.vla.seeded_weights import seeded_images, seeded_state

SIZES = {"input_dim": 12, "embed_dim": 16, "prefix_seq_len": 8, "num_layers": 2, "num_heads": 4, "mlp_ratio": 2.0}
SOURCE = "rlinf/models/embodiment/modules/rlt_token_transformer.py"
SAMPLES, TOKENS = 3, 6


def main() -> None:
    """Write the fixture that the command line describes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--code", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    spec = importlib.util.spec_from_file_location("published", args.code / SOURCE)
    assert spec is not None
    assert spec.loader is not None
    published: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(published)
    model = published.RLTTokenTransformer(**SIZES)
    first = {name: tensor.detach().clone() for name, tensor in model.state_dict().items() if "pos_enc" in name}
    shapes = {name: list(tensor.shape) for name, tensor in model.state_dict().items()}
    model.load_state_dict(seeded_state(shapes))
    outputs = seeded_images(SAMPLES, TOKENS)[:, :, :, :2].reshape(SAMPLES, TOKENS, -1).float() / 127.5 - 1.0
    there = torch.arange(TOKENS) < torch.tensor([[TOKENS], [TOKENS - 1], [TOKENS - 3]])
    with torch.no_grad():
        made, token = model.reconstruct(outputs, there)
        # One sample at a time, as the published mean is over the tokens of a batch.
        losses = torch.stack([model.loss(outputs[i : i + 1], there[i : i + 1])[0] for i in range(SAMPLES)])
    tensors = {"outputs": outputs, "there": there, "token": token[:, 0], "made": made, "losses": losses, **first}
    sizes = {"shapes": json.dumps(shapes), "sizes": json.dumps(SIZES)}
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, args.out / "rlt.safetensors", sizes)


if __name__ == "__main__":
    main()

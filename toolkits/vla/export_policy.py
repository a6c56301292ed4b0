"""Write what a run has trained in the published layout, so that published scripts and other runs can load it.

    python toolkits/vla/export_policy.py pixel_reach_grpo_oft_tiny \
        --checkpoint results/run/checkpoints/global_step_100 --out models/trained

Further arguments are overrides of the recipe, as in the run. Adapters are added in; value heads are not published, and
the network of ``use_rlt`` has a file of its own, which the second stage of RLT reads.
Files have the names, and tensors the types, that they have in the folder that the run started from.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rlinf.config import load_recipe, validate_cfg
from rlinf.config.schema.vla import VLAConfig
from rlinf.errors import ConfigError
from rlinf.hybrid_engines.inference_backends import DTYPES
from rlinf.hybrid_engines.train.state import load_weights
from rlinf.models import get_policy
from rlinf.models.language.model_path import find_model_folder
from rlinf.models.vla.flow_vla import FlowVLAPolicy
from rlinf.models.vla.prismatic_policy import PrismaticPolicy
from rlinf.models.vla.published_folder import write_published
from rlinf.models.vla.rl_token import RLT_MODULE
from rlinf.workers.values import num_values


def main() -> None:
    """Write the folder that the command line describes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--precision",
        choices=sorted(DTYPES),
        help="of the weights that are written; by default that of each in the source",
    )
    args, overrides = parser.parse_known_args()
    cfg = validate_cfg(load_recipe(args.recipe, overrides))
    model = cfg.actor.model
    assert isinstance(model, VLAConfig), f"{model.model_type} has no published layout"
    if model.add_q_head:
        raise ConfigError(
            f"actor.model.add_q_head: the run of {args.recipe} left its flow as it is in '{model.model_path}', and the "
            "policy that steers it has no published layout. Use that folder, or rlinf.load_policy of the checkpoint."
        )
    policy = get_policy(model, num_values=num_values(cfg))
    assert isinstance(policy, (PrismaticPolicy, FlowVLAPolicy))
    load_weights(args.checkpoint, policy)
    weights = policy.export(lambda tensor: tensor)
    dtype = None if args.precision is None else DTYPES[args.precision]
    horizon = policy.horizon if isinstance(policy, FlowVLAPolicy) else None
    source = find_model_folder(model.model_path)
    write_published(args.out, policy, weights, source=source, dtype=dtype, horizon=horizon, components=[RLT_MODULE])
    print(f"wrote {args.out}")


if __name__ == "__main__":
    main()

#!/usr/bin/env bash
# Says which nodes the Ray cluster of this machine has and what is missing. Run with --help for the options.
set -euo pipefail

REPO="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
VENV="${RLINF_VENV:-$REPO/.venv}"

usage() {
  cat <<'TEXT'
Usage: bash ray_utils/check_ray.sh [NUMBER_OF_NODES] [--address HEAD_IP:PORT] [--timeout S]

Waits until the cluster has NUMBER_OF_NODES nodes (default: no waiting) and prints rank, address and resources of each.
Exits with 1 and what is missing if they do not come within S seconds ($RLINF_CLUSTER_TIMEOUT_SECONDS, else 600), or if
their ranks do not fit.

The cluster is the one at --address, else $RAY_ADDRESS, else the one that this user has started on this machine.
TEXT
}

if [[ " $* " == *" -h "* || " $* " == *" --help "* ]]; then
  usage
  exit 0
fi
PYTHON="$VENV/bin/python"
[[ -x $PYTHON ]] || PYTHON="$(command -v python3)"
PYTHONPATH="$REPO${PYTHONPATH:+:$PYTHONPATH}" exec "$PYTHON" "$REPO/ray_utils/ray_tools.py" nodes "$@"

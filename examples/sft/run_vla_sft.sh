#!/usr/bin/env bash
# Installs what a recipe of fine-tuning a policy needs, where it is missing, and trains it. Run with --help for the options.
set -euo pipefail

exec bash "$(dirname "${BASH_SOURCE[0]}")/../embodiment/run_embodiment.sh" "$@"

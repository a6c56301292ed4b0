#!/usr/bin/env bash
# Installs what a recipe needs, where it is missing, and evaluates a policy on it. Run with --help for the options.
set -euo pipefail

exec bash "$(dirname "${BASH_SOURCE[0]}")/run_embodiment.sh" --eval "$@"

#!/usr/bin/env bash
# Installs what a recipe needs, where it is missing, and collects episodes as a data set. Run with --help for the options.
set -euo pipefail

exec bash "$(dirname "${BASH_SOURCE[0]}")/run_embodiment.sh" --collect "$@"

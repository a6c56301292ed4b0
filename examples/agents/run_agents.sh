#!/usr/bin/env bash
# Installs what a recipe of agents needs, where it is missing, and trains it. Run with --help for the options.
set -euo pipefail

FOLDER="examples/agents"
SCRIPT="run_agents.sh"
RECIPE="tiny_sdk_grpo"
EXTRAS="agents"
# shellcheck source=examples/launcher.sh
source "$(dirname "${BASH_SOURCE[0]}")/../launcher.sh"

usage() {
  cat <<TEXT
Usage: bash examples/agents/$SCRIPT [RECIPE] [options] [key=value ...]

Installs what RECIPE (default: $RECIPE) needs into ${VENV/#"$REPO"\//} (SGLang: .venv-sglang), makes the model and the questions of a recipe
tiny_* in $TINY, or where it names them, unless they are there, and then runs
    python examples/agents/main_agents.py --config-name RECIPE key=value ...
RECIPE is a name of the list below or the path of a YAML file; key=value overrides what it says, for example
runner.max_epochs=20. The exit code is the trainer's.

$(explain_options)
TEXT
}

parse_arguments "$@"
launch_language_model main_agents.py

#!/usr/bin/env bash
# Installs what a recipe of fine-tuning needs, where it is missing, and trains it. Run with --help for the options.
set -euo pipefail

FOLDER="examples/sft"
SCRIPT="run_sft.sh"
RECIPE="tiny_math_sft"
# shellcheck source=examples/launcher.sh
source "$(dirname "${BASH_SOURCE[0]}")/../launcher.sh"

usage() {
  cat <<TEXT
Usage: bash examples/sft/$SCRIPT [RECIPE] [options] [key=value ...]

Installs what RECIPE (default: $RECIPE) needs into ${VENV/#"$REPO"\//} (SGLang: .venv-sglang), makes the model and the questions of a recipe
tiny_* in $TINY unless they are there, and then runs
    python examples/sft/main_sft.py --config-name RECIPE key=value ...
RECIPE is a name of the list below or the path of a YAML file; key=value overrides what it says, for example
runner.max_epochs=2 or actor.model.is_lora=true. The exit code is the trainer's.

$(explain_options)
TEXT
}

parse_arguments "$@"
launch_language_model main_sft.py

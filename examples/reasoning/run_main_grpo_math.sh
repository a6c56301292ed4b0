#!/usr/bin/env bash
# Installs what a recipe of language models needs, where it is missing, and trains it. Run with --help for the options.
set -euo pipefail

FOLDER="examples/reasoning"
SCRIPT="run_main_grpo_math.sh"
RECIPE="tiny_math_grpo"
# shellcheck source=examples/launcher.sh
source "$(dirname "${BASH_SOURCE[0]}")/../launcher.sh"

usage() {
  cat <<TEXT
Usage: bash examples/reasoning/$SCRIPT [RECIPE] [options] [key=value ...]

Installs what RECIPE (default: $RECIPE) needs into ${VENV/#"$REPO"\//} (SGLang: .venv-sglang), makes the model and the questions of a recipe
tiny_* in $TINY unless they are there, and then runs
    python examples/reasoning/main_grpo.py --config-name RECIPE key=value ...
RECIPE is a name of the list below or the path of a YAML file; key=value overrides what it says, for example
runner.max_epochs=20 or rollout.rollout_backend=vllm. The exit code is the trainer's.

$(explain_options)
TEXT
}

parse_arguments "$@"
launch_language_model main_grpo.py

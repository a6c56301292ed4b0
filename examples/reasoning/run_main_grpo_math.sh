#!/usr/bin/env bash
# Installs what a recipe of language models needs, where it is missing, and trains it. Run with --help for the options.
set -euo pipefail

REPO="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
VENV="${RLINF_VENV:-$REPO/.venv}"
CONFIG_DIR="$REPO/examples/reasoning/config"
EXTRA_CONFIG_DIR=""
SCRIPT="run_main_grpo_math.sh"
# What the recipes tiny_* name, seen from the folder that they are run in.
TINY="results/tiny_math"
INSTALL=1
DRY_RUN=0
RECIPE="tiny_math_grpo"
OVERRIDES=()

usage() {
  cat <<TEXT
Usage: bash examples/reasoning/$SCRIPT [RECIPE] [options] [key=value ...]

Installs what RECIPE (default: $RECIPE) needs into ${VENV/#"$REPO"\//} (SGLang: .venv-sglang), makes the model and the questions of a recipe
tiny_* in $TINY unless they are there, and then runs
    python examples/reasoning/main_grpo.py --config-name RECIPE key=value ...
RECIPE is a name of the list below or the path of a YAML file; key=value overrides what it says, for example
runner.max_epochs=20 or rollout.rollout_backend=vllm. The exit code is the trainer's.

Options
  --config-dir DIR   look for recipes in DIR first
  --no-install       install nothing; use \$RLINF_VENV or .venv if it is there, else the python in PATH
  --dry-run          print the commands and run none
  -h, --help         this text

Recipes
$(list_recipes)
TEXT
}

list_recipes() {
  local folder file
  for folder in ${EXTRA_CONFIG_DIR:+"$EXTRA_CONFIG_DIR"} "$CONFIG_DIR"; do
    for file in "$folder"/*.yaml; do
      if [[ -f $file ]]; then
        # The first line of a recipe is a comment that says what it does.
        printf '  %-28s %s\n' "$(basename "$file" .yaml)" "$(sed -n '1s/^# *//p' "$file")"
      fi
    done
  done
}

usage_error() {
  printf '%s: %s\nRun "bash examples/reasoning/%s --help" for the options.\n' "$SCRIPT" "$1" "$SCRIPT" >&2
  exit 2
}

parse_arguments() {
  local wants_help=0 named=0
  while (($#)); do
    case "$1" in
      -h | --help) wants_help=1 ;;
      --no-install) INSTALL=0 ;;
      --dry-run) DRY_RUN=1 ;;
      --config-dir)
        (($# >= 2)) || usage_error "--config-dir needs a folder."
        EXTRA_CONFIG_DIR="$2"
        shift
        ;;
      --config-dir=*) EXTRA_CONFIG_DIR="${1#*=}" ;;
      -*) usage_error "unknown option '$1'." ;;
      *=* | ~*) OVERRIDES+=("$1") ;;
      *)
        ((!named)) || usage_error "one recipe at a time, got '$RECIPE' and '$1'."
        RECIPE="$1" named=1
        ;;
    esac
    shift
  done
  ((!wants_help)) || { usage && exit 0; }
}

find_recipe() {
  local candidate
  for candidate in "$RECIPE" ${EXTRA_CONFIG_DIR:+"$EXTRA_CONFIG_DIR/${RECIPE%.yaml}.yaml"} "$CONFIG_DIR/${RECIPE%.yaml}.yaml"; do
    if [[ $candidate == *.yaml && -f $candidate ]]; then
      printf '%s' "$candidate"
      return 0
    fi
  done
  printf '%s: unknown recipe "%s". Recipes:\n%s\n' "$SCRIPT" "$RECIPE" "$(list_recipes)" >&2
  return 1
}

# Prints the generation engine without Python, which may not be installed yet: it stands in the recipe, in one that its
# defaults list, or in an override, which comes last.
find_engine() {
  local base folder override files=() found
  while read -r base; do
    for folder in ${EXTRA_CONFIG_DIR:+"$EXTRA_CONFIG_DIR"} "$(dirname "$1")" "$CONFIG_DIR"; do
      if [[ -f $folder/$base.yaml ]]; then files+=("$folder/$base.yaml"); fi
    done
  done < <(sed -nE 's|^ *- *([A-Za-z0-9_-]+) *$|\1|p; s|^defaults: *\[ *([A-Za-z0-9_-]+).*|\1|p' "$1")
  found="$(cat ${files[@]+"${files[@]}"} "$1" | sed -nE 's/.*rollout_backend: *["'\'']?([A-Za-z0-9_]+).*/\1/p' | tail -n 1)"
  for override in ${OVERRIDES[@]+"${OVERRIDES[@]}"}; do
    if [[ $override =~ ^\+*rollout\.rollout_backend= ]]; then found="${override##*=}"; fi
  done
  printf '%s' "$found"
}

run() {
  if ((DRY_RUN)); then
    printf '%q ' "$@"
    printf '\n'
  else
    "$@"
  fi
}

install_for() {
  local options=(--venv "$VENV")
  case "$1" in
    vllm | sglang) options+=(--engine "$1") ;;
  esac
  run bash "$REPO/requirements/install.sh" reason "${options[@]}"
}

# Makes what a recipe tiny_* starts from, beside its place first: what is interrupted is made anew.
make_tiny() {
  if [[ $(basename "$1") != tiny_* || -d $TINY ]]; then return; fi
  run rm -rf "$TINY.part"
  run "$2" "$REPO/examples/reasoning/make_tiny_math.py" --folder "$TINY.part"
  run mv "$TINY.part" "$TINY"
}

main() {
  local recipe_file engine python
  parse_arguments "$@"
  recipe_file="$(find_recipe)" || exit 1
  engine="$(find_engine "$recipe_file")"
  # As install.sh has it: SGLang's pins clash with those of the others.
  if [[ $engine == sglang && -z ${RLINF_VENV:-} ]]; then VENV="$REPO/.venv-sglang"; fi
  python="$VENV/bin/python"
  if ((INSTALL)); then
    install_for "$engine"
  elif [[ ! -x $python ]]; then
    python="python"
  fi
  make_tiny "$recipe_file" "$python"
  local command=("$python" "$REPO/examples/reasoning/main_grpo.py")
  if [[ -n $EXTRA_CONFIG_DIR ]]; then command+=(--config-dir "$EXTRA_CONFIG_DIR"); fi
  command+=(--config-name "$RECIPE" ${OVERRIDES[@]+"${OVERRIDES[@]}"})
  if ((DRY_RUN)); then run "${command[@]}"; else exec "${command[@]}"; fi
}

main "$@"

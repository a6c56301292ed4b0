#!/usr/bin/env bash
# Installs what a recipe needs, where it is missing, and trains it. Run with --help for the options.
set -euo pipefail

REPO="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
VENV="${RLINF_VENV:-$REPO/.venv}"
CONFIG_DIR="$REPO/examples/embodiment/config"
EXTRA_CONFIG_DIR=""
SCRIPT="run_embodiment.sh"
VERB="train"
INSTALL=1
DRY_RUN=0
RECIPE=""
OVERRIDES=()

usage() {
  cat <<TEXT
Usage: bash examples/embodiment/$SCRIPT RECIPE [options] [key=value ...]

Installs what RECIPE needs into ${VENV/#"$REPO"\//} and then runs
    python examples/embodiment/train_embodied_agent.py --config-name RECIPE key=value ...
or train_async.py, if RECIPE (or an override) has algorithm.staleness_threshold,
or train_offline.py, if RECIPE has runner.task_type offline,
$(explain_verb)
RECIPE is a name of the list below or the path of a YAML file; key=value overrides what it says, for example
runner.max_epochs=20 or 'cluster.component_placement={actor: 0, rollout: 0, env: 0}'.
The exit code is the trainer's.

Options
  --config-dir DIR   look for recipes in DIR first
  --no-install       install nothing; use \$RLINF_VENV or .venv if it is there, else the python in PATH
  --dry-run          print the commands and run none
  -h, --help         this text

Recipes
$(list_recipes)
TEXT
}

explain_verb() {
  case "$VERB" in
    evaluate) echo "with runner.only_eval=true: give the policy by runner.ckpt_path=... or runner.resume_dir=..." ;;
    collect)
      echo "with runner.only_eval=true and env.eval.data_collection.enabled=true: the episodes that are played become a data"
      echo "set in the LeRobot format. Give the policy by runner.ckpt_path=..., or env.eval.data_collection.policy=metaworld."
      ;;
  esac
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
  printf '%s: %s\nRun "bash examples/embodiment/%s --help" for the options.\n' "$SCRIPT" "$1" "$SCRIPT" >&2
  exit 2
}

parse_arguments() {
  local wants_help=0
  while (($#)); do
    case "$1" in
      -h | --help) wants_help=1 ;;
      --eval) VERB="evaluate" SCRIPT="eval_embodiment.sh" ;;
      --collect) VERB="collect" SCRIPT="collect_data.sh" ;;
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
        [[ -z $RECIPE ]] || usage_error "one recipe at a time, got '$RECIPE' and '$1'."
        RECIPE="$1"
        ;;
    esac
    shift
  done
  ((!wants_help)) || { usage && exit 0; }
  [[ -n $RECIPE ]] || usage_error "name a recipe."
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

# Prints the recipe's environment types without Python, which may not be installed yet: they stand in the recipe, in an
# override, or in the presets that the defaults list ("env/NAME@...", "env@...: NAME") or an override ("env@...=NAME") names.
env_types() {
  local preset folder override files=("$1")
  while read -r preset; do
    for folder in ${EXTRA_CONFIG_DIR:+"$EXTRA_CONFIG_DIR"} "$(dirname "$1")" "$CONFIG_DIR"; do
      if [[ -f $folder/env/$preset.yaml ]]; then files+=("$folder/env/$preset.yaml"); fi
    done
  done < <(
    sed -nE 's|^ *- *env/([A-Za-z0-9_-]+).*|\1|p; s|^ *- *env(@[A-Za-z0-9_.]+)?: *([A-Za-z0-9_-]+).*|\2|p' "$1"
    printf '%s\n' "${OVERRIDES[@]}" | sed -nE 's|^env@[A-Za-z0-9_.]+=([A-Za-z0-9_-]+)$|\1|p'
  )
  {
    cat "${files[@]}" | sed -nE 's/^ *env_type: *["'\'']?([A-Za-z0-9_]+).*/\1/p; s/^ *import_module: *gymnasium_robotics *$/robotics/p'
    for override in "${OVERRIDES[@]}"; do
      if [[ $override =~ ^\+*env\..*env_type= ]]; then printf '%s\n' "${override##*=}"; fi
    done
  } | sort -u
}

# Prints the script that runs the recipe: the key that tells stands in the recipe, in one that its defaults list, or in
# an override.
entry_script() {
  local base folder override files=("$1") entry="train_embodied_agent.py"
  while read -r base; do
    for folder in ${EXTRA_CONFIG_DIR:+"$EXTRA_CONFIG_DIR"} "$(dirname "$1")" "$CONFIG_DIR"; do
      if [[ -f $folder/$base.yaml ]]; then files+=("$folder/$base.yaml"); fi
    done
  done < <(sed -nE 's|^ *- *([A-Za-z0-9_-]+) *$|\1|p; s|^defaults: *\[ *([A-Za-z0-9_-]+).*|\1|p' "$1")
  if grep -qE '^ *staleness_threshold: *[0-9]' "${files[@]}"; then entry="train_async.py"; fi
  if grep -qE '^ *task_type: *offline' "${files[@]}"; then entry="train_offline.py"; fi
  for override in "${OVERRIDES[@]}"; do
    case "$override" in
      *algorithm.staleness_threshold=[0-9]*) entry="train_async.py" ;;
      *algorithm.staleness_threshold=null | ~algorithm.staleness_threshold*) entry="train_embodied_agent.py" ;;
    esac
  done
  printf '%s/examples/embodiment/%s' "$REPO" "$entry"
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
  local env_type options=(--venv "$VENV")
  if [[ $VERB == collect ]]; then options+=(--data); fi
  for env_type in $(env_types "$1"); do
    case "$env_type" in
      gymnasium | robotics | metaworld | frankasim | maniskill) run bash "$REPO/requirements/install.sh" embodied --env "$env_type" "${options[@]}" ;;
      # An environment of a plug-in brings its own requirements.
      *) run bash "$REPO/requirements/install.sh" embodied "${options[@]}" ;;
    esac
  done
}

# MuJoCo must be told how to draw without a screen; what is set already stays.
choose_renderer() {
  if [[ -z ${MUJOCO_GL:-} ]]; then
    if command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1; then
      export MUJOCO_GL=egl
    elif [[ "$( (ldconfig -p || /sbin/ldconfig -p) 2>/dev/null || true)" == *libOSMesa.so* ]]; then
      export MUJOCO_GL=osmesa
    fi
  fi
}

main() {
  local recipe_file python="$VENV/bin/python"
  parse_arguments "$@"
  recipe_file="$(find_recipe)" || exit 1
  if ((INSTALL)); then
    install_for "$recipe_file"
  elif [[ ! -x $python ]]; then
    python="python"
  fi
  choose_renderer
  if [[ $VERB != train ]]; then OVERRIDES+=("runner.only_eval=true"); fi
  if [[ $VERB == collect ]]; then OVERRIDES+=("env.eval.data_collection.enabled=true"); fi
  local command=("$python" "$(entry_script "$recipe_file")")
  if [[ -n $EXTRA_CONFIG_DIR ]]; then command+=(--config-dir "$EXTRA_CONFIG_DIR"); fi
  command+=(--config-name "$RECIPE" "${OVERRIDES[@]}")
  if ((DRY_RUN)); then run "${command[@]}"; else exec "${command[@]}"; fi
}

main "$@"

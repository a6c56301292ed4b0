#!/usr/bin/env bash
# Installs what a recipe needs, where it is missing, and trains it. Run with --help for the options.
set -euo pipefail

FOLDER="examples/embodiment"
SCRIPT="run_embodiment.sh"
RECIPE=""
VERB="train"
# shellcheck source=examples/launcher.sh
source "$(dirname "${BASH_SOURCE[0]}")/../launcher.sh"

usage() {
  cat <<TEXT
Usage: bash examples/embodiment/$SCRIPT RECIPE [options] [key=value ...]

Installs what RECIPE needs into ${VENV/#"$REPO"\//} and then runs
    python examples/embodiment/train_embodied_agent.py --config-name RECIPE key=value ...
or train_async.py, if RECIPE (or an override) has algorithm.staleness_threshold,
or train_offline.py, if RECIPE has runner.task_type offline or value,
$(explain_verb)
RECIPE is a name of the list below or the path of a YAML file; key=value overrides what it says, for example
runner.max_epochs=20 or 'cluster.component_placement={actor: 0, rollout: 0, env: 0}'.
The exit code is the trainer's.

$(explain_options)
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

# Prints the recipe's environment types: they stand in the recipe, in an override, or in the presets that the defaults
# list ("env/NAME@...", "env@...: NAME") or an override ("env@...=NAME") names.
env_types() {
  local preset override
  {
    {
      cat "$1"
      while read -r preset; do
        read_base "$1" "env/$preset"
      done < <(
        sed -nE 's|^ *- *env/([A-Za-z0-9_-]+).*|\1|p; s|^ *- *env(@[A-Za-z0-9_.]+)?: *([A-Za-z0-9_-]+).*|\2|p' "$1"
        printf '%s\n' ${OVERRIDES[@]+"${OVERRIDES[@]}"} | sed -nE 's|^env@[A-Za-z0-9_.]+=([A-Za-z0-9_-]+)$|\1|p'
      )
    } | sed -nE 's/^ *env_type: *["'\'']?([A-Za-z0-9_]+).*/\1/p; s/^ *import_module: *gymnasium_robotics *$/robotics/p'
    for override in ${OVERRIDES[@]+"${OVERRIDES[@]}"}; do
      if [[ $override =~ ^\+*env\..*env_type= ]]; then printf '%s\n' "${override##*=}"; fi
    done
  } | sort -u
}

# Prints the script that runs the recipe: the key that tells stands in the recipe, in one that its defaults list, or in
# an override.
entry_script() {
  local text override entry="train_embodied_agent.py"
  text="$(read_recipe "$1")"
  if grep -qE '^ *staleness_threshold: *[0-9]' <<<"$text"; then entry="train_async.py"; fi
  if grep -qE '^ *task_type: *(offline|value)' <<<"$text"; then entry="train_offline.py"; fi
  for override in ${OVERRIDES[@]+"${OVERRIDES[@]}"}; do
    case "$override" in
      *algorithm.staleness_threshold=[0-9]*) entry="train_async.py" ;;
      *algorithm.staleness_threshold=null | ~algorithm.staleness_threshold*) entry="train_embodied_agent.py" ;;
    esac
  done
  printf '%s/examples/embodiment/%s' "$REPO" "$entry"
}

install_for() {
  local env_type options=(--venv "$VENV")
  if [[ $VERB == collect ]]; then options+=(--data); fi
  for env_type in $(env_types "$1"); do
    case "$env_type" in
      gymnasium | robotics | metaworld | frankasim | langpick | maniskill | robosuite | libero) run bash "$REPO/requirements/install.sh" embodied --env "$env_type" "${options[@]}" ;;
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
  local recipe_file argument arguments=()
  for argument in "$@"; do
    case "$argument" in
      --eval) VERB="evaluate" SCRIPT="eval_embodiment.sh" ;;
      --collect) VERB="collect" SCRIPT="collect_data.sh" ;;
      *) arguments+=("$argument") ;;
    esac
  done
  parse_arguments ${arguments[@]+"${arguments[@]}"}
  recipe_file="$(find_recipe)" || exit 1
  if ((INSTALL)); then install_for "$recipe_file"; fi
  choose_renderer
  if [[ $VERB != train ]]; then OVERRIDES+=("runner.only_eval=true"); fi
  if [[ $VERB == collect ]]; then OVERRIDES+=("env.eval.data_collection.enabled=true"); fi
  run_recipe "$(choose_python)" "$(entry_script "$recipe_file")"
}

main "$@"

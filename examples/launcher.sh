#!/usr/bin/env bash
# What the launchers of recipes share; they source it. Each sets FOLDER and SCRIPT, where it is itself, and RECIPE, which is
# run where none is named ("" for none), and defines usage. EXTRAS names what is installed in addition.

REPO="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
VENV="${RLINF_VENV:-$REPO/.venv}"
CONFIG_DIR="$REPO/${FOLDER:?}/config"
EXTRA_CONFIG_DIR=""
# What most recipes tiny_* of language models name, seen from the folder that they are run in.
TINY="results/tiny_math"
INSTALL=1
DRY_RUN=0
QUIET=0
OVERRIDES=()

explain_options() {
  cat <<TEXT
Options
  --config-dir DIR   look for recipes in DIR first
  --no-install       install nothing; use \$RLINF_VENV or .venv if it is there, else the python in PATH
  --dry-run          print the commands and run none
  --quiet            print only warnings, errors and a last line with where the results are
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
  printf '%s: %s\nRun "bash %s/%s --help" for the options.\n' "$SCRIPT" "$1" "$FOLDER" "$SCRIPT" >&2
  exit 2
}

parse_arguments() {
  local wants_help=0 named=()
  while (($#)); do
    case "$1" in
      -h | --help) wants_help=1 ;;
      --no-install) INSTALL=0 ;;
      --dry-run) DRY_RUN=1 ;;
      --quiet) QUIET=1 ;;
      --config-dir)
        (($# >= 2)) || usage_error "--config-dir needs a folder."
        EXTRA_CONFIG_DIR="$2"
        shift
        ;;
      --config-dir=*) EXTRA_CONFIG_DIR="${1#*=}" ;;
      -*) usage_error "unknown option '$1'." ;;
      *=* | ~*) OVERRIDES+=("$1") ;;
      *) named+=("$1") ;;
    esac
    shift
  done
  ((!wants_help)) || { usage && exit 0; }
  ((${#named[@]} <= 1)) || usage_error "one recipe at a time, got '${named[0]}' and '${named[1]}'."
  RECIPE="${named[0]:-$RECIPE}"
  [[ -n $RECIPE ]] || usage_error "name a recipe."
}

# Prints the recipe's file.
find_recipe() {
  local candidate
  for candidate in "$RECIPE" ${EXTRA_CONFIG_DIR:+"$EXTRA_CONFIG_DIR/${RECIPE%.yaml}.yaml"} "$CONFIG_DIR/${RECIPE%.yaml}.yaml"; do
    if [[ $candidate == *.yaml && -f $candidate ]]; then
      printf '%s' "$candidate"
      return 0
    fi
  done
  printf '%s: unknown recipe "%s".%s Recipes:\n%s\n' "$SCRIPT" "$RECIPE" "$(suggest_recipe)" "$(list_recipes)" >&2
  return 1
}

# Prints which launcher runs the recipe, if it is another one's, or else the recipe whose name is closest to it.
suggest_recipe() {
  local file close
  for file in "$REPO"/examples/*/config/"${RECIPE%.yaml}.yaml"; do
    if [[ -f $file ]]; then
      printf ' It is run by: bash %s' "$(cd "$REPO" && ls examples/"$(basename "$(dirname "$(dirname "$file")")")"/run_*.sh)"
      return
    fi
  done
  close="$(list_recipes | awk -v name="${RECIPE%.yaml}" '
    function distance(a, b, i, j, row, left, above, cost) {
      for (j = 0; j <= length(b); j++) row[j] = j
      for (i = 1; i <= length(a); i++) {
        above = row[0]
        row[0] = i
        for (j = 1; j <= length(b); j++) {
          cost = above + (substr(a, i, 1) != substr(b, j, 1))
          above = row[j]
          if (row[j] + 1 < cost) cost = row[j] + 1
          if (row[j - 1] + 1 < cost) cost = row[j - 1] + 1
          row[j] = cost
        }
      }
      return row[length(b)]
    }
    { found = distance(name, $1); if (best == "" || found < least) { best = $1; least = found } }
    END { if (best != "" && least <= length(name) / 3) print best }')"
  if [[ -n $close ]]; then printf ' Did you mean "%s"?' "$close"; fi
}

# What a recipe needs is read without Python, which may not be installed yet.

# Prints what a preset or a recipe, which the recipe in file $1 builds on, says: $2 is its name, without the ending.
read_base() {
  local folder
  for folder in ${EXTRA_CONFIG_DIR:+"$EXTRA_CONFIG_DIR"} "$(dirname "$1")" "$CONFIG_DIR"; do
    if [[ -f $folder/$2.yaml ]]; then
      cat "$folder/$2.yaml"
      # A file need not end its last line.
      echo
    fi
  done
}

# Prints what the recipe in file $1 says, behind the recipes that its defaults list.
read_recipe() {
  local base
  while read -r base; do
    read_base "$1" "$base"
  done < <(sed -nE 's|^ *- *([A-Za-z0-9_-]+) *$|\1|p; s|^defaults: *\[ *([A-Za-z0-9_-]+).*|\1|p' "$1")
  cat "$1"
}

run() {
  if ((DRY_RUN)); then
    printf '%q ' "$@"
    printf '\n'
  else
    "$@"
  fi
}

# Prints the python to run recipes with.
choose_python() {
  if ((INSTALL)) || [[ -x $VENV/bin/python ]]; then printf '%s' "$VENV/bin/python"; else printf 'python'; fi
}

# Runs script $2 with python $1 on the recipe, in the place of this process: its exit code is the launcher's.
run_recipe() {
  local command=("$@")
  if [[ -n $EXTRA_CONFIG_DIR ]]; then command+=(--config-dir "$EXTRA_CONFIG_DIR"); fi
  if ((QUIET)); then command+=(--quiet); fi
  command+=(--config-name "$RECIPE" ${OVERRIDES[@]+"${OVERRIDES[@]}"})
  if ((DRY_RUN)); then run "${command[@]}"; else exec "${command[@]}"; fi
}

# Runs a recipe of a language model with script $1 of the launcher's folder.
launch_language_model() {
  local recipe_file engine python
  recipe_file="$(find_recipe)" || exit 1
  engine="$(find_engine "$recipe_file")"
  # As install.sh has it: SGLang's pins clash with those of the others.
  if [[ $engine == sglang && -z ${RLINF_VENV:-} ]]; then VENV="$REPO/.venv-sglang"; fi
  if ((INSTALL)); then install_language_model "$engine"; fi
  python="$(choose_python)"
  make_tiny "$recipe_file" "$python"
  run_recipe "$python" "$REPO/$FOLDER/$1"
}

# Prints the generation engine of the recipe in file $1: what is said last holds, and an override above all.
find_engine() {
  local override found
  found="$(read_recipe "$1" | sed -nE 's/.*rollout_backend: *["'\'']?([A-Za-z0-9_]+).*/\1/p' | tail -n 1)"
  for override in ${OVERRIDES[@]+"${OVERRIDES[@]}"}; do
    if [[ $override =~ ^\+*rollout\.rollout_backend= ]]; then found="${override##*=}"; fi
  done
  printf '%s' "$found"
}

install_language_model() {
  local options=(--venv "$VENV")
  case "$1" in
    vllm | sglang) options+=(--engine "$1") ;;
  esac
  if [[ -n ${EXTRAS:-} ]]; then options+=(--extras "$EXTRAS"); fi
  run bash "$REPO/requirements/install.sh" reason "${options[@]}"
}

# Makes what a recipe tiny_* starts from, beside its place first: what is interrupted is made anew.
make_tiny() {
  local task maker
  if [[ $(basename "$1") != tiny_* ]]; then return; fi
  task="$(read_recipe "$1" | sed -nE 's|^ *model_path: *results/tiny_([a-z]+)/model *$|\1|p' | tail -n 1)"
  TINY="results/tiny_${task:-math}"
  if [[ -d $TINY ]]; then return; fi
  maker=("$REPO/examples/reasoning/make_${TINY##*/}.py")
  if [[ ! -f ${maker[0]} ]]; then
    maker=("$REPO/examples/agents/make_tiny_agents.py" "$task")
  fi
  run rm -rf "$TINY.part"
  run "$2" "${maker[@]}" --folder "$TINY.part"
  run mv "$TINY.part" "$TINY"
}

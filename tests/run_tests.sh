#!/usr/bin/env bash
# Installs what the tests need, then runs every quality gate and all tests. Run with --help for the options.
set -euo pipefail

REPO="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
VENV="${RLINF_VENV:-$REPO/.venv}"

usage() {
  cat <<'TEXT'
Usage: bash tests/run_tests.sh [options] [pytest arguments ...]
       bash tests/run_tests.sh --with NAME[,NAME ...] [pytest arguments ...]
       bash tests/run_tests.sh [--no-install] --mutation [AREA ...] [--jobs N] [--json FILE]

Runs the gates one by one: ruff check, ruff format, mypy, lint-imports, shell scripts, unit tests, documentation,
end-to-end tests, chaos tests. A gate that fails does not stop the later ones; the exit code is 1 if any failed. Further
arguments go to pytest; paths among them replace the folders that it runs. For example:
    bash tests/run_tests.sh --fast -k placement
    bash tests/run_tests.sh tests/unit/config

Options
  --fast         leave out the end-to-end and chaos tests
  --slow         also run the tests marked slow: learning runs among them, two to three hours in all
  --long         repeat the chaos tests with several seeds, more than 100 runs in about half an hour, and what --slow
                 adds of learning with three
  --mutation     in place of all that, plant each fault of tests/mutation/faults in a copy and run the tests named with it;
                 the exit code is 1 if fewer than 0.97 are noticed. AREA: a file there, or a path such as
                 rlinf/algorithms; --mutation --help lists its options
  --with NAMES   in place of all that, run the tests that need these packages, each in an environment of its own that this
                 makes (.venv-NAME): vllm, sglang, maniskill, libero, calvin, wandb, swanlab,
                 lerobot, frameworks (LangChain, the Agents SDK, smolagents)
  --processes N  run each folder of tests in N processes side by side, each with a Ray of its own; default: the number
                 of cores, at most 4. Whole runs wait more than they compute: theirs are one more. Paths given as
                 arguments run in one.
  --no-install   install nothing; use $RLINF_VENV or .venv as it is
  -h, --help     this text
TEXT
}

FAST=0
INSTALL=1
# The number of cores; of threads, which nproc gives where OMP_NUM_THREADS says it, there may be fewer.
CORES=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)
PROCESSES=$((CORES < 4 ? CORES : 4))
MUTATION=0
MUTATION_ARGUMENTS=()
GUESTS=()
PYTEST_ARGUMENTS=()
PATHS_GIVEN=0
NAMES=()
RESULTS=()
FAILED=0

parse_arguments() {
  while (($#)); do
    case "$1" in
      -h | --help) usage && exit 0 ;;
      --fast) FAST=1 ;;
      --no-install) INSTALL=0 ;;
      --processes)
        [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || { printf 'run_tests.sh: --processes needs a number of at least 1.\n' >&2 && exit 2; }
        PROCESSES="$2"
        shift
        ;;
      --with)
        IFS=, read -ra GUESTS <<<"${2:-}"
        check_guests
        shift
        ;;
      --mutation)
        MUTATION=1
        MUTATION_ARGUMENTS=("${@:2}")
        return
        ;;
      *)
        PYTEST_ARGUMENTS+=("$1")
        if [[ $1 != -* && -e $REPO/${1%%::*} ]]; then PATHS_GIVEN=1; fi
        ;;
    esac
    shift
  done
}

check_guests() {
  local name
  ((${#GUESTS[@]})) || { printf 'run_tests.sh: --with needs the names of packages.\n' >&2 && exit 2; }
  for name in "${GUESTS[@]}"; do
    case "$name" in
      vllm | sglang | maniskill | libero | calvin | wandb | swanlab | lerobot | frameworks) ;;
      *) printf "run_tests.sh: --with does not know '%s'; known: vllm, sglang, maniskill, libero, calvin, wandb, swanlab, lerobot, frameworks.\n" "$name" >&2 && exit 2 ;;
    esac
  done
}

# Runs one gate and remembers its name, result and duration for the summary.
gate() {
  local name="$1" start=$SECONDS status=0 result="passed"
  shift
  printf '\n==> %s\n' "$name"
  "$@" || status=$?
  if ((status != 0)); then
    result="FAILED (exit code $status)"
    FAILED=1
  fi
  NAMES+=("$name")
  RESULTS+=("$(printf '%-22s %4d s' "$result" $((SECONDS - start)))")
}

# shellcheck disable=SC2329  # called through gate
shell_scripts() {
  (
    cd "$REPO"
    local scripts=() file
    while IFS= read -r -d '' file; do scripts+=("$file"); done < <(
      find . \( -path ./.git -o -path "./$(basename "$VENV")" -o -name '.*_cache' -o -name node_modules \) -prune -o \( -name '*.sh' -o -name '*.sbatch' \) -print0
    )
    scripts+=(.ci/run)
    for file in "${scripts[@]}"; do bash -n "$file" || exit 1; done
    "$VENV/bin/shellcheck" "${scripts[@]}"
  )
}

# shellcheck disable=SC2329  # called through gate
run_pytest() {
  local status=0
  "$VENV/bin/python" -m pytest "$@" "${PYTEST_ARGUMENTS[@]}" || status=$?
  # 5: no test was selected, which is no failure where the caller selects.
  if ((status == 5 && ${#PYTEST_ARGUMENTS[@]} > 0)); then return 0; fi
  return "$status"
}

# shellcheck disable=SC2329  # called through gate
run_folder() {
  local shards=() how=loadfile processes="$PROCESSES"
  # The tests of a file stay together, as they share what is costly to make; those of the documentation share nothing.
  case "$1" in
    tests/docs) how=worksteal ;;
    tests/e2e | tests/chaos) processes=$((PROCESSES + 1)) ;;
  esac
  # Files in the order in which they are collected: those that take longest come first (tests/areas.py).
  if ((PROCESSES > 1)); then shards=(-n "$processes" --dist "$how" --no-loadscope-reorder); fi
  run_pytest "$1" --areas "${shards[@]}"
}

# Runs the tests of one package, whose requirements clash with those of the others, in its own environment.
# shellcheck disable=SC2329  # called through gate
run_guest() {
  local name="$1" target=(embodied --extras "testing,$1") packages=() files
  case "$name" in
    vllm | sglang) target=(reason --engine "$name" --backend megatron --extras testing) ;;
    maniskill) target=(embodied --env "$name" --extras testing) ;;
    libero) target=(embodied --env "$name" --extras "testing,vla") ;;
    calvin) target=(embodied --guest calvin --extras testing) ;;
    lerobot) target=(embodied --extras "testing,data,reasoning") ;;
    frameworks) target=(embodied --extras "testing,agents") ;;
  esac
  VENV="$REPO/.venv-$name"
  if ((INSTALL)); then
    bash "$REPO/requirements/install.sh" "${target[@]}" --venv "$VENV" || return 1
    case "$name" in
      # Its own requirements name an older PyTorch, and what records robots.
      lerobot) packages=(--no-deps) ;;&
      lerobot | frameworks)
        "$VENV/bin/python" -m pip install --quiet "${packages[@]}" --requirement "$REPO/requirements/$name.txt" || return 1
        ;;
    esac
  fi
  if [[ $name == calvin ]]; then export RLINF_GUEST_PYTHON="${RLINF_GUEST_PYTHON:-$VENV-guest-calvin/bin/python}"; fi
  # Only where the mark is: what other tests import is not installed there.
  mapfile -t files < <(grep -rl "pytest.mark.$name\b" tests --include='*.py' | sed 's|/conftest.py$||' | sort)
  "$VENV/bin/python" -m pytest "${files[@]}" -m "$name" --must-run "${PYTEST_ARGUMENTS[@]}"
}

summary() {
  local i
  printf '\n%s\n' "Gate                 Result                   Time"
  for i in "${!NAMES[@]}"; do printf '%-20s %s\n' "${NAMES[$i]}" "${RESULTS[$i]}"; done
}

run_guests() {
  local name
  cd "$REPO"
  for name in "${GUESTS[@]}"; do gate "tests with $name" run_guest "$name"; done
  summary
  exit "$FAILED"
}

main() {
  parse_arguments "$@"
  if ((${#GUESTS[@]})); then run_guests; fi
  if ((INSTALL)); then bash "$REPO/requirements/install.sh" test --venv "$VENV"; fi
  [[ -x $VENV/bin/python ]] || { printf 'run_tests.sh: no environment at %s; leave out --no-install.\n' "$VENV" >&2 && exit 1; }
  cd "$REPO"
  if ((MUTATION)); then exec "$VENV/bin/python" -m tests.mutation.run "${MUTATION_ARGUMENTS[@]}"; fi
  gate "ruff check" "$VENV/bin/ruff" check .
  gate "ruff format" "$VENV/bin/ruff" format --check .
  gate "mypy" "$VENV/bin/mypy"
  gate "lint-imports" "$VENV/bin/lint-imports"
  gate "shell scripts" shell_scripts
  if ((PATHS_GIVEN)); then
    gate "tests" run_pytest
  else
    gate "unit tests" run_folder tests/unit
    gate "documentation" run_folder tests/docs
    if ((!FAST)); then
      gate "end-to-end tests" run_folder tests/e2e
      gate "chaos tests" run_folder tests/chaos
    fi
  fi
  summary
  exit "$FAILED"
}

main "$@"

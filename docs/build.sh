#!/usr/bin/env bash
# Builds the documentation of both languages. Run with --help for the options.
set -euo pipefail

REPO="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
VENV="${RLINF_VENV:-$REPO/.venv}"
OUTPUT="$REPO/docs/_build"
LANGUAGES=()

usage() {
  cat <<'TEXT'
Usage: bash docs/build.sh [en|zh ...] [options]

Builds the pages of docs/source-en into docs/_build/en and those of docs/source-zh into docs/_build/zh; warnings are errors.
Nothing is fetched. "bash requirements/install.sh docs" installs what it needs.

Options
  --output DIR   build into DIR/en and DIR/zh instead
  -h, --help     this text
TEXT
}

usage_error() {
  printf 'build.sh: %s\nRun "bash docs/build.sh --help" for the options.\n' "$1" >&2
  exit 2
}

parse_arguments() {
  while (($#)); do
    case "$1" in
      -h | --help) usage && exit 0 ;;
      --output)
        (($# >= 2)) || usage_error "--output needs a folder."
        OUTPUT="$2"
        shift
        ;;
      en | zh) LANGUAGES+=("$1") ;;
      *) usage_error "unknown argument '$1'." ;;
    esac
    shift
  done
  if ((${#LANGUAGES[@]} == 0)); then LANGUAGES=(en zh); fi
}

# Prints the name that Sphinx has for a language.
sphinx_language() {
  case "$1" in
    en) printf 'en' ;;
    zh) printf 'zh_CN' ;;
  esac
}

build() {
  "$PYTHON" -m sphinx -W --keep-going -q -b html -c "$REPO/docs" -D "language=$(sphinx_language "$1")" \
    -d "$OUTPUT/.doctrees/$1" "$REPO/docs/source-$1" "$OUTPUT/$1" || return 1
  printf '%s/%s/index.html\n' "$OUTPUT" "$1"
}

main() {
  local language process status=0 processes=()
  parse_arguments "$@"
  PYTHON="python"
  if [[ -x $VENV/bin/python ]]; then PYTHON="$VENV/bin/python"; fi
  "$PYTHON" -c 'import furo, latex2mathml, myst_parser, sphinx' 2>/dev/null || {
    printf 'build.sh: Sphinx is not installed. Run: bash requirements/install.sh docs\n' >&2
    exit 1
  }
  for language in "${LANGUAGES[@]}"; do
    build "$language" &
    processes+=("$!")
  done
  for process in "${processes[@]}"; do wait "$process" || status=1; done
  exit "$status"
}

main "$@"

#!/usr/bin/env bash
# Evaluates a policy on a suite of tasks, each start state once, and writes down the result with all that it depends on.
set -euo pipefail

REPO="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

usage() {
  cat <<TEXT
Usage: bash evaluations/eval_embodiment.sh SUITE [options of examples/embodiment/eval_embodiment.sh] [key=value ...]

Evaluates the policy of actor.model.model_path or runner.ckpt_path and writes evaluation.json into the run's folder: success of
each task and of all with 95 % intervals, how many start states were played, and the versions and settings that results depend
on. Two such files are compared by: python evaluations/summarize.py --compare FILE FILE

Suites
$(for file in "$REPO"/evaluations/*/*_eval.yaml; do
    printf '  %-22s %s\n' "$(basename "$file" .yaml)" "$(sed -n '1s/^# *//p' "$file")"
  done)
TEXT
}

main() {
  local file python argument overrides=() is_dry=0
  if (($# == 0)) || [[ $1 == -h || $1 == --help ]]; then usage && exit 0; fi
  file="$(find "$REPO/evaluations" -name "${1%_eval}_eval.yaml" | head -n 1)"
  if [[ -z $file ]]; then
    printf 'eval_embodiment.sh: unknown suite "%s". Run "bash evaluations/eval_embodiment.sh --help" for the list.\n' "$1" >&2
    exit 2
  fi
  shift
  for argument in "$@"; do
    case "$argument" in
      --dry-run) is_dry=1 ;;
      --*) ;;
      *) overrides+=("$argument") ;;
    esac
  done
  bash "$REPO/examples/embodiment/eval_embodiment.sh" "$file" "$@"
  ((!is_dry)) || return 0
  python="${RLINF_VENV:-$REPO/.venv}/bin/python"
  [[ -x $python ]] || python="python"
  "$python" "$REPO/evaluations/summarize.py" "$file" ${overrides[@]+"${overrides[@]}"}
}

main "$@"

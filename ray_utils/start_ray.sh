#!/usr/bin/env bash
# Starts Ray on this machine as the head of a cluster or as one more node of it. Run with --help for the options.
set -euo pipefail

REPO="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
VENV="${RLINF_VENV:-$REPO/.venv}"
DEFAULT_PORT=6379
ROLE=""
HEAD=""
PORT=""
TIMEOUT="${RLINF_CLUSTER_TIMEOUT_SECONDS:-600}"
RAY_ARGUMENTS=()

usage() {
  cat <<TEXT
Usage: bash ray_utils/start_ray.sh head [options] [-- further options of "ray start"]
       bash ray_utils/start_ray.sh worker HEAD_IP[:PORT] [options] [-- ...]
       bash ray_utils/start_ray.sh [options] [-- ...]

Starts Ray on this machine and returns when its node is in the cluster. Without a role, the node of rank 0 is the head
and the others find it at \$MASTER_ADDR, as under launchers that set RANK and MASTER_ADDR on every machine.

Options
  --rank N         rank of this node (default: \$RLINF_NODE_RANK, else \$RANK); 0 to N-1 over the nodes, each once
  --port PORT      port of the head (default: $DEFAULT_PORT)
  --timeout S      seconds to wait for the head and for this node to be in (default: \$RLINF_CLUSTER_TIMEOUT_SECONDS, else 600)
  -h, --help       this text

Environment
  RLINF_COMM_NET_DEVICES   network interface for the traffic between nodes; the first of a list that this machine has
  RLINF_VENV               virtual environment that holds ray (default: .venv in the repository, else the PATH)
  RAY_AUTH_TOKEN_PATH      file with the cluster's token (default: ~/.ray/auth_token); the head makes it if there is none
Variables that are set now are what workers on this node see; "ray stop" ends what this script starts.
TEXT
}

fail() {
  printf 'start_ray.sh: %s\n' "$*" >&2
  exit 1
}

usage_error() {
  printf 'start_ray.sh: %s\nRun "bash ray_utils/start_ray.sh --help" for the options.\n' "$*" >&2
  exit 2
}

is_number() { [[ $1 =~ ^[0-9]+$ ]]; }

parse_arguments() {
  while (($#)); do
    case "$1" in
      -h | --help) usage && exit 0 ;;
      --)
        shift
        RAY_ARGUMENTS=("$@")
        break
        ;;
      --rank | --port | --timeout)
        (($# >= 2)) || usage_error "$1 needs a value."
        is_number "$2" || usage_error "$1 must be a whole number, got '$2'."
        case "$1" in
          --rank) RLINF_NODE_RANK="$2" ;;
          --port) PORT="$2" ;;
          --timeout) TIMEOUT="$2" ;;
        esac
        shift
        ;;
      -*) usage_error "unknown option '$1'; options of \"ray start\" follow after --." ;;
      head | worker)
        [[ -z $ROLE ]] || usage_error "one role at a time, got '$ROLE' and '$1'."
        ROLE="$1"
        ;;
      *)
        [[ $ROLE == worker && -z $HEAD ]] || usage_error "unexpected '$1'."
        HEAD="$1"
        ;;
    esac
    shift
  done
}

# Workers take their rank from Ray's environment, so it must be there before Ray is.
choose_rank() {
  RLINF_NODE_RANK="${RLINF_NODE_RANK:-${RANK:-}}"
  [[ -n $RLINF_NODE_RANK ]] ||
    fail "RLINF_NODE_RANK is not set. Give each node its own rank, 0 to N-1, before Ray starts: --rank N or RLINF_NODE_RANK=N."
  is_number "$RLINF_NODE_RANK" || fail "RLINF_NODE_RANK=$RLINF_NODE_RANK must be a whole number, 0 to N-1."
  RLINF_NODE_RANK=$((10#$RLINF_NODE_RANK))
  export RLINF_NODE_RANK
}

choose_role() {
  if [[ -z $ROLE ]]; then
    if ((RLINF_NODE_RANK == 0)); then ROLE="head"; else ROLE="worker"; fi
  fi
  if [[ $ROLE == worker ]]; then
    HEAD="${HEAD:-${MASTER_ADDR:-}}"
    [[ -n $HEAD ]] || usage_error "a worker needs the head's address: start_ray.sh worker HEAD_IP[:PORT], or MASTER_ADDR."
    [[ $HEAD == *:* ]] || HEAD="$HEAD:${PORT:-$DEFAULT_PORT}"
    PORT="${HEAD##*:}"
  fi
  PORT="${PORT:-$DEFAULT_PORT}"
}

find_programs() {
  if [[ -x $VENV/bin/ray ]]; then
    RAY="$VENV/bin/ray" PYTHON="$VENV/bin/python"
  else
    RAY="$(command -v ray)" || fail "no ray in $VENV/bin nor in the PATH; set RLINF_VENV."
    PYTHON="$(dirname "$RAY")/python"
    [[ -x $PYTHON ]] || PYTHON=python3
  fi
}

tools() { PYTHONPATH="$REPO${PYTHONPATH:+:$PYTHONPATH}" "$PYTHON" "$REPO/ray_utils/ray_tools.py" "$@"; }

# Nobody without the token can talk to the cluster. It is never printed: it travels as a file.
prepare_token() {
  if [[ ${RAY_AUTH_MODE:-token} != token ]]; then
    fail "RAY_AUTH_MODE=$RAY_AUTH_MODE would let anyone who reaches the port run code here. Unset it."
  fi
  export RAY_AUTH_MODE=token
  TOKEN_FILE="${RAY_AUTH_TOKEN_PATH:-$HOME/.ray/auth_token}"
  if [[ -n ${RAY_AUTH_TOKEN:-} ]]; then
    TOKEN_FILE=""
  elif [[ ! -s $TOKEN_FILE ]]; then
    [[ $ROLE == head ]] || fail "this machine has no token of the cluster. Copy the head's file, then start again:
    mkdir -p -m 700 $(dirname "$TOKEN_FILE") && scp ${HEAD%:*}:.ray/auth_token $TOKEN_FILE && chmod 600 $TOKEN_FILE"
    [[ -z ${RAY_AUTH_TOKEN_PATH:-} ]] || fail "RAY_AUTH_TOKEN_PATH=$RAY_AUTH_TOKEN_PATH does not exist or is empty."
    (umask 077 && mkdir -p "$(dirname "$TOKEN_FILE")" && "$RAY" get-auth-token --generate >/dev/null 2>&1) ||
      fail "cannot make a token in $TOKEN_FILE."
  fi
  # A file of another user's, as on a shared mount, keeps the permissions it has.
  if [[ -n $TOKEN_FILE && -O $TOKEN_FILE ]]; then chmod 600 "$TOKEN_FILE"; fi
}

start_node() {
  local arguments=(start "${RAY_ARGUMENTS[@]}" --disable-usage-stats)
  if [[ -n $NODE_IP ]]; then arguments+=(--node-ip-address "$NODE_IP"); fi
  if [[ $ROLE == head ]]; then
    tools free "$PORT" || exit 1
    arguments+=(--head --port "$PORT")
  else
    printf 'Waiting for the head at %s.\n' "$HEAD"
    tools reach "$HEAD" --timeout "$TIMEOUT"
    arguments+=(--address "$HEAD")
  fi
  if ! OUTPUT="$("$RAY" "${arguments[@]}" 2>&1)"; then
    printf '%s\n' "$OUTPUT" >&2
    fail "ray start failed."
  fi
}

explain() {
  local address="$1"
  printf 'Node %s (%s) is in the cluster at %s.\n' "$RLINF_NODE_RANK" "$ROLE" "$address"
  if [[ $ROLE == head ]]; then
    printf '\nOn each further machine (N = 1, 2, ...):\n'
    if [[ -n $TOKEN_FILE ]]; then
      printf '  mkdir -p -m 700 ~/.ray && scp %s:%s ~/.ray/auth_token && chmod 600 ~/.ray/auth_token\n' "${address%:*}" "$TOKEN_FILE"
    else
      printf '  set RAY_AUTH_TOKEN to the same value as here\n'
    fi
    printf '  RLINF_NODE_RANK=N bash ray_utils/start_ray.sh worker %s\n' "$address"
    printf 'Then, here: bash ray_utils/check_ray.sh NUMBER_OF_NODES\n'
  fi
}

main() {
  local address
  parse_arguments "$@"
  choose_rank
  choose_role
  find_programs
  NODE_IP="$(tools interface)" || exit 1
  prepare_token
  start_node
  address="$(tools joined "${HEAD:-${NODE_IP:-auto}:$PORT}" --timeout "$TIMEOUT")" || exit 1
  explain "$address"
}

main "$@"

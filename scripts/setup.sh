#!/usr/bin/env bash
# Makes this machine able to build Torsor. Does nothing, and says nothing, when all is there.
#
#   scripts/setup.sh                  system packages, and libtorch in the user's cache folder
#   scripts/setup.sh --full           also what importing torch in Python needs, CUDA's libraries among it
#   scripts/setup.sh --peers          also what the tests compare with: torch without CUDA, transformers
#   scripts/setup.sh --tools          also clang-format and clang-tidy
#   scripts/setup.sh --print-python   prints the Python whose torch is used, installs nothing
#   scripts/setup.sh --print-peers    prints the program that runs Python with what --peers brings, installs nothing
#
# TORSOR_PYTHON=/path/to/python, or TORSOR_TORCH_DIR=/path/to/libtorch, uses a torch that is there already.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
full=no tools=no peers=no print=no
for argument in "$@"; do
  case $argument in
    --full) full=yes ;;
    --tools) tools=yes ;;
    --peers) peers=yes ;;
    --print-python) print=python ;;
    --print-peers) print=peers ;;
    *)
      echo "setup: unknown option '$argument'; known are --full, --tools, --peers, --print-python, --print-peers" >&2
      exit 2 ;;
  esac
done

say() { echo "setup: $*" >&2; }

# --- The Python environment -------------------------------------------------------------------------------------------

# A Python that can make environments: the system's first, since the one on PATH may be a shim without ensurepip.
find_python() {
  local python
  for python in /usr/bin/python3 python3 python3.13 python3.12 python3.11; do
    if command -v "$python" > /dev/null && "$python" -c 'import venv, ensurepip' 2> /dev/null; then
      command -v "$python"
      return 0
    fi
  done
  return 1
}

hash_text() { if command -v sha256sum > /dev/null; then sha256sum; else shasum -a 256; fi | cut -c 1-16; }

# The environment's folder: a new one for another libtorch or another Python, shared by every checkout.
environment_folder() {
  local python=$1 key
  key=$({ cat "$root/requirements/lean.txt"
          "$python" -c 'import platform, sys; print(sys.version_info[:2], platform.machine())'; } | hash_text)
  echo "${XDG_CACHE_HOME:-$HOME/.cache}/torsor/$key"
}

if [ $print != no ]; then
  if [ -n "${TORSOR_PYTHON:-}" ]; then
    echo "$TORSOR_PYTHON"
  elif python=$(find_python); then
    [ $print = peers ] && name=peers-python || name=python
    echo "$(environment_folder "$python")/bin/$name"
  fi
  exit 0
fi

# --- System packages --------------------------------------------------------------------------------------------------

has_program() { command -v "$1" > /dev/null; }
has_header() {
  local folder
  for folder in /usr/include /usr/local/include /opt/homebrew/include; do
    [ -e "$folder/$1" ] && return 0
  done
  return 1
}

missing=()
need() { local package=$1; shift; "$@" || missing+=("$package"); }  # need PACKAGE TEST...
compiler() { has_program "${CXX:-g++}" || has_program clang++; }

need g++ compiler
need cmake has_program cmake
need ninja-build has_program ninja
need git has_program git
need nlohmann-json3-dev has_header nlohmann/json.hpp
need libcli11-dev has_header CLI/CLI.hpp
need libhwy-dev has_header hwy/highway.h
need libgtest-dev has_header gtest/gtest.h
own_python=no  # whether an environment of ours is used
[ -z "${TORSOR_PYTHON:-}${TORSOR_TORCH_DIR:-}" ] && own_python=yes
[ $peers = yes ] && [ -z "${TORSOR_PYTHON:-}" ] && own_python=yes
if [ $own_python = yes ]; then
  need python3 has_program python3
  need python3-venv find_python > /dev/null
  [ -e /etc/debian_version ] && need ca-certificates test -e /etc/ssl/certs/ca-certificates.crt
fi
if [ $tools = yes ]; then
  need clang-format-14 has_program clang-format-14
  need clang-tidy-14 has_program clang-tidy-14
fi
required=${#missing[@]}
need ccache has_program ccache  # faster, not needed
need libsentencepiece-dev has_header sentencepiece_processor.h  # for SentencePiece's tokenizers, not needed either

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}
if [ ${#missing[@]} -gt 0 ]; then
  if has_program apt-get && { [ "$(id -u)" = 0 ] || sudo -n true 2> /dev/null; }; then
    say "installing ${missing[*]}"
    log=$(mktemp)
    if ! { as_root apt-get -qq update &&
           as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${missing[@]}"; } \
         > "$log" 2>&1; then
      tail -n 20 "$log" >&2
      rm -f "$log"
      say "the packages could not be installed"
      exit 1
    fi
    rm -f "$log"
  elif [ "$required" -gt 0 ]; then
    say "these are missing (names of Debian and Ubuntu packages): ${missing[*]:0:$required}"
    say "install them, for instance with: sudo apt-get install ${missing[*]}"
    exit 1
  fi
fi

# --- libtorch ---------------------------------------------------------------------------------------------------------

if [ $peers = yes ] && [ -n "${TORSOR_PYTHON:-}" ]; then
  "$TORSOR_PYTHON" -c 'import torch, transformers, safetensors' 2> /dev/null && exit 0
  say "TORSOR_PYTHON=$TORSOR_PYTHON lacks what the tests compare with; install it: $TORSOR_PYTHON -m pip install torch 'transformers==5.24.*' safetensors"
  exit 1
fi
if [ $own_python = no ]; then
  exit 0  # the user's own; cmake checks its version
fi

python=$(find_python) || { say "no Python 3 with venv and ensurepip was found"; exit 1; }
folder=$(environment_folder "$python")
full_mark=full-$(hash_text < "$root/requirements/full.txt")
peers_mark=peers-$(cat "$root/requirements/peers.txt" "$root/scripts/cuda_stand_ins.sh" | hash_text)
wanted=(lean)
[ $full = yes ] && wanted+=("$full_mark")
[ $peers = yes ] && wanted+=("$peers_mark")
done_with() { [ -e "$folder/.complete-$1" ]; }
done_with_all() { local mark; for mark in "${wanted[@]}"; do done_with "$mark" || return 1; done; }
done_with_all && exit 0

mkdir -p "$(dirname "$folder")"
if has_program flock; then  # two set-ups at once: the second waits and finds it done
  exec 9> "$folder.lock"
  flock 9
fi
pip_install() {
  "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-input "$@" >&2 ||
    { say "pip could not install: $*"; exit 1; }
}
if ! done_with lean; then
  say "fetching libtorch into $folder (1.3 GB on disk)"
  rm -rf "$folder"
  "$python" -m venv "$folder"
  pip_install --no-deps -r "$root/requirements/lean.txt"
  touch "$folder/.complete-lean"
fi
if [ $full = yes ] && ! done_with "$full_mark"; then
  say "fetching all of torch into $folder (5.4 GB on disk)"
  pip_install -r "$root/requirements/full.txt"
  touch "$folder/.complete-$full_mark"
fi
if [ $peers = yes ] && ! done_with "$peers_mark"; then
  say "fetching transformers and what it needs into $folder (0.3 GB on disk)"
  pip_install --no-deps -r "$root/requirements/peers.txt"
  "$root/scripts/cuda_stand_ins.sh" "$folder/lib/cuda-stand-ins" "$("$folder/bin/python" -c \
    'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])')/lib"
  cat > "$folder/bin/peers-python" << EOF
#!/bin/sh
# Python with torch on the CPU: missing libraries of CUDA are stood in for, and looked up only when they are called.
LD_LIBRARY_PATH="$folder/lib/cuda-stand-ins\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}" TORCH_USE_RTLD_GLOBAL=1 \\
  exec "$folder/bin/python" "\$@"
EOF
  chmod +x "$folder/bin/peers-python"
  "$folder/bin/peers-python" -c 'import torch, transformers, safetensors' ||
    { say "torch and transformers were installed into $folder and cannot be imported"; exit 1; }
  touch "$folder/.complete-$peers_mark"
fi

#!/usr/bin/env bash
# Installs what the build needs and writes the makefile fragment named by $1: CUDA_HOME, CUDA_INCLUDE, NVCC, CCACHE.
# Called by the make targets; safe to run again. Debian packages come by apt (sudo only if not root); the CUDA 13.0 toolkit
# is taken from CUDA_HOME, PATH or /usr/local/cuda, and where there is none, from pinned PyPI wheels.
# `setup.sh --tests` and `setup.sh --browser` install what the tests need beside that (the latter what opens the report's
# page), and nothing else.
set -euo pipefail
if (($# > 1)) || [[ ${1:-} == -* && ${1:-} != --tests && ${1:-} != --browser ]]; then
  echo "setup: $*: usage: setup.sh [FRAGMENT | --tests | --browser]; without a word the fragment is build/config.mk" >&2
  exit 2
fi
case ${1:-} in
  --tests) packages=(catch2 librapidcheck-dev coinor-cbc bats gdb valgrind libjemalloc2 libtcmalloc-minimal4) ;;
  --browser) packages=(chromium) ;;
  *) packages=(g++ make python3 python3-venv python3-pip libfmt-dev libcli11-dev nlohmann-json3-dev robin-map-dev libexpected-dev
    libxxhash-dev libzstd-dev zstd) ;;
esac
missing=()
command -v dpkg-query >/dev/null || { echo "setup: no dpkg here: what Debian calls ${packages[*]} has to be there already" >&2; packages=(); }
for p in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
done
if ((${#missing[@]})); then
  echo "setup: installing Debian packages: ${missing[*]}" >&2
  as_root=(env)
  if ((EUID != 0)); then
    command -v sudo >/dev/null || { echo "setup: need root or sudo to install: ${missing[*]}" >&2; exit 1; }
    as_root=(sudo env)
  fi
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

[[ ${1:-} != --* ]] || exit 0

out=${1:-build/config.mk}
mkdir -p "$(dirname "$out")"
build=$(cd "$(dirname "$out")" && pwd)

# A toolkit is usable when it has the header of 13.0 or later and a compiler.
usable() { [ -x "$1/bin/nvcc" ] && [ -f "$1/include/cuda.h" ] &&
  [ "$(sed -n 's/^#define CUDA_VERSION \([0-9]*\).*/\1/p' "$1/include/cuda.h" | head -1)" -ge 13000 ]; }
cuda=""
for candidate in "${CUDA_HOME:-}" "$(dirname "$(dirname "$(readlink -f "$(command -v nvcc || echo /nonexistent/bin/x)")")")" /usr/local/cuda; do
  if [ -n "$candidate" ] && usable "$candidate"; then cuda=$candidate; break; fi
done
[ -z "${CUDA_HOME:-}" ] || [ "$cuda" = "$CUDA_HOME" ] || echo "setup: CUDA_HOME=$CUDA_HOME has no nvcc and cuda.h of CUDA 13.0 or later: not used" >&2
if [ -z "$cuda" ]; then
  echo "setup: no CUDA 13.0 toolkit found (CUDA_HOME, PATH, /usr/local/cuda): taking it from PyPI" >&2
  python3 -m venv "$build/cuda-venv"
  "$build/cuda-venv/bin/pip" install -q --no-deps 'nvidia-cuda-nvcc==13.0.*' 'nvidia-nvvm==13.0.*' 'nvidia-cuda-crt==13.0.*' \
    'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-cccl==13.0.*' 'nvidia-cuda-cupti==13.0.*' 'nvidia-nvtx==13.0.*' 'nvidia-cuda-nvrtc==13.0.*'
  cuda=$(echo "$build"/cuda-venv/lib/python3*/site-packages/nvidia/cu13)
  usable "$cuda" || { echo "setup: the toolkit's wheels did not bring a working nvcc and cuda.h under $cuda" >&2; exit 1; }
fi
{
  echo "CUDA_HOME := $cuda"
  echo "CUDA_INCLUDE := $cuda/include"
  echo "NVCC := $cuda/bin/nvcc"
  echo "CCACHE := $(command -v ccache || true)"
} > "$out"

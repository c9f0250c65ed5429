#!/usr/bin/env bash
# Installs what the build and the tests need and writes the makefile fragment named by $1:
# CUDA_HOME, CUDA_INCLUDE, NVCC, CCACHE. Called by the make targets; safe to run again.
# Debian packages come by apt (sudo only if not root); the CUDA 13.0 toolkit is taken from
# CUDA_HOME, PATH or /usr/local/cuda, and where there is none, from pinned PyPI wheels.
# `setup.sh --browser` installs what opens the report's page in its test, and nothing else.
set -euo pipefail
packages=(g++ make python3 python3-venv python3-pip catch2 libfmt-dev librapidcheck-dev libcli11-dev
  nlohmann-json3-dev robin-map-dev libexpected-dev libxxhash-dev libzstd-dev zstd coinor-cbc bats
  gdb valgrind libjemalloc2 libtcmalloc-minimal4)
[ "${1:-}" != --browser ] || packages=(chromium)
missing=()
for p in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
done
if ((${#missing[@]})); then
  echo "setup: installing Debian packages: ${missing[*]}" >&2
  as_root=()
  if ((EUID != 0)); then
    command -v sudo >/dev/null || { echo "setup: need root or sudo to install: ${missing[*]}" >&2; exit 1; }
    as_root=(sudo)
  fi
  "${as_root[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

[ "${1:-}" != --browser ] || exit 0

out=${1:-build/config.mk}
mkdir -p "$(dirname "$out")"
build=$(cd "$(dirname "$out")" && pwd)

# A toolkit is usable when it has the header of 12.4 or later and a compiler.
usable() { [ -x "$1/bin/nvcc" ] && [ -f "$1/include/cuda.h" ] &&
  [ "$(sed -n 's/^#define CUDA_VERSION \([0-9]*\).*/\1/p' "$1/include/cuda.h" | head -1)" -ge 13000 ]; }
cuda=""
for candidate in "${CUDA_HOME:-}" "$(dirname "$(dirname "$(readlink -f "$(command -v nvcc || echo /nonexistent/bin/x)")")")" /usr/local/cuda; do
  if [ -n "$candidate" ] && usable "$candidate"; then cuda=$candidate; break; fi
done
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

#!/usr/bin/env bash
# setup.sh OUT CUDA_HOME WHAT: makes the virtual environments of the framework tests under OUT, with pinned versions.
# WHAT is `base` (tinygrad with its own test_tiny.py from its source distribution, Dr.Jit: what `make test` runs), or one of those
# at the end (`make test-real` alone: hundreds of MB). Called by the make targets; safe to run again.
# The CUDA compiler library that tinygrad loads comes from the toolkit; where the toolkit's wheels brought it, it lies
# under CUDA_HOME too. numba-cuda brings its own.
set -euo pipefail
out=$1 cuda=$2 what=$3

# An environment at $1 with the packages that follow.
environment() {
  local venv=$1
  shift
  mkdir -p "$(dirname "$venv")"
  [ -x "$venv/bin/pip" ] || python3 -m venv "$venv"
  "$venv/bin/pip" install -q --disable-pip-version-check "$@"
}

base() {
  local tinygrad=0.14.0
  environment "$out/venv" "tinygrad==$tinygrad" 'drjit==1.5.0' 'numpy==2.3.5'
  mkdir -p "$out/tinygrad"
  if ! [ -f "$out/tinygrad/test_tiny.py" ]; then
    sdist=$(mktemp -d)
    trap 'rm -rf "$sdist"' EXIT
    "$out/venv/bin/pip" download -q --disable-pip-version-check --no-binary :all: --no-deps -d "$sdist" "tinygrad==$tinygrad"
    tar xzf "$sdist/tinygrad-$tinygrad.tar.gz" -C "$sdist" "tinygrad-$tinygrad/test/test_tiny.py"
    cp "$sdist/tinygrad-$tinygrad/test/test_tiny.py" "$out/tinygrad/test_tiny.py"
  fi
  for folder in "$cuda/lib64" "$cuda/lib"; do
    if compgen -G "$folder/libnvrtc.so*" >/dev/null; then echo "$folder" >"$out/nvrtc"; break; fi
  done
  [ -s "$out/nvrtc" ] || { echo "tests/real: no libnvrtc.so under $cuda: install the toolkit's NVRTC" >&2; exit 1; }
}

numba() {
  environment "$out/numba/venv" 'numba-cuda[cu13]==0.30.4' 'numba==0.68.1' 'llvmlite==0.50.0' 'numpy==2.3.5' 'cuda-bindings==13.5.0' 'cuda-core==1.2.2' \
    'nvidia-cuda-nvrtc==13.0.88' 'nvidia-nvvm==13.0.88' 'nvidia-nvjitlink==13.0.88' 'filecheck==1.0.6' 'cffi==2.1.1' 'ml_dtypes==0.6.0' 'pytest==9.2.0'
  # Machine code is of no use to the software GPU. An empty library is found, has no linker, and numba goes to the driver's.
  local linker
  linker=$(echo "$out"/numba/venv/lib/python3*/site-packages/nvidia/cu13/lib/libnvJitLink.so.13)
  gcc -shared -Wl,-soname,libnvJitLink.so.13 -o "$linker" -x c /dev/null
}

taichi() {
  environment "$out/taichi/venv" 'taichi==1.7.4' 'numpy==2.3.5'
}

quadrants() {
  environment "$out/quadrants/venv" 'quadrants==1.3.3' 'numpy==2.3.5'
}

halide() {
  environment "$out/halide/venv" 'halide==21.0.0' 'numpy==2.3.5'
}

cuda_core() {
  environment "$out/cuda_core/venv" 'cuda-core==1.2.2' 'cuda-bindings==13.5.0' 'nvidia-cuda-nvrtc==13.0.88' 'numpy==2.3.5'
}

slangpy() {
  environment "$out/slangpy/venv" 'slangpy==0.43.1' 'numpy==2.3.5'
}

case $what in base | numba | slangpy | taichi | quadrants | halide | cuda_core) "$what" ;; *) echo "tests/real: setup.sh: $what: expected base, numba, slangpy, taichi, quadrants, halide or cuda_core" >&2; exit 2 ;; esac
mkdir -p "$out/$what"
touch "$out/$what/ready"

#!/usr/bin/env bash
# Makes the virtual environment of the framework tests, $1/venv, with pinned versions, and puts tinygrad's own
# test_tiny.py (from its source distribution) into $1/tinygrad. Called by the make targets; safe to run again.
# The CUDA compiler library that tinygrad loads comes from the toolkit ($2 = CUDA_HOME); where the toolkit's wheels
# brought it, it lies under CUDA_HOME too.
set -euo pipefail
out=$1 cuda=$2
tinygrad=0.14.0
mkdir -p "$out/tinygrad"
[ -x "$out/venv/bin/pip" ] || python3 -m venv "$out/venv"
"$out/venv/bin/pip" install -q --disable-pip-version-check "tinygrad==$tinygrad" 'numpy==2.3.5'
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
touch "$out/ready"

#!/usr/bin/env bash
# gpu_check.sh ITEM... | all | --list | --summary: asks a real card the open questions, each in bounded time, and writes what it
# answers as one small JSON file an item. Works in a clone after `make` and in the folder that `make gpu-bundle` packs, without a
# network; needs Python 3.9 and an NVIDIA driver. tests/gpu/README.md says more.
set -euo pipefail
exec python3 "$(dirname "$0")/../tests/gpu/check.py" "$@"

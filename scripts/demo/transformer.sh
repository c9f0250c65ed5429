#!/usr/bin/env bash
# The second half of the demo: train.py, an ordinary tinygrad script that trains a transformer of 12 blocks, under
# LD_PRELOAD=build/libudnnmem.so and nothing else.
#   1. without the library, on a device with room to spare: every loss and a hash of all weights;
#   2. with the library and room to spare: the peak of its live bytes;
#   3. on a device of 35 % of that, without the library: out of memory;
#   4. on the same device with the library: the same bits, by the device's own count within its memory.
# tinygrad is told to give memory back instead of keeping it (LRU=0) and to make a tensor a buffer (NO_MEMORY_PLANNER=1), in
# all runs. Needs build/real (the make target brings it). On the software GPU only: a card cannot be made smaller.
set -uo pipefail
cd "$(dirname "$0")/../.."
build=$PWD/build
share=${DEMO_SHARE:-35}
export STEPS=${DEMO_STEPS:-6}
if [ "${DEMO_DEVICE:-software}" != software ]; then
  echo "transformer: skipped on a card (its device cannot be made smaller): LD_PRELOAD=$build/libudnnmem.so UDNNMEM_BUDGET=... python3 scripts/demo/train.py"
  exit 0
fi
if ! [ -x "$build/real/venv/bin/python" ]; then
  echo "demo: the transformer needs tinygrad under build/real: run make demo, which brings it, or leave it out with DEMO_TRANSFORMER=0" >&2
  exit 2
fi
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

fail() { echo "demo: $*" >&2; exit 1; }
show_errors() { tail -5 "$out/$1.err" | sed 's/^/    /' >&2; }
figure() { sed -n 's/.*"'"$1"'": \{0,1\}\([0-9]*\).*/\1/p' "$2" | tail -1; }

# run NAME VARIABLE=VALUE...: the script with these in its environment; `result NAME` then sets status and took.
run() {
  local name=$1 start end status
  shift
  start=$(date +%s%N)
  env -u LD_PRELOAD -u UDNNMEM_DISABLE -u UDNNMEM_BUDGET UDNNMEM_TRACE=off LD_LIBRARY_PATH="$build/softgpu:$(cat "$build/real/nvrtc")" \
    SOFTGPU_CACHE="$build/softgpu-cache" XDG_CACHE_HOME="$build/cache" SOFTGPU_REPORT="$out/$name.report" CACHEDB="$build/real-tinygrad.db" \
    DEV=CUDA TC=0 LRU=0 NO_MEMORY_PLANNER=1 PARALLEL=0 "$@" "$build/real/venv/bin/python" scripts/demo/train.py >"$out/$name" 2>"$out/$name.err"
  status=$?
  end=$(date +%s%N)
  echo "$status $(awk -v a="$start" -v b="$end" 'BEGIN { printf "%.1f", (b - a) / 1e9 }')" >"$out/$name.result"
}
result() { read -r status took <"$out/$1.result"; }

echo
echo "train.py: a transformer of 12 blocks in Python with tinygrad, Adam, $STEPS steps, float32 (two runs at a time; the first two compile its kernels)."
run enough SOFTGPU_MEMORY=4GiB &
run roomy SOFTGPU_MEMORY=4GiB LD_PRELOAD="$build/libudnnmem.so" &
wait
result enough
[ "$status" -eq 0 ] || { show_errors enough; fail "train.py with enough memory ended with status $status"; }
enough_took=$took
echo "1. enough memory, without the library: $took s, $(grep -h '^step' "$out/enough" | tail -1 | cut -d' ' -f1-4)"

result roomy
[ "$status" -eq 0 ] || { show_errors roomy; fail "train.py with enough memory and the library ended with status $status"; }
cmp -s "$out/enough" "$out/roomy" || fail "the runs with enough memory differ"
live=$(sed -n 's/^udnnmem: device 0: .* for \([0-9.]*\) MiB live;.*/\1/p' "$out/roomy.err")
[ -n "$live" ] || fail "the library printed no summary"
budget=$(awk -v l="$live" -v s="$share" 'BEGIN { printf "%d", l * 1048576 * s / 100 }')
echo "2. enough memory, with LD_PRELOAD=libudnnmem.so: $took s, peak live $live MiB"

run without SOFTGPU_MEMORY=$budget &
run paged SOFTGPU_MEMORY=$budget LD_PRELOAD="$build/libudnnmem.so" &
wait
result without
[ "$status" -ne 0 ] || fail "train.py in $share % without the library was expected to run out of memory"
grep -q -i 'out of memory\|OUT_OF_MEMORY' "$out/without.err" || { show_errors without; fail "train.py in $share % without the library: status $status, but no word of memory"; }
echo "3. a device of $share % of that, $budget bytes, without the library: $took s, out of memory"

result paged
[ "$status" -eq 0 ] || { show_errors paged; fail "train.py in $share % with the library: status $status after $took s"; }
grep -h '^udnnmem' "$out/paged.err" | sed 's/^/   /'
if ! cmp -s "$out/enough" "$out/paged"; then
  diff "$out/enough" "$out/paged" | head -6 >&2
  fail "the runs of train.py differ"
fi
held=$(figure device_bytes_peak "$out/paged.report")
faults=$(figure faults "$out/paged.report")
[ -n "$held" ] || fail "the software GPU wrote no report"
[ "$held" -le "$budget" ] || fail "the device held $held bytes, more than the $budget allowed"
[ "$faults" -eq 0 ] || fail "the software GPU counted $faults faults"
echo "4. the same device with LD_PRELOAD=libudnnmem.so: $took s; by the device's own count at most $held bytes held, 0 faults"
echo "transformer: all $(grep -c '^step' "$out/enough") losses and all weights are bit-identical: $enough_took s with enough memory, $took s in $share % of it, the script unchanged"

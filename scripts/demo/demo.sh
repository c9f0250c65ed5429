#!/usr/bin/env bash
# The demo (make demo). First half: a 200-layer residual network is trained on handwritten digits three times.
#   1. with enough device memory: measures the peak of its live bytes, keeps every loss with all its bits;
#   2. on a device of 35 % of that: ends in out of memory;
#   3. on the same small device with LD_PRELOAD=libudnnmem.so: trains, and prints the same bits.
# Fails (exit status 1) if anything differs, the accuracy is below 95 %, or the device's own count of its memory says
# more than 35 %. Second half: transformer.sh. Runs on the software GPU where there is no NVIDIA driver, or with DEMO_DEVICE=software.
set -uo pipefail
cd "$(dirname "$0")/../.."
build=$PWD/build
layers=${DEMO_LAYERS:-200}
share=${DEMO_SHARE:-35}
device=${DEMO_DEVICE:-}

refuse() { echo "demo: $*" >&2; exit 2; }
(($# == 0)) || refuse "$1: expected no arguments: DEMO_LAYERS, DEMO_SHARE, DEMO_DEVICE and DEMO_TRANSFORMER change what it does"
# whole VALUE LEAST MOST: written plainly, for no sum is done with anything else.
whole() { [[ $1 =~ ^[1-9][0-9]{0,5}$ ]] && (($1 >= $2 && $1 <= $3)); }
whole "$layers" 2 100000 || refuse "DEMO_LAYERS=$layers: expected a whole number from 2 to 100000"
whole "$share" 1 100 || refuse "DEMO_SHARE=$share: expected a whole number of percent from 1 to 100"
case $device in ''|software|card) ;; *) refuse "DEMO_DEVICE=$device: expected software or card" ;; esac
case ${DEMO_TRANSFORMER:-1} in 0|1) ;; *) refuse "DEMO_TRANSFORMER=$DEMO_TRANSFORMER: expected 0 (left out) or 1" ;; esac
whole "${DEMO_STEPS:-6}" 1 100000 || refuse "DEMO_STEPS=$DEMO_STEPS: expected a whole number from 1 to 100000"
[ -x "$build/workloads/digits-static" ] && [ -e "$build/libudnnmem.so" ] || refuse "nothing is built here: run make first"
arguments=(--depth "$layers" --width 32 --batch 1024 --iterations 40 --seed 1 --report-peak)
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

if [ -z "$device" ]; then
  if [ -e /proc/driver/nvidia/version ] || [ -e /dev/dxg ]; then device=card; else device=software; fi
fi

fail() { echo "demo: $*" >&2; exit 1; }
seconds() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.1f", (b - a) / 1e9 }'; }
mib() { awk -v b="$1" 'BEGIN { printf "%.1f MiB", b / 1048576 }'; }
# The figure NAME from the software GPU's report in FILE.
figure() { sed -n 's/.*"'"$1"'": \([0-9]*\).*/\1/p' "$2" | tail -1; }

# run NAME VARIABLE=VALUE...: the program with these in its environment; sets status and took.
run() {
  local name=$1 start end
  shift
  local -a place=(UDNNMEM_TRACE=off)
  if [ "$device" = software ]; then
    place+=(LD_LIBRARY_PATH="$build/softgpu" XDG_CACHE_HOME="$build/cache" SOFTGPU_CACHE="$build/softgpu-cache" SOFTGPU_REPORT="$out/$name.report")
  fi
  start=$(date +%s%N)
  env -u LD_PRELOAD -u UDNNMEM_DISABLE -u UDNNMEM_BUDGET "${place[@]}" "$@" "$build/workloads/digits-static" "${arguments[@]}" >"$out/$name" 2>"$out/$name.err"
  status=$?
  end=$(date +%s%N)
  took=$(seconds "$start" "$end")
}

show_errors() { tail -5 "$out/$1.err" | sed 's/^/    /' >&2; }

if [ "$device" = software ]; then
  echo "No NVIDIA driver here: on the software GPU, which executes the kernels' PTX on the CPU."
else
  echo "On the NVIDIA card of this machine."
fi
echo "digits: $layers layers, batch 1024, Adam, 40 steps, float32."

run enough SOFTGPU_MEMORY=4GiB
[ "$status" -eq 0 ] || { show_errors enough; fail "the run with enough memory ended with status $status"; }
peak=$(sed -n 's/^peak live bytes \([0-9]*\)$/\1/p' "$out/enough")
budget=$((peak * share / 100))
enough_took=$took
accuracy=$(sed -n 's/^accuracy train .* test \([0-9.]*\)$/\1/p' "$out/enough")
echo "1. enough memory: $took s, accuracy on unseen digits $accuracy, peak live $peak bytes ($(mib "$peak"))"

if [ "$device" = software ]; then
  run without SOFTGPU_MEMORY=$budget
  [ "$status" -eq 3 ] || { show_errors without; fail "without the library, in $share %: expected out of memory (status 3), got status $status"; }
  echo "2. a device of $share % of that, $budget bytes: $took s, $(tail -1 "$out/without.err")"
  run paged SOFTGPU_MEMORY=$budget LD_PRELOAD="$build/libudnnmem.so"
else
  echo "2. (a card cannot be made smaller; the next run gets a budget instead)"
  run paged UDNNMEM_BUDGET=$budget LD_PRELOAD="$build/libudnnmem.so"
fi
[ "$status" -eq 0 ] || { show_errors paged; fail "with the library, in $share %: status $status after $took s"; }
grep -h '^udnnmem' "$out/paged.err" | sed 's/^/   /'

losses=$(grep -c '^step ' "$out/enough")
[ "$losses" -gt 0 ] || fail "the program printed no loss"
if ! cmp -s "$out/enough" "$out/paged"; then
  diff "$out/enough" "$out/paged" | head -6 >&2
  fail "the runs differ"
fi
awk -v a="$accuracy" 'BEGIN { exit !(a >= 0.95) }' || fail "accuracy $accuracy is below 0.95"
if [ "$device" = software ]; then
  held=$(figure device_bytes_peak "$out/paged.report")
  faults=$(figure faults "$out/paged.report")
  [ -n "$held" ] || fail "the software GPU wrote no report"
  [ "$held" -le "$budget" ] || fail "the device held $held bytes, more than the $budget allowed"
  [ "$faults" -eq 0 ] || fail "the software GPU counted $faults faults"
  echo "3. the same device with LD_PRELOAD=libudnnmem.so: $took s; by the device's own count at most $held bytes held ($((held * 100 / peak)) % of the peak), 0 faults"
else
  echo "3. with LD_PRELOAD=libudnnmem.so and a budget of $budget bytes: $took s"
fi
echo "all $losses losses, the parameters and the accuracy ($accuracy) are bit-identical: $enough_took s with enough memory, $took s in $share % of it"
[ "${DEMO_TRANSFORMER:-1}" = 0 ] || DEMO_DEVICE=$device scripts/demo/transformer.sh

#!/usr/bin/env bash
# Runs every fuzzer of the sanitized tests with many inputs, spread over the cores: scripts/fuzz.sh [INPUTS [JOBS]].
# Each core draws from a seed number of its own; a failure prints the number, the input and its index.
set -euo pipefail
cd "$(dirname "$0")/.."
inputs=${1:-10000000}
jobs=${2:-$(nproc 2> /dev/null || sysctl -n hw.ncpu)}
failed=0
for program in build/sanitize/tests/*_tests; do
  # gtest lists a suite on a line of its own that ends in a dot, and its tests indented below.
  for name in $("$program" --gtest_list_tests --gtest_filter='*Fuzz*' \
                | awk '/^[^ ].*\.$/ { suite = $1; next } /^  / { print suite $1 }'); do
    echo "$name: $inputs inputs over $jobs processes"
    running=()
    for ((shard = 0; shard < jobs; ++shard)); do
      share=$((inputs / jobs + (shard < inputs % jobs ? 1 : 0)))
      TORSOR_FUZZ=$share TORSOR_FUZZ_SEED=$((20251130 + shard)) "$program" --gtest_filter="$name" --gtest_brief=1 &
      running+=($!)
    done
    for process in "${running[@]}"; do wait "$process" || failed=1; done
  done
done
exit $failed

#!/usr/bin/env bash
# Runs every fuzzer of the sanitized tests with many inputs, in pieces that are spread over the cores:
# scripts/fuzz.sh [INPUTS [JOBS [FILTER]]]. FILTER is gtest's, '*Fuzz*' without it. Each piece draws from a seed number
# of its own and tells what share of its inputs got past the first check; a failure prints the number, the input and its
# index. The exit status is 1 when a piece failed.
set -euo pipefail
cd "$(dirname "$0")/.."
inputs=${1:-10000000}
jobs=${2:-$(nproc 2> /dev/null || sysctl -n hw.ncpu)}
filter=${3:-*Fuzz*}
piece=200000
failed=0

# One piece: its number, the number of all, the inputs of each and of all, program, test.
run_piece() {
  local from=$((($1 - 1) * $3)) lines
  local share=$(($4 - from < $3 ? $4 - from : $3))
  if lines=$(TORSOR_FUZZ=$share TORSOR_FUZZ_SEED=$((20251129 + $1)) "$5" --gtest_filter="$6" --gtest_brief=1 2>&1); then
    echo "  $1 of $2: $(grep 'past the first check' <<< "$lines")"
  else
    echo "  $1 of $2 FAILED: $lines"
    return 1
  fi
}
export -f run_piece

for program in build/sanitize/tests/*_tests; do
  # gtest lists a suite on a line of its own that ends in a dot, and its tests indented below.
  for name in $("$program" --gtest_list_tests --gtest_filter="$filter" \
                | awk '/^[^ ].*\.$/ { suite = $1; next } /^  / { print suite $1 }'); do
    pieces=$(((inputs + piece - 1) / piece))
    echo "$name: $inputs inputs in $pieces pieces, $jobs at a time"
    seq "$pieces" | xargs -P "$jobs" -I{} bash -c 'run_piece "$@"' piece {} "$pieces" "$piece" "$inputs" "$program" "$name" \
      || failed=1
  done
done
exit $failed

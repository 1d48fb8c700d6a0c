#!/usr/bin/env bash
# Makes empty libraries in FOLDER that stand in for those of CUDA which torch's libraries name and which are not among
# its packages, so that torch can be imported for the CPU alone: 4 GB less than its whole. What is called of them is
# looked up when it is called, never on the CPU; only variables must be there from the start, and these are made, zeroed.
#
#   scripts/cuda_stand_ins.sh FOLDER TORCH/lib
#
# Makes none where every library is there: a build for the CPU, or an environment with all of CUDA.
set -euo pipefail

folder=$1 torch=$2
mkdir -p "$folder"
rm -f "$folder"/*
[ "$(uname -s)" = Linux ] || exit 0
compiler=${CXX:-g++}
command -v "$compiler" > /dev/null || compiler=clang++

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
readelf -dVW "$torch"/*.so > "$work/names" 2> /dev/null
# NAME@VERSION of what the loader must find at once, wherever an address stands in data.
readelf -rW "$torch"/*.so 2> /dev/null |
  awk '$3 ~ /_(GLOB_DAT|64|ABS64)$/ && $4 ~ /^0+$/ && $5 ~ /@/ {print $5}' | sort -u > "$work/variables"

# The driver's own library is asked for by name when a GPU is looked for, and may say that there is none.
for name in $(sed -n 's/.*(NEEDED).*\[\(lib\(cu\|nv\|nccl\)[^]]*\)\].*/\1/p' "$work/names" | sort -u); do
  [ "$name" = libcuda.so.1 ] && continue
  compgen -G "$torch/$name" > /dev/null && continue
  compgen -G "$torch/../../nvidia/*/lib/$name" > /dev/null && continue
  : > "$work/stand_in.cpp"
  : > "$work/map"
  # The versions that are asked of it: lines "Name: ..." below "File: ...".
  for version in $(awk -v file="$name" '/ File: / {ours = index($0, " File: " file " ") > 0}
                     ours && / Name: / {sub(/.* Name: /, ""); print $1}' "$work/names" | sort -u); do
    echo "$version {" >> "$work/map"
    names=$(awk -F@ -v version="$version" '$2 == version {print $1}' "$work/variables")
    [ -n "$names" ] && echo "global:" >> "$work/map"
    for one in $names; do
      echo "extern \"C\" { extern long $one[64]; long $one[64]; }" >> "$work/stand_in.cpp"
      echo "$one;" >> "$work/map"
    done
    echo "};" >> "$work/map"
  done
  script=()
  [ -s "$work/map" ] && script=("-Wl,--version-script=$work/map")
  "$compiler" -shared -fPIC "-Wl,-soname,$name" "${script[@]}" -o "$folder/$name" "$work/stand_in.cpp"
done

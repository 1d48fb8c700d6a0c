// What a record says of the machine, and how much memory a run took.
#pragma once

#include <cstdint>

#include "torsor/base/json.h"

namespace torsor {

/// {"processor", "cores", "memory_bytes", "instruction_sets", "system", "libtorch", "torsor", "threads"}: nothing that
/// names the machine or its user.
Json describe_machine();

/// Starts a new measurement of the largest resident memory where the system allows it (Linux); elsewhere the process's
/// largest so far counts.
void reset_peak_memory();
/// Bytes; 0 when unknown.
std::int64_t peak_memory();
/// Resident memory now, in bytes; 0 when unknown.
std::int64_t resident_memory();

}  // namespace torsor

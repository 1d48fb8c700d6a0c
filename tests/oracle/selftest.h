#pragma once

namespace oracle {

/// Gradients of every shipped case against central differences, values against the design's tables, and proof that a
/// wrong output is noticed. Prints what does not hold; returns the exit code.
int selftest();

}  // namespace oracle

// A diagnosis for people, from its document alone ("torsor-diagnosis-1", docs/diagnose.md).
#pragma once

#include <string>

#include "torsor/base/json.h"

namespace torsor::report {

/// Verdict, findings and tables for a terminal. Throws Error for a document of another format or with a key missing.
std::string diagnosis_text(const Json& diagnosis);

/// One HTML file that needs nothing else: the verdict first, then losses by position where they were measured, the
/// findings, attention and activations by position, wavelengths against the training length, scalings, biases by
/// distance, memory, and how to repeat. All text of the document is escaped. Throws Error as diagnosis_text() does.
std::string diagnosis_page(const Json& diagnosis);

}  // namespace torsor::report

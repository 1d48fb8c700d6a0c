// results.csv: every evaluation of every run in one row, for spreadsheets and scripts.
#pragma once

#include <string>
#include <string_view>

#include "torsor/report/results.h"

namespace torsor::report {

/// A field by RFC 4180: in double quotes, with those inside doubled, when it holds a comma, a quote or a line break.
std::string csv_field(std::string_view text);

/// A header and one row a run and evaluation, lines ending in CRLF as RFC 4180 asks. A run without evaluations (it
/// failed or was refused) has one row with empty task and length. Columns: encoding, seed, status, task, length,
/// eval_status, loss, perplexity, bits_per_byte, accuracy, problems (how many the accuracy is a share of), parameters,
/// tokens_per_second, peak_memory_bytes, decode_tokens_per_second, reason (of the evaluation, else of the run). Numbers
/// have full precision; what is not known or not finite is an empty field.
std::string results_csv(const Results& results);

}  // namespace torsor::report

// What the verdicts of all kinds of tasks share; verdict_sentences (statistics.h) is what others call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "torsor/report/results.h"

namespace torsor::report {

/// "a, b and c".
std::string join_words(const std::vector<std::string>& items, const char* last = " and ");

/// That so few seeds only show direction.
std::string seeds_sentence(std::size_t seeds);

/// Which encodings are shown and not compared (Eval::leaks); empty when there are none.
std::string leaks_sentence(const Results& results, const std::string& task);

/// Appends who refuses which lengths, and which runs did not end.
void add_refusals(const Results& results, const std::string& task, const std::vector<std::int64_t>& lengths,
                  std::vector<std::string>& sentences);

/// The verdict of a task that is scored by accuracy and was evaluated, without refusals and failures.
std::vector<std::string> accuracy_verdict(const Results& results, const std::string& task);

}  // namespace torsor::report

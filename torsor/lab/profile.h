// The settings that a comparison has when the user names none: quick, standard and full, for each task.
#pragma once

#include <string>

#include "torsor/lab/compare.h"

namespace torsor {

/// The plan of a profile for a task: quick, standard or full (evaluation.md). Throws UsageError for another name.
ComparePlan profile_plan(const std::string& name, const std::string& task = "lm");

/// Gives a plan another training length and evaluation lengths that stand to it as the old ones stood: for `addition`
/// every number of digits up to the same multiple, else the same multiples.
void set_length(ComparePlan& plan, std::int64_t length);

}  // namespace torsor

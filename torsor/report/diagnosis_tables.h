// The tables of a diagnosis, and words that page and terminal share.
#pragma once

#include <string>

#include "torsor/base/json.h"
#include "torsor/report/charts.h"

namespace torsor::report {

/// Throws Error unless the document says that it is a diagnosis.
void check_diagnosis(const Json& diagnosis);

/// With a capital at its start where that is a letter.
std::string capital(std::string text);
/// "measured, from 513 tokens on"
std::string finding_scope(const Json& finding);

// Rows of cells, headings first; headings alone where there is nothing.
Rows dtype_rows(const Json& diagnosis);
Rows memory_rows(const Json& diagnosis);
Rows row_rows(const Json& diagnosis);
Rows temperature_rows(const Json& diagnosis);
Rows claim_rows(const Json& diagnosis);
Rows head_rows(const Json& diagnosis);
Rows channel_rows(const Json& diagnosis);
/// One row a plane of a rotation; of more than `most` planes some, spread over all.
Rows plane_rows(const Json& rotation, std::size_t most);

}  // namespace torsor::report

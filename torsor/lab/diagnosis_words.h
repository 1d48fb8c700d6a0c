// Numbers and lists in the sentences of a diagnosis.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace torsor {

/// Three significant digits, whole numbers below a million whole: "0.0815", "512", "3.9", "1.2e9".
std::string shown(double value);
/// Rising numbers with runs drawn together: "2 to 4, 7".
std::string ranges(const std::vector<std::int64_t>& numbers);
/// A word of a shell command, quoted where it has to be.
std::string shell_word(const std::string& text);
/// "64 MiB"
std::string shown_bytes(double bytes);

}  // namespace torsor

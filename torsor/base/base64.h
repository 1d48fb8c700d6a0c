// Base64 (RFC 4648, the usual alphabet), as some files hold bytes inside text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace torsor {

/// The bytes that `text` stands for. Nothing where it is not exactly what an encoder writes: another character, white
/// space, padding that is missing or of another length, bits behind the last byte.
std::optional<std::string> base64_bytes(std::string_view text);

}  // namespace torsor

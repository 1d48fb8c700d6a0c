#include "torsor/data/bpe_added.h"

#include <utility>

#include "torsor/base/unicode_classes.h"
#include "torsor/base/utf8.h"

namespace torsor {
namespace {

bool is_white(const CodePoint& point) { return point.valid && unicode_class(point.value) == UnicodeClass::space; }

/// The start of the white space that ends at `end`, not before `from`.
std::size_t white_before(std::string_view text, std::size_t from, std::size_t end) {
  while (end > from) {
    std::size_t at = end - 1;
    while (at > from && end - at < 4 && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U) --at;
    const CodePoint point = decode_utf8(text, at);
    if (at + point.size != end || !is_white(point)) break;
    end = at;
  }
  return end;
}

std::size_t white_behind(std::string_view text, std::size_t begin) {
  while (begin < text.size()) {
    const CodePoint point = decode_utf8(text, begin);
    if (!is_white(point)) break;
    begin += point.size;
  }
  return begin;
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<BpeAddedToken> tokens) : tokens_(std::move(tokens)), ends_{kNone} {
  for (std::uint32_t index = 0; index < tokens_.size(); ++index) {
    const std::string& content = tokens_[index].content;
    if (content.empty()) continue;
    first_[static_cast<unsigned char>(content.front())] = true;
    std::uint32_t node = 0;
    for (const char c : content) {
      const auto added = nodes_.emplace(std::uint64_t{node} * 256 + static_cast<unsigned char>(c),
                                        static_cast<std::uint32_t>(ends_.size()));
      if (added.second) ends_.push_back(kNone);
      node = added.first->second;
    }
    ends_[node] = index;
  }
}

std::uint32_t AddedTokenFinder::longest_at(std::string_view text, std::size_t at) const {
  std::uint32_t node = 0, longest = kNone;
  for (; at < text.size(); ++at) {
    const auto next = nodes_.find(std::uint64_t{node} * 256 + static_cast<unsigned char>(text[at]));
    if (next == nodes_.end()) break;
    node = next->second;
    if (ends_[node] != kNone) longest = ends_[node];
  }
  return longest;
}

std::optional<AddedTokenFinder::Match> AddedTokenFinder::find(std::string_view text, std::size_t from) const {
  if (empty()) return std::nullopt;
  for (std::size_t at = from; at < text.size(); ++at) {
    if (!first_[static_cast<unsigned char>(text[at])]) continue;
    const std::uint32_t index = longest_at(text, at);
    if (index == kNone) continue;
    const BpeAddedToken& token = tokens_[index];
    const std::size_t end = at + token.content.size();
    return Match{token.lstrip ? white_before(text, from, at) : at, token.rstrip ? white_behind(text, end) : end,
                 token.id};
  }
  return std::nullopt;
}

}  // namespace torsor

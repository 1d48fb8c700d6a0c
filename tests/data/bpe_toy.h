// Small byte-level vocabularies, and merging as it is defined.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "torsor/data/bpe.h"
#include "torsor/data/bpe_alphabet.h"
#include "torsor/data/bpe_split.h"

namespace torsor::data_test {

inline TokenId id_of(const BpeModel& model, std::string_view bytes) {
  const auto found = std::find(model.vocabulary.begin(), model.vocabulary.end(), bytes);
  return static_cast<TokenId>(found - model.vocabulary.begin());
}

/// The bytes as ids 0 to 255 in GPT-2's order, and a token for each merge that makes a new one.
inline BpeModel toy_model(const std::vector<std::pair<std::string, std::string>>& merges) {
  BpeModel model;
  for (std::size_t id = 0; id < 256; ++id) model.vocabulary.emplace_back(1, static_cast<char>(byte_at(id)));
  for (const auto& [left, right] : merges) {
    if (id_of(model, left + right) == model.vocabulary.size()) model.vocabulary.push_back(left + right);
    model.merges.push_back({id_of(model, left), id_of(model, right), id_of(model, left + right)});
  }
  return model;
}

inline BpeAddedToken add_token(BpeModel& model, const std::string& content) {
  BpeAddedToken token;
  token.id = static_cast<TokenId>(model.vocabulary.size());
  token.content = content;
  model.vocabulary.push_back(content);
  model.added.push_back(token);
  return token;
}

/// As the definition has it: of all pairs of neighbours that a merge fits, the one of lowest rank, and of those the
/// leftmost, until none is left. Added tokens and the prefix space play no part.
inline std::vector<TokenId> naive_encode(const BpeModel& model, std::string_view text) {
  std::vector<TokenId> ids;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = piece_end(text, begin);
    std::vector<TokenId> piece;
    for (; begin < end; ++begin) piece.push_back(id_of(model, text.substr(begin, 1)));
    while (true) {
      std::size_t best_rank = model.merges.size(), best_at = 0;
      for (std::size_t at = 0; at + 1 < piece.size(); ++at)
        for (std::size_t rank = 0; rank < best_rank; ++rank)
          if (model.merges[rank].left == piece[at] && model.merges[rank].right == piece[at + 1]) {
            best_rank = rank;
            best_at = at;
          }
      if (best_rank == model.merges.size()) break;
      piece[best_at] = model.merges[best_rank].result;
      piece.erase(piece.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
    }
    ids.insert(ids.end(), piece.begin(), piece.end());
  }
  return ids;
}

}  // namespace torsor::data_test

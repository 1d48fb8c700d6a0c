// The tokenizer of llama2.c (tok*.bin, tokenizer.bin): pieces with scores, the best pair first, bytes where nothing
// else fits. SentencePiece's BPE as Llama has it, with the score of each piece in place of a list of merges.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "torsor/data/tokenizer.h"

namespace torsor {

/// Ids 0, 1 and 2 are the unknown piece, the beginning and the end of a text; 3 to 258 are the bytes.
class Llama2Tokenizer : public Tokenizer {
 public:
  static constexpr TokenId kBegin = 1, kEnd = 2, kFirstByte = 3;

  struct Piece {
    float score = 0;
    std::string text;
  };

  /// Throws Error where there are fewer than 259 pieces or a score is not finite.
  explicit Llama2Tokenizer(std::vector<Piece> pieces);

  /// Reads int32 of the longest piece's length, then of every piece float32 score, int32 length and its bytes
  /// (little-endian), to the end of the file. Throws Error naming the path where that does not come out even.
  static std::shared_ptr<const Llama2Tokenizer> load(const std::string& path);
  static std::shared_ptr<const Llama2Tokenizer> parse(std::string_view bytes, const std::string& source);

  /// "llama2c-" and 16 digits of the SHA-256 of pieces and scores.
  std::string name() const override { return name_; }
  std::uint32_t vocabulary_size() const override { return static_cast<std::uint32_t>(pieces_.size()); }
  /// kBegin, then a space and the text (nothing more for an empty text): code points that are pieces, else their bytes;
  /// then the neighbours that together are the piece with the highest score become one, of equal ones the leftmost,
  /// until none are.
  std::vector<TokenId> encode(std::string_view text) const override;
  /// Bytes of the pieces; kBegin and kEnd have none, and the piece behind kBegin loses a leading space.
  std::string decode(std::span<const TokenId> ids) const override;
  std::vector<TokenizerFile> files() const override { return {{"tokenizer.bin", bytes()}}; }

  /// What load() reads.
  std::string bytes() const;

 private:
  std::string bytes_of(TokenId id) const;

  std::vector<Piece> pieces_;
  std::unordered_map<std::string_view, TokenId> ids_;
  std::string name_;
};

}  // namespace torsor

// Byte-level byte-pair encoding, GPT-2's kind: read, written, trained (torsor/data/bpe_train.h) and applied.
//
// A text is taken apart in three steps:
//
//     added tokens     "A<|endoftext|>"  ->  "A", <|endoftext|>     torsor/data/bpe_added.h
//     pieces           "A low, lower"    ->  "A", " low", ",", " lower"    torsor/data/bpe_split.h
//     bytes, merged    " lower"          ->  " low", "er"
//
// In a piece the merge of the lowest rank comes first, and of equal ones the leftmost, until none is left.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "torsor/base/gguf.h"
#include "torsor/data/bpe_added.h"
#include "torsor/data/bpe_merge.h"
#include "torsor/data/bpe_split.h"
#include "torsor/data/tokenizer.h"

namespace torsor {

/// All that decides the ids of a text.
struct BpeModel {
  std::vector<std::string> vocabulary;  ///< the bytes of every id; of an added token its text
  std::vector<BpeMerge> merges;         ///< by rank
  std::vector<BpeAddedToken> added;     ///< in any order
  bool add_prefix_space = false;        ///< a space goes before every text between added tokens that begins with none
  bool composes = false;                ///< texts between raw added tokens become NFC first
  BpeSplit split = BpeSplit::gpt2;      ///< how pieces are cut
  bool ignore_merges = false;           ///< a piece that is a token is that one, whatever the merges make of it
  std::optional<TokenId> begin = {};    ///< an added token that goes before every text, and has no text itself
};

/// decode(encode(text)) == text for every sequence of bytes, valid UTF-8 or not, save for what the model itself drops
/// or adds: white space beside an added token with `lstrip` or `rstrip`, the space of `add_prefix_space`, the text of
/// `begin` where it stands in a text, and with `composes` what is not NFC.
class BpeTokenizer : public Tokenizer {
 public:
  /// Throws Error when another byte has no token, bytes or texts stand twice, a merge does not make what it says, or an
  /// added token stands for something else inside the model.
  explicit BpeTokenizer(BpeModel model);

  /// Reads a tokenizer.json, or a folder with one, or else with vocab.json and merges.txt (which name no added tokens).
  /// A tokenizer.json must mean what this class does: a BPE model on all bytes, ByteLevel pieces by one of the rules of
  /// bpe_split.h, `normalizer` NFC or none, no truncation or padding. Of `post_processor` counts a template with one
  /// token before the text and none behind it; others are passed over. Anything else is an Error that names the file
  /// and the key.
  static std::shared_ptr<const BpeTokenizer> load(const std::string& path);
  /// The same of a tokenizer.json in memory; `source` names it in messages.
  static std::shared_ptr<const BpeTokenizer> parse(std::string_view text, const std::string& source);
  /// The vocabulary of a GGUF file whose tokenizer.ggml.model is "gpt2". tokenizer.ggml.pre names the rule of pieces;
  /// tokens of the types control, unknown and user-defined are added tokens; add_bos_token and bos_token_id name the
  /// beginning. Throws Error naming the file and the key, also for a `pre` that is missing or not read.
  static std::shared_ptr<const BpeTokenizer> of_gguf(const GgufFile& file);

  BpeTokenizer(const BpeTokenizer&) = delete;
  BpeTokenizer& operator=(const BpeTokenizer&) = delete;

  /// "bpe-" and 16 hexadecimal digits of the SHA-256 of all that decides ids: equal names mean equal ids, whatever the
  /// file looked like.
  std::string name() const override { return name_; }
  std::uint32_t vocabulary_size() const override { return static_cast<std::uint32_t>(model_.vocabulary.size()); }
  std::vector<TokenId> encode(std::string_view text) const override;
  std::string decode(std::span<const TokenId> ids) const override;
  std::vector<TokenizerFile> files() const override { return {{"tokenizer.json", json()}}; }

  /// A tokenizer.json that load() and Hugging Face's tokenizers read: the same ids, the beginning as
  /// a template.
  std::string json() const;

  const BpeModel& model() const { return model_; }

 private:
  struct Encoding;

  void check_added();
  void check_vocabulary();
  void check_begin() const;
  /// Ids that the model itself can give: not those of mere added tokens.
  std::vector<bool> inner_ids() const;
  std::string identity() const;

  void encode_text(std::string_view text, Encoding& encoding) const;
  void encode_pieces(std::string_view text, Encoding& encoding) const;
  void merge_piece(std::string_view piece, Encoding& encoding) const;

  BpeModel model_;
  std::array<TokenId, 256> byte_ids_{};
  MergeRanks ranks_;
  std::unordered_map<std::string_view, TokenId> whole_;  // with ignore_merges: what a piece may be as it is
  AddedTokenFinder raw_, normalized_;
  std::string name_;
};

}  // namespace torsor

// SentencePiece: pieces of a text chosen by the most probable cut (Unigram) or by joining neighbours (BPE), through the
// library of that name. The build may lack it (TORSOR_WITH_SENTENCEPIECE); then every construction is an Error.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "torsor/data/bpe_added.h"
#include "torsor/data/sentencepiece_model.h"
#include "torsor/data/tokenizer.h"

namespace torsor {

/// Whether this build can apply the models of SentencePiece.
bool has_sentencepiece();

/// What stands beside a model and decides ids too.
struct SentencePieceOptions {
  /// Found in the raw text before anything else, leftmost and of those the longest. Ids of pieces, or behind them
  /// without a hole.
  std::vector<BpeAddedToken> added;
  bool add_begin = false;         ///< encode() begins with the piece `begin`
  std::string begin = "<s>";      ///< a control piece; only used with add_begin
  bool space_first_only = false;  ///< a text behind an added token gets no space of the model's
};

/// With add_space and remove_spaces false, byte_fallback and no table of characters (Llama, Mistral) valid UTF-8 comes
/// back byte for byte. Otherwise texts are changed before they are cut: NFKC, spaces. Bytes that are not UTF-8 become
/// U+FFFD each, and NUL becomes U+10FFFF, which is unknown, where the model has a table of characters.
///
/// The library adds up the scores of a whole text in float32, and after some ten thousand words what it chooses is no
/// longer the most probable cut. So words are given to it one by one where that cannot make another difference:
/// Unigram, no piece across a space, spaces that the model removes and adds as a rule.
class SentencePieceTokenizer : public Tokenizer {
 public:
  /// Throws Error where check_sentencepiece() or the library refuses the model, an added token is no piece of its id,
  /// or ids behind the pieces have holes; and where the build has no SentencePiece.
  explicit SentencePieceTokenizer(SentencePieceModel model, SentencePieceOptions options = {});

  /// Reads a file of the library (tokenizer.model), alone: no mark is added; or a tokenizer.json of type Unigram whose
  /// words are cut at white space (T5's kind); or a folder with a tokenizer.json of that type, else tokenizer.model or
  /// spiece.model with tokenizer_config.json (add_bos_token, bos_token, legacy, added_tokens_decoder) and the added
  /// tokens of a tokenizer.json beside it. Throws Error naming the file and the field or key.
  static std::shared_ptr<const SentencePieceTokenizer> load(const std::string& path);
  /// A file of the library in memory; `source` names it in messages.
  static std::shared_ptr<const SentencePieceTokenizer> parse(std::string_view bytes, const std::string& source);
  /// A tokenizer.json of type Unigram in memory.
  static std::shared_ptr<const SentencePieceTokenizer> parse_json_text(std::string_view text,
                                                                       const std::string& source);

  ~SentencePieceTokenizer() override;
  SentencePieceTokenizer(const SentencePieceTokenizer&) = delete;
  SentencePieceTokenizer& operator=(const SentencePieceTokenizer&) = delete;

  /// "sentencepiece-" and 16 digits of the SHA-256 of model and options.
  std::string name() const override { return name_; }
  std::uint32_t vocabulary_size() const override { return size_; }
  std::vector<TokenId> encode(std::string_view text) const override;
  /// Spaces for U+2581, bytes for pieces of bytes, nothing for control pieces; the text of added tokens that are no
  /// control piece. The space that the model put before a text goes; with remove_spaces all leading ones go.
  std::string decode(std::span<const TokenId> ids) const override;
  std::string text_of(TokenId id) const override;
  /// tokenizer.model, and tokenizer_config.json with what stands beside the model.
  std::vector<TokenizerFile> files() const override;

  const SentencePieceModel& model() const { return model_; }
  const SentencePieceOptions& options() const { return options_; }

 private:
  struct Library;

  void check_options();
  void find_cuts();
  void encode_plain(std::string_view text, bool first, std::vector<TokenId>& ids) const;
  void encode_words(std::string_view text, const Library& library, std::vector<TokenId>& ids) const;
  /// The bytes of an id inside a text.
  std::string bytes_of(TokenId id, std::size_t index) const;

  SentencePieceModel model_;
  SentencePieceOptions options_;
  std::uint32_t size_ = 0;
  TokenId begin_ = 0;
  std::vector<const std::string*> beside_;  // by id: the text of an added token that is no control piece, else null
  AddedTokenFinder finder_;
  std::vector<char> cuts_;  // bytes that texts are cut at; none where words cannot be encoded one by one
  std::unique_ptr<Library> library_;
  std::string name_;
};

}  // namespace torsor

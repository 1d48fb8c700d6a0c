// The model of SentencePiece as plain data, and its file (tokenizer.model, spiece.model), a protobuf message: read and
// written here, so that only what has been checked reaches the library that applies it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace torsor {

struct SentencePieceModel {
  /// Kinds of pieces; numbers are the file's.
  enum class Kind : std::uint8_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  /// How pieces are chosen; numbers are the file's.
  enum class Method : std::uint8_t { unigram = 1, bpe = 2 };

  struct Piece {
    std::string text;  ///< a space is U+2581; a byte is "<0x00>" to "<0xFF>"
    float score = 0;
    Kind kind = Kind::normal;
  };

  std::vector<Piece> pieces;  ///< by id
  Method method = Method::unigram;
  bool byte_fallback = false;                   ///< characters that no piece has become bytes
  std::string unknown_text = " \xE2\x81\x87 ";  ///< what the unknown piece decodes to
  // Of the normalizer:
  std::string characters;     ///< a double-array trie of replacements and their texts; empty: none
  bool add_space = true;      ///< one before a text
  bool remove_spaces = true;  ///< of several keep one, and none at the ends
  bool escape_spaces = true;  ///< as U+2581
  // Of the decoder; mostly there is none:
  std::string decoded_characters;  ///< as `characters`, for what was decoded

  /// The id of the unknown piece. A checked model has one.
  std::uint32_t unknown() const;
};

/// The bytes below 128 that the normalizer turns into one space each, whatever stands beside them: the space itself,
/// and often tabs and line ends. `characters` is that of a checked model.
std::vector<char> space_bytes(std::string_view characters);

/// Reads a file. Throws Error with `source` where it is no such message: cut off, a field of another kind, a method
/// other than unigram and BPE; and where check_sentencepiece() finds something. Fields that change neither ids nor
/// texts (how the model was trained, its self-test) are passed over.
SentencePieceModel parse_sentencepiece(std::string_view bytes, const std::string& source);

/// The file of a model. What is read from it is the same model.
std::string sentencepiece_bytes(const SentencePieceModel& model);

/// Throws Error with `source` where a model would not be safe or has no meaning: no piece, or none or several unknown
/// ones; a piece that is empty, no UTF-8, has a NUL, more than 4096 bytes or stands twice; a score that is not finite;
/// a byte's piece that is misspelt, there without byte_fallback, or missing with it; a table of characters that leads
/// out of itself, in circles, or to more than 32
/// replacements on one path, or to one of more than 1024 bytes.
void check_sentencepiece(const SentencePieceModel& model, const std::string& source);

}  // namespace torsor

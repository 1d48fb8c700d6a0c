#include "torsor/data/sentencepiece_model.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>
#include <set>
#include <unordered_set>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/base/utf8.h"

namespace torsor {
namespace {

using Kind = SentencePieceModel::Kind;
using Method = SentencePieceModel::Method;

constexpr std::size_t kLongestPiece = 4096;
constexpr std::size_t kLongestReplacement = 1024;  // of a replacement; the longest of NFKC has 33 bytes
constexpr std::size_t kMostResults = 32;           // the library keeps room for so many replacements

// --- The wire format of protobuf ------------------------------------------------------------------------------------

enum class Wire : std::uint8_t { number = 0, eight = 1, bytes = 2, four = 5 };

struct Field {
  std::uint32_t number = 0;
  Wire wire = Wire::number;
  std::uint64_t value = 0;  // of a number, or the four or eight bytes
  std::string_view bytes;
};

/// The fields of one message, in the order of the file.
class Fields {
 public:
  Fields(std::string_view message, std::string where) : rest_(message), where_(std::move(where)) {}

  std::optional<Field> next() {
    if (rest_.empty()) return std::nullopt;
    Field field;
    const std::uint64_t key = varint();
    if (key >> 3 == 0 || key >> 3 > 0x1FFFFFFF) fail(str("a field has the number ", key >> 3));
    field.number = static_cast<std::uint32_t>(key >> 3);
    switch (key & 7) {
      case 0:
        field.value = varint();
        break;
      case 1:
        field.wire = Wire::eight;
        field.value = fixed(8);
        break;
      case 2: {
        field.wire = Wire::bytes;
        const std::uint64_t size = varint();
        if (size > rest_.size())
          fail(str("field ", field.number, " would have ", size, " bytes, and ", rest_.size(), " are left"));
        field.bytes = rest_.substr(0, size);
        rest_.remove_prefix(size);
        break;
      }
      case 5:
        field.wire = Wire::four;
        field.value = fixed(4);
        break;
      default:
        fail(str("field ", field.number, " has the wire type ", key & 7));
    }
    return field;
  }

  [[noreturn]] void fail(const std::string& message) const { throw Error(str(where_, ": ", message)); }

  /// The value of a field that must be of the kind.
  std::string_view bytes(const Field& field) const {
    require(field, Wire::bytes, "bytes");
    return field.bytes;
  }
  bool flag(const Field& field) const {
    require(field, Wire::number, "a number");
    return field.value != 0;
  }
  std::uint64_t number(const Field& field) const {
    require(field, Wire::number, "a number");
    return field.value;
  }
  float real(const Field& field) const {
    require(field, Wire::four, "four bytes");
    return std::bit_cast<float>(static_cast<std::uint32_t>(field.value));
  }

 private:
  void require(const Field& field, Wire wire, const char* what) const {
    if (field.wire != wire) fail(str("field ", field.number, " must be ", what));
  }

  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) fail("is cut off inside a number");
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7FU) << shift;
      if ((byte & 0x80U) == 0) return value;
    }
    fail("a number has more than ten bytes");
  }

  std::uint64_t fixed(std::size_t size) {
    if (rest_.size() < size) fail("is cut off inside a number");
    std::uint64_t value = 0;
    for (std::size_t b = 0; b < size; ++b)
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(rest_[b])) << (8 * b);
    rest_.remove_prefix(size);
    return value;
  }

  std::string_view rest_;
  std::string where_;
};

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(static_cast<unsigned char>(value | 0x80U));
  out += static_cast<char>(static_cast<unsigned char>(value));
}

void put_number(std::string& out, std::uint32_t field, std::uint64_t value) {
  put_varint(out, field << 3);
  put_varint(out, value);
}

void put_bytes(std::string& out, std::uint32_t field, std::string_view bytes) {
  put_varint(out, field << 3 | 2);
  put_varint(out, bytes.size());
  out += bytes;
}

void put_real(std::string& out, std::uint32_t field, float value) {
  put_varint(out, field << 3 | 5);
  const auto word = std::bit_cast<std::uint32_t>(value);
  for (unsigned b = 0; b < 4; ++b) out += static_cast<char>(static_cast<unsigned char>(word >> (8 * b)));
}

// --- The messages ---------------------------------------------------------------------------------------------------

SentencePieceModel::Piece piece_of(std::string_view message, const std::string& where) {
  SentencePieceModel::Piece piece;
  Fields fields(message, where);
  while (const auto field = fields.next()) {
    if (field->number == 1) piece.text = fields.bytes(*field);
    if (field->number == 2) piece.score = fields.real(*field);
    if (field->number == 3) {
      const std::uint64_t kind = fields.number(*field);
      if (kind < 1 || kind > 6) fields.fail(str("is of kind ", kind, ", expected 1 to 6"));
      piece.kind = static_cast<Kind>(kind);
    }
  }
  return piece;
}

void read_trainer(std::string_view message, const std::string& where, SentencePieceModel& model) {
  Fields fields(message, where);
  while (const auto field = fields.next()) {
    switch (field->number) {
      case 3: {
        const std::uint64_t method = fields.number(*field);
        if (method != 1 && method != 2)
          fields.fail(str("the model type ", method, " is not read; 1 (unigram) and 2 (BPE) are"));
        model.method = static_cast<Method>(method);
        break;
      }
      case 24:
        if (fields.flag(*field)) fields.fail("treat_whitespace_as_suffix is not read");
        break;
      case 35:
        model.byte_fallback = fields.flag(*field);
        break;
      case 44:
        model.unknown_text = fields.bytes(*field);
        break;
      default:;
    }
  }
}

void read_normalizer(std::string_view message, const std::string& where, SentencePieceModel& model) {
  Fields fields(message, where);
  while (const auto field = fields.next()) {
    if (field->number == 2) model.characters = fields.bytes(*field);
    if (field->number == 3) model.add_space = fields.flag(*field);
    if (field->number == 4) model.remove_spaces = fields.flag(*field);
    if (field->number == 5) model.escape_spaces = fields.flag(*field);
  }
}

// --- The table of characters ----------------------------------------------------------------------------------------

/// The double array of darts-clone: every node leads, by each byte, to at most one other.
class Trie {
 public:
  Trie(std::string_view units, std::string_view texts, std::string where)
      : units_(units), size_(static_cast<std::uint32_t>(units.size() / 4)), texts_(texts), where_(std::move(where)) {}

  /// Throws where reading it could leave the array or the texts, run in circles, or find more than kMostResults.
  void check() const {
    if (size_ == 0 || size_ % 256 != 0) fail(str("has ", size_, " units, expected a multiple of 256"));
    if (is_value(unit(0))) fail("begins with a value");
    // Any unit may be asked for any byte: the 256 places that it points to must be there.
    for (std::uint32_t at = 0; at < size_; ++at)
      if (!is_value(unit(at)) && (target(at) | 0xFFU) >= size_) fail(str("unit ", at, " leads out of it"));
    results(0);
  }

  /// For every byte, whether it is the whole of a key whose text is a space; nothing said where it is no key.
  std::optional<bool> is_space(unsigned byte) const {
    const std::uint32_t child = target(0) ^ byte;
    if ((unit(child) & 0x800000FFU) != byte || !has_leaf(unit(child))) return std::nullopt;
    return texts_.substr(unit(target(child)) & 0x7FFFFFFFU).starts_with(std::string_view(" \0", 2));
  }

  /// The bytes that stand in keys of several bytes.
  std::array<bool, 256> joined() const {
    std::array<bool, 256> found{};
    std::vector<bool> seen(size_, false);
    std::vector<std::pair<std::uint32_t, unsigned>> open = {{0, 0}};  // a unit, and the byte that leads to it from 0
    while (!open.empty()) {
      const auto [at, first] = open.back();
      open.pop_back();
      for (std::uint32_t byte = 1; byte < 256; ++byte) {
        const std::uint32_t child = target(at) ^ byte;
        if ((unit(child) & 0x800000FFU) != byte) continue;
        if (at != 0) found[byte] = found[first] = true;
        if (!seen[child]) open.emplace_back(child, at == 0 ? byte : first);
        seen[child] = true;
      }
    }
    return found;
  }

 private:
  [[noreturn]] void fail(const std::string& message) const { throw Error(str(where_, ": the table ", message)); }

  std::uint32_t unit(std::uint32_t at) const {
    std::uint32_t value = 0;
    for (unsigned b = 0; b < 4; ++b)
      value |= static_cast<std::uint32_t>(static_cast<unsigned char>(units_[4 * at + b])) << (8 * b);
    return value;
  }
  static bool is_value(std::uint32_t one) { return one >> 31 != 0; }
  static bool has_leaf(std::uint32_t one) { return (one >> 8 & 1U) != 0; }
  /// Where the children of the unit at `at` lie, before the byte is added.
  std::uint32_t target(std::uint32_t at) const {
    const std::uint32_t one = unit(at);
    return at ^ (one >> 10) << ((one & (1U << 9)) >> 6);
  }

  /// The most leaves on a path from `root` on. The paths may join, so each unit is looked at once.
  void results(std::uint32_t root) const {
    constexpr std::uint8_t kOpen = 0xFF, kNew = 0xFE;
    std::vector<std::uint8_t> most(size_, kNew);
    struct Step {
      std::uint32_t at, next;  // the next byte to follow
      std::uint8_t found;
    };
    std::vector<Step> path;
    const auto enter = [&](std::uint32_t at) {
      most[at] = kOpen;
      const std::uint32_t one = unit(at);
      if (has_leaf(one)) {
        const std::uint32_t leaf = unit(target(at));
        if (!is_value(leaf) || (leaf & 0x7FFFFFFFU) >= texts_.size()) fail(str("unit ", at, " has no text"));
        const std::size_t begin = leaf & 0x7FFFFFFFU;
        if (texts_.find('\0', begin) - begin > kLongestReplacement)
          fail(str("has a text of more than ", kLongestReplacement, " bytes"));
      }
      path.push_back({at, 1, 0});  // the byte 0 ends keys and is no part of one
    };
    enter(root);
    while (!path.empty()) {
      Step& step = path.back();
      if (step.next < 256) {
        const std::uint32_t child = target(step.at) ^ step.next;
        const std::uint32_t label = step.next++;
        const std::uint32_t one = unit(child);
        if ((one & 0x800000FFU) != label) continue;
        if (most[child] == kOpen) fail("leads in a circle");
        if (most[child] == kNew) {
          enter(child);
          continue;
        }
        step.found = std::max(step.found, most[child]);
        continue;
      }
      const std::uint32_t total = step.found + (has_leaf(unit(step.at)) ? 1U : 0U);
      if (total > kMostResults) fail(str("has more than ", kMostResults, " texts on one path"));
      most[step.at] = static_cast<std::uint8_t>(total);
      path.pop_back();
      if (!path.empty()) path.back().found = std::max(path.back().found, static_cast<std::uint8_t>(total));
    }
  }

  std::string_view units_;
  std::uint32_t size_;
  std::string_view texts_;
  std::string where_;
};

/// The trie of a table that has been checked.
Trie trie_of(std::string_view table) {
  std::uint32_t size = 0;
  for (unsigned b = 0; b < 4; ++b) size |= static_cast<std::uint32_t>(static_cast<unsigned char>(table[b])) << (8 * b);
  return {table.substr(4, size), table.substr(4 + size), ""};
}

/// uint32 bytes of the trie, the trie, texts that end in NUL.
void check_characters(std::string_view table, const std::string& where) {
  if (table.empty()) return;
  if (table.size() < 5) throw Error(str(where, ": expected a table of characters, got ", table.size(), " bytes"));
  std::uint32_t size = 0;
  for (unsigned b = 0; b < 4; ++b) size |= static_cast<std::uint32_t>(static_cast<unsigned char>(table[b])) << (8 * b);
  table.remove_prefix(4);
  if (size >= table.size() || size % 4 != 0)
    throw Error(str(where, ": the table says that ", size, " of its ", table.size(), " bytes are the trie"));
  const std::string_view texts = table.substr(size);
  if (texts.back() != '\0') throw Error(str(where, ": the last text of the table has no end"));
  if (find_invalid_utf8(texts) != std::string_view::npos)
    throw Error(str(where, ": the texts of the table are not UTF-8"));
  Trie(table.substr(0, size), texts, where).check();
}

/// The byte of "<0x00>" to "<0xFF>", or nothing.
std::optional<unsigned> byte_named(const std::string& text) {
  for (unsigned byte = 0; byte < 256 && text.size() == 6; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", byte);
    if (text == name) return byte;
  }
  return std::nullopt;
}

}  // namespace

std::uint32_t SentencePieceModel::unknown() const {
  for (std::size_t id = 0; id < pieces.size(); ++id)
    if (pieces[id].kind == Kind::unknown) return static_cast<std::uint32_t>(id);
  throw Error("SentencePiece: the model has no unknown piece");
}

std::vector<char> space_bytes(std::string_view characters) {
  if (characters.empty()) return {' '};
  const Trie trie = trie_of(characters);
  const std::array<bool, 256> joined = trie.joined();
  std::vector<char> spaces;
  for (unsigned byte = 1; byte < 128; ++byte)
    if (!joined[byte] && trie.is_space(byte).value_or(byte == ' ')) spaces.push_back(static_cast<char>(byte));
  return spaces;
}

SentencePieceModel parse_sentencepiece(std::string_view bytes, const std::string& source) {
  SentencePieceModel model;
  Fields fields(bytes, source);
  while (const auto field = fields.next()) {
    if (field->number == 1)
      model.pieces.push_back(piece_of(fields.bytes(*field), str(source, ": piece ", model.pieces.size())));
    if (field->number == 2) read_trainer(fields.bytes(*field), source + ": trainer_spec", model);
    if (field->number == 3) read_normalizer(fields.bytes(*field), source + ": normalizer_spec", model);
    if (field->number == 5) {
      SentencePieceModel decoder;
      read_normalizer(fields.bytes(*field), source + ": denormalizer_spec", decoder);
      model.decoded_characters = decoder.characters;
    }
  }
  check_sentencepiece(model, source);
  return model;
}

std::string sentencepiece_bytes(const SentencePieceModel& model) {
  std::string out;
  for (const SentencePieceModel::Piece& piece : model.pieces) {
    std::string message;
    put_bytes(message, 1, piece.text);
    put_real(message, 2, piece.score);
    if (piece.kind != Kind::normal) put_number(message, 3, static_cast<std::uint64_t>(piece.kind));
    put_bytes(out, 1, message);
  }
  std::string trainer;
  put_number(trainer, 3, static_cast<std::uint64_t>(model.method));
  put_number(trainer, 4, model.pieces.size());
  if (model.byte_fallback) put_number(trainer, 35, 1);
  // Ids of marks by the names that they have by default; -1, ten bytes long, for none.
  const auto mark = [&](std::uint32_t field, const char* text) {
    std::uint64_t id = std::numeric_limits<std::uint64_t>::max();
    for (std::size_t i = 0; i < model.pieces.size(); ++i)
      if (model.pieces[i].kind == Kind::control && model.pieces[i].text == text) id = i;
    put_number(trainer, field, id);
  };
  put_number(trainer, 40, model.unknown());
  mark(41, "<s>");
  mark(42, "</s>");
  mark(43, "<pad>");
  put_bytes(trainer, 44, model.unknown_text);
  put_bytes(trainer, 45, model.pieces[model.unknown()].text);
  put_bytes(out, 2, trainer);
  std::string normalizer;
  if (!model.characters.empty()) put_bytes(normalizer, 2, model.characters);
  put_number(normalizer, 3, model.add_space ? 1 : 0);
  put_number(normalizer, 4, model.remove_spaces ? 1 : 0);
  put_number(normalizer, 5, model.escape_spaces ? 1 : 0);
  put_bytes(out, 3, normalizer);
  if (!model.decoded_characters.empty()) {
    std::string decoder;
    put_bytes(decoder, 2, model.decoded_characters);
    for (const std::uint32_t field : {3U, 4U, 5U}) put_number(decoder, field, 0);
    put_bytes(out, 5, decoder);
  }
  return out;
}

void check_sentencepiece(const SentencePieceModel& model, const std::string& source) {
  if (model.pieces.empty()) throw Error(str(source, ": expected a model of SentencePiece, found no piece"));
  if (model.pieces.size() > std::numeric_limits<std::int32_t>::max()) throw Error(str(source, ": too many pieces"));
  std::unordered_set<std::string_view> seen;
  std::set<unsigned> bytes;
  std::size_t unknown = 0, normal = 0;
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePieceModel::Piece& piece = model.pieces[id];
    const auto fail = [&](const std::string& message) {
      throw Error(str(source, ": piece ", id, ", ", quote(piece.text, 40), ", ", message));
    };
    if (piece.text.empty()) fail("is empty");
    if (piece.text.size() > kLongestPiece) fail(str("has ", piece.text.size(), " bytes, at most ", kLongestPiece));
    if (piece.text.find('\0') != std::string::npos) fail("has a NUL in it");
    if (find_invalid_utf8(piece.text) != std::string::npos) fail("is not UTF-8");
    if (!std::isfinite(piece.score)) fail(str("has the score ", piece.score));
    if (!seen.insert(piece.text).second) fail("stands twice");
    unknown += piece.kind == Kind::unknown ? 1 : 0;
    normal += piece.kind == Kind::normal ? 1 : 0;
    if (piece.kind == Kind::byte) {
      const auto byte = byte_named(piece.text);
      if (!byte) fail("is no byte such as <0x0A>");
      if (!model.byte_fallback) fail("is a byte, and the model has no byte_fallback");
      bytes.insert(*byte);
    }
  }
  if (unknown != 1) throw Error(str(source, ": expected one unknown piece, found ", unknown));
  if (normal == 0) throw Error(str(source, ": no piece is text"));
  if (model.byte_fallback && bytes.size() != 256)
    throw Error(str(source, ": expected pieces of all 256 bytes for byte_fallback, found ", bytes.size()));
  if (find_invalid_utf8(model.unknown_text) != std::string::npos)
    throw Error(str(source, ": the text of the unknown piece is not UTF-8"));
  check_characters(model.characters, source + ": normalizer_spec");
  check_characters(model.decoded_characters, source + ": denormalizer_spec");
}

}  // namespace torsor

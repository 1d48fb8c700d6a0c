#include "torsor/lab/parse_store.h"

#include <cstring>
#include <filesystem>
#include <vector>

#include "torsor/base/error.h"
#include "torsor/base/file.h"
#include "torsor/base/hash.h"
#include "torsor/base/safetensors.h"

namespace torsor {
namespace {

constexpr const char* kParseFormat = "torsor-parse-2";
constexpr std::int64_t kWordColumns = 8, kSentenceColumns = 5;

std::vector<std::int32_t> numbers_of(const SafetensorsFile& file, const std::string& name, std::int64_t columns) {
  const SafetensorsEntry& entry = file.entry(name);
  if (entry.dtype != Dtype::I32 || entry.shape.size() != 2 || entry.shape[1] != columns)
    throw Error(str(file.source(), ": ", name, " has another form"));
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(entry.elements()));
  if (!numbers.empty()) std::memcpy(numbers.data(), entry.data, entry.bytes);
  return numbers;
}

/// What a file is the answer to.
std::string key_of(const std::string& text_sha256, const std::string& parser, syntax::ParseMode mode) {
  return sha256_hex(str(text_sha256, '\n', parser, '\n', syntax::mode_name(mode)));
}

/// Of everything that a file says.
std::string digest_of(std::string_view words, std::string_view sentences,
                      const std::map<std::string, std::string>& metadata) {
  Sha256 digest;
  for (const std::string_view part : {words, sentences}) digest.update(str(part.size(), '\n')), digest.update(part);
  for (const auto& [name, value] : metadata)
    if (name != "sha256") digest.update(str(name, '\n', value.size(), '\n', value));
  return digest.hex();
}

std::string_view bytes_of(const SafetensorsFile& file, const std::string& name) {
  const SafetensorsEntry& entry = file.entry(name);
  return {static_cast<const char*>(static_cast<const void*>(entry.data)), entry.bytes};
}

syntax::Parse read_parse(const std::string& path, const std::string& key, syntax::ParseMode mode) {
  const SafetensorsFile file(path);
  const auto& metadata = file.metadata();
  if (metadata.count("format") == 0 || metadata.at("format") != kParseFormat) throw Error(path + ": another format");
  if (metadata.at("key") != key) throw Error(path + ": of another text, parser or mode");
  if (metadata.at("sha256") != digest_of(bytes_of(file, "words"), bytes_of(file, "sentences"), metadata))
    throw Error(path + ": damaged");
  syntax::Parse parse;
  parse.mode = mode;
  parse.text_sha256 = metadata.at("text_sha256");
  parse.doc_id = metadata.at("doc_id");
  parse.backend = {metadata.at("backend"), metadata.at("version"), metadata.at("model_sha256"), metadata.at("scheme"),
                   metadata.at("prefix_safe") == "yes"};
  const std::vector<std::int32_t> words = numbers_of(file, "words", kWordColumns);
  const std::vector<std::int32_t> sentences = numbers_of(file, "sentences", kSentenceColumns);
  std::size_t word = 0;
  for (std::size_t s = 0; s < sentences.size(); s += kSentenceColumns) {
    syntax::ParseSentence sentence;
    sentence.byte_begin = static_cast<std::uint32_t>(sentences[s]);
    sentence.byte_end = static_cast<std::uint32_t>(sentences[s + 1]);
    sentence.parsed = sentences[s + 2] != 0;
    sentence.repairs = static_cast<std::uint8_t>(sentences[s + 3]);
    const auto count = static_cast<std::size_t>(sentences[s + 4]);
    if (count > words.size() / kWordColumns - word) throw Error(path + ": fewer words than its sentences have");
    for (const std::size_t end = word + count; word < end; ++word) {
      const std::int32_t* row = words.data() + word * kWordColumns;
      sentence.words.push_back({.byte_begin = static_cast<std::uint32_t>(row[0]),
                                .byte_end = static_cast<std::uint32_t>(row[1]),
                                .head = row[2],
                                .relation = static_cast<std::uint16_t>(row[3]),
                                .tag = {static_cast<std::uint8_t>(row[4]), static_cast<std::uint8_t>(row[5])},
                                .number = row[6],
                                .known = static_cast<std::uint32_t>(row[7])});
    }
    parse.sentences.push_back(std::move(sentence));
  }
  if (word != words.size() / kWordColumns) throw Error(path + ": more words than its sentences have");
  return parse;
}

}  // namespace

std::string ParseStore::path_of(const std::string& text_sha256, const std::string& parser,
                                syntax::ParseMode mode) const {
  return str(folder_, "/", key_of(text_sha256, parser, mode).substr(0, 32), ".safetensors");
}

std::optional<syntax::Parse> ParseStore::find(const std::string& text_sha256, const std::string& parser,
                                              syntax::ParseMode mode) const {
  if (folder_.empty()) return std::nullopt;
  const std::string path = path_of(text_sha256, parser, mode);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  try {
    return read_parse(path, key_of(text_sha256, parser, mode), mode);
  } catch (const std::exception&) {
    return std::nullopt;  // it is made again and replaced
  }
}

void ParseStore::put(const syntax::Parse& parse, const std::string& parser) const {
  if (folder_.empty()) return;
  std::vector<std::int32_t> words, sentences;
  for (const syntax::ParseSentence& sentence : parse.sentences) {
    for (const std::int64_t number :
         {std::int64_t{sentence.byte_begin}, std::int64_t{sentence.byte_end}, std::int64_t{sentence.parsed},
          std::int64_t{sentence.repairs}, static_cast<std::int64_t>(sentence.words.size())})
      sentences.push_back(static_cast<std::int32_t>(number));
    for (const syntax::ParseWord& word : sentence.words)
      for (const std::int64_t number :
           {std::int64_t{word.byte_begin}, std::int64_t{word.byte_end}, std::int64_t{word.head},
            std::int64_t{word.relation}, std::int64_t{word.tag.tau}, std::int64_t{word.tag.nu},
            std::int64_t{word.number}, std::int64_t{word.known}})
        words.push_back(static_cast<std::int32_t>(number));
  }
  std::map<std::string, std::string> metadata = {{"format", kParseFormat},
                                                 {"key", key_of(parse.text_sha256, parser, parse.mode)},
                                                 {"text_sha256", parse.text_sha256},
                                                 {"doc_id", parse.doc_id},
                                                 {"backend", parse.backend.name},
                                                 {"version", parse.backend.version},
                                                 {"model_sha256", parse.backend.model_sha256},
                                                 {"scheme", parse.backend.scheme},
                                                 {"prefix_safe", parse.backend.prefix_safe ? "yes" : "no"}};
  const auto raw = [](const std::vector<std::int32_t>& numbers) {
    return std::string_view(static_cast<const char*>(static_cast<const void*>(numbers.data())),
                            numbers.size() * sizeof(std::int32_t));
  };
  metadata["sha256"] = digest_of(raw(words), raw(sentences), metadata);
  make_directories(folder_);
  write_safetensors(
      path_of(parse.text_sha256, parser, parse.mode),
      {{"words", Dtype::I32, {static_cast<std::int64_t>(words.size()) / kWordColumns, kWordColumns}, words.data()},
       {"sentences",
        Dtype::I32,
        {static_cast<std::int64_t>(sentences.size()) / kSentenceColumns, kSentenceColumns},
        sentences.data()}},
      metadata);
}

}  // namespace torsor

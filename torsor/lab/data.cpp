#include "torsor/lab/data.h"

#include <cmath>
#include <sstream>

#include "torsor/base/hash.h"
#include "torsor/data/grammar.h"

namespace torsor {
namespace {

// evaluation.md: a text of one document keeps its last 10 % for validation; several are split in the same proportion.
constexpr double kValidFraction = 0.1;
// The split must not change with the run's seed: every run is judged on the same bytes.
constexpr std::uint64_t kSplitSeed = 20250101;

std::string size_text(std::size_t bytes) {
  std::ostringstream text;
  const double size = static_cast<double>(bytes);
  text.precision(3);
  if (size >= 1e6)
    text << size / 1e6 << " MB";
  else if (size >= 1e3)
    text << size / 1e3 << " kB";
  else
    text << bytes << " bytes";
  return text.str();
}

}  // namespace

LmData load_data(const DataSource& source, std::int64_t longest) {
  if (!source.tokens.empty() && !source.text.empty())
    throw UsageError("give either text or a file of tokens, not both");
  if (source.text.empty() && !source.valid.empty()) throw UsageError("validation text was given without training text");
  LmData data;
  if (!source.text.empty() && !source.valid.empty()) {
    data.train = load_text(source.text);
    data.valid = load_text(source.valid);
  } else {
    Corpus whole = !source.tokens.empty() ? load_tokens(source.tokens, static_cast<std::size_t>(source.token_bytes))
                   : !source.text.empty()
                       ? load_text(source.text)
                       : generate_corpus(static_cast<std::size_t>(source.generated_bytes), source.generated_seed);
    Split parts = split(whole, kValidFraction, kSplitSeed, static_cast<std::size_t>(longest) + 1);
    data.train = std::move(parts.train);
    data.valid = std::move(parts.valid);
    if (data.valid.vocabulary_size > data.train.vocabulary_size)
      data.train.vocabulary_size = data.valid.vocabulary_size;
  }
  data.sha256 = sha256_hex(data.train.sha256() + data.valid.sha256());
  const bool bytes = data.train.tokenizer == "bytes";
  const auto amount = [&](const Corpus& corpus) {
    return bytes ? size_text(corpus.token_count()) : str(corpus.token_count(), " tokens");
  };
  const std::size_t count = data.train.documents.size();
  data.description = str(amount(data.train),
                         source.text.empty() && source.tokens.empty() ? " of generated text"
                         : bytes                                      ? " of text"
                                                                      : "",
                         " in ", count, count == 1 ? " document" : " documents", ", validation ", amount(data.valid),
                         " in ", data.valid.documents.size());
  return data;
}

Json data_to_json(const DataSource& source) {
  Json json;
  json["text"] = source.text;
  json["valid"] = source.valid;
  json["tokens"] = source.tokens;
  json["token_bytes"] = source.token_bytes;
  json["generated_bytes"] = source.generated_bytes;
  json["generated_seed"] = source.generated_seed;
  return json;
}

DataSource data_from_json(const Json& json, const std::string& where) {
  JsonObject object(json, where, JsonObject::Blame::data);
  DataSource source;
  source.text = object.get<std::vector<std::string>>("text");
  source.valid = object.get<std::vector<std::string>>("valid");
  source.tokens = object.get<std::string>("tokens");
  source.token_bytes = object.get<std::int64_t>("token_bytes");
  source.generated_bytes = object.get<std::int64_t>("generated_bytes");
  source.generated_seed = object.get<std::uint64_t>("generated_seed");
  object.finish();
  return source;
}

}  // namespace torsor

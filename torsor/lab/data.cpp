#include "torsor/lab/data.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <set>
#include <sstream>

#include "torsor/base/hash.h"
#include "torsor/data/grammar.h"
#include "torsor/data/tokenizer_file.h"
#include "torsor/syntax/conllu.h"
#include "torsor/syntax/gate.h"
#include "torsor/syntax/relations.h"

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

/// A document of a treebank; `domain` is that of sentences whose numbers tell none: the file's name, as in a gate.
struct TreebankDocument : syntax::TreebankText {
  std::string domain;
};

bool is_treebank(const std::string& path) { return path.size() > 7 && path.ends_with(".conllu"); }

/// Texts, and the documents of treebanks as texts; adds these to `treebanks`.
Corpus read_texts(const std::vector<std::string>& paths, std::vector<TreebankDocument>& treebanks) {
  std::vector<std::string> plain;
  for (const std::string& path : paths)
    if (!is_treebank(path)) plain.push_back(path);
  Corpus corpus;
  if (plain.size() == paths.size() || !plain.empty()) corpus = load_text(plain);
  for (const std::string& path : paths) {
    if (!is_treebank(path)) continue;
    for (syntax::TreebankText& one : syntax::treebank_texts(syntax::read_conllu_file(path), path)) {
      append(corpus, text_corpus(one.text, str(path, ": ", one.doc_id)));
      treebanks.push_back({std::move(one), std::filesystem::path(path).stem().string()});
    }
  }
  return corpus;
}

std::vector<syntax::Parse> gold_of(const std::vector<TreebankDocument>& treebanks) {
  std::vector<syntax::Parse> parses;
  for (const TreebankDocument& one : treebanks) {
    syntax::ParseOptions options;
    options.doc_id = one.doc_id;
    parses.push_back(syntax::make_parse(one.sentences, one.text, options));
  }
  return parses;
}

std::vector<syntax::Parse> gold_of(const std::vector<GeneratedDocument>& documents) {
  std::vector<syntax::Parse> parses;
  for (const GeneratedDocument& document : documents) {
    syntax::Parse parse;
    parse.doc_id = str("generated ", parses.size() + 1);
    parse.text_sha256 = sha256_hex(document.text);
    parse.backend = {.name = "gold"};
    for (const GeneratedSentence& one : document.sentences) {
      syntax::ParseSentence sentence{one.words.front().byte_begin, one.words.back().byte_end};
      for (std::size_t i = 0; i < one.words.size(); ++i)
        sentence.words.push_back({.byte_begin = one.words[i].byte_begin,
                                  .byte_end = one.words[i].byte_end,
                                  .head = one.tree.heads[i],
                                  .relation = syntax::relation_id(one.tree.relations[i]),
                                  .number = static_cast<std::int32_t>(i) + 1});
      parse.sentences.push_back(std::move(sentence));
    }
    syntax::set_mode(parse, syntax::ParseMode::kOracle);
    parses.push_back(std::move(parse));
  }
  return parses;
}

/// Treebanks bring the domain of every document.
std::map<std::string, std::string> domains_of(const std::vector<TreebankDocument>& treebanks) {
  std::map<std::string, std::string> domains;
  for (const TreebankDocument& one : treebanks) {
    std::set<std::string> names;
    for (const syntax::Sentence& sentence : one.sentences) names.insert(syntax::domain_of(sentence, one.domain));
    std::string all;
    for (const std::string& name : names) all += (all.empty() ? "" : "+") + name;
    domains.emplace(sha256_hex(one.text), all);
  }
  return domains;
}

/// A corpus of bytes in the ids of a tokenizer; without one as it is.
Corpus read_by(Corpus bytes, const std::shared_ptr<const Tokenizer>& reader) {
  return reader && reader->name() != bytes.tokenizer ? tokenized(bytes, reader) : bytes;
}

bool any_plain(const std::vector<std::string>& paths) {
  return std::any_of(paths.begin(), paths.end(), [](const std::string& path) { return !is_treebank(path); });
}

}  // namespace

TextData load_texts(const std::vector<std::string>& paths, std::shared_ptr<const Tokenizer> reader) {
  const auto treebanks = std::make_shared<std::vector<TreebankDocument>>();
  TextData data;
  data.corpus = read_by(read_texts(paths, *treebanks), std::move(reader));
  data.other_texts = any_plain(paths);
  if (treebanks->empty()) return data;
  data.gold = [treebanks] { return gold_of(*treebanks); };
  data.domains = [treebanks] { return domains_of(*treebanks); };
  return data;
}

LmData load_data(const DataSource& source, std::int64_t longest, std::shared_ptr<const Tokenizer> reader) {
  if (!source.tokens.empty() && !source.text.empty())
    throw UsageError("give either text or a file of tokens, not both");
  if (source.text.empty() && !source.valid.empty()) throw UsageError("validation text was given without training text");
  if (!source.tokens.empty() && !source.tokenizer.empty())
    throw UsageError("a tokenizer is for text, and a file of tokens was given");
  LmData data;
  if (!reader && !source.tokenizer.empty()) reader = load_tokenizer(source.tokenizer);
  const auto treebanks = std::make_shared<std::vector<TreebankDocument>>();
  if (source.text.empty() && source.tokens.empty())
    data.gold = [bytes = static_cast<std::size_t>(source.generated_bytes), seed = source.generated_seed] {
      return gold_of(generate_documents(bytes, seed));
    };
  else if (source.tokens.empty()) {
    data.gold = [treebanks] { return gold_of(*treebanks); };
    data.domains = [treebanks] { return domains_of(*treebanks); };
    data.other_texts = any_plain(source.text) || any_plain(source.valid);
  }
  if (!source.text.empty() && !source.valid.empty()) {
    data.train = read_by(read_texts(source.text, *treebanks), reader);
    data.valid = read_by(read_texts(source.valid, *treebanks), reader);
  } else {
    Corpus whole =
        !source.tokens.empty() ? load_tokens(source.tokens, static_cast<std::size_t>(source.token_bytes))
        : !source.text.empty()
            ? read_by(read_texts(source.text, *treebanks), reader)
            : read_by(generate_corpus(static_cast<std::size_t>(source.generated_bytes), source.generated_seed), reader);
    Split parts = split(whole, kValidFraction, kSplitSeed, static_cast<std::size_t>(longest) + 1);
    data.train = std::move(parts.train);
    data.valid = std::move(parts.valid);
    if (data.valid.vocabulary_size > data.train.vocabulary_size)
      data.train.vocabulary_size = data.valid.vocabulary_size;
  }
  data.sha256 = sha256_hex(data.train.sha256() + data.valid.sha256());
  const bool text = data.train.reader != nullptr;
  const auto amount = [&](const Corpus& corpus) {
    if (!text) return str(corpus.token_count(), " tokens");
    const std::string size = size_text(corpus.text_bytes());
    return corpus.of_bytes() ? size : str(size, " (", corpus.token_count(), " tokens)");
  };
  const std::size_t count = data.train.documents.size();
  data.description = str(amount(data.train),
                         source.text.empty() && source.tokens.empty() ? " of generated text"
                         : text                                       ? " of text"
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
  if (!source.tokenizer.empty()) json["tokenizer"] = source.tokenizer;
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
  source.tokenizer = object.get<std::string>("tokenizer", "");
  source.generated_bytes = object.get<std::int64_t>("generated_bytes");
  source.generated_seed = object.get<std::uint64_t>("generated_seed");
  object.finish();
  return source;
}

}  // namespace torsor

#include "torsor/syntax/parser_udpipe.h"

#include <iostream>
#include <sstream>

#include "torsor/base/error.h"
#include "torsor/base/file.h"
#include "torsor/base/hash.h"
#include "torsor/base/utf8.h"

#ifdef TORSOR_WITH_UDPIPE
#include "udpipe.h"
#endif

namespace torsor::syntax {

#ifdef TORSOR_WITH_UDPIPE

namespace {

namespace ud = ufal::udpipe;

std::string column(const std::string& value) { return value.empty() ? "_" : value; }

/// Its sentences to ours: the library writes its own trees as CoNLL-U, with 0 as the number of the root.
Sentence sentence_of(const ud::sentence& parsed) {
  Sentence sentence;
  for (const std::string& comment : parsed.comments) sentence.comments.push_back(comment);
  for (std::size_t i = 1; i < parsed.words.size(); ++i) {
    const ud::word& word = parsed.words[i];
    sentence.words.push_back({.form = word.form,
                              .lemma = column(word.lemma),
                              .upos = column(word.upostag),
                              .xpos = column(word.xpostag),
                              .feats = column(word.feats),
                              .head = word.head < 0 ? kNoHead : word.head,
                              .deprel = column(word.deprel),
                              .deps = column(word.deps),
                              .misc = column(word.misc)});
  }
  for (const ud::multiword_token& token : parsed.multiword_tokens)
    sentence.multiwords.push_back(
        {.first = token.id_first, .last = token.id_last, .form = token.form, .misc = column(token.misc)});
  return sentence;
}

class UdpipeParser final : public Parser {
 public:
  explicit UdpipeParser(const std::string& path) : model_(ud::model::load(path.c_str())) {
    const std::string content = read_file(path);  // a file that is not there is named so
    if (!model_) throw Error(str("'", path, "' is no model of UDPipe"));
    const ud::version version = ud::version::current();
    info_ = {.backend = "udpipe",
             .name = "udpipe",
             .version = str(version.major, ".", version.minor, ".", version.patch),
             .model = path,
             .model_sha256 = sha256_hex(content)};
  }

  const ParserInfo& info() const override { return info_; }

  std::vector<ParsedSentence> parse_tokens(const std::vector<std::vector<std::string>>& sentences) override {
    std::vector<ParsedSentence> results;
    for (const auto& forms : sentences) {
      ud::sentence sentence;
      for (const std::string& form : forms) sentence.add_word(form);
      results.push_back(finished(sentence, bare_sentence(forms)));
      if (results.back().parsed) results.back().sentence.comments = bare_sentence(forms).comments;
    }
    return results;
  }

  std::vector<ParsedSentence> parse_text(const std::string& text) override {
    const std::unique_ptr<ud::input_format> tokenizer(model_->new_tokenizer(ud::model::DEFAULT));
    if (!tokenizer) throw Error(str(info_.model, ": this model has no tokenizer; give it tokens"));
    std::vector<ParsedSentence> results;
    tokenizer->set_text(text.c_str());
    ud::sentence sentence;
    std::string error;
    while (tokenizer->next_sentence(sentence, error)) results.push_back(finished(sentence, sentence_of(sentence)));
    if (!error.empty()) throw Error(str(info_.model, ": the tokenizer says: ", quote(error)));
    return results;
  }

 private:
  ParsedSentence finished(ud::sentence& sentence, Sentence otherwise) const {
    std::string error;
    if (!model_->tag(sentence, ud::model::DEFAULT, error) || !model_->parse(sentence, ud::model::DEFAULT, error))
      return {std::move(otherwise), false, str("UDPipe says: ", quote(error))};
    return {sentence_of(sentence)};
  }

  ParserInfo info_;
  std::unique_ptr<ud::model> model_;
};

ud::sentence sentence_for(const Sentence& sentence) {
  ud::sentence result;
  for (const std::string& comment : sentence.comments) result.comments.push_back(comment);
  const auto plain = [](const std::string& value) { return value == "_" ? std::string() : value; };
  for (const Word& one : sentence.words) {
    ud::word& word = result.add_word(one.form);
    word.lemma = one.lemma == "_" && one.form != "_" ? "" : one.lemma;
    word.upostag = plain(one.upos);
    word.xpostag = plain(one.xpos);
    word.feats = plain(one.feats);
    word.misc = plain(one.misc);
  }
  for (std::size_t i = 0; i < sentence.size(); ++i)
    result.set_head(static_cast<int>(i) + 1, sentence.words[i].head, sentence.words[i].deprel);
  for (const MultiwordToken& token : sentence.multiwords)
    result.multiword_tokens.emplace_back(token.first, token.last, token.form, plain(token.misc));
  return result;
}

std::vector<ud::sentence> sentences_for(const std::vector<Sentence>& sentences) {
  std::vector<ud::sentence> result;
  for (const Sentence& sentence : sentences) result.push_back(sentence_for(sentence));
  return result;
}

/// Lines of the library's log, as they come.
class Lines final : public std::streambuf {
 public:
  explicit Lines(std::ostream& out) : out_(out) {}

 protected:
  int_type overflow(int_type c) override {
    if (c != traits_type::eof()) out_.put(static_cast<char>(c));
    if (c == '\n') out_.flush();
    return traits_type::not_eof(c);
  }

 private:
  std::ostream& out_;
};

}  // namespace

bool has_udpipe() { return true; }

std::unique_ptr<Parser> make_udpipe_parser(const std::string& model) { return std::make_unique<UdpipeParser>(model); }

void train_udpipe(const UdpipeTraining& training, const std::string& model, std::ostream& progress) {
  // The library logs to the process's standard error.
  Lines lines(progress);
  std::streambuf* const before = std::cerr.rdbuf();
  if (progress.rdbuf() != before) std::cerr.rdbuf(&lines);
  std::ostringstream content;
  std::string error;
  const bool done =
      ud::trainer::train("morphodita_parsito", sentences_for(training.trees), sentences_for(training.development),
                         training.tokenizer, training.tagger, training.parser, content, error);
  std::cerr.rdbuf(before);
  if (!done) throw Error(str("UDPipe could not be trained: ", quote(error)));
  write_file_atomic(model, content.str());
}

#else

namespace {

[[noreturn]] void refuse() {
  throw Error("this torsor was built without UDPipe; configure it with -DTORSOR_WITH_UDPIPE=ON");
}

}  // namespace

bool has_udpipe() { return false; }

std::unique_ptr<Parser> make_udpipe_parser(const std::string&) { refuse(); }

void train_udpipe(const UdpipeTraining&, const std::string&, std::ostream&) { refuse(); }

#endif

}  // namespace torsor::syntax

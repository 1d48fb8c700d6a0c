#include "torsor/syntax/parser_native.h"

#include "torsor/base/error.h"
#include "torsor/syntax/incremental_text.h"
#include "torsor/syntax/native_word_parser.h"

namespace torsor::syntax {

NativeParser::NativeParser(const std::string& folder) {
  const NativeModel model = read_native_model(folder);
  if (model.kind == "biaffine")
    biaffine_ = std::make_shared<const BiaffineNetwork>(model);
  else if (model.kind == "incremental")
    incremental_ = std::make_shared<const IncrementalNetwork>(model);
  else
    throw Error(str(folder, "/config.json: expected kind biaffine or incremental, found '", model.kind, "'"));
  if (!model.tokenizer.is_null())
    tokenizer_ =
        std::make_shared<const Tokenizer>(Tokenizer::from_json(model.tokenizer, folder + "/config.json: tokenizer"));
  info_ = {.backend = "native",
           .name = model.kind,
           .version = "1",
           .model = folder,
           .model_sha256 = model.sha256,
           .prefix_safe = incremental_ != nullptr};
}

std::vector<TaggedTree> NativeParser::parse(const std::vector<std::vector<std::string>>& sentences) const {
  return biaffine_ ? biaffine_->parse(sentences) : incremental_->parse(sentences);
}

std::vector<ParsedSentence> NativeParser::parse_tokens(const std::vector<std::vector<std::string>>& sentences) {
  const std::vector<TaggedTree> trees = parse(sentences);
  std::vector<ParsedSentence> results;
  for (std::size_t i = 0; i < sentences.size(); ++i) {
    results.push_back({bare_sentence(sentences[i])});
    put_tree(trees[i], results.back().sentence);
  }
  return results;
}

std::vector<ParsedSentence> NativeParser::parse_text(const std::string& text) {
  if (!tokenizer_) throw Error(str(info_.model, ": this model knows no raw text; give it tokens"));
  std::vector<ParsedSentence> results;
  if (incremental_) {
    NativeWordParser reader(incremental_);
    for (Sentence& sentence : sentences_of(text, read_text(text, tokenizer_, reader)))
      results.push_back({std::move(sentence)});
    return results;
  }
  std::vector<std::vector<std::string>> forms;
  for (Sentence& sentence : tokenizer_->sentences(text)) {
    forms.emplace_back();
    for (const Word& word : sentence.words) forms.back().push_back(word.form);
    results.push_back({std::move(sentence)});
  }
  const std::vector<TaggedTree> trees = parse(forms);
  for (std::size_t i = 0; i < results.size(); ++i) put_tree(trees[i], results[i].sentence);
  return results;
}

std::unique_ptr<WordParser> NativeParser::word_parser() {
  return incremental_ ? std::make_unique<NativeWordParser>(incremental_) : nullptr;
}

}  // namespace torsor::syntax

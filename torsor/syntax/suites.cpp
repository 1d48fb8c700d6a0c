#include "torsor/syntax/suites.h"

#include "torsor/base/error.h"
#include "torsor/base/utf8.h"

namespace torsor::syntax {

std::vector<Sentence> suite_sentences(const Suite& suite) {
  std::vector<Sentence> sentences;
  for (const SuiteItem& item : suite.items)
    for (const SuiteCondition& condition : item.conditions) {
      if (!condition.tree)
        throw Error(
            str("suite ", quote(suite.name), ", item ", item.number, ": ", quote(condition.name), " has no tree"));
      const SuiteTree& tree = *condition.tree;
      Sentence sentence;
      sentence.comments = {str("# sent_id = ", suite.name, "/", item.number, "/", condition.name),
                           "# text = " + suite_sentence(suite, condition).text};
      for (std::size_t w = 0; w < tree.tree.size(); ++w) {
        Word word;
        word.form = tree.tree.words[w];
        word.head = tree.tree.heads[w];
        word.deprel = tree.tree.relations[w];
        const bool joined = w + 1 < tree.words.size() && tree.words[w + 1].begin == tree.words[w].end;
        if (joined) word.misc = "SpaceAfter=No";
        sentence.words.push_back(std::move(word));
      }
      sentences.push_back(std::move(sentence));
    }
  return sentences;
}

std::vector<Sentence> document_sentences(const GeneratedDocument& document, const std::string& id) {
  std::vector<Sentence> sentences;
  std::size_t end = 0;  // of the sentence before
  for (const GeneratedSentence& one : document.sentences) {
    const std::size_t begin = one.words.front().byte_begin;
    Sentence sentence;
    if (sentences.empty()) sentence.comments.push_back("# newdoc id = " + id);
    if (sentences.empty() || document.text.substr(end, begin - end).find('\n') != std::string::npos)
      sentence.comments.push_back("# newpar");
    end = one.words.back().byte_end;
    sentence.comments.push_back(str("# sent_id = ", id, "-", sentences.size() + 1));
    sentence.comments.push_back("# text = " + document.text.substr(begin, end - begin));
    for (std::size_t w = 0; w < one.words.size(); ++w) {
      Word word;
      word.form = one.tree.words[w];
      word.lemma = one.words[w].lemma;
      word.upos = one.words[w].upos;
      word.head = one.tree.heads[w];
      word.deprel = one.tree.relations[w];
      const std::size_t next = w + 1 < one.words.size() ? one.words[w + 1].byte_begin : document.text.size();
      if (w + 1 < one.words.size() && next == one.words[w].byte_end) word.misc = "SpaceAfter=No";
      sentence.words.push_back(std::move(word));
    }
    sentences.push_back(std::move(sentence));
  }
  return sentences;
}

}  // namespace torsor::syntax

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

}  // namespace torsor::syntax

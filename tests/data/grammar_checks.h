// An independent reading of generated sentences: it knows the lexicon and the trees, not how the sentences were made.
#pragma once

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "torsor/data/grammar.h"
#include "torsor/data/lexicon.h"

namespace torsor::data_test {

using grammar::lexicon;
using grammar::Noun;
using grammar::Verb;

enum class Count { kOne, kMany, kUnknown };

struct Reader {
  std::set<std::string> singular, plural, third, base, past, names, female, male;

  Reader() {
    for (const Noun& noun : lexicon().nouns) {
      singular.insert(noun.singular);
      plural.insert(noun.plural);
    }
    for (const Verb& verb : lexicon().verbs) {
      third.insert(verb.third);
      base.insert(verb.base);
      past.insert(verb.past);
    }
    female.insert(lexicon().female_names.begin(), lexicon().female_names.end());
    male.insert(lexicon().male_names.begin(), lexicon().male_names.end());
    names = female;
    names.insert(male.begin(), male.end());
    names.insert(lexicon().pet_names.begin(), lexicon().pet_names.end());
  }
};

/// One sentence with its dependents; words are numbered from 0 here, and a head of -1 is the root's.
struct Sentence {
  std::vector<std::string> forms;  // as in the lexicon: the first word is in lower case unless it is a name
  std::vector<int> heads;
  std::vector<std::string> relations;
  std::vector<std::vector<int>> dependents;

  explicit Sentence(const GeneratedSentence& generated, const Reader& reader) {
    for (std::size_t i = 0; i < generated.tree.size(); ++i) {
      forms.push_back(generated.tree.words[i]);
      heads.push_back(generated.tree.heads[i] - 1);
      relations.push_back(generated.tree.relations[i]);
    }
    if (!reader.names.contains(forms[0])) {
      forms[0][0] = static_cast<char>(std::tolower(static_cast<unsigned char>(forms[0][0])));
    }
    dependents.resize(forms.size());
    for (std::size_t i = 0; i < forms.size(); ++i) {
      if (heads[i] >= 0) dependents[static_cast<std::size_t>(heads[i])].push_back(static_cast<int>(i));
    }
  }

  const std::string& form(int i) const { return forms[static_cast<std::size_t>(i)]; }
  const std::string& relation(int i) const { return relations[static_cast<std::size_t>(i)]; }
  int head(int i) const { return heads[static_cast<std::size_t>(i)]; }
  const std::vector<int>& below(int i) const { return dependents[static_cast<std::size_t>(i)]; }
  int size() const { return static_cast<int>(forms.size()); }

  int dependent(int of, const std::set<std::string>& relations_wanted) const {
    for (const int d : below(of)) {
      if (relations_wanted.contains(relation(d))) return d;
    }
    return -1;
  }

  std::string text() const {
    std::string all;
    for (const std::string& word : forms) all += word + " ";
    return all;
  }
};

/// How many the phrase headed by `subject` of the clause headed by `clause` names.
inline Count count_of(const Sentence& sentence, const Reader& reader, int subject, int clause) {
  const std::string& form = sentence.form(subject);
  if (form == "who" || form == "that" || form == "what") {
    // A relative pronoun counts like what it stands for; in a question it is one.
    if (sentence.relation(clause) == "acl:relcl") {
      return count_of(sentence, reader, sentence.head(clause), sentence.head(clause));
    }
    return Count::kOne;
  }
  for (const int d : sentence.below(subject)) {
    if (sentence.relation(d) != "conj") continue;
    // A conjunct with a subject of its own is another clause, not another member.
    if (sentence.dependent(d, {"nsubj", "nsubj:pass"}) < 0) return Count::kMany;
  }
  static const std::set<std::string> kOne = {"she", "he", "it", "nobody", "everybody"};
  if (kOne.contains(form) || reader.names.contains(form) || reader.singular.contains(form)) return Count::kOne;
  if (reader.plural.contains(form)) return Count::kMany;
  return Count::kUnknown;
}

/// How many the finite word calls for: kUnknown when it fits both ("must", "painted"). Sets `known` to false when it is
/// no finite word at all.
inline Count count_of_verb(const Reader& reader, const std::string& form, bool auxiliary, bool* known) {
  static const std::set<std::string> kOne = {"is", "was", "has", "does"};
  static const std::set<std::string> kMany = {"are", "were", "have", "do"};
  static const std::set<std::string> kBoth = {"did", "had", "will", "can", "must", "may", "should"};
  *known = true;
  if (kOne.contains(form)) return Count::kOne;
  if (kMany.contains(form)) return Count::kMany;
  if (kBoth.contains(form)) return Count::kUnknown;
  if (!auxiliary && reader.third.contains(form)) return Count::kOne;
  if (!auxiliary && reader.base.contains(form)) return Count::kMany;
  if (!auxiliary && reader.past.contains(form)) return Count::kUnknown;
  *known = false;
  return Count::kUnknown;
}

struct Agreement {
  int clauses = 0;  // clauses with a subject
  int one = 0;      // of those, finite words that show one or many
  int many = 0;
  std::string fault;  // of the first clause that disagrees
};

inline Agreement check_agreement(const Sentence& sentence, const Reader& reader) {
  Agreement result;
  static const std::set<std::string> kSubjects = {"nsubj", "nsubj:pass"};
  for (int clause = 0; clause < sentence.size(); ++clause) {
    int subject = sentence.dependent(clause, kSubjects);
    int owner = clause;
    if (subject < 0 && sentence.relation(clause) == "conj" &&
        sentence.dependent(sentence.head(clause), kSubjects) >= 0) {
      owner = sentence.head(clause);  // the second verb of one subject
      subject = sentence.dependent(owner, kSubjects);
    }
    // "It is the guards who ...": the verb agrees with what stands in the subject's place.
    if (subject < 0 && sentence.dependent(clause, {"cop"}) >= 0) subject = sentence.dependent(clause, {"expl"});
    if (subject < 0) continue;
    ++result.clauses;
    const int auxiliary = sentence.dependent(clause, {"aux", "cop", "aux:pass"});
    bool known = false;
    const Count needs =
        count_of_verb(reader, sentence.form(auxiliary >= 0 ? auxiliary : clause), auxiliary >= 0, &known);
    const Count has = count_of(sentence, reader, subject, owner);
    if (!known || has == Count::kUnknown || (needs != Count::kUnknown && needs != has)) {
      result.fault = sentence.form(subject) + " / " + sentence.form(auxiliary >= 0 ? auxiliary : clause) +
                     " in: " + sentence.text();
      return result;
    }
    if (needs == Count::kOne) ++result.one;
    if (needs == Count::kMany) ++result.many;
  }
  return result;
}

/// Whether a word of negative polarity at `word` stands in the scope of a licensor: going up, some word has a negation,
/// a negative subject or "without" among its dependents that stands before `word`; or the sentence asks yes or no.
inline bool licensed(const Sentence& sentence, int word) {
  if (sentence.form(sentence.size() - 1) == "?") return true;
  for (int at = word; at >= 0; at = sentence.head(at)) {
    for (const int d : sentence.below(at)) {
      if (d >= word) continue;
      const std::string& form = sentence.form(d);
      if (form == "not" || form == "never" || form == "without") return true;
      if (sentence.relation(d) != "nsubj" && sentence.relation(d) != "nsubj:pass") continue;
      if (form == "nobody") return true;
      for (const int determiner : sentence.below(d)) {
        if (sentence.form(determiner) == "no" || sentence.form(determiner) == "few") return true;
      }
    }
  }
  return false;
}

inline std::vector<int> polarity_words(const Sentence& sentence) {
  static const std::set<std::string> kWords = {"any", "ever", "yet", "anybody", "anything", "anywhere"};
  std::vector<int> found;
  for (int i = 0; i < sentence.size(); ++i) {
    const bool at_all = sentence.form(i) == "at" && i + 1 < sentence.size() && sentence.form(i + 1) == "all";
    if (kWords.contains(sentence.form(i)) || at_all) found.push_back(i);
  }
  return found;
}

/// The largest number of relative clauses inside each other.
inline int relative_depth(const Sentence& sentence) {
  int deepest = 0;
  for (int word = 0; word < sentence.size(); ++word) {
    int depth = 0;
    for (int at = word; at >= 0; at = sentence.head(at)) depth += sentence.relation(at) == "acl:relcl" ? 1 : 0;
    deepest = std::max(deepest, depth);
  }
  return deepest;
}

}  // namespace torsor::data_test

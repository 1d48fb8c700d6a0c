#include "torsor/data/sentence_edit.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "torsor/base/error.h"

namespace torsor::grammar {

namespace {

using Forms = std::vector<std::pair<std::string_view, std::string_view>>;

// Words of the two numbers; those of other pairs are found in the lexicon.
const Forms& verb_pairs() {
  static const Forms pairs = {{"is", "are"}, {"was", "were"}, {"has", "have"}, {"does", "do"}};
  return pairs;
}
const Forms& determiner_pairs() {
  static const Forms pairs = {{"this", "these"}, {"that", "those"}, {"the", "the"}, {"no", "no"}, {"any", "any"}};
  return pairs;
}

std::optional<std::string> other_of(const Forms& pairs, const std::string& form) {
  for (const auto& [one, many] : pairs) {
    if (form == one) return std::string(many);
    if (form == many) return std::string(one);
  }
  return std::nullopt;
}

bool is_subject(std::string_view relation) { return relation == "nsubj" || relation == "nsubj:pass"; }

}  // namespace

const Noun* find_noun(std::string_view singular) {
  for (const Noun& noun : lexicon().nouns)
    if (noun.singular == singular) return &noun;
  return nullptr;
}

Draft::Draft(const SingleSentence& sentence) {
  const Tree& tree = sentence.sentence.tree;
  for (std::size_t i = 0; i < tree.size(); ++i) {
    const GeneratedWord& word = sentence.sentence.words[i];
    const bool space = i > 0 && word.byte_begin > sentence.sentence.words[i - 1].byte_end;
    words_.push_back({tree.words[i], word.lemma, word.upos, space, tree.heads[i] - 1, tree.relations[i]});
  }
  // No name can begin a sentence that is about nobody.
  char& first = words_.front().form.front();
  first = static_cast<char>(std::tolower(static_cast<unsigned char>(first)));
}

int Draft::root() const {
  for (int i = 0; i < size(); ++i)
    if (word(i).head < 0) return i;
  throw Error("grammar: a sentence without a root");
}

int Draft::dependent(int head, std::initializer_list<std::string_view> relations) const {
  for (int i = 0; i < size(); ++i)
    if (word(i).head == head && std::find(relations.begin(), relations.end(), word(i).relation) != relations.end())
      return i;
  return -1;
}

bool Draft::descends(int index, int ancestor) const {
  for (; index >= 0; index = word(index).head)
    if (index == ancestor) return true;
  return false;
}

int Draft::leftmost(int index) const {
  int first = 0;
  while (!descends(first, index)) ++first;
  return first;
}

int Draft::finite_word(int clause) const {
  const int auxiliary = dependent(clause, {"aux", "aux:pass", "cop"});
  return auxiliary >= 0 ? auxiliary : clause;
}

void Draft::remove(const std::vector<bool>& gone) {
  std::vector<int> place(words_.size(), -1);
  std::vector<DraftWord> kept;
  for (std::size_t i = 0; i < words_.size(); ++i) {
    if (gone[i]) continue;
    place[i] = static_cast<int>(kept.size());
    kept.push_back(words_[i]);
  }
  for (DraftWord& one : kept) {
    if (one.head < 0) continue;
    one.head = place[static_cast<std::size_t>(one.head)];
    if (one.head < 0) throw Error(str("grammar: '", one.form, "' lost its head"));
  }
  words_ = std::move(kept);
}

void Draft::remove(int index) {
  std::vector<bool> gone(words_.size(), false);
  gone[static_cast<std::size_t>(index)] = true;
  remove(gone);
}

void Draft::insert(int index, DraftWord added) {
  for (DraftWord& one : words_)
    if (one.head >= index) ++one.head;
  words_.insert(words_.begin() + index, std::move(added));
}

std::optional<Number> Draft::number_of(int noun) const {
  const DraftWord& one = word(noun);
  if (one.upos != "NOUN") return std::nullopt;
  const Noun* known = find_noun(one.lemma);
  if (known == nullptr || known->singular == known->plural) return std::nullopt;
  if (dependent(noun, {"conj"}) >= 0) return std::nullopt;  // several together are many, whatever each is
  return one.form == known->singular ? Number::kSingular : Number::kPlural;
}

bool Draft::change_verb(int index) {
  DraftWord& verb = word(index);
  if (const auto form = other_of(verb_pairs(), verb.form)) {
    verb.form = *form;
    return true;
  }
  if (verb.upos != "VERB") return false;
  for (const Verb& known : lexicon().verbs) {
    if (known.base != verb.lemma) continue;
    if (verb.form != known.third && verb.form != known.base) return false;
    verb.form = verb.form == known.third ? known.base : known.third;
    return true;
  }
  return false;
}

bool Draft::change_number(int noun) {
  const std::optional<Number> number = number_of(noun);
  if (!number) return false;
  const Noun* known = find_noun(word(noun).lemma);
  word(noun).form = *number == Number::kSingular ? known->plural : known->singular;
  for (int i = 0; i < size(); ++i) {
    DraftWord& one = word(i);
    if (one.head == noun && (one.relation == "det" || one.relation == "nummod")) {
      const auto form = other_of(determiner_pairs(), one.form);
      if (!form) return false;
      one.form = *form;
    }
    // The subject itself, a relative pronoun that stands for it, and a second verb of the same subject.
    const int clause = one.head;
    bool subject = i == noun && is_subject(one.relation);
    if (clause >= 0 && is_subject(one.relation) && one.upos == "PRON" && word(clause).relation == "acl:relcl")
      subject = subject || word(clause).head == noun;
    if (!subject) continue;
    change_verb(finite_word(clause));
    for (int other = 0; other < size(); ++other)
      if (word(other).head == clause && word(other).relation == "conj" && dependent(other, {"nsubj", "nsubj:pass"}) < 0)
        change_verb(finite_word(other));
  }
  return true;
}

void Draft::mark_critical(int critical, std::int64_t before) {
  for (int i = 0; i < size(); ++i) word(i).region = i < critical ? before : i <= critical + 1 ? before + 1 : before + 2;
}

SuiteCondition Draft::condition(const std::string& name, std::int64_t regions) const {
  SuiteCondition result;
  result.name = name;
  for (std::int64_t number = 1; number <= regions; ++number) result.regions.push_back({number, ""});
  SuiteTree tree;
  std::size_t at = 0;
  for (int i = 0; i < size(); ++i) {
    const DraftWord& one = word(i);
    std::string form = one.form;
    if (i == 0) form[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(form[0])));
    std::string& content = result.regions.at(static_cast<std::size_t>(one.region - 1)).content;
    const bool space = i > 0 && one.space;
    if (space && !content.empty()) content += ' ';
    content += form;
    at += space ? 1 : 0;
    tree.words.push_back({at, at + form.size()});
    at += form.size();
    tree.tree.words.push_back(form);
    tree.tree.heads.push_back(one.head + 1);
    tree.tree.relations.push_back(one.relation);
  }
  result.tree = std::move(tree);
  return result;
}

}  // namespace torsor::grammar

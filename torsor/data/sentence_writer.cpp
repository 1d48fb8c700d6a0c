#include "torsor/data/sentence_writer.h"

#include <cctype>

#include "torsor/base/error.h"

namespace torsor::grammar {

int SentenceWriter::add(std::string_view form, std::string_view lemma, const char* upos, bool space) {
  words_.push_back({std::string(form), std::string(lemma), upos, space});
  return static_cast<int>(words_.size()) - 1;
}

void SentenceWriter::attach(int word, int head, const char* relation) {
  Word& dependent = words_[static_cast<std::size_t>(word)];
  dependent.head = head;
  dependent.relation = relation;
}

void SentenceWriter::attach_all(const Auxiliaries& auxiliaries, int head) {
  for (const auto& [word, relation] : auxiliaries.words) attach(word, head, relation);
}

void SentenceWriter::end(int root, std::string_view mark) {
  attach(root, -1, "root");
  attach(add(mark, mark, "PUNCT", false), root, "punct");
  std::string& first = words_.front().form;
  first[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(first[0])));
  discourse_.last = spoken_of_.size() == 1 ? *spoken_of_.begin() : -1;
}

void SentenceWriter::mention(std::size_t entity, Attribute attribute, int first, int last) {
  mentions_.push_back({entity, attribute, first, last});
  discourse_.stated[entity].set(static_cast<std::size_t>(attribute));
}

unsigned SentenceWriter::pick_class(unsigned classes) {
  std::vector<unsigned> bits;
  for (unsigned bit = 1; bit <= kIdea; bit <<= 1) {
    if ((classes & bit) != 0) bits.push_back(bit);
  }
  if (bits.empty()) throw Error("grammar: a noun of no class was asked for");
  return pick(bits);
}

const Noun& SentenceWriter::pick_noun(unsigned noun_class) {
  std::size_t bit = 0;
  while ((noun_class >> bit & 1U) == 0) ++bit;
  const std::vector<const Noun*>& nouns = world_.nouns[bit];
  return *nouns[preferred(random_, nouns.size())];
}

const Verb& SentenceWriter::pick_verb(unsigned frames, unsigned objects) {
  std::vector<const Verb*> fitting;
  for (const Verb* verb : world_.verbs) {
    if ((verb->frames & frames) == frames && (objects == 0 || (verb->objects & objects) != 0)) fitting.push_back(verb);
  }
  if (fitting.empty()) throw Error(str("grammar: no verb for the frames ", frames, " and objects ", objects));
  return *fitting[preferred(random_, fitting.size())];
}

const std::string& SentenceWriter::pick_adjective(unsigned noun_class) {
  std::vector<const Adjective*> fitting;
  for (const Adjective* adjective : world_.adjectives) {
    if ((adjective->classes & noun_class) != 0) fitting.push_back(adjective);
  }
  return fitting[preferred(random_, fitting.size())]->form;
}

GeneratedSentence SentenceWriter::render(Construction construction, std::size_t number, std::string& text,
                                         std::vector<FactMention>& mentions) const {
  GeneratedSentence sentence;
  sentence.construction = construction;
  for (std::size_t i = 0; i < words_.size(); ++i) {
    const Word& word = words_[i];
    if (word.head < -1) throw Error(str("grammar: the word '", word.form, "' was left without a head"));
    if (i > 0 && word.space) text += ' ';
    GeneratedWord written;
    written.byte_begin = static_cast<std::uint32_t>(text.size());
    text += word.form;
    written.byte_end = static_cast<std::uint32_t>(text.size());
    written.lemma = word.lemma;
    written.upos = word.upos;
    sentence.words.push_back(written);
    sentence.tree.words.push_back(word.form);
    sentence.tree.heads.push_back(word.head + 1);
    sentence.tree.relations.emplace_back(word.relation);
  }
  for (const Mention& told : mentions_) {
    mentions.push_back({number, told.entity, told.attribute,
                        sentence.words[static_cast<std::size_t>(told.first)].byte_begin,
                        sentence.words[static_cast<std::size_t>(told.last)].byte_end});
  }
  return sentence;
}

}  // namespace torsor::grammar

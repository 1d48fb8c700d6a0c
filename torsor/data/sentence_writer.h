// Writes one sentence of the generated corpus: words from left to right, each attached to its head as soon as both are
// there. Internal to the grammar.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "torsor/base/random.h"
#include "torsor/data/grammar.h"
#include "torsor/data/lexicon.h"
#include "torsor/data/story.h"

namespace torsor::grammar {

enum class Number { kSingular, kPlural };
enum class VerbForm { kFinite, kBase, kParticiple, kGerund };

/// A noun phrase that has been written.
struct Phrase {
  int head = 0;
  Number number = Number::kSingular;
  unsigned classes = 0;   // what it names: one NounClass
  int entity = -1;        // of the story, if it names one
  bool negative = false;  // licenses "any" and "ever" after it: "no guard", "nobody"
};

struct PhraseOptions {
  std::optional<Number> number;
  bool subject = false;     // where pronouns and descriptions of entities may stand
  bool entities = true;     // may name an entity or something that belongs to one
  bool modifiers = true;    // may take a prepositional phrase or a relative clause
  bool licensed = false;    // "any" may stand here
  bool indefinite = false;  // "a lamp", "two lamps"
  bool definite = false;    // "the lamp"
};

/// A predicate that has been written; the subject attaches to `head` as `subject`.
struct Predicate {
  int head = 0;
  const char* subject = "nsubj";
};

struct PredicateOptions {
  VerbForm form = VerbForm::kFinite;  // or kBase, after "to" or an auxiliary that stands already
  bool overt = false;                 // the finite verb must show its number
  bool licensed = false;              // stands in the scope of a negation that has been written
  bool embedded = true;               // may take a clause
};

/// The words "has not been": what stands before a verb.
struct Auxiliaries {
  std::vector<std::pair<int, const char*>> words;  // with their relation to the verb
  VerbForm form = VerbForm::kFinite;               // of the verb that must follow
  bool negative = false;
  bool perfect = false;
};

class SentenceWriter {
 public:
  SentenceWriter(Random& random, const World& world, Discourse discourse, std::size_t relative_depth)
      : random_(random), world_(world), discourse_(std::move(discourse)), depth_(static_cast<int>(relative_depth)) {}

  /// Writes a sentence of this kind, with its punctuation. Once only.
  void write(Construction construction);

  /// Writes a sentence that tells an attribute. `full_name` brings the entity in.
  void write_fact(std::size_t entity, Attribute attribute, bool full_name);

  /// "Where does Anna live?" about an attribute that has been told; false when there is none.
  bool write_fact_question(std::size_t* entity, Attribute* attribute);

  std::size_t size() const { return words_.size(); }
  const Discourse& discourse() const { return discourse_; }

  /// Appends the sentence's words to `text`, and returns them with their tree. `mentions` gains the attributes told.
  GeneratedSentence render(Construction construction, std::size_t number, std::string& text,
                           std::vector<FactMention>& mentions) const;

 private:
  struct Word {
    std::string form;
    std::string lemma;
    const char* upos;
    bool space;  // before it
    int head = -2;
    const char* relation = "";
  };
  struct Mention {
    std::size_t entity;
    Attribute attribute;
    int first;
    int last;
  };

  // sentence_writer.cpp: words
  int add(std::string_view form, std::string_view lemma, const char* upos, bool space = true);
  int add(std::string_view form, const char* upos) { return add(form, form, upos); }
  void attach(int word, int head, const char* relation);
  void attach_all(const Auxiliaries& auxiliaries, int head);
  int comma() { return add(",", ",", "PUNCT", false); }
  void end(int root, std::string_view mark);
  bool room(int words) const { return static_cast<int>(words_.size()) + words <= 28; }
  void mention(std::size_t entity, Attribute attribute, int first, int last);
  template <class T>
  const T& pick(const std::vector<T>& values) {
    return values[random_.below(values.size())];
  }
  bool chance(double probability) { return grammar::chance(random_, probability); }
  unsigned pick_class(unsigned classes);
  const Noun& pick_noun(unsigned noun_class);
  const Verb& pick_verb(unsigned frames, unsigned objects = 0);
  const std::string& pick_adjective(unsigned noun_class);

  // noun_phrases.cpp
  Phrase noun_phrase(unsigned classes, const PhraseOptions& options);
  Phrase common_noun(unsigned noun_class, const PhraseOptions& options);
  Phrase entity_phrase(std::size_t entity, bool subject);
  Phrase name_phrase(std::size_t entity);
  Phrase pronoun_phrase(std::size_t entity);
  Phrase possession_phrase(std::size_t entity);
  Phrase pet_phrase(std::size_t entity);
  Phrase subject_phrase(unsigned classes = kPerson);
  int choose_entity();
  void owner(std::size_t entity, int* first, int* head, bool* pronoun);
  void modify(Phrase& phrase, const PhraseOptions& options);
  void prepositional_phrase(std::string_view preposition, unsigned classes, int head, const char* relation,
                            std::optional<Number> number = std::nullopt);
  void subject_relative(const Phrase& antecedent);
  void object_relative(const Phrase& antecedent, bool long_distance);
  void reduced_relative(const Phrase& antecedent);

  // clauses.cpp
  Auxiliaries auxiliaries(Number number, bool state, const PredicateOptions& options);
  Auxiliaries be(Number number, const PredicateOptions& options, const char* relation);
  int verb_word(const Verb& verb, VerbForm form, Number number);
  int finite_be(Number number, const char* upos = "AUX");
  Predicate predicate(const Phrase& subject, const PredicateOptions& options);
  Predicate alone(const Phrase& subject, const PredicateOptions& options);
  Predicate transitive(const Phrase& subject, const PredicateOptions& options);
  Predicate copular(const Phrase& subject, const PredicateOptions& options);
  Predicate passive(const Phrase& subject, const PredicateOptions& options);
  Predicate gift(const Phrase& subject, const PredicateOptions& options);
  Predicate clausal(const Phrase& subject, const PredicateOptions& options);
  Predicate infinitive(const Phrase& subject, const PredicateOptions& options);
  void after_verb(int verb, const Phrase& subject, const Auxiliaries& auxiliaries, bool licensed);
  Phrase object_of(const Verb& verb, const Phrase& subject, bool licensed);
  const Verb& gapped_verb(unsigned filler);
  int clause(const PredicateOptions& options);
  int clause_about(const Phrase& subject, const PredicateOptions& options);
  void complement_clause(int verb);

  // constructions.cpp
  int simple();
  int coordination();
  int attractor();
  int relative(Construction construction);
  int center_embedding();
  int subordinate();
  int existential();
  int wh_question();
  int polar_question();
  int embedded_question();
  int cleft();
  int garden_path_object();
  int garden_path_reduced();
  int garden_path_complement();
  int negative_polarity();
  int reflexive();
  int fact(std::size_t entity, Attribute attribute, const Phrase& subject);
  int fact_the_other_way(std::size_t entity, Attribute attribute);

  Random& random_;
  const World& world_;
  Discourse discourse_;
  int depth_;  // relative clauses that may still open inside the present place
  std::vector<Word> words_;
  std::vector<Mention> mentions_;
  std::set<int> spoken_of_;  // entities in this sentence
};

}  // namespace torsor::grammar

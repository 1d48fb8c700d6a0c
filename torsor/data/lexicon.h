// The words that the generated corpus is made of.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace torsor::grammar {

/// What a noun names; a bit each, so that a verb or an adjective can say with which nouns it makes sense.
enum NounClass : unsigned {
  kPerson = 1,
  kAnimal = 2,
  kThing = 4,
  kText = 8,
  kFood = 16,
  kPlace = 32,
  kIdea = 64,
  kWork = 128,  // beside kPerson: a trade; beside kPlace: where people work
};

/// The patterns that a verb enters; a bit each.
enum VerbFrame : unsigned {
  kPersonAlone = 1,        // the baker sleeps
  kAnimalAlone = 2,        // the goat limps
  kThingAlone = 4,         // the lamp falls
  kPersonObject = 8,       // the baker carries the lamp
  kAnimalObject = 16,      // the goat follows the baker
  kIdeaObject = 32,        // the plan worries the baker
  kGift = 64,              // the baker gives the lamp to the guard
  kClause = 128,           // the baker thinks that the lamp falls
  kQuestion = 256,         // the baker wonders who carries the lamp
  kInfinitive = 512,       // the baker tries to sleep
  kOptionalObject = 1024,  // the baker paints; the baker paints the lamp
  kLeadable = 2048,        // the goat led past the mill (past tense and participle alike)
  kReflexive = 4096,       // the baker blames herself
  kState = 8192,           // not in the progressive: the baker owns
};

struct Noun {
  std::string singular;
  std::string plural;
  unsigned classes = 0;  // NounClass
};

/// No form of a verb is ambiguous between the present and the past.
struct Verb {
  std::string base;
  std::string third;  // third person singular, present
  std::string past;
  std::string participle;
  std::string gerund;
  unsigned frames = 0;   // VerbFrame
  unsigned objects = 0;  // NounClass of the direct objects that make sense
};

struct Adjective {
  std::string form;
  unsigned classes = 0;  // NounClass
};

struct Lexicon {
  std::vector<Noun> nouns;
  std::vector<Verb> verbs;
  std::vector<Adjective> adjectives;
  std::vector<std::string> colours;
  std::vector<std::string> female_names;
  std::vector<std::string> male_names;
  std::vector<std::string> pet_names;
  std::vector<std::string> name_beginnings;  // of surnames and towns
  std::vector<std::string> surname_endings;
  std::vector<std::string> town_endings;
  std::vector<std::string> manner_adverbs;     // after the verb: slowly
  std::vector<std::string> frequency_adverbs;  // before the verb: often
  std::vector<std::string> degree_adverbs;     // before an adjective: very
  std::vector<std::string> openers;            // at the beginning of a sentence: later
  std::vector<std::string> modals;
  std::vector<std::string> subordinators;
  std::vector<std::string> place_prepositions;

  /// The verb with this base form. Throws Error when there is none.
  const Verb& verb(std::string_view base) const;
};

/// The lexicon, built on first use and never changed.
const Lexicon& lexicon();

/// "a" or "an" before `word`; right for the words of the lexicon.
std::string_view indefinite_article(std::string_view word);

/// `number` in words, from 1 to 99 ("forty-one"). Throws Error beyond that.
std::string number_word(int number);

}  // namespace torsor::grammar

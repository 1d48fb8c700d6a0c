// The generated corpus: documents of English-like text from a probabilistic dependency grammar of the project's own.
//
// A document tells of a handful of people whose attributes (trade, town, possession, ...) are told once and come back
// thousands of bytes later, so that a longer context helps. Surnames, towns and ages are drawn from hundreds of
// combinations, so that they can be known from the context alone. Every sentence comes with its gold tree.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "torsor/data/corpus.h"
#include "torsor/data/tree.h"

namespace torsor {

/// The patterns that sentences are drawn from. An example each; verbs agree with their subjects in all of them.
enum class Construction {
  kSimple,                // The baker often carries a lamp to the mill.
  kCoordination,          // The baker carries a lamp, and the guards sleep.
  kAttractor,             // The key near the cabinets is rusty. (a noun of the other number before the verb)
  kSubjectRelative,       // The guards who follow the baker are tired.
  kObjectRelative,        // The letter that the guards carry is old.
  kLongDistanceRelative,  // The letter that the baker thinks the guards carry is old. (not projective)
  kCenterEmbedding,       // The goat that the baker who the guards know feeds limps.
  kComplement,            // The baker says that the guards sleep.
  kSubordinate,           // When the guards sleep, the baker sings.
  kPassive,               // The lamp was carried by the guards.
  kExistential,           // There are two lamps in the mill.
  kWhQuestion,            // Which lamp did the baker say that the guards carry?
  kPolarQuestion,         // Did the baker ever see any guards?
  kEmbeddedQuestion,      // The baker wonders which lamp the guards carry.
  kCleft,                 // It is the baker who carries the lamp.
  kGardenPathObject,      // While the baker painted the fence collapsed.
  kGardenPathReduced,     // The goat led past the mill fell.
  kGardenPathComplement,  // The baker knew the answer was wrong.
  kNegativePolarity,      // No guard has ever seen any lamp. / The baker has not seen any lamp yet.
  kReflexive,             // The queen blames herself.
  kInfinitive,            // The baker wants to paint the lamp.
  kFact,                  // Anna lives in Brindleford. (tells or recalls an attribute of an entity)
  kFactQuestion,          // Where does Anna live?
};
inline constexpr std::size_t kConstructionCount = static_cast<std::size_t>(Construction::kFactQuestion) + 1;

/// The construction's name in snake case: "garden_path_object".
std::string_view construction_name(Construction construction);

/// What a document knows of each of its people; constant all through it.
enum class Attribute { kTrade, kTown, kPossession, kWorkplace, kFood, kPet, kFriend, kAge };
inline constexpr std::size_t kAttributeCount = static_cast<std::size_t>(Attribute::kAge) + 1;

/// The attribute's name: "trade".
std::string_view attribute_name(Attribute attribute);

struct Entity {
  std::string name;     // a first name, unique in its document
  std::string surname;  // told once, when the entity comes in
  bool female = false;
  /// As they stand in the text: "baker", "Brindleford", "green lantern", "mill", "plums", "goat", "Peter",
  /// "forty-one". Trades, towns, possessions and friends differ from entity to entity in a document.
  std::array<std::string, kAttributeCount> values;
  std::string pet_name;

  const std::string& value(Attribute attribute) const { return values[static_cast<std::size_t>(attribute)]; }
};

struct GeneratedWord {
  std::uint32_t byte_begin = 0;  // in the document's text
  std::uint32_t byte_end = 0;
  std::string lemma;
  std::string upos;  // the tag of Universal Dependencies: "NOUN"
};

struct GeneratedSentence {
  Construction construction = Construction::kSimple;
  std::vector<GeneratedWord> words;  // punctuation included
  Tree tree;                         // words as in the text
};

/// A place where a document tells or uses an attribute: the value's bytes in the text.
struct FactMention {
  std::size_t sentence = 0;
  std::size_t entity = 0;
  Attribute attribute = Attribute::kTrade;
  std::uint32_t byte_begin = 0;
  std::uint32_t byte_end = 0;
};

struct GeneratedDocument {
  std::string text;  // ASCII; sentences separated by a space, paragraphs by an empty line; ends with a newline
  std::vector<GeneratedSentence> sentences;
  std::vector<Entity> entities;
  std::vector<FactMention> mentions;  // in the order of the text
};

struct GrammarOptions {
  std::uint64_t seed = 0;
  std::size_t target_bytes = 32768;    // a document ends with the first sentence that reaches this size
  std::size_t entities = 8;            // people in a document, 2 to 16
  std::size_t max_words = 60;          // of a sentence, punctuation included; at least 12
  std::size_t max_relative_depth = 2;  // relative clauses inside each other, 0 to 3; kCenterEmbedding needs 2
};

/// The document `index` of the endless sequence that the options stand for: a pure function of both, the same on every
/// machine. Throws UsageError for options outside their ranges.
GeneratedDocument generate_document(const GrammarOptions& options, std::uint64_t index);

/// A single sentence of a given construction, about no entity of a story; for minimal pairs and probes. Its words'
/// bytes refer to `text`.
struct SingleSentence {
  std::string text;
  GeneratedSentence sentence;
};
SingleSentence generate_sentence(const GrammarOptions& options, Construction construction, std::uint64_t index);

/// The documents of generate_corpus(bytes, seed), with their trees.
std::vector<GeneratedDocument> generate_documents(std::size_t bytes, std::uint64_t seed);

/// A corpus of bytes of at least `bytes` bytes and little more, in equal documents of about 32 KiB (at least two, so
/// that one can be kept for validation, unless `bytes` is below 64). Throws UsageError when `bytes` is 0.
Corpus generate_corpus(std::size_t bytes, std::uint64_t seed);

}  // namespace torsor

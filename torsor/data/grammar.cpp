#include "torsor/data/grammar.h"

#include <algorithm>
#include <bitset>

#include "torsor/base/error.h"
#include "torsor/base/random.h"
#include "torsor/data/sentence_writer.h"
#include "torsor/data/story.h"

namespace torsor {

namespace {

using grammar::Discourse;
using grammar::make_world;
using grammar::SentenceWriter;
using grammar::World;

struct ConstructionKind {
  std::string_view name;
  double weight;  // its share of a document's sentences, before facts are told for the first time
};

constexpr std::array<ConstructionKind, kConstructionCount> kKinds = {{
    {"simple", 18},
    {"coordination", 6},
    {"attractor", 5},
    {"subject_relative", 4},
    {"object_relative", 3},
    {"long_distance_relative", 2},
    {"center_embedding", 1},
    {"complement", 6},
    {"subordinate", 7},
    {"passive", 3},
    {"existential", 4},
    {"wh_question", 2},
    {"polar_question", 2},
    {"embedded_question", 2},
    {"cleft", 2},
    {"garden_path_object", 2},
    {"garden_path_reduced", 1.5},
    {"garden_path_complement", 2},
    {"negative_polarity", 4},
    {"reflexive", 2},
    {"infinitive", 4},
    {"fact", 15},
    {"fact_question", 3},
}};

constexpr std::array<std::string_view, kAttributeCount> kAttributeNames = {"trade", "town", "possession", "workplace",
                                                                           "food",  "pet",  "friend",     "age"};

// Sentences that grow beyond the limits are drawn again; with limits that leave room for any kind at all this many
// draws do not fail by accident.
constexpr int kDraws = 200;

void check(const GrammarOptions& options) {
  const auto refuse = [](const char* what, std::size_t low, std::size_t high, std::size_t got) {
    throw UsageError(str("grammar: expected ", what, " from ", low, " to ", high, ", got ", got));
  };
  if (options.entities < 2 || options.entities > 16) refuse("entities", 2, 16, options.entities);
  if (options.max_words < 16 || options.max_words > 1000) refuse("max_words", 16, 1000, options.max_words);
  if (options.max_relative_depth > 3) refuse("max_relative_depth", 0, 3, options.max_relative_depth);
  // Byte spans are 32 bits wide.
  if (options.target_bytes < 1 || options.target_bytes > (std::size_t{1} << 30)) {
    refuse("target_bytes", 1, std::size_t{1} << 30, options.target_bytes);
  }
}

std::size_t relative_depth_needed(Construction construction) {
  switch (construction) {
    case Construction::kCenterEmbedding:
      return 2;
    case Construction::kSubjectRelative:
    case Construction::kObjectRelative:
    case Construction::kLongDistanceRelative:
    case Construction::kCleft:
      return 1;
    default:
      return 0;
  }
}

Construction draw_construction(Random& random, std::size_t max_relative_depth) {
  while (true) {
    double total = 0;
    for (const ConstructionKind& kind : kKinds) total += kind.weight;
    double at = random.uniform() * total;
    std::size_t k = 0;
    while (k + 1 < kKinds.size() && at >= kKinds[k].weight) at -= kKinds[k++].weight;
    const auto construction = static_cast<Construction>(k);
    if (relative_depth_needed(construction) <= max_relative_depth) return construction;
  }
}

// Builds a document sentence by sentence; paragraphs have a person that they are mostly about.
class DocumentWriter {
 public:
  DocumentWriter(const GrammarOptions& options, std::uint64_t index)
      : options_(options),
        random_(options.seed, stream_of("data/grammar") + index),
        world_(make_world(random_, options.entities)) {
    discourse_.stated.resize(options.entities);
    document_.entities = world_.entities;
  }

  GeneratedDocument write() {
    while (document_.text.size() < options_.target_bytes) paragraph();
    document_.text += '\n';
    return std::move(document_);
  }

 private:
  bool full() const { return document_.text.size() >= options_.target_bytes; }

  void paragraph() {
    first_in_paragraph_ = true;
    discourse_.last = -1;
    // Everybody comes in during the first paragraphs: two or three in each, later paragraphs none.
    for (std::size_t newcomers = 2 + random_.below(2); newcomers > 0 && !full(); --newcomers) {
      if (discourse_.introduced < world_.entities.size()) introduce();
    }
    discourse_.focus = static_cast<int>(random_.below(discourse_.introduced));
    for (std::size_t left = 4 + random_.below(6); left > 0 && !full(); --left) {
      sentence(draw_construction(random_, options_.max_relative_depth));
    }
  }

  // A newcomer's name with a surname, then some more of what is known; the rest comes up later.
  void introduce() {
    const std::size_t entity = discourse_.introduced++;
    std::vector<std::size_t> order;
    for (std::size_t a = 0; a < kAttributeCount; ++a) {
      if (can_tell(entity, static_cast<Attribute>(a))) order.push_back(a);
    }
    random_.shuffle(order);
    const std::size_t told = std::min<std::size_t>(order.size(), 3 + random_.below(3));
    for (std::size_t k = 0; k < told && !full(); ++k) tell(entity, static_cast<Attribute>(order[k]), k == 0);
  }

  // A friend is named only when he has been introduced.
  bool can_tell(std::size_t entity, Attribute attribute) const {
    if (attribute != Attribute::kFriend) return true;
    for (std::size_t e = 0; e < discourse_.introduced; ++e) {
      if (world_.entities[e].name == world_.entities[entity].value(Attribute::kFriend)) return true;
    }
    return false;
  }

  void tell(std::size_t entity, Attribute attribute, bool full_name) {
    SentenceWriter writer(random_, world_, discourse_, options_.max_relative_depth);
    writer.write_fact(entity, attribute, full_name);
    keep(writer, Construction::kFact);
  }

  void sentence(Construction construction) {
    if (construction == Construction::kFact) {
      const std::size_t entity = random_.below(discourse_.introduced);
      const auto attribute = static_cast<Attribute>(random_.below(kAttributeCount));
      if (can_tell(entity, attribute)) tell(entity, attribute, false);
      return;
    }
    if (construction == Construction::kFactQuestion) {
      SentenceWriter writer(random_, world_, discourse_, options_.max_relative_depth);
      std::size_t entity = 0;
      Attribute attribute{};
      if (!writer.write_fact_question(&entity, &attribute)) return;
      keep(writer, construction);
      tell(entity, attribute, false);
      return;
    }
    for (int draw = 0; draw < kDraws; ++draw) {
      SentenceWriter writer(random_, world_, discourse_, options_.max_relative_depth);
      writer.write(construction);
      if (writer.size() > options_.max_words) continue;
      return keep(writer, construction);
    }
    throw Error(str("grammar: expected room for a sentence of the kind ", construction_name(construction), " in ",
                    options_.max_words, " words"));
  }

  void keep(const SentenceWriter& writer, Construction construction) {
    std::string& text = document_.text;
    if (!text.empty()) text += first_in_paragraph_ ? "\n\n" : " ";
    first_in_paragraph_ = false;
    document_.sentences.push_back(writer.render(construction, document_.sentences.size(), text, document_.mentions));
    discourse_ = writer.discourse();
  }

  GrammarOptions options_;
  Random random_;
  World world_;
  Discourse discourse_;
  GeneratedDocument document_;
  bool first_in_paragraph_ = true;
};

}  // namespace

std::string_view construction_name(Construction construction) {
  return kKinds[static_cast<std::size_t>(construction)].name;
}

std::string_view attribute_name(Attribute attribute) { return kAttributeNames[static_cast<std::size_t>(attribute)]; }

GeneratedDocument generate_document(const GrammarOptions& options, std::uint64_t index) {
  check(options);
  return DocumentWriter(options, index).write();
}

SingleSentence generate_sentence(const GrammarOptions& options, Construction construction, std::uint64_t index) {
  check(options);
  const std::string name(construction_name(construction));
  if (construction == Construction::kFact || construction == Construction::kFactQuestion) {
    throw UsageError(str("grammar: expected a kind of sentence that stands alone, got ", name));
  }
  if (relative_depth_needed(construction) > options.max_relative_depth) {
    throw UsageError(str("grammar: expected max_relative_depth of at least ", relative_depth_needed(construction),
                         " for ", name, ", got ", options.max_relative_depth));
  }
  Random random(options.seed, stream_of("data/grammar/" + name) + index);
  const World world = make_world(random, 0);
  for (int draw = 0; draw < kDraws; ++draw) {
    SentenceWriter writer(random, world, Discourse(), options.max_relative_depth);
    writer.write(construction);
    if (writer.size() > options.max_words) continue;
    SingleSentence result;
    std::vector<FactMention> none;
    result.sentence = writer.render(construction, 0, result.text, none);
    return result;
  }
  throw Error(str("grammar: expected room for a sentence of the kind ", name, " in ", options.max_words, " words"));
}

std::vector<GeneratedDocument> generate_documents(std::size_t bytes, std::uint64_t seed) {
  if (bytes == 0) throw UsageError("grammar: expected at least 1 byte of text, got 0");
  constexpr std::size_t kDocument = 32768;  // holds a dozen windows of 2048
  const std::size_t count = bytes < 64 ? 1 : std::max<std::size_t>(2, (bytes + kDocument / 2) / kDocument);
  GrammarOptions options;
  options.seed = seed;
  options.target_bytes = (bytes + count - 1) / count;
  std::vector<GeneratedDocument> documents;
  for (std::size_t d = 0; d < count; ++d) documents.push_back(generate_document(options, d));
  return documents;
}

Corpus generate_corpus(std::size_t bytes, std::uint64_t seed) {
  Corpus corpus;
  for (GeneratedDocument& document : generate_documents(bytes, seed))
    append(corpus, text_corpus(std::move(document.text), str("generated ", corpus.documents.size() + 1)));
  return corpus;
}

}  // namespace torsor

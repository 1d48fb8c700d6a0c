#include "torsor/data/grammar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <unordered_map>

#include "tests/data/grammar_checks.h"
#include "tests/data/test_files.h"
#include "torsor/base/error.h"
#include "torsor/base/hash.h"
#include "torsor/data/batches.h"

namespace torsor {
namespace {

using namespace data_test;

const Reader& reader() {
  static const Reader reader;
  return reader;
}

// More than ten thousand sentences, drawn once.
const std::vector<GeneratedDocument>& documents() {
  static const std::vector<GeneratedDocument> documents = [] {
    std::vector<GeneratedDocument> result;
    for (std::uint64_t index = 0; index < 20; ++index) result.push_back(generate_document({}, index));
    return result;
  }();
  return documents;
}

TEST(Grammar, TreesAreTrees) {
  std::size_t sentences = 0;
  std::set<Construction> kinds;
  std::size_t crossing = 0;
  for (const GeneratedDocument& document : documents()) {
    for (const GeneratedSentence& sentence : document.sentences) {
      ++sentences;
      kinds.insert(sentence.construction);
      ASSERT_NO_THROW(check_tree(sentence.tree)) << sentence.tree.words[0];
      ASSERT_EQ(sentence.words.size(), sentence.tree.size());
      crossing += is_projective(sentence.tree) ? 0 : 1;
    }
  }
  EXPECT_GE(sentences, 10000U);
  EXPECT_EQ(kinds.size(), kConstructionCount);
  EXPECT_GT(crossing, sentences / 100);  // long-distance gaps cross arcs
  EXPECT_LT(crossing, sentences / 5);
}

TEST(Grammar, SpansReproduceTheText) {
  for (const GeneratedDocument& document : documents()) {
    std::string rebuilt;
    for (const GeneratedSentence& sentence : document.sentences) {
      for (std::size_t w = 0; w < sentence.words.size(); ++w) {
        const GeneratedWord& word = sentence.words[w];
        ASSERT_GE(word.byte_begin, rebuilt.size());
        const std::string gap = document.text.substr(rebuilt.size(), word.byte_begin - rebuilt.size());
        if (w == 0) {
          EXPECT_TRUE(rebuilt.empty() ? gap.empty() : gap == " " || gap == "\n\n") << gap;
        } else {
          EXPECT_TRUE(gap == " " || gap.empty()) << gap;
          EXPECT_EQ(gap.empty(), word.upos == "PUNCT" || sentence.tree.words[w] == "'s") << sentence.tree.words[w];
        }
        rebuilt += gap + sentence.tree.words[w];
        ASSERT_EQ(rebuilt.size(), word.byte_end);
        EXPECT_FALSE(word.lemma.empty() || word.upos.empty());
      }
      EXPECT_TRUE(std::isupper(static_cast<unsigned char>(sentence.tree.words[0][0])));
      EXPECT_TRUE(sentence.tree.words.back() == "." || sentence.tree.words.back() == "?");
    }
    EXPECT_EQ(rebuilt + "\n", document.text);
    for (const char c : document.text) ASSERT_TRUE(c == '\n' || (c >= ' ' && c < 127));
  }
}

TEST(Grammar, VerbsAgreeWithTheirSubjects) {
  int clauses = 0;
  int one = 0;
  int many = 0;
  for (const GeneratedDocument& document : documents()) {
    for (const GeneratedSentence& generated : document.sentences) {
      const Agreement agreement = check_agreement(Sentence(generated, reader()), reader());
      ASSERT_EQ(agreement.fault, "");
      EXPECT_GE(agreement.clauses, 1) << Sentence(generated, reader()).text();
      clauses += agreement.clauses;
      one += agreement.one;
      many += agreement.many;
    }
  }
  EXPECT_GT(clauses, 15000);
  EXPECT_GT(one, 4000);
  EXPECT_GT(many, 1500);
}

// The check above must be able to fail: every sentence whose finite "is" or "are" is exchanged has to be caught.
TEST(Grammar, TheAgreementCheckSeesMistakes) {
  int changed = 0;
  for (const GeneratedSentence& generated : documents()[0].sentences) {
    GeneratedSentence wrong = generated;
    bool any = false;
    for (std::string& word : wrong.tree.words) {
      if (word == "is") {
        word = "are";
      } else if (word == "are") {
        word = "is";
      } else if (word == "was") {
        word = "were";
      } else if (word == "were") {
        word = "was";
      } else {
        continue;
      }
      any = true;
    }
    if (!any) continue;
    ++changed;
    EXPECT_NE(check_agreement(Sentence(wrong, reader()), reader()).fault, "") << Sentence(wrong, reader()).text();
  }
  EXPECT_GT(changed, 50);
}

TEST(Grammar, AttractorsHaveTheOtherNumber) {
  int seen = 0;
  for (std::uint64_t index = 0; index < 300; ++index) {
    const SingleSentence single = generate_sentence({}, Construction::kAttractor, index);
    const Sentence sentence(single.sentence, reader());
    const Agreement agreement = check_agreement(sentence, reader());
    ASSERT_EQ(agreement.fault, "");
    EXPECT_GE(agreement.one + agreement.many, 1) << single.text;  // the number must show
    const int root =
        static_cast<int>(std::find(sentence.heads.begin(), sentence.heads.end(), -1) - sentence.heads.begin());
    const int subject = sentence.dependent(root, {"nsubj", "nsubj:pass"});
    ASSERT_GE(subject, 0);
    const int attractor = sentence.dependent(subject, {"nmod"});
    ASSERT_GE(attractor, 0) << single.text;
    EXPECT_LT(subject, attractor);
    EXPECT_LT(attractor, root);
    EXPECT_NE(count_of(sentence, reader(), subject, root), count_of(sentence, reader(), attractor, root))
        << single.text;
    ++seen;
  }
  EXPECT_EQ(seen, 300);
}

TEST(Grammar, PolarityWordsAreLicensed) {
  int seen = 0;
  for (const GeneratedDocument& document : documents()) {
    for (const GeneratedSentence& generated : document.sentences) {
      const Sentence sentence(generated, reader());
      for (const int word : polarity_words(sentence)) {
        ++seen;
        ASSERT_TRUE(licensed(sentence, word)) << sentence.form(word) << " in: " << sentence.text();
      }
    }
  }
  EXPECT_GT(seen, 500);
  // The check must be able to fail: without their negations most of the words stand alone.
  int caught = 0;
  int tried = 0;
  for (std::uint64_t index = 0; index < 200; ++index) {
    GeneratedSentence sentence = generate_sentence({}, Construction::kNegativePolarity, index).sentence;
    for (std::string& word : sentence.tree.words) {
      if (word == "No" || word == "Few") word = "Some";
      if (word == "Nobody") word = "Everybody";
    }
    const Sentence changed(sentence, reader());
    for (const int word : polarity_words(changed)) {
      ++tried;
      caught += licensed(changed, word) ? 0 : 1;
    }
  }
  EXPECT_GT(tried, 100);
  EXPECT_GT(caught, tried * 9 / 10);  // a few have a second licensor, in a clause of their own
}

TEST(Grammar, ReflexivesMatchTheirSubjects) {
  static const std::set<std::string> kFemale = {"she", "woman", "girl", "queen", "aunt", "widow"};
  static const std::set<std::string> kMale = {"he", "man", "boy", "king", "uncle"};
  std::map<std::string, int> seen;
  for (const GeneratedDocument& document : documents()) {
    for (const GeneratedSentence& generated : document.sentences) {
      const Sentence sentence(generated, reader());
      for (int word = 0; word < sentence.size(); ++word) {
        const std::string& form = sentence.form(word);
        if (form != "herself" && form != "himself" && form != "themselves") continue;
        ++seen[form];
        const int verb = sentence.head(word);
        const int subject = sentence.dependent(verb, {"nsubj"});
        ASSERT_GE(subject, 0);
        const std::string& who = sentence.form(subject);
        if (form == "themselves") {
          EXPECT_EQ(count_of(sentence, reader(), subject, verb), Count::kMany) << sentence.text();
        } else if (form == "herself") {
          EXPECT_TRUE(kFemale.contains(who) || reader().female.contains(who)) << sentence.text();
        } else {
          EXPECT_TRUE(kMale.contains(who) || reader().male.contains(who)) << sentence.text();
        }
      }
    }
  }
  EXPECT_EQ(seen.size(), 3U);
}

TEST(Grammar, SizesAndDepthsAreBounded) {
  for (const std::size_t depth : {0, 1, 2, 3}) {
    GrammarOptions options;
    options.seed = 3;
    options.max_words = 24;
    options.max_relative_depth = depth;
    std::size_t longest = 0;
    int deepest = 0;
    const GeneratedDocument document = generate_document(options, 0);
    for (const GeneratedSentence& sentence : document.sentences) {
      longest = std::max(longest, sentence.words.size());
      deepest = std::max(deepest, relative_depth(Sentence(sentence, reader())));
    }
    EXPECT_LE(longest, 24U);
    EXPECT_GE(longest, 20U);
    EXPECT_LE(deepest, static_cast<int>(depth));
    if (depth < 3) {
      EXPECT_EQ(deepest, static_cast<int>(depth));
    }
  }
  for (const std::size_t size : {1, 100, 5000, 100000}) {
    GrammarOptions options;
    options.target_bytes = size;
    const GeneratedDocument document = generate_document(options, 5);
    EXPECT_GT(document.text.size(), size);
    EXPECT_LT(document.text.size(), size + 600);  // one sentence more, of sixty words at most, and an answer
  }
}

TEST(Grammar, OptionsOutsideTheirRangesAreRefused) {
  const auto refused = [](auto change) {
    GrammarOptions options;
    change(options);
    EXPECT_THROW(generate_document(options, 0), UsageError);
  };
  refused([](GrammarOptions& o) { o.entities = 1; });
  refused([](GrammarOptions& o) { o.entities = 17; });
  refused([](GrammarOptions& o) { o.max_words = 15; });
  refused([](GrammarOptions& o) { o.max_relative_depth = 4; });
  refused([](GrammarOptions& o) { o.target_bytes = 0; });
  EXPECT_THROW(generate_corpus(0, 0), UsageError);
  GrammarOptions flat;
  flat.max_relative_depth = 1;
  EXPECT_THROW(generate_sentence(flat, Construction::kCenterEmbedding, 0), UsageError);
  EXPECT_THROW(generate_sentence({}, Construction::kFact, 0), UsageError);
  GrammarOptions edge;
  edge.entities = 16;
  edge.max_words = 16;
  EXPECT_EQ(generate_document(edge, 0).entities.size(), 16U);
  edge.entities = 2;
  EXPECT_EQ(generate_document(edge, 0).entities.size(), 2U);
}

TEST(Grammar, EveryConstructionStandsAlone) {
  for (std::size_t k = 0; k < kConstructionCount; ++k) {
    const auto construction = static_cast<Construction>(k);
    if (construction == Construction::kFact || construction == Construction::kFactQuestion) continue;
    std::set<std::string> texts;
    for (std::uint64_t index = 0; index < 40; ++index) {
      const SingleSentence single = generate_sentence({}, construction, index);
      ASSERT_NO_THROW(check_tree(single.sentence.tree)) << single.text;
      const Sentence sentence(single.sentence, reader());
      ASSERT_EQ(check_agreement(sentence, reader()).fault, "");
      for (const int word : polarity_words(sentence)) ASSERT_TRUE(licensed(sentence, word)) << single.text;
      EXPECT_EQ(single.sentence.construction, construction);
      texts.insert(single.text);
      if (construction == Construction::kCenterEmbedding) {
        EXPECT_GE(relative_depth(sentence), 2) << single.text;
      }
      if (construction == Construction::kLongDistanceRelative) {
        EXPECT_FALSE(is_projective(single.sentence.tree));
      }
      if (construction == Construction::kSubjectRelative) {
        EXPECT_GE(relative_depth(sentence), 1);
      }
    }
    EXPECT_GE(texts.size(), 30U) << construction_name(construction);
    EXPECT_EQ(generate_sentence({}, construction, 7).text, generate_sentence({}, construction, 7).text);
  }
  std::set<std::string_view> names;
  for (std::size_t k = 0; k < kConstructionCount; ++k) names.insert(construction_name(static_cast<Construction>(k)));
  EXPECT_EQ(names.size(), kConstructionCount);
}

TEST(Grammar, DocumentsAreReproducible) {
  EXPECT_EQ(generate_document({}, 3).text, documents()[3].text);
  // A change of these changes every number that was measured on the generated corpus.
  EXPECT_EQ(sha256_hex(documents()[0].text), "43032a707fa742f66b7f2774846fd21db2113ef61dedb36eb7bf6b1e37bf0259");
  EXPECT_EQ(generate_corpus(200000, 1).sha256(), "341a1b93c8d288ccd4dabc3bcda6007972ab1716e41e00b4b012344fbfb5ef5b");
  EXPECT_NE(documents()[0].text, documents()[1].text);
  GrammarOptions other;
  other.seed = 1;
  EXPECT_NE(generate_document(other, 0).text, documents()[0].text);
  EXPECT_NE(generate_document(other, 0).entities[0].surname, documents()[0].entities[0].surname);
}

TEST(Grammar, CorpusHasTheSizeAskedFor) {
  for (const std::size_t bytes : {1, 63, 64, 10000, 300000}) {
    const Corpus corpus = generate_corpus(bytes, 9);
    EXPECT_GE(corpus.token_count(), bytes);
    EXPECT_LT(corpus.token_count(), bytes + 600 * corpus.documents.size());
    EXPECT_EQ(corpus.documents.size(), bytes < 64 ? 1U : bytes < 300000 ? 2U : 9U);
    EXPECT_EQ(corpus.text_bytes(), corpus.token_count());
    EXPECT_EQ(corpus.tokenizer, "bytes");
  }
  // What the quick profile needs: room for windows of 2048 on both sides of the split.
  const Split parts = split(generate_corpus(600000, 0), 0.1, 0, 2049);
  EXPECT_NO_THROW(evaluation_windows(parts.valid, {128, 256, 512, 1024, 2048}));
  EXPECT_NE(generate_corpus(1000, 0).sha256(), generate_corpus(1000, 1).sha256());
}

TEST(Story, MentionsAreWhereTheTextHasThem) {
  for (const GeneratedDocument& document : documents()) {
    std::uint32_t before = 0;
    for (const FactMention& mention : document.mentions) {
      ASSERT_LT(mention.entity, document.entities.size());
      EXPECT_EQ(document.text.substr(mention.byte_begin, mention.byte_end - mention.byte_begin),
                document.entities[mention.entity].value(mention.attribute));
      EXPECT_GE(mention.byte_begin, before);
      before = mention.byte_begin;
      const GeneratedSentence& sentence = document.sentences[mention.sentence];
      EXPECT_GE(mention.byte_begin, sentence.words.front().byte_begin);
      EXPECT_LE(mention.byte_end, sentence.words.back().byte_end);
    }
  }
}

// Reads the facts from the trees, without the list of mentions: whoever the text names must always be told the same.
TEST(Story, FactsNeverContradictEachOther) {
  for (const GeneratedDocument& document : documents()) {
    std::map<std::string, const Entity*> by_name;
    for (const Entity& entity : document.entities) {
      EXPECT_TRUE(by_name.emplace(entity.name, &entity).second) << entity.name;
    }
    std::map<Attribute, int> told;
    for (const GeneratedSentence& generated : document.sentences) {
      const Sentence sentence(generated, reader());
      const auto tell = [&](const std::string& name, Attribute attribute, const std::string& value) {
        if (!by_name.contains(name)) return;
        ++told[attribute];
        EXPECT_EQ(by_name.at(name)->value(attribute), value) << sentence.text();
      };
      for (int word = 0; word < sentence.size(); ++word) {
        const std::string& lemma = generated.words[static_cast<std::size_t>(word)].lemma;
        int subject = sentence.dependent(word, {"nsubj"});
        if (subject < 0) continue;
        if (sentence.form(subject) == "who" && sentence.relation(word) == "acl:relcl") subject = sentence.head(word);
        const std::string& name = sentence.form(subject);
        const int object = sentence.dependent(word, {"obj"});
        const int oblique = sentence.dependent(word, {"obl"});
        const int colour = object >= 0 ? sentence.dependent(object, {"amod"}) : -1;
        if (lemma == "live" && oblique >= 0) tell(name, Attribute::kTown, sentence.form(oblique));
        if (lemma == "trust" && object > word) tell(name, Attribute::kFriend, sentence.form(object));
        if (lemma == "like" && object > word) tell(name, Attribute::kFood, sentence.form(object));
        if (lemma == "own" && colour >= 0) {
          tell(name, Attribute::kPossession, sentence.form(colour) + " " + sentence.form(object));
        }
        if (lemma == "keep" && object > word) {
          tell(name, Attribute::kPet, sentence.form(object));
          const int pet = sentence.dependent(sentence.dependent(object, {"acl"}), {"xcomp"});
          if (by_name.contains(name)) {
            EXPECT_EQ(sentence.form(pet), by_name.at(name)->pet_name);
          }
        }
        if (lemma == "old" && oblique >= 0) {
          tell(name, Attribute::kAge, sentence.form(sentence.dependent(oblique, {"nummod"})));
        }
        const bool noun = generated.words[static_cast<std::size_t>(word)].upos == "NOUN";
        if (noun && sentence.dependent(word, {"cop"}) >= 0 && sentence.dependent(word, {"expl"}) < 0) {
          tell(name, Attribute::kTrade, sentence.form(word));
        }
      }
    }
    EXPECT_GE(told.size(), kAttributeCount - 1);  // every attribute but the workplace has been met
  }
}

TEST(Story, EntitiesDifferFromEachOther) {
  std::set<std::string> towns;
  std::size_t people = 0;
  for (const GeneratedDocument& document : documents()) {
    for (const Attribute attribute : {Attribute::kTrade, Attribute::kTown, Attribute::kPossession,
                                      Attribute::kWorkplace, Attribute::kFood, Attribute::kPet, Attribute::kFriend}) {
      std::set<std::string> values;
      for (const Entity& entity : document.entities) values.insert(entity.value(attribute));
      EXPECT_EQ(values.size(), document.entities.size()) << attribute_name(attribute);
    }
    for (const Entity& entity : document.entities) {
      EXPECT_NE(entity.value(Attribute::kFriend), entity.name);
      EXPECT_EQ(entity.female, reader().female.contains(entity.name));
      towns.insert(entity.value(Attribute::kTown));
      ++people;
    }
  }
  // Other documents do not tell where someone lives: only this document's own beginning does.
  EXPECT_GT(towns.size(), people * 3 / 4);
}

TEST(Story, FactsComeBackAcrossThousandsOfBytes) {
  std::size_t far = 0;
  std::size_t all = 0;
  for (const GeneratedDocument& document : documents()) {
    std::map<std::pair<std::size_t, Attribute>, std::uint32_t> last;
    std::size_t longest = 0;
    for (const FactMention& mention : document.mentions) {
      const auto key = std::make_pair(mention.entity, mention.attribute);
      if (last.contains(key)) {
        const std::size_t distance = mention.byte_begin - last[key];
        ++all;
        far += distance > 512 ? 1 : 0;
        longest = std::max(longest, distance);
      }
      last[key] = mention.byte_begin;
    }
    EXPECT_GT(longest, 4000U);
  }
  EXPECT_GT(far, all / 2);
  EXPECT_GT(all, 1000U);
}

// Bits a byte, on the second half of some documents, of a table of what follows the last `order` bytes. It has learned
// from other documents; with `own` it also learns from the document's own first half, otherwise from another one's
// instead.
double bits_per_byte(std::size_t order, bool own) {
  using Followers = std::pair<int, std::unordered_map<char, int>>;  // how many, and how many of each
  std::vector<std::unordered_map<std::string, Followers>> counts(order + 1);
  double bits = 0;
  std::size_t scored = 0;
  const auto pass = [&](const std::string& text, std::size_t from, std::size_t to, bool learning) {
    for (std::size_t i = std::max(from, order); i < to; ++i) {
      double probability = 1.0 / 256.0;
      for (std::size_t n = 0; n <= order; ++n) {  // each order backs off to the shorter one (Witten and Bell 1991)
        const std::string context = text.substr(i - n, n);
        if (learning) {
          Followers& followers = counts[n][context];
          ++followers.first;
          ++followers.second[text[i]];
        } else if (const auto found = counts[n].find(context); found != counts[n].end()) {
          const auto& [total, next] = found->second;
          const auto seen = next.find(text[i]);
          const double kinds = static_cast<double>(next.size());
          probability = ((seen == next.end() ? 0 : seen->second) + kinds * probability) / (total + kinds);
        }
      }
      if (learning) continue;
      bits -= std::log2(probability);
      ++scored;
    }
  };
  for (std::size_t d = 4; d < 9; ++d) pass(documents()[d].text, 0, documents()[d].text.size(), true);
  const auto learned = counts;
  for (std::size_t d = 0; d < 2; ++d) {
    const std::string& text = documents()[d].text;
    counts = learned;
    pass(own ? text : documents()[12 + d].text, 0, text.size() / 2, true);
    pass(text, text.size() / 2, text.size(), false);
  }
  return bits / static_cast<double>(scored);
}

TEST(Grammar, IsNeitherTrivialNorNoise) {
  const double one = bits_per_byte(1, false);
  const double six = bits_per_byte(6, false);
  RecordProperty("bits_of_six_bytes", std::to_string(six));
  EXPECT_GT(six, 1.0);  // a perplexity of 2 a byte is beyond a table of seven letters
  EXPECT_LT(six, 2.0);
  EXPECT_GT(one, six + 1.0);
  // A document's beginning, thousands of bytes back, tells more of its end than another document does.
  EXPECT_LT(bits_per_byte(6, true), six - 0.1);
}

}  // namespace
}  // namespace torsor

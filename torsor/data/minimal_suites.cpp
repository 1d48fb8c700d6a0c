#include "torsor/data/minimal_suites.h"

#include <functional>
#include <optional>
#include <set>

#include "torsor/base/error.h"
#include "torsor/base/random.h"
#include "torsor/base/utf8.h"
#include "torsor/data/sentence_edit.h"

namespace torsor {

namespace {

using grammar::Draft;
using grammar::DraftWord;
using grammar::find_noun;
using grammar::lexicon;
using grammar::Noun;
using grammar::Number;
using grammar::Verb;

// Draws an item may cost; the rarest construction yields one in about ten.
constexpr std::size_t kDrawsAnItem = 500;

using Conditions = std::vector<SuiteCondition>;

// Makes the conditions of an item from a sentence, or nothing where the sentence does not lend itself. `item` counts
// the items made so far; `random` is the item's own.
using Maker = std::function<std::optional<Conditions>(const Draft&, std::size_t item, Random& random)>;

struct Recipe {
  std::string name;
  Construction source;
  std::string circuit;
  std::string comment;
  std::vector<std::string> regions;
  std::string formula;
  std::vector<std::string> grammatical;
  Maker make;
};

const std::string kFourWays = "[(2;%match_sing%) < (2;%mismatch_sing%)] & [(2;%match_plural%) < (2;%mismatch_plural%)]";

// ---- agreement ------------------------------------------------------------------------------------------------------

// The subject in both numbers (with `attractor` in the other one each time), each with its own verb and the other one.
std::optional<Conditions> four_ways(const Draft& draft, int subject, int attractor, int clause) {
  const auto number = draft.number_of(subject);
  if (!number) return std::nullopt;
  Draft other = draft;
  if (!other.change_number(subject)) return std::nullopt;
  if (attractor >= 0 && !other.change_number(attractor)) return std::nullopt;
  const bool plural_first = *number == Number::kPlural;
  Draft singular = plural_first ? other : draft, plural = plural_first ? draft : other;
  const int critical = draft.finite_word(clause);
  if (singular.word(critical).form == plural.word(critical).form) return std::nullopt;  // a past or modal form
  Conditions conditions;
  for (Draft* one : {&singular, &plural}) {
    one->mark_critical(critical);
    const std::string suffix = one == &singular ? "_sing" : "_plural";
    conditions.push_back(one->condition("match" + suffix, 3));
    one->change_verb(critical);
    conditions.push_back(one->condition("mismatch" + suffix, 3));
  }
  return conditions;
}

std::optional<Conditions> attractor(const Draft& draft) {
  const int root = draft.root(), subject = draft.dependent(root, {"nsubj", "nsubj:pass"});
  if (subject < 0) return std::nullopt;
  const int between = draft.dependent(subject, {"nmod"});
  if (between < 0) return std::nullopt;
  return four_ways(draft, subject, between, root);
}

// Everything between subject and verb stays as it is, but for verbs of the subject itself.
std::optional<Conditions> relative_clause(const Draft& draft) {
  const int root = draft.root(), subject = draft.dependent(root, {"nsubj", "nsubj:pass"});
  if (subject < 0 || draft.dependent(subject, {"acl:relcl"}) < 0) return std::nullopt;
  return four_ways(draft, subject, -1, root);
}

std::optional<Conditions> coordination(const Draft& draft) {
  const int root = draft.root(), subject = draft.dependent(root, {"nsubj", "nsubj:pass"});
  const int second = draft.dependent(root, {"conj"});
  if (subject < 0 || second < 0 || draft.dependent(second, {"nsubj", "nsubj:pass"}) >= 0) return std::nullopt;
  return four_ways(draft, subject, -1, second);
}

std::optional<Conditions> cleft(const Draft& draft) {
  const int focus = draft.root(), clause = draft.dependent(focus, {"acl:relcl"});
  if (clause < 0) return std::nullopt;
  const int pronoun = draft.dependent(clause, {"nsubj", "nsubj:pass"});
  if (pronoun < 0 || draft.word(pronoun).upos != "PRON") return std::nullopt;
  return four_ways(draft, focus, -1, clause);
}

// "There is a lamp" and "There are two lamps" in turn, each with the other verb.
std::optional<Conditions> existential(const Draft& draft, std::size_t item) {
  const int root = draft.root(), what = draft.dependent(root, {"nsubj"});
  const auto number = draft.number_of(what);
  if (!number || (*number == Number::kSingular) != (item % 2 == 0)) return std::nullopt;
  Draft match = draft;
  match.mark_critical(root + 1, 2);
  for (int i = 0; i < root; ++i) match.word(i).region = 1;
  Draft mismatch = match;
  if (!mismatch.change_verb(root)) return std::nullopt;
  return Conditions{match.condition("match", 4), mismatch.condition("mismatch", 4)};
}

// ---- filler and gap -------------------------------------------------------------------------------------------------

// "The baker knows which lamp the guards carry.", with "that" for the filler, and with an object for the gap.
std::optional<Conditions> filler_gap(const Draft& draft, Random& random) {
  const int root = draft.root(), inner = draft.dependent(root, {"ccomp"});
  if (inner < 0) return std::nullopt;
  const int filler = draft.dependent(inner, {"obj"}), subject = draft.dependent(inner, {"nsubj"});
  if (filler < 0 || subject < 0 || filler > subject || inner + 2 != draft.size()) return std::nullopt;
  const int which = draft.dependent(filler, {"det"});
  const Verb& asking = lexicon().verb(draft.word(root).lemma);
  const Noun* asked = find_noun(draft.word(filler).lemma);
  if (which < 0 || which + 1 != filler || asked == nullptr || (asking.frames & grammar::kClause) == 0)
    return std::nullopt;
  // Another thing of the same kind for the gap.
  const unsigned classes = asked->classes & lexicon().verb(draft.word(inner).lemma).objects;
  std::vector<const Noun*> fitting;
  for (const Noun& noun : lexicon().nouns)
    if ((noun.classes & classes) != 0 && noun.singular != asked->singular) fitting.push_back(&noun);
  if (fitting.empty()) return std::nullopt;
  const Noun& object = *fitting[random.below(fitting.size())];
  const bool plural = draft.word(filler).form != asked->singular;

  const auto mark = [&](Draft& one, int first_of_filler, int after_filler, int verb, int tail) {
    for (int i = 0; i < one.size(); ++i)
      one.word(i).region = i < first_of_filler ? 1
                           : i < after_filler  ? 2
                           : i < verb          ? 3
                           : i == verb         ? 4
                           : i < tail          ? 5
                                               : 6;
  };
  const auto build = [&](bool what, bool gap) {
    Draft one = draft;
    int verb = inner, shift = 0;
    if (!what) {
      // "that" takes the place of "which", and the filler goes.
      DraftWord& that = one.word(which);
      that.form = that.lemma = "that", that.upos = "SCONJ", that.head = inner, that.relation = "mark";
      one.remove(filler);
      verb = inner - 1, shift = -1;
    }
    if (!gap) {
      one.insert(verb + 1, {"the", "the", "DET", true, verb + 2, "det"});
      one.insert(verb + 2, {plural ? object.plural : object.singular, object.singular, "NOUN", true, verb, "obj"});
      one.word(verb + 1).head = verb + 2;
    }
    // The final mark stands in region 5 where a gap is: it shows that nothing comes.
    mark(one, which, filler + 1 + shift, verb, gap ? verb + 2 : verb + 3);
    return one.condition(std::string(what ? "what" : "that") + (gap ? "_gap" : "_nogap"), 6);
  };
  return Conditions{build(true, false), build(false, false), build(true, true), build(false, true)};
}

// ---- garden paths ---------------------------------------------------------------------------------------------------

// Marks words by where they begin: regions 1, 2, ... start at the given words.
void mark_from(Draft& draft, const std::vector<int>& starts) {
  for (int i = 0; i < draft.size(); ++i) {
    std::int64_t region = 1;
    for (std::size_t s = 0; s < starts.size(); ++s)
      if (i >= starts[s]) region = static_cast<std::int64_t>(s) + 2;
    draft.word(i).region = region;
  }
}

// "While the baker painted(,) the fence collapsed."
std::optional<Conditions> garden_path_object(const Draft& draft) {
  Draft bare = draft;
  if (const int comma = bare.dependent(bare.root(), {"punct"}); bare.word(comma).form == ",") bare.remove(comma);
  const int root = bare.root(), second = bare.leftmost(bare.dependent(root, {"nsubj"}));
  const int after = bare.dependent(root, {"nsubj"}) + 1;
  mark_from(bare, {second, second, after, after + 2});
  Draft paused = bare;
  paused.insert(second, {",", ",", "PUNCT", false, root + 1, "punct"});
  mark_from(paused, {second, second + 1, after + 1, after + 3});
  return Conditions{bare.condition("nocomma", 5), paused.condition("comma", 5)};
}

// "The goat (that was) led past the mill fell."
std::optional<Conditions> garden_path_reduced(const Draft& draft) {
  const int root = draft.root(), subject = draft.dependent(root, {"nsubj"});
  const int participle = draft.dependent(subject, {"acl"});
  const Noun* noun = find_noun(draft.word(subject).lemma);
  if (participle != subject + 1 || noun == nullptr) return std::nullopt;
  const bool person = (noun->classes & grammar::kPerson) != 0;
  const bool one = draft.number_of(subject) == Number::kSingular;
  int main = 0;  // the first word behind the subject's phrase
  for (int i = 0; i < draft.size(); ++i)
    if (draft.descends(i, subject)) main = i + 1;
  Draft reduced = draft;
  mark_from(reduced, {participle, participle, main, main + 2});
  Draft full = reduced;
  full.insert(participle,
              {person ? "who" : "that", person ? "who" : "that", "PRON", true, participle + 1, "nsubj:pass"});
  full.insert(participle + 1, {one ? "was" : "were", "be", "AUX", true, participle + 2, "aux:pass"});
  full.word(participle).head = participle + 2;
  full.word(participle + 2).relation = "acl:relcl";
  mark_from(full, {participle, participle + 2, main + 2, main + 4});
  return Conditions{reduced.condition("reduced", 5), full.condition("unreduced", 5)};
}

// "The baker knew (that) the answer was wrong."
std::optional<Conditions> garden_path_complement(const Draft& draft) {
  const int root = draft.root(), inner = draft.dependent(root, {"ccomp"});
  if (inner < 0) return std::nullopt;
  const int subject = draft.dependent(inner, {"nsubj"}), first = root + 1;
  Draft bare = draft;
  mark_from(bare, {first, first, subject + 1, subject + 3});
  Draft marked = bare;
  marked.insert(first, {"that", "that", "SCONJ", true, inner + 1, "mark"});
  mark_from(marked, {first, first + 1, subject + 2, subject + 4});
  return Conditions{bare.condition("nothat", 5), marked.condition("that", 5)};
}

// ---- licensing ------------------------------------------------------------------------------------------------------

// "No guard has ever seen any lamp." and the same with "the": nothing licenses the word any more.
std::optional<Conditions> polarity(const Draft& draft, bool ever) {
  const DraftWord& first = draft.word(0);
  if (first.form != "no" || first.relation != "det") return std::nullopt;
  int critical = -1;
  for (int i = 0; i < draft.size() && critical < 0; ++i) {
    const std::string& form = draft.word(i).form;
    if (form == "ever" || form == "any" || form == "anybody" || form == "anything" || form == "anywhere") critical = i;
    if (form == "not" || form == "never" || form == "without") return std::nullopt;  // another licensor
  }
  if (critical < 0 || (draft.word(critical).form == "ever") != ever) return std::nullopt;
  Draft negative = draft;
  negative.mark_critical(critical);
  Draft positive = negative;
  positive.word(0).form = positive.word(0).lemma = "the";
  return Conditions{negative.condition("neg", 3), positive.condition("pos", 3)};
}

const std::vector<std::pair<std::string, std::string>>& genders() {
  static const std::vector<std::pair<std::string, std::string>> pairs = {
      {"woman", "man"}, {"girl", "boy"}, {"queen", "king"}, {"aunt", "uncle"}};
  return pairs;
}

struct Reflexive {
  int subject = -1, pronoun = -1;
  std::string female, male;  // the nouns
};

// A reflexive whose subject is one person of a known gender.
std::optional<Reflexive> find_reflexive(const Draft& draft) {
  const int root = draft.root();
  Reflexive found;
  found.subject = draft.dependent(root, {"nsubj"});
  found.pronoun = draft.dependent(root, {"obj"});
  if (found.subject < 0 || found.pronoun < 0) return std::nullopt;
  for (const auto& [female, male] : genders())
    if (const std::string& form = draft.word(found.subject).form; form == female || form == male) {
      found.female = female, found.male = male;
      return found;
    }
  return std::nullopt;
}

void set_pronoun(Draft& draft, int pronoun, const char* form) {
  draft.word(pronoun).form = draft.word(pronoun).lemma = form;
}

std::optional<Conditions> reflexive_gender(const Draft& draft) {
  const auto found = find_reflexive(draft);
  if (!found) return std::nullopt;
  Conditions conditions;
  for (const bool female : {true, false}) {
    Draft one = draft;
    one.mark_critical(found->pronoun);
    one.word(found->subject).form = one.word(found->subject).lemma = female ? found->female : found->male;
    const std::string suffix = female ? "_fem" : "_masc";
    set_pronoun(one, found->pronoun, female ? "herself" : "himself");
    conditions.push_back(one.condition("match" + suffix, 3));
    set_pronoun(one, found->pronoun, female ? "himself" : "herself");
    conditions.push_back(one.condition("mismatch" + suffix, 3));
  }
  return conditions;
}

std::optional<Conditions> reflexive_number(const Draft& draft) {
  const auto found = find_reflexive(draft);
  if (!found) return std::nullopt;
  const char* own = draft.word(found->subject).form == found->female ? "herself" : "himself";
  Draft singular = draft, plural = draft;
  if (!plural.change_number(found->subject)) return std::nullopt;
  Conditions conditions;
  for (Draft* one : {&singular, &plural}) {
    const bool several = one == &plural;
    one->mark_critical(found->pronoun);
    const std::string suffix = several ? "_plural" : "_sing";
    set_pronoun(*one, found->pronoun, several ? "themselves" : own);
    conditions.push_back(one->condition("match" + suffix, 3));
    set_pronoun(*one, found->pronoun, several ? own : "themselves");
    conditions.push_back(one->condition("mismatch" + suffix, 3));
  }
  return conditions;
}

// ---- the state of the sentence --------------------------------------------------------------------------------------

// "When the guards sleep, the baker sings.", without the conjunction, and both without the second clause.
std::optional<Conditions> subordination(const Draft& draft) {
  const int root = draft.root(), inner = draft.dependent(root, {"advcl"});
  if (inner < 0 || inner > root) return std::nullopt;
  const int mark = draft.dependent(inner, {"mark"}), comma = draft.dependent(root, {"punct"});
  if (mark != 0 || draft.word(comma).form != ",") return std::nullopt;
  const int first_verb = draft.finite_word(inner), last = draft.size() - 1;
  const auto build = [&](bool conjunction, bool matrix) {
    Draft one = draft;
    mark_from(one, {first_verb, comma});
    std::vector<bool> gone(static_cast<std::size_t>(one.size()), false);
    if (!matrix) {
      for (int i = comma; i < last; ++i) gone[static_cast<std::size_t>(i)] = true;
      one.word(inner).head = -1, one.word(inner).relation = "root";
      one.word(last).head = inner;
    } else if (!conjunction) {
      one.word(inner).relation = "parataxis";
    }
    gone[0] = !conjunction;
    one.remove(gone);
    return one.condition(std::string(conjunction ? "sub" : "no-sub") + (matrix ? "_matrix" : "_no-matrix"), 3);
  };
  return Conditions{build(true, false), build(false, false), build(true, true), build(false, true)};
}

// ---------------------------------------------------------------------------------------------------------------------

const std::vector<Recipe>& recipes() {
  using enum Construction;
  static const std::vector<std::string> kVerb = {"before", "verb", "after"};
  static const std::vector<std::string> kWord = {"before", "word", "after"};
  static const std::vector<std::string> kMatches = {"match_sing", "match_plural"};
  const auto only_draft = [](std::optional<Conditions> (*make)(const Draft&)) {
    return [make](const Draft& draft, std::size_t, Random&) { return make(draft); };
  };
  const auto agreement = [&](const char* name, Construction source, const char* circuit, const char* comment,
                             std::optional<Conditions> (*make)(const Draft&)) {
    return Recipe{name, source, circuit, comment, kVerb, kFourWays, kMatches, only_draft(make)};
  };
  const auto npi = [&](const char* name, bool ever) {
    return Recipe{
        name,        kNegativePolarity,
        "Licensing", "A word of negative polarity under a negative subject, and the same without the negation.",
        kWord,       "(2;%neg%) < (2;%pos%)",
        {"neg"},     [ever](const Draft& draft, std::size_t, Random&) { return polarity(draft, ever); }};
  };
  static const std::vector<Recipe> all = {
      agreement("generated_agreement_attractor", kAttractor, "Agreement",
                "The verb agrees with its subject, not with the noun of the other number before it.", attractor),
      agreement("generated_agreement_subject_relative", kSubjectRelative, "Agreement",
                "The main verb agrees with its subject across a relative clause of which that is the subject.",
                relative_clause),
      agreement("generated_agreement_object_relative", kObjectRelative, "Agreement",
                "The main verb agrees with its subject across a relative clause of which that is the object.",
                relative_clause),
      agreement("generated_agreement_coordination", kCoordination, "Agreement",
                "The second of two coordinated verbs agrees with the subject.", coordination),
      {"generated_agreement_existential",
       kExistential,
       "Agreement",
       "After 'there' the verb agrees with what follows it.",
       {"there", "verb", "phrase", "after"},
       "(3;%match%) < (3;%mismatch%)",
       {"match"},
       [](const Draft& draft, std::size_t item, Random&) { return existential(draft, item); }},
      agreement("generated_long_distance_relative", kLongDistanceRelative, "Long-Distance Dependencies",
                "The main verb agrees with its subject across two clauses with a gap in the inner one.",
                relative_clause),
      agreement("generated_cleft", kCleft, "Long-Distance Dependencies",
                "The verb of a cleft agrees with the word in focus.", cleft),
      {"generated_filler_gap",
       kEmbeddedQuestion,
       "Long-Distance Dependencies",
       "A fronted object leaves a gap, and no gap stands without one.",
       {"question", "filler", "subject", "verb", "object", "after"},
       "[(5;%what_nogap%) > (5;%that_nogap%)] & [(5;%what_gap%) < (5;%that_gap%)]",
       {"that_nogap", "what_gap"},
       [](const Draft& draft, std::size_t, Random& random) { return filler_gap(draft, random); }},
      agreement("generated_center_embedding", kCenterEmbedding, "Center Embedding",
                "The main verb agrees with its subject across two relative clauses inside each other.",
                relative_clause),
      {"generated_garden_path_object",
       kGardenPathObject,
       "Garden-Path Effects",
       "A noun that looks like an object until the main verb comes; a comma helps.",
       {"clause", "comma", "noun", "verb", "after"},
       "(4;%nocomma%) > (4;%comma%)",
       {"nocomma", "comma"},
       only_draft(garden_path_object)},
      {"generated_garden_path_reduced",
       kGardenPathReduced,
       "Garden-Path Effects",
       "A participle that looks like the main verb; 'that was' helps.",
       {"subject", "pronoun", "participle", "verb", "after"},
       "(4;%reduced%) > (4;%unreduced%)",
       {"reduced", "unreduced"},
       only_draft(garden_path_reduced)},
      {"generated_garden_path_complement",
       kGardenPathComplement,
       "Garden-Path Effects",
       "A noun that looks like an object until its verb comes; 'that' helps.",
       {"verb", "that", "noun", "predicate", "after"},
       "(4;%nothat%) > (4;%that%)",
       {"nothat", "that"},
       only_draft(garden_path_complement)},
      npi("generated_npi_ever", true),
      npi("generated_npi_any", false),
      {"generated_reflexive_gender",
       kReflexive,
       "Licensing",
       "A reflexive has the gender of its subject.",
       kWord,
       "[(2;%match_fem%) < (2;%mismatch_fem%)] & [(2;%match_masc%) < (2;%mismatch_masc%)]",
       {"match_fem", "match_masc"},
       only_draft(reflexive_gender)},
      {"generated_reflexive_number", kReflexive, "Licensing", "A reflexive has the number of its subject.", kWord,
       kFourWays, kMatches, only_draft(reflexive_number)},
      {"generated_subordination",
       kSubordinate,
       "Gross Syntactic State",
       "After a conjunction a second clause must come, and without one it must not.",
       {"subject", "verb", "matrix"},
       "[(3;%sub_no-matrix%) > (3;%no-sub_no-matrix%)] & [(3;%sub_matrix%) < (3;%no-sub_matrix%)]",
       {"sub_matrix", "no-sub_no-matrix"},
       only_draft(subordination)}};
  return all;
}

std::string text_of(const Suite& suite, const Conditions& conditions) {
  std::string all;
  for (const SuiteCondition& condition : conditions) all += suite_sentence(suite, condition).text + "\n";
  return all;
}

MinimalSuite cook(const Recipe& recipe, const MinimalSuiteOptions& options) {
  MinimalSuite result;
  result.source = recipe.source;
  result.grammatical = recipe.grammatical;
  Suite& suite = result.suite;
  suite.name = recipe.name;
  suite.comment = recipe.comment;
  suite.circuit = recipe.circuit;
  suite.attach_marks = true;
  for (std::size_t r = 0; r < recipe.regions.size(); ++r)
    suite.region_names[static_cast<std::int64_t>(r) + 1] = recipe.regions[r];
  suite.predictions.push_back(Formula::parse(recipe.formula, recipe.name));
  GrammarOptions grammar = options.grammar;
  grammar.seed = options.seed;
  std::set<std::string> seen;
  for (std::uint64_t draw = 0; suite.items.size() < options.items; ++draw) {
    if (draw >= kDrawsAnItem * options.items)
      throw Error(
          str("suites: the grammar gave only ", suite.items.size(), " of ", options.items, " items of ", recipe.name));
    const Draft draft(generate_sentence(grammar, recipe.source, draw));
    Random random(options.seed, stream_of("data/suites/" + recipe.name) + draw);
    std::optional<Conditions> conditions = recipe.make(draft, suite.items.size(), random);
    if (!conditions || !seen.insert(text_of(suite, *conditions)).second) continue;
    suite.items.push_back({static_cast<std::int64_t>(suite.items.size()) + 1, std::move(*conditions)});
  }
  return result;
}

}  // namespace

std::vector<std::string> minimal_suite_names() {
  std::vector<std::string> names;
  for (const Recipe& recipe : recipes()) names.push_back(recipe.name);
  return names;
}

MinimalSuite minimal_suite(std::string_view name, const MinimalSuiteOptions& options) {
  if (options.items < 1 || options.items > 1000)
    throw UsageError(str("suites: expected 1 to 1000 items, found ", options.items));
  for (const Recipe& recipe : recipes())
    if (recipe.name == name) return cook(recipe, options);
  throw UsageError(str("suites: no generated suite is called ", quote(name, 60)));
}

std::vector<MinimalSuite> minimal_suites(const MinimalSuiteOptions& options) {
  std::vector<MinimalSuite> suites;
  for (const Recipe& recipe : recipes()) suites.push_back(minimal_suite(recipe.name, options));
  return suites;
}

}  // namespace torsor

#include "torsor/encoding/syntax/sipe_options.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

namespace torsor {
namespace {

using Coupling = SipeOptions::Coupling;
using Factor = SipeOptions::Factor;

constexpr std::array<const char*, 6> kTerms = {"alibi", "t5", "kerple", "sandwich", "fire", "txl"};
constexpr std::array<const char*, 10> kRotations = {"rope",    "xpos", "linear",   "ntk",    "ntk-by-parts",
                                                    "dynamic", "yarn", "longrope", "llama3", "grape-m"};
constexpr std::array<const char*, 3> kPlaceless = {"none", "sinusoidal", "learned"};

template <class List>
bool holds(const List& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

/// Refuses a key that was written although nothing reads it.
void refuse_idle(const Settings& settings, const char* key, const std::string& why) {
  if (settings.given(key)) throw UsageError(str("sipe: ", key, "= ", why));
}

void read_inject(SipeOptions& options, const Settings& settings) {
  std::string word = settings.word("inject");
  const bool placeless = options.kind == SipeOperand::Placeless;
  if (word == "auto") word = placeless && !settings.given("coupling") ? "input" : "attention";
  options.inject_word = word;
  options.input = word == "input" || word == "joint";
  options.bias = word == "combined";
  if (options.bias && placeless)
    throw UsageError(str("sipe: inject=combined is the bias beside another coupling, and '", options.operand,
                         "' has no term or rotation to couple; write inject=attention or joint"));
  const std::string& fuse = settings.word("fuse");
  options.fuse = fuse == "mix"      ? SipeOptions::Fuse::Mix
                 : fuse == "concat" ? SipeOptions::Fuse::Concat
                 : fuse == "skip"   ? SipeOptions::Fuse::Skip
                                    : SipeOptions::Fuse::Add;
  if (!options.input)
    refuse_idle(settings, "fuse", "says how s meets the token embedding: it needs inject=input or joint");
  const std::string& labels = settings.word("labels");
  options.labels = labels == "add"    ? SipeOptions::Labels::Add
                   : labels == "only" ? SipeOptions::Labels::Only
                                      : SipeOptions::Labels::Off;
  if (options.labels == SipeOptions::Labels::Off) return;
  if (word != "input") throw UsageError("sipe: labels= is about the token embedding: it needs inject=input");
  if (options.prior == SipePrior::Fsyn)
    throw UsageError(
        "sipe: labels= embeds relations beside or in place of tags; the vectors of prior=fsyn know them already");
}

void read_coupling(SipeOptions& options, const Settings& settings) {
  std::string word = settings.word("coupling");
  if (options.inject_word == "input") {
    for (const char* key :
         {"coupling", "factor", "inject_from", "beta_init", "cross_sentence", "same_sentence", "hops", "rank", "bound"})
      refuse_idle(settings, key, "is about attention, and inject=input leaves attention as it is");
    return;
  }
  if (word == "auto")
    word = options.kind == SipeOperand::Rotation    ? "rotation"
           : options.kind == SipeOperand::Placeless ? "bias"
           : options.operand == "txl"               ? "tag_align"
                                                    : "bilinear";
  options.coupling_word = word;
  if (word == "bias") {
    if (options.bias) throw UsageError("sipe: inject=combined sets the bias beside another coupling; write that one");
    options.bias = true;
    return;
  }
  options.sparse = word == "sparse" || word == "sparse_mlp";
  options.coupling = word == "tag_align"                      ? Coupling::TagAlign
                     : word == "bilinear" || word == "sparse" ? Coupling::Bilinear
                     : word == "mlp" || word == "sparse_mlp"  ? Coupling::Mlp
                     : word == "additive"                     ? Coupling::Additive
                     : word == "rotation"                     ? Coupling::Rotation
                     : word == "pair"                         ? Coupling::Pair
                                                              : Coupling::Prerot;
  const bool turns = options.coupling == Coupling::Rotation || options.coupling == Coupling::Pair ||
                     options.coupling == Coupling::Prerot;
  if (turns && options.kind != SipeOperand::Rotation)
    throw UsageError(str("sipe: coupling=", word, " needs a rotation inside, found '", options.operand, "'"));
  if (!turns && options.kind != SipeOperand::Term)
    throw UsageError(str("sipe: coupling=", word, " multiplies what is added to the logit, and '", options.operand,
                         "' adds nothing there; couplings for it: ",
                         options.kind == SipeOperand::Rotation ? "rotation, pair, prerot, bias" : "bias"));
}

void read_factor(SipeOptions& options, const Settings& settings) {
  const std::string& word = settings.word("factor");
  if (!options.of_pairs() && options.coupling != Coupling::TagAlign) {
    if (options.inject_word != "input")
      refuse_idle(settings, "factor", str("shapes a factor, and coupling=", options.coupling_word, " has none"));
    return;
  }
  // A penalty must not turn into a gain: far tokens would be preferred.
  const bool penalty = options.operand == "alibi" || options.operand == "kerple";
  options.factor = word == "linear"    ? Factor::Linear
                   : word == "bounded" ? Factor::Bounded
                   : word == "exp"     ? Factor::Exp
                   : word == "clamp"   ? Factor::Clamp
                   : penalty           ? Factor::Bounded
                                       : Factor::Linear;
}

void read_beta(SipeOptions& options, const Settings& settings) {
  options.beta_init = settings.number("beta_init");
  if (!options.has_beta()) {
    if (options.beta_init != 0)
      throw UsageError(str("sipe: beta_init=", options.beta_init, ": ",
                           options.coupling_word.empty() ? "inject=input" : "coupling=" + options.coupling_word,
                           " has no beta"));
    return;
  }
  if (options.of_pairs() && options.factor == SipeOptions::Factor::Bounded && std::abs(options.beta_init) >= 0.9)
    throw UsageError(
        str("sipe: factor=bounded keeps beta within 0.9; beta_init must be smaller, found ", options.beta_init));
}

/// Throws where no gradient would ever flow: both factors of a product at zero.
void refuse_dead(const SipeOptions& options) {
  if (options.start != SipeOptions::Start::Zero || options.mode == SipeMode::None) return;
  const auto dead = [&](const std::string& why) { throw UsageError(str("sipe: start=zero would never train: ", why)); };
  const bool tables = options.prior == SipePrior::Hexatags;  // then s itself starts at zero
  if (options.of_pairs()) dead(str("both factors of coupling=", options.coupling_word, " would be zero"));
  if (options.coupling == Coupling::Rotation && options.beta_init == 0)
    dead("beta and w_phi would both be zero; give beta_init");
  if (tables && !options.input && (options.coupling != Coupling::None || options.bias))
    dead("s and what it is multiplied with would both be zero");
  if (tables && options.input && options.fuse == SipeOptions::Fuse::Concat) dead("s and w_s would both be zero");
}

void refuse_idle_keys(const SipeOptions& options, const Settings& settings) {
  if (options.inject_word == "input") return;
  const auto idle = [&](const char* key, const char* needs) {
    refuse_idle(settings, key, str("needs ", needs, ", not coupling=", options.coupling_word));
  };
  if (!options.sparse) idle("hops", "a sparse coupling");
  if (options.coupling != Coupling::Bilinear && options.coupling != Coupling::Pair) idle("rank", "a bilinear coupling");
  if (options.coupling != Coupling::Rotation) idle("bound", "coupling=rotation");
  if (!options.of_pairs()) idle("cross_sentence", "a coupling of pairs");
  if (options.sparse) idle("cross_sentence", "a coupling that reaches beyond the arcs of a sentence");
  if (options.coupling != Coupling::TagAlign) idle("same_sentence", "tag_align");
}

}  // namespace

bool SipeOptions::starts_warm() const {
  if (mode == SipeMode::None) return true;
  const bool attention = coupling == Coupling::None || start != Start::Random || (has_beta() && beta_init == 0);
  const bool biased = !bias || start != Start::Random;
  const bool embedding =
      !input || (start != Start::Random && ((fuse != Fuse::Add && fuse != Fuse::Skip) || start == Start::Zero));
  return attention && biased && embedding;
}

SipeMode SipeSettings::mode_in(bool causal) const {
  if (mode != SipeMode::Auto) return mode;
  return causal ? SipeMode::Incremental : SipeMode::Oracle;
}

SipeSubword SipeSettings::subword_in(bool causal) const {
  if (subword != SipeSubword::Auto) return subword;
  if (mode_in(causal) == SipeMode::Incremental) return SipeSubword::Delayed;
  // The pieces of one word stay in phase.
  return rotary && inject != "input" ? SipeSubword::All : SipeSubword::First;
}

bool SipeSettings::leaks(bool causal) const {
  const SipeMode used = mode_in(causal);
  return causal && (used == SipeMode::Oracle || used == SipeMode::OracleRevealed);
}

std::vector<std::string> sipe_operands() {
  std::vector<std::string> names(kPlaceless.begin(), kPlaceless.end());
  names.insert(names.end(), kRotations.begin(), kRotations.end());
  names.insert(names.end(), kTerms.begin(), kTerms.end());
  return names;
}

SipeOptions sipe_options(const Term& term, const Settings& settings) {
  SipeOptions options;
  options.operand = term.operands.front().expression.terms.front().name;
  options.kind = holds(kTerms, options.operand)       ? SipeOperand::Term
                 : holds(kRotations, options.operand) ? SipeOperand::Rotation
                                                      : SipeOperand::Placeless;
  options.prior = settings.word("prior") == "fsyn" ? SipePrior::Fsyn : SipePrior::Hexatags;
  const std::string &mode = settings.word("mode"), &subword = settings.word("subword"), &start = settings.word("start");
  options.mode = mode == "none"              ? SipeMode::None
                 : mode == "oracle"          ? SipeMode::Oracle
                 : mode == "oracle_revealed" ? SipeMode::OracleRevealed
                 : mode == "incremental"     ? SipeMode::Incremental
                                             : SipeMode::Auto;
  options.subword = subword == "first"     ? SipeSubword::First
                    : subword == "all"     ? SipeSubword::All
                    : subword == "delayed" ? SipeSubword::Delayed
                                           : SipeSubword::Auto;
  options.start = start == "zero"     ? SipeOptions::Start::Zero
                  : start == "random" ? SipeOptions::Start::Random
                                      : SipeOptions::Start::Auto;
  options.inject_from = settings.integer("inject_from");
  options.cross_sentence = settings.boolean("cross_sentence");
  options.same_sentence = settings.boolean("same_sentence");
  options.hops = settings.integer("hops");
  options.rank = settings.integer("rank");
  options.warp = settings.word("bound") == "warp";
  read_inject(options, settings);
  read_coupling(options, settings);
  read_factor(options, settings);
  read_beta(options, settings);
  refuse_idle_keys(options, settings);
  refuse_dead(options);
  return options;
}

std::vector<SipeSettings> sipe_settings(const Expression& expression) {
  std::vector<SipeSettings> all;
  for (const Term& term : expression.terms) {
    if (term.name == "sipe") {
      const SipeOptions options = sipe_options(term, Settings(term, find_name("sipe")->keys));
      all.push_back({options.prior, options.mode, options.subword, options.kind == SipeOperand::Rotation,
                     options.operand, options.coupling_word, options.inject_word, options.hops});
      continue;
    }
    for (const Item& item : term.operands)
      for (SipeSettings& inner : sipe_settings(item.expression)) all.push_back(std::move(inner));
  }
  return all;
}

std::vector<KeyInfo> sipe_keys() {
  const auto word = [](const char* name, const char* fallback, const char* about, std::vector<std::string> words) {
    KeyInfo key;
    key.name = name;
    key.type = KeyInfo::Type::Word;
    key.fallback = std::string(fallback);
    key.about = about;
    key.words = std::move(words);
    return key;
  };
  const auto whole = [](const char* name, double fallback, const char* about, double low, double high) {
    KeyInfo key;
    key.name = name;
    key.type = KeyInfo::Type::Integer;
    key.fallback = fallback;
    key.about = about;
    key.low = low;
    key.high = high;
    return key;
  };
  const auto flag = [](const char* name, const char* about) {
    KeyInfo key;
    key.name = name;
    key.type = KeyInfo::Type::Boolean;
    key.fallback = false;
    key.about = about;
    return key;
  };
  KeyInfo beta;
  beta.name = "beta_init";
  beta.fallback = 0.0;
  beta.about = "first beta; 0 starts at the encoding inside with beta moving first, else with the other factor at zero";
  beta.low = -10;
  beta.high = 10;
  return {
      word("prior", "hexatags",
           "what s is made of: two tags a word with trained tables, or a frozen embedder's vectors",
           {"hexatags", "fsyn"}),
      word("coupling", "auto",
           "how s meets the encoding inside; auto: tag_align on txl, bilinear on other terms, rotation on rotations, "
           "bias elsewhere",
           {"auto", "tag_align", "bilinear", "mlp", "sparse", "sparse_mlp", "additive", "rotation", "pair", "prerot",
            "bias"}),
      word("factor", "auto", "what becomes of z; auto: bounded on alibi and kerple, whose sign must stay, else linear",
           {"auto", "linear", "bounded", "exp", "clamp"}),
      word("mode", "auto",
           "where syntax comes from; auto: incremental in causal models, oracle in others; oracle modes leak",
           {"auto", "none", "oracle", "oracle_revealed", "incremental"}),
      word("inject", "auto",
           "attention, the token embedding (input), both (joint), or a coupling and the bias (combined); auto: "
           "attention, input where nothing is positioned there",
           {"auto", "input", "attention", "joint", "combined"}),
      whole("inject_from", 1, "first layer whose attention is changed, counted from 1", 1, 1e6),
      beta,
      word("subword", "auto",
           "pieces of a word that carry its syntax; auto: delayed when incremental, all under a rotation, else first",
           {"auto", "first", "all", "delayed"}),
      flag("cross_sentence", "whether couplings of pairs act across sentences"),
      flag("same_sentence", "whether tag_align acts inside a sentence only"),
      whole("hops", 3, "most arcs between two tokens, for the sparse couplings", 1, 64),
      whole("rank", 16, "width of the bilinear product", 1, 4096),
      word("bound", "none", "warp: a rotation moves each plane by at most 4 beta positions", {"none", "warp"}),
      word("start", "auto",
           "first values: auto as beta_init says; zero; random, which does not start at the encoding inside",
           {"auto", "zero", "random"}),
      word("fuse", "add",
           "how s meets the token embedding: added, mixed by a trained share, concatenated and projected, or added "
           "behind the first attention",
           {"add", "mix", "concat", "skip"}),
      word("labels", "off",
           "with inject=input: the relation of the word's arc, embedded beside the tags or in their place",
           {"off", "add", "only"}),
  };
}

}  // namespace torsor

#include "torsor/lab/diagnosis_findings.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "torsor/lab/diagnosis_words.h"

namespace torsor {
namespace {

constexpr double kFarAngle = 1.5;    // of the largest angle seen: beyond it a plane counts as lost, not only as worse
constexpr double kPlain = 1 + 1e-6;  // a fastest plane slowed by more than this tells neighbours apart less well

std::string heads_text(const PartName& part, std::int64_t all_heads) {
  if (part.heads == all_heads) return "";
  return str(" (query heads ", part.first_head, " to ", part.first_head + part.heads - 1, ")");
}

std::string layers_text(const PartName& part, std::int64_t layers) {
  if (static_cast<std::int64_t>(part.layers.size()) == layers || layers == 1) return "";
  return str(" (", part.layers.size() == 1 ? "layer " : "layers ", ranges(part.layers), ")");
}

class Expected {
 public:
  explicit Expected(const Diagnosis& diagnosis)
      : diagnosis_(diagnosis),
        facts_(diagnosis.facts),
        trained_(facts_.dimensions.train_length),
        longest_(facts_.lengths.back()) {}

  std::vector<Finding> all() {
    for (const std::vector<const RotationFacts*>& alike : groups(facts_.rotations)) {
      const auto worse = [](const RotationFacts* a, const RotationFacts* b) {
        return a->lengths.back().worst < b->lengths.back().worst;
      };
      angles(**std::max_element(alike.begin(), alike.end(), worse));
      scaling(*alike.front());
      fading(*alike.front());
    }
    precision();
    for (const std::vector<const BiasFacts*>& alike : groups(facts_.biases)) {
      rows(*alike.front());
      merging(*alike.front());
      sight(alike);
      fire(*alike.front());
    }
    for (const EmbeddingFacts& embedding : facts_.embeddings) absolute(embedding);
    twice();
    claims();
    for (const TemperatureFacts& temperature : facts_.temperatures) heat(temperature);
    if (!facts_.positions) nothing();
    content();
    memory();
    return std::move(findings_);
  }

 private:
  /// What one term answers in layers, or for key heads, that differ in their trained numbers: told once.
  template <class Part>
  static std::vector<std::vector<const Part*>> groups(const std::vector<Part>& parts) {
    std::vector<std::vector<const Part*>> all;
    for (const Part& part : parts) {
      const auto same = std::find_if(all.begin(), all.end(), [&](const std::vector<const Part*>& group) {
        const PartName& other = group.front()->part;
        return other.term == part.part.term && other.first_head == part.part.first_head &&
               other.heads == part.part.heads;
      });
      if (same == all.end())
        all.push_back({&part});
      else
        same->push_back(&part);
    }
    return all;
  }

  Finding& add(Severity severity, const char* topic, std::optional<std::int64_t> from, std::string what,
               std::string why) {
    // Layers and key heads that are alike say it once.
    for (Finding& one : findings_)
      if (one.topic == topic && one.what == what && one.why == why) return one;
    findings_.push_back({severity, false, topic, from, std::move(what), std::move(why), {}});
    return findings_.back();
  }

  std::string where(const PartName& part) const {
    return heads_text(part, facts_.dimensions.heads) + layers_text(part, diagnosis_.layers);
  }

  std::string checkpoint() const { return diagnosis_.checkpoint.empty() ? "CKPT" : shell_word(diagnosis_.checkpoint); }

  std::string extend_command(double factor) const {
    const auto expression = stretched(facts_.encoding, facts_.dimensions, factor);
    if (!expression) return "";
    return str("torsor extend ", checkpoint(), " --encoding ", shell_word(*expression), " --length ", longest_,
               " --out extended");
  }

  /// The smallest text in which some plane goes beyond what training showed, or the first length asked for that does.
  std::int64_t first_unseen(const RotationFacts& rotation) const {
    for (const RotationAtLength& at : rotation.lengths) {
      if (at.unseen.empty()) continue;
      if (rotation.length_dependent) return at.length;
      double first = std::numeric_limits<double>::infinity();
      for (const std::int64_t plane : at.unseen) {
        const auto i = static_cast<std::size_t>(plane);
        first = std::min(first, rotation.trained_turns[i] * 2 * std::numbers::pi / at.frequency[i]);
      }
      return static_cast<std::int64_t>(std::floor(first * (1 + 1e-9))) + 1;
    }
    return longest_;
  }

  void angles(const RotationFacts& rotation) {
    const RotationAtLength& at = rotation.lengths.back();
    const std::size_t planes = rotation.plain.size();
    if (at.unseen.empty()) {
      if (at.length <= trained_) return;
      std::vector<std::int64_t> unfinished;
      for (std::size_t i = 0; i < planes; ++i)
        if (rotation.trained_turns[i] < 1) unfinished.push_back(static_cast<std::int64_t>(i));
      add(Severity::Note, "angles", std::nullopt,
          str("no plane", where(rotation.part), " goes past the angles of training up to ", longest_, " tokens"),
          unfinished.empty()
              ? str("every one of the ", planes, " planes made a full turn within ", trained_, " positions")
              : str("planes ", ranges(unfinished), " of ", planes,
                    " made no full turn in training, and their angles stay within what they showed there"));
      return;
    }
    const std::string share = at.unseen.size() == planes ? str("all ", planes, " planes")
                                                         : str(at.unseen.size() == 1 ? "plane " : "planes ",
                                                               ranges(at.unseen), " of ", planes);
    std::string why = str(share, " never completed a turn in training; at ", longest_, " tokens ",
                          at.unseen.size() == 1 ? "its angle reaches " : "their angles reach up to ", shown(at.worst),
                          " times the largest seen");
    if (rotation.initial) why += "; the frequencies are trained, these are their first values";
    Finding& finding = add(at.worst >= kFarAngle ? Severity::Breaks : Severity::Degrades, "angles",
                           first_unseen(rotation), str("angles that training never showed", where(rotation.part)), why);
    if (!finding.advice.empty()) return;
    double reach = 0;
    for (const RotationAtLength& one : rotation.lengths) reach = std::max(reach, one.reach);
    const double base = rotation.scaling_length > 0 ? rotation.scaling_length : static_cast<double>(trained_);
    const std::string command = extend_command(std::ceil(reach / base * 100 - 1e-6) / 100);
    if (!command.empty()) finding.advice.push_back(command);
    finding.advice.push_back(str(command.empty() ? "" : "or ", "keep texts within ", trained_,
                                 " positions: torsor generate ", checkpoint(), " --window ", trained_, " --sinks 4"));
  }

  void scaling(const RotationFacts& rotation) {
    if (rotation.scaling.empty()) return;
    const RotationAtLength& at = rotation.lengths.back();
    std::vector<std::int64_t> by[3];
    for (std::size_t i = 0; i < at.treatment.size(); ++i)
      by[static_cast<std::size_t>(at.treatment[i])].push_back(static_cast<std::int64_t>(i));
    const double most = *std::max_element(at.slowed.begin(), at.slowed.end());
    std::string what = rotation.scaling;
    const char* verbs[] = {" keeps ", " blends ", " stretches "};
    bool first = true;
    for (std::size_t kind = 0; kind < 3; ++kind) {
      if (by[kind].empty()) continue;
      what += str(first ? "" : ",", verbs[kind], by[kind].size() == 1 ? "plane " : "planes ", ranges(by[kind]));
      first = false;
    }
    what += str(" (by up to ", shown(most), ")", where(rotation.part));
    std::string why;
    if (rotation.magnitude != 1 || rotation.softmax_factor != 1)
      why = str("logits are multiplied by ", shown(rotation.magnitude * rotation.magnitude * rotation.softmax_factor),
                " (magnitude ", shown(rotation.magnitude), " on q and on k, softmax factor ",
                shown(rotation.softmax_factor), ")");
    else
      why = "logits keep their scale";
    add(Severity::Note, "scaling", std::nullopt, what, why);
    if (rotation.length_dependent)
      add(Severity::Note, "scaling", trained_ + 1,
          str(rotation.scaling, " turns with frequencies that depend on the length of the text"),
          "a longer text moves its first tokens too, and what a cache holds of deeper layers was made with the earlier "
          "frequencies: recompute it when they change");
    // The fastest plane tells neighbours apart.
    const std::size_t fastest = static_cast<std::size_t>(
        std::max_element(rotation.plain.begin(), rotation.plain.end()) - rotation.plain.begin());
    const RotationAtLength& here = rotation.lengths.front();
    if (here.slowed[fastest] > kPlain && !trained_with(rotation)) {
      Finding& finding = add(Severity::Degrades, "scaling", std::nullopt,
                             str(rotation.scaling, " moves neighbouring tokens together", where(rotation.part)),
                             str("a step of one token turns the fastest plane by ", shown(1 / here.slowed[fastest]),
                                 " of what it did in training, in short texts too; without more "
                                 "training, near tokens are told apart less well"));
      if (rotation.scaling != "yarn")
        if (const std::string command = extend_command(rotation.factor); !command.empty())
          finding.advice.push_back(command);
    }
    if (rotation.scaling_length > 0 && rotation.factor > 1) {
      const double meant = rotation.scaling_length * rotation.factor;
      if (rotation.scaling != "dynamic" && meant < static_cast<double>(longest_) && !at.unseen.empty())
        add(Severity::Note, "scaling", static_cast<std::int64_t>(meant) + 1,
            str(rotation.scaling, " is meant for texts up to ", shown(meant), " tokens"),
            str("its factor is ", shown(rotation.factor), " and it takes ", shown(rotation.scaling_length),
                " positions as trained"));
    }
  }

  bool trained_with(const RotationFacts& rotation) const {
    // Only where the trained turns are those of the scaled planes themselves.
    const RotationAtLength& here = rotation.lengths.front();
    for (std::size_t i = 0; i < here.frequency.size(); ++i)
      if (std::abs(rotation.trained_turns[i] - here.reach * here.frequency[i] / (2 * std::numbers::pi)) >
          1e-9 * rotation.trained_turns[i])
        return false;
    return true;
  }

  void fading(const RotationFacts& rotation) {
    if (rotation.decay.empty()) return;
    double least = std::numeric_limits<double>::infinity();
    for (const double rate : rotation.decay) least = std::min(least, std::abs(rate));
    const double farthest = least > 0 ? kFaintNats / least : std::numeric_limits<double>::infinity();
    double fastest = 0;
    for (const double rate : rotation.decay) fastest = std::max(fastest, std::abs(rate));
    add(Severity::Note, "sight", std::nullopt, str("products fade with the distance", where(rotation.part)),
        str("the fastest plane falls by e^", shown(kFaintNats), " at ", shown(kFaintNats / fastest),
            " tokens, the slowest at ", shown(farthest), ": what lies beyond is told by no plane"));
  }

  void precision() {
    // One sentence for all rotations: the earliest position of each dtype.
    std::string what;
    std::optional<std::int64_t> float32;
    for (const char* dtype : {"bf16", "float16", "float32"}) {
      std::optional<std::int64_t> first;
      std::int64_t searched = 0;
      for (const RotationFacts& rotation : facts_.rotations)
        for (const DtypeFacts& one : rotation.dtypes)
          if (one.dtype == dtype) {
            searched = one.searched;
            if (one.position && (!first || *one.position < *first)) first = one.position;
          }
      if (searched == 0) return;
      if (std::string(dtype) == "float32") float32 = first;
      what += str(what.empty() ? "" : ", ", "in ", dtype, ' ',
                  first ? str("from position ", *first, " on") : str("nowhere up to position ", searched));
    }
    const bool hugging_face = facts_.dimensions.precision == Precision::HuggingFace;
    const bool matters = hugging_face && float32 && *float32 < longest_;
    add(matters ? Severity::Degrades : Severity::Note, "precision",
        matters ? std::optional(*float32 + 1) : std::nullopt, "angles made in small numbers go wrong",
        str("they lie by more than ", shown(kAngleBound), " radians ", what, "; ",
            hugging_face ? "precision hf makes its angles in float32, as Hugging Face does, to give its numbers"
                         : "Torsor makes angles in float64 and rounds the finished cosines and sines once, so this "
                           "concerns other programs that read the same weights"));
  }

  void rows(const BiasFacts& bias) {
    for (const BiasFacts::Rows& at : bias.rows) {
      if (at.unseen.empty()) continue;
      Finding& finding = add(Severity::Breaks, "rows", at.first ? static_cast<std::int64_t>(*at.first) + 1 : at.length,
                             str("rows of the table that training never read", where(bias.part)),
                             str(at.unseen.size() == 1 ? "row " : "rows ", ranges(bias.rows.back().unseen), " of ",
                                 bias.part.term, " belong to distances from ", shown(at.first.value_or(0)),
                                 " on, and no two tokens of training stood so far apart"));
      if (finding.advice.empty())
        finding.advice.push_back(str("train the table on longer texts: torsor tune ", checkpoint(),
                                     " --train positions --text TEXT --length ", longest_, " --out tuned"));
      return;
    }
  }

  void merging(const BiasFacts& bias) {
    if (bias.counts && *bias.counts < longest_)
      add(Severity::Note, "merging", std::nullopt, str("counts stop at ", *bias.counts, where(bias.part)),
          "keys with more gates than that between them and the query are told apart by content alone");
    if (bias.wraps && *bias.wraps < static_cast<double>(longest_)) {
      const bool unseen = *bias.wraps >= static_cast<double>(trained_);
      add(unseen ? Severity::Degrades : Severity::Note, "merging", static_cast<std::int64_t>(*bias.wraps) + 1,
          str("distances come back after ", shown(*bias.wraps), " tokens", where(bias.part)),
          unseen ? "training showed no distance twice; past it a far key looks like a near one"
                 : "a far key looks like a near one, in training too");
    }
    if (!bias.merge_from || *bias.merge_from >= static_cast<double>(longest_)) return;
    const bool beyond = *bias.merge_from >= static_cast<double>(trained_);
    add(Severity::Note, "merging", static_cast<std::int64_t>(*bias.merge_from) + 1,
        str("distances from ", shown(*bias.merge_from), " on are one row of ", bias.part.term, where(bias.part)),
        beyond ? "all keys beyond have one bias and are told apart by content alone"
               : str("so it was in training from there to ", trained_,
                     "; in longer texts more keys share that row, told apart by content alone"));
  }

  void sight(const std::vector<const BiasFacts*>& alike) {
    const BiasFacts& bias = *alike.front();
    if (bias.sight.empty()) return;
    std::vector<std::int64_t> near;  // heads, those of the first layer where layers are alike
    std::size_t count = 0, all = 0;
    double farthest = 0, nearest = std::numeric_limits<double>::infinity();
    bool same = true;
    for (const BiasFacts* one : alike) {
      same &= one->sight == bias.sight;
      for (std::size_t head = 0; head < one->sight.size(); ++head, ++all) {
        if (!one->sight[head]) continue;
        ++count;
        if (one == &bias) near.push_back(bias.part.first_head + static_cast<std::int64_t>(head));
        farthest = std::max(farthest, *one->sight[head]);
        nearest = std::min(nearest, *one->sight[head]);
      }
    }
    if (count == 0) return;
    const std::string first_values = bias.initial ? "; the numbers are trained, these are their first values" : "";
    const std::string faint = str("the bias of ", bias.part.term, " lies more than ", shown(kFaintNats),
                                  " nats below its largest there, a weight of 1/22026");
    // Alike in all layers that have it, or told without naming them.
    const std::string layers = alike.size() == 1 ? layers_text(bias.part, diagnosis_.layers) : "";
    const std::string tokens =
        nearest == farthest ? shown(nearest) + " tokens" : str(shown(nearest), " to ", shown(farthest), " tokens");
    if (count == all)
      add(Severity::Note, "sight", static_cast<std::int64_t>(farthest) + 2,
          str("no head sees farther than ", shown(farthest), " tokens", where(bias.part)),
          str(faint, "; the shortest-sighted head sees ", shown(nearest),
              " tokens. Nothing breaks, and nothing beyond is used", first_values));
    else
      add(Severity::Note, "sight", std::nullopt,
          same ? str(near.size() == 1 ? "head " : "heads ", ranges(near), near.size() == 1 ? " sees " : " see ", tokens,
                     layers)
               : str(count, " of ", all, " heads of all layers see ", tokens),
          str(faint, "; ", all - count == 1 ? "the other head sees" : "the others see", " all ", longest_,
              first_values));
  }

  void fire(const BiasFacts& bias) {
    if (std::find(bias.forms.begin(), bias.forms.end(), "piecewise") == bias.forms.end()) return;
    add(Severity::Note, "interpolation", std::nullopt,
        str("distances are divided by the query's position", where(bias.part)),
        "the network sees inputs from 0 to 1 at every length, so nothing new comes in; what a distance means changes "
        "with the position");
  }

  void absolute(const EmbeddingFacts& embedding) {
    if (embedding.table && *embedding.table < longest_) {
      Finding& finding =
          add(Severity::Breaks, "table", *embedding.table + 1,
              str("longer texts are refused: ", embedding.term, " holds ", *embedding.table, " positions"),
              "a position past the last row of the table has no vector");
      finding.advice.push_back(
          "train with an encoding that has no table: torsor compare --encodings 'learned; rope; "
          "alibi; t5' --text TEXT");
    }
    if (embedding.table && *embedding.table > trained_ && longest_ > trained_)
      add(Severity::Breaks, "embedding", trained_ + 1,
          str("rows ", trained_, " to ", *embedding.table - 1, " of ", embedding.term, " were never trained"),
          "they hold what they started with");
    if (!embedding.wavelength.empty() && longest_ > trained_)
      add(Severity::Breaks, "embedding", trained_ + 1, "positions that training never embedded",
          str(embedding.unfinished, " of ", embedding.wavelength.size(), " sinusoids made no full turn within ",
              trained_, " positions, and the vectors of later positions were never seen together"))
          .advice = {
          "train with an encoding of distances: torsor compare --encodings 'sinusoidal; rope; alibi; t5' "
          "--text TEXT"};
  }

  void twice() {
    if (!facts_.twice) return;
    add(Severity::Note, "twice", std::nullopt, "positions are told twice, by the embedding and by a rotation",
        "the rotation alone would not change when all positions move; with the embedding the model sees where a text "
        "begins, and takes over the embedding's limits");
  }

  void claims() {
    for (const LengthClaim& claim : facts_.claims) {
      if (claim.agrees) continue;
      const bool learned = claim.key == "length";
      if (learned) continue;  // the table itself is judged
      add(Severity::Degrades, "lengths", std::nullopt,
          str(claim.term, " takes ", shown(claim.length), " positions as trained, the model was trained at ", trained_),
          str("what ", claim.key,
              " decides (which planes stay, from where on something grows) is then decided for "
              "another model"))
          .advice.push_back(str("write ", claim.key, "=", trained_, ", or leave it out"));
    }
  }

  void heat(const TemperatureFacts& temperature) {
    const double last = temperature.factor.back();
    add(Severity::Note, "temperature", std::nullopt,
        str(temperature.term, " multiplies the logits of the last of ", longest_, " tokens by ", shown(last)),
        last == 1 ? "so far nothing changes" : "attention is sharpened as the text grows, against its spreading");
  }

  void nothing() {
    add(Severity::Note, "positions", std::nullopt, "nothing reads positions",
        "what a token sees is told apart by content and causal order alone; longer texts can only spread attention "
        "over "
        "more keys");
  }

  void content() {
    for (const std::string& one : facts_.unknown)
      add(Severity::Note, "content", std::nullopt, str("not told by the expression: ", one),
          diagnosis_.measures ? "the measurements show it" : "only a checkpoint on a text shows it");
  }

  void memory() {
    if (facts_.biases.empty() || facts_.memory.empty()) return;
    const MemoryFacts& at = facts_.memory.back();
    std::string stored = at.stored ? str("Torsor holds ", shown_bytes(*at.stored)) : "Torsor holds no such array";
    add(Severity::Note, "memory", std::nullopt,
        str("a bias of heads x length x length would take ", shown_bytes(at.naive), " a layer at ", at.length,
            " tokens"),
        str(stored, " and keys and values of ", shown_bytes(at.cache_bf16), " in bf16, ", shown_bytes(at.cache_float32),
            " in float32", diagnosis_.layers > 1 ? " over all layers" : " a layer"));
  }

  const Diagnosis& diagnosis_;
  const Facts& facts_;
  std::int64_t trained_, longest_;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> expected_findings(const Diagnosis& diagnosis) { return Expected(diagnosis).all(); }

}  // namespace torsor

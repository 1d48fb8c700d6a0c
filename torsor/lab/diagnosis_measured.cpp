// Findings from what was measured on a text.
#include <algorithm>
#include <cmath>

#include "torsor/lab/diagnosis_findings.h"
#include "torsor/lab/diagnosis_words.h"

namespace torsor {
namespace {

constexpr double kLeastRise = 0.02;    // nats: a bin below it is not where a rise begins
constexpr double kSpread = 0.05;       // of the relative entropy
constexpr double kSinkMove = 0.1;      // of the share on the first token
constexpr double kNormMove = 1.25;     // factor of the residual stream's size
constexpr std::size_t kMostNamed = 4;  // layers or heads in a sentence

struct Mean {
  double value = 0, error = 0;
  std::int64_t count = 0;
};

/// Of the differences of bins [first, last), weighted by their targets.
Mean difference_of(const std::vector<BinMeasures>& bins, std::size_t first, std::size_t last) {
  Mean mean;
  double squares = 0;
  for (std::size_t i = first; i < last; ++i) {
    const double n = static_cast<double>(bins[i].targets);
    mean.value += n * bins[i].difference;
    squares += n * n * bins[i].error.value_or(0) * bins[i].error.value_or(0);
    mean.count += bins[i].targets;
  }
  const double n = std::max(1.0, static_cast<double>(mean.count));
  mean.value /= n;
  mean.error = std::sqrt(squares) / n;
  return mean;
}

std::size_t bins_inside(const Measures& measures, std::int64_t train_length) {
  std::size_t count = 0;
  while (count < measures.bins.size() && measures.bins[count].to <= train_length) ++count;
  return count;
}

std::string checkpoint_word(const Diagnosis& diagnosis) { return shell_word(diagnosis.checkpoint); }

Finding loss_finding(const Diagnosis& diagnosis, const LossVerdict& loss) {
  const std::int64_t trained = diagnosis.facts.dimensions.train_length, length = diagnosis.measures->length;
  const std::string both = str(shown(loss.loss), " nats a token past ", trained, " positions, ", shown(loss.inside),
                               " for the same targets in windows of ", trained);
  Finding finding;
  finding.measured = true;
  finding.topic = "loss";
  if (!loss.finite) {
    finding.severity = Severity::Breaks;
    finding.from = trained + 1;
    finding.what = "the loss is not finite";
    finding.why = "a logit overflowed or was no number";
    return finding;
  }
  const bool rises = loss.difference - 2 * loss.error > 0 && loss.difference >= kLeastRise;
  if (rises) {
    const bool breaks = loss.difference >= kBreaking || loss.late >= kBreaking;
    finding.severity = breaks                                                     ? Severity::Breaks
                       : loss.difference >= kDegrading || loss.late >= kDegrading ? Severity::Degrades
                                                                                  : Severity::Note;
    finding.from = loss.from + 1;
    finding.what = str("the loss rises by ", shown(loss.difference), " nats a token");
    finding.why = str(both, "; the difference of ", shown(loss.difference), " has a standard error of ",
                      shown(loss.error), ", and over the last quarter up to ", length, " it is ", shown(loss.late));
    const double factor = std::ceil(static_cast<double>(length) / static_cast<double>(trained) * 100 - 1e-6) / 100;
    const auto expression = stretched(diagnosis.facts.encoding, diagnosis.facts.dimensions, factor);
    if (expression && *expression != diagnosis.facts.encoding)
      finding.advice.push_back(str("torsor extend ", checkpoint_word(diagnosis), " --encoding ",
                                   shell_word(*expression), " --length ", length, " --out extended"));
    else
      finding.advice.push_back(str("train on longer texts: torsor tune ", checkpoint_word(diagnosis),
                                   " --train lora --text TEXT --length ", length, " --out tuned"));
    finding.advice.push_back(str(finding.advice.empty() ? "" : "or ", "keep texts within ", trained,
                                 " positions: torsor generate ", checkpoint_word(diagnosis), " --window ", trained,
                                 " --sinks 4"));
    return finding;
  }
  finding.from = trained + 1;
  finding.why = both;
  if (loss.difference + 2 * loss.error < 0)
    finding.what = str("a longer text helps: the loss falls by ", shown(-loss.difference),
                       " nats a token (standard error ", shown(loss.error), ") past the training length");
  else
    finding.what = str("no rise of the loss past the training length is shown: ", shown(loss.difference),
                       " nats a token, standard error ", shown(loss.error));
  return finding;
}

/// Layers by how far a value moves from the last bin within the training length to the last one; largest first.
struct Moved {
  std::int64_t layer = 0;
  double before = 0, after = 0;
  double by() const { return after - before; }
};

template <class Value>
std::vector<Moved> moved(const Measures& measures, std::size_t inside, const Value& value) {
  std::vector<Moved> all;
  for (std::size_t layer = 0; layer < measures.layers.size(); ++layer) {
    const std::optional<double> before = value(measures.layers[layer], inside - 1),
                                after = value(measures.layers[layer], measures.bins.size() - 1);
    if (before && after && std::isfinite(*before) && std::isfinite(*after))
      all.push_back({static_cast<std::int64_t>(layer), *before, *after});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Moved& a, const Moved& b) { return std::abs(a.by()) > std::abs(b.by()); });
  return all;
}

std::string moves_text(const std::vector<Moved>& moves, double least) {
  std::string text;
  for (std::size_t i = 0; i < std::min(moves.size(), kMostNamed) && std::abs(moves[i].by()) >= least; ++i)
    text += str(i ? ", " : "", "layer ", moves[i].layer, ' ', shown(moves[i].before), " to ", shown(moves[i].after));
  return text;
}

/// The head whose value moves most from queries inside to those beyond.
std::string worst_head(const Measures& measures, HeadMeasures::Sides HeadMeasures::*member) {
  std::string text;
  double most = -1;
  for (std::size_t layer = 0; layer < measures.layers.size(); ++layer)
    for (std::size_t head = 0; head < measures.layers[layer].heads.size(); ++head) {
      const HeadMeasures::Sides& sides = measures.layers[layer].heads[head].*member;
      if (!sides.beyond || !(std::abs(*sides.beyond - sides.inside) > most)) continue;
      most = std::abs(*sides.beyond - sides.inside);
      text = str("layer ", layer, " head ", head, ", ", shown(sides.inside), " inside and ", shown(*sides.beyond),
                 " beyond");
    }
  return text;
}

void attention_findings(const Diagnosis& diagnosis, std::size_t inside, std::vector<Finding>& findings) {
  const Measures& measures = *diagnosis.measures;
  const std::int64_t trained = diagnosis.facts.dimensions.train_length;
  const auto note = [&](const char* topic, std::string what, std::string why) -> Finding& {
    findings.push_back({Severity::Note, true, topic, trained + 1, std::move(what), std::move(why), {}});
    return findings.back();
  };
  const std::vector<Moved> entropy =
      moved(measures, inside, [](const LayerMeasures& layer, std::size_t bin) { return layer.relative_entropy[bin]; });
  if (!entropy.empty() && std::abs(entropy.front().by()) >= kSpread) {
    const bool spreads = entropy.front().by() > 0;
    Finding& finding = note(
        "attention",
        str("attention ", spreads ? "spreads" : "narrows", " past the training length, most in layer ",
            entropy.front().layer),
        str("its entropy over the logarithm of the keys in sight, before the training length and at the end: ",
            moves_text(entropy, kSpread), "; most by head: ", worst_head(measures, &HeadMeasures::relative_entropy)));
    if (spreads && diagnosis.facts.temperatures.empty()) {
      const std::string expression = diagnosis.facts.encoding + " + logn";
      try {
        make_encoding(expression, diagnosis.facts.dimensions);
        finding.advice.push_back(str("try sharpening: torsor eval ", checkpoint_word(diagnosis),
                                     " --text TEXT --lengths ", measures.length, " --encoding ",
                                     shell_word(print(parse(expression)))));
      } catch (const UsageError&) {
        // The sum has no such term.
      }
    }
  }
  const std::vector<Moved> sink = moved(measures, inside, [](const LayerMeasures& layer, std::size_t bin) {
    return std::optional(layer.first_token[bin]);
  });
  if (!sink.empty() && std::abs(sink.front().by()) >= kSinkMove)
    note("first token",
         str("the share of attention on the first token ", sink.front().by() < 0 ? "falls" : "grows",
             " past the training length, most in layer ", sink.front().layer),
         str("before the training length and at the end: ", moves_text(sink, kSinkMove),
             "; most by head: ", worst_head(measures, &HeadMeasures::first_token)));
  std::vector<Moved> far = moved(
      measures, inside, [](const LayerMeasures& layer, std::size_t bin) { return std::optional(layer.distance[bin]); });
  std::erase_if(far, [&](const Moved& one) { return one.after <= static_cast<double>(trained); });
  if (!far.empty())
    note("distance",
         str("layer ", far.front().layer, " attends farther back than training showed: ", shown(far.front().after),
             " tokens on average at the end"),
         str("before the training length and at the end: ", moves_text(far, 0),
             "; most by head: ", worst_head(measures, &HeadMeasures::distance)));
  std::vector<Moved> size = moved(measures, inside, [](const LayerMeasures& layer, std::size_t bin) {
    return std::optional(std::log(layer.rms[bin]));
  });
  if (!size.empty() && std::abs(size.front().by()) >= std::log(kNormMove)) {
    for (Moved& one : size) one.before = std::exp(one.before), one.after = std::exp(one.after);
    note("activations",
         str("the residual stream ", size.front().by() > 0 ? "grows" : "shrinks",
             " past the training length, most where it enters layer ", size.front().layer),
         str("its root mean square, before the training length and at the end: ", shown(size.front().before), " to ",
             shown(size.front().after)));
  }
}

}  // namespace

LossVerdict loss_verdict(const Measures& measures, std::int64_t train_length) {
  LossVerdict verdict;
  const std::vector<BinMeasures>& bins = measures.bins;
  for (const BinMeasures& bin : bins) verdict.finite &= std::isfinite(bin.loss);
  const std::size_t inside = bins_inside(measures, train_length);
  verdict.beyond = inside < bins.size();
  if (!verdict.beyond) return verdict;
  const Mean all = difference_of(bins, inside, bins.size());
  verdict.difference = all.value;
  verdict.error = all.error;
  const std::size_t quarter = std::max<std::size_t>(1, (bins.size() - inside) / 4);
  verdict.late = difference_of(bins, bins.size() - quarter, bins.size()).value;
  for (std::size_t i = inside; i < bins.size(); ++i) {
    const double share = static_cast<double>(bins[i].targets) / static_cast<double>(all.count);
    verdict.loss += share * bins[i].loss;
    verdict.inside += share * bins[i].inside;
  }
  verdict.from = train_length;
  for (std::size_t i = inside; i < bins.size(); ++i)
    if (bins[i].difference >= kLeastRise && bins[i].difference > 2 * bins[i].error.value_or(0)) {
      verdict.from = bins[i].from;
      break;
    }
  return verdict;
}

std::vector<Finding> measured_findings(const Diagnosis& diagnosis) {
  const Measures& measures = *diagnosis.measures;
  const std::int64_t trained = diagnosis.facts.dimensions.train_length;
  std::vector<Finding> findings;
  const std::size_t inside = bins_inside(measures, trained);
  const LossVerdict loss = loss_verdict(measures, trained);
  if (!loss.finite || loss.beyond) findings.push_back(loss_finding(diagnosis, loss));
  // Frequencies that depend on the length move the first tokens too: there the context is the same in both.
  const Mean first = difference_of(measures.bins, 0, inside);
  if (loss.finite && loss.beyond && inside > 0 && first.value >= kLeastRise && first.value > 2 * first.error) {
    Finding finding{
        first.value >= kBreaking ? Severity::Breaks : Severity::Degrades,
        true,
        "loss",
        trained + 1,
        str("a longer text costs its first ", trained, " tokens ", shown(first.value), " nats each"),
        str("the same targets with the same context, in a text of ", measures.length, " tokens and in one of ", trained,
            ": the frequencies depend on the length; standard error ", shown(first.error)),
        {}};
    findings.push_back(std::move(finding));
  }
  if (loss.finite && loss.beyond && inside > 0) attention_findings(diagnosis, inside, findings);
  return findings;
}

}  // namespace torsor

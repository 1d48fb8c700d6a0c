#include "tests/oracle/bias.h"

#include <cmath>

namespace oracle {
namespace {

// Distances from here on share T5's last bucket with far=log (expressions.md).
const double far_log_distance = 1048576.0;

Var t5(const Part& part, const Parameters& parameters, int head, double n) {
  return parameter(parameters, *part.term, "table").at(t5_bucket(*part.term, n), head);
}

Var kerple(const Part& part, const Parameters& parameters, int head, double distance) {
  const Var r1 = max(parameter(parameters, *part.term, "r1").at(head), Var(0.01));
  Var r2 = max(parameter(parameters, *part.term, "r2").at(head), Var(0.01));
  if (part.term->word("kind", "log") == "log") return -r1 * log(Var(1.0) + r2 * std::abs(distance));
  r2 = min(r2, Var(2.0));
  return -r1 * power_of(std::abs(distance), r2);
}

Var fire(const Part& part, const Parameters& parameters, int head, double position_q, double position_k) {
  const Term& term = *part.term;
  const Var& c = parameter(parameters, term, "c").at(0);
  const Var& mu = parameter(parameters, term, "mu").at(0);
  const VarTensor& w1 = parameter(parameters, term, "w1");
  const VarTensor& b1 = parameter(parameters, term, "b1");
  const VarTensor& w2 = parameter(parameters, term, "w2");
  const VarTensor& b2 = parameter(parameters, term, "b2");
  const Var threshold = abs(mu * term.number("length", 512.0));
  const Var reach = max(Var(position_q), threshold);
  const Var above = log(abs(c * (position_q - position_k)) + 1.0);
  const Var below = log(abs(c * reach) + 1.0) + 1e-6;
  const Var input = above / below;
  Var bias = b2.at(head);
  for (int unit = 0; unit < w1.shape[0]; ++unit) {
    bias += w2.at(head, unit) * relu(w1.at(unit) * input + b1.at(unit));
  }
  return bias;
}

}  // namespace

std::vector<double> alibi_slopes(int heads, double max_exponent) {
  int power = 1;
  while (2 * power <= heads) power *= 2;
  std::vector<double> slopes;
  for (int h = 0; h < power; ++h) slopes.push_back(std::pow(2.0, -max_exponent * (h + 1) / power));
  // the first, third, fifth ... of twice as many
  for (int h = 0; static_cast<int>(slopes.size()) < heads; h += 2) {
    slopes.push_back(std::pow(2.0, -max_exponent * (h + 1) / (2 * power)));
  }
  return slopes;
}

int t5_bucket(const Term& term, double n) {
  const bool log_far = term.word("far", "clamp") == "log";
  const bool wraps = term.word("far", "clamp") == "wrap";
  const double max_distance = term.number("max_distance", 128.0);
  int buckets = static_cast<int>(term.number("buckets", 32));
  double whole = std::nearbyint(n);  // halves to even
  int first = 0;
  if (term.flag("bidirectional", false)) {
    buckets /= 2;
    if (whole > 0.0) first = buckets;
    whole = std::abs(whole);
  } else {
    whole = std::max(-whole, 0.0);
  }
  if (wraps && whole >= max_distance) whole = std::fmod(whole, max_distance);
  const int exact = buckets / 2;
  if (whole < exact) return first + static_cast<int>(whole);
  const double end = log_far ? far_log_distance : max_distance;
  const double share = std::log(whole / exact) / std::log(end / exact);
  const int bucket = exact + static_cast<int>(std::trunc(share * (buckets - exact)));
  return first + std::min(bucket, buckets - 1);
}

double sandwich_sum(double distance, int width) {
  double sum = 0.0;
  for (int i = 0; i < width / 2; ++i) sum += std::cos(distance / std::pow(10000.0, 2.0 * i / width));
  return sum;
}

bool is_plain_bias(const std::string& name) {
  return name == "alibi" || name == "t5" || name == "kerple" || name == "sandwich" || name == "fire";
}

Var plain_bias(const Part& part, const Parameters& parameters, int head, double position_q, double position_k) {
  const Term& term = *part.term;
  const double distance = position_q - position_k;
  if (term.name == "alibi") {
    if (term.flag("learn", false)) return -parameter(parameters, term, "slopes").at(head) * std::abs(distance);
    const double exponent = term.number("max_exponent", 8.0);
    return -alibi_slopes(part.heads, exponent)[static_cast<std::size_t>(head)] * std::abs(distance);
  }
  if (term.name == "t5") return t5(part, parameters, head, -distance);
  if (term.name == "kerple") return kerple(part, parameters, head, distance);
  if (term.name == "sandwich") {
    const double ratio = 8.0 * (head + 1) / part.heads;
    return sandwich_sum(distance, static_cast<int>(term.number("width", 128))) / ratio;
  }
  if (term.name == "fire") return fire(part, parameters, head, position_q, position_k);
  throw Unsupported("'" + term.name + "' is not a bias");
}

double query_factor(const Term& term, double position) {
  // A position before the first has no logarithm; it counts as the first, whose factor is 1.
  if (term.name == "logn") {
    if (position + 1.0 <= 1.0) return 1.0;
    return std::max(1.0, std::log(position + 1.0) / std::log(term.number("train_length")));
  }
  if (term.name == "llama4-scale") {
    const double blocks = std::max(std::floor((position + 1.0) / term.number("length", 8192.0)), 0.0);
    return 1.0 + term.number("scale", 0.1) * std::log(blocks + 1.0);
  }
  return 1.0;
}

std::vector<double> sinusoid(double p, int channels, double base, bool halves) {
  std::vector<double> row(static_cast<std::size_t>(channels));
  for (int i = 0; i < channels / 2; ++i) {
    const double angle = p * std::pow(base, -2.0 * i / channels);
    row[static_cast<std::size_t>(halves ? i : 2 * i)] = std::sin(angle);
    row[static_cast<std::size_t>(halves ? i + channels / 2 : 2 * i + 1)] = std::cos(angle);
  }
  return row;
}

}  // namespace oracle

// Biases, embeddings and temperatures past the training length.
#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <numbers>
#include <set>

#include "torsor/lab/diagnosis_facts.h"
#include "torsor/lab/effects.h"

namespace torsor {
namespace {

// Beyond it no table of buckets tells distances apart (bucket.h).
constexpr double kFarthestRow = 2097152;
constexpr std::int64_t kMostHeadsShown = 1024;  // a bias by head and distance is a picture

double bias_at(const Part& part, double distance, std::int64_t head, double length) {
  const double query = std::max(length - 1, distance), key = query - distance;
  PlainPair pair;
  pair.pq = &query;
  pair.pk = &key;
  pair.head = head;
  pair.layer = part.name.layers.front();
  pair.length = std::max(length, query + 1);
  return part.encoding->define_bias(pair, part.parameters);
}

/// The farthest distance whose bias lies within kFaintNats of the largest; nothing where that is the last one.
std::optional<double> sight_of(const std::vector<double>& distances, const std::vector<double>& values,
                               const std::function<double(double)>& at) {
  const double least = *std::max_element(values.begin(), values.end()) - kFaintNats;
  std::size_t last = values.size();
  while (last > 0 && !(values[last - 1] >= least)) --last;
  if (last == values.size()) return std::nullopt;
  double seen = last == 0 ? 0 : distances[last - 1], faint = distances[last];
  while (faint - seen > 1) {
    const double middle = std::floor((seen + faint) / 2);
    (at(middle) >= least ? seen : faint) = middle;
  }
  return seen;
}

void table_facts(BiasFacts& facts, const Part& part, const FactsRequest& request) {
  const auto row = [&](double distance) { return part.encoding->buckets({distance}).front(); };
  const Term term = core_term(part.term);
  const bool wraps = has_key(term, "far") && Settings(term, find_name(term.name)->keys).word("far") == "wrap";
  const std::int64_t last = wraps ? -1 : row(kFarthestRow);
  if (wraps) {
    facts.wraps = key_number(term, "max_distance", 0);
  } else {
    double apart = -1, one = kFarthestRow;  // the rows rise with the distance
    while (one - apart > 1) {
      const double middle = std::floor((apart + one) / 2);
      (row(middle) == last ? one : apart) = middle;
    }
    facts.merge_from = one;
  }
  // The distances that a length has, as far as the table tells them apart.
  const double wrap = facts.wraps.value_or(kFarthestRow);
  const auto rows_of = [&](double reach) {
    std::set<std::int64_t> rows;
    const double end = std::min(reach, wrap);
    double distance = 0;
    while (distance < end) {
      const std::int64_t own = row(distance);
      rows.insert(own);
      // The next distance with another row: rows rise, so it can be bisected.
      double low = distance, high = end;
      while (high - low > 1) {
        const double middle = std::floor((low + high) / 2);
        (row(middle) == own ? low : high) = middle;
      }
      distance = high;
    }
    return rows;
  };
  const double trained = reach_of(part, static_cast<double>(request.dimensions.train_length));
  const std::set<std::int64_t> known = rows_of(trained);
  for (const std::int64_t length : request.lengths) {
    BiasFacts::Rows at;
    at.length = length;
    const std::set<std::int64_t> rows = rows_of(reach_of(part, static_cast<double>(length)));
    at.seen = static_cast<std::int64_t>(rows.size());
    std::set_difference(rows.begin(), rows.end(), known.begin(), known.end(), std::back_inserter(at.unseen));
    if (!at.unseen.empty()) {
      double low = trained - 1, high = std::min(reach_of(part, static_cast<double>(length)), wrap) - 1;
      while (high - low > 1) {
        const double middle = std::floor((low + high) / 2);
        (row(middle) >= at.unseen.front() ? high : low) = middle;
      }
      at.first = high;
    }
    facts.rows.push_back(std::move(at));
  }
}

}  // namespace

std::optional<BiasFacts> bias_facts(const Part& part, const FactsRequest& request) {
  const Traits traits = part.encoding->traits();
  if (traits.forms.empty()) return std::nullopt;
  BiasFacts facts;
  facts.part = part.name;
  facts.forms = traits.forms;
  facts.content = part.encoding->content();
  const Term term = core_term(part.term);
  if (term.name == "cope") facts.counts = static_cast<std::int64_t>(key_number(term, "length", 0)) - 1;
  if (!part.encoding->buckets({0}).empty()) table_facts(facts, part, request);
  if (traits.content || !part.known || part.name.heads > kMostHeadsShown) return facts;
  facts.initial = part.trained && request.model == nullptr;
  const double length = reach_of(part, static_cast<double>(request.lengths.back()));
  facts.distances = distances_up_to(std::max<std::int64_t>(1, static_cast<std::int64_t>(length) - 1));
  // The largest one of training is among them.
  const double known = reach_of(part, static_cast<double>(request.dimensions.train_length)) - 1;
  const auto place = std::lower_bound(facts.distances.begin(), facts.distances.end(), known);
  if (place != facts.distances.end() && *place != known) facts.distances.insert(place, known);
  for (std::int64_t head = 0; head < part.name.heads; ++head) {
    const auto at = [&](double distance) { return bias_at(part, distance, head, length); };
    std::vector<double> values;
    for (const double distance : facts.distances) values.push_back(at(distance));
    facts.sight.push_back(sight_of(facts.distances, values, at));
    facts.per_head.push_back(std::move(values));
  }
  return facts;
}

std::optional<EmbeddingFacts> embedding_facts(const Part& part, const FactsRequest& request) {
  if (!part.encoding->traits().absolute) return std::nullopt;
  EmbeddingFacts facts;
  facts.term = part.name.term;
  for (const ParameterInfo& info : part.encoding->parameters(0))
    if (info.name.ends_with(".table") && info.shape.size() == 2 && info.shape[1] == part.encoding->dimensions().width &&
        part.term.name == "learned")
      facts.table = info.shape[0];
  if (part.term.name == "sinusoidal") {
    const double base = key_number(part.term, "base", 10000),
                 width = static_cast<double>(part.encoding->dimensions().width),
                 trained = static_cast<double>(request.dimensions.train_length);
    for (double channel = 0; channel < width; channel += 2) {
      facts.wavelength.push_back(2 * std::numbers::pi * std::pow(base, channel / width));
      facts.unfinished += facts.wavelength.back() > trained;
    }
  }
  return facts;
}

std::vector<LengthClaim> length_claims(const Part& part, const FactsRequest& request) {
  std::vector<LengthClaim> claims;
  const double trained = static_cast<double>(request.dimensions.train_length);
  const Term term = core_term(part.term);
  for (const char* key : {"train_length", "length"}) {
    // Of what has a `length`, only these mean the length of training.
    if (std::string(key) == "length" && term.name != "learned") continue;
    const double length = has_key(term, key) ? key_number(term, key, 0) : 0;
    if (length == 0) continue;  // auto: the model's own
    LengthClaim claim{part.name.term, key, length, length == trained};
    // A model that was extended says the longer length and keeps the first one inside the scaling.
    if (has_key(term, "factor") && length * key_number(term, "factor", 1) == trained) claim.agrees = true;
    claims.push_back(claim);
  }
  return claims;
}

}  // namespace torsor

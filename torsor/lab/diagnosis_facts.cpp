#include "torsor/lab/diagnosis_facts.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "torsor/attention/attend.h"
#include "torsor/attention/visit.h"
#include "torsor/lab/effects.h"
#include "torsor/model/convert_leaves.h"

namespace torsor {
namespace {

void check(const FactsRequest& request) {
  if (request.dimensions.train_length < 1)
    throw UsageError("diagnose needs the length that the model was trained at: give --train-length");
  if (request.lengths.empty()) throw UsageError("diagnose needs at least one length");
  for (std::size_t i = 0; i < request.lengths.size(); ++i)
    if (request.lengths[i] < 1 || (i > 0 && request.lengths[i] <= request.lengths[i - 1]))
      throw UsageError(str("lengths must rise and be at least 1, found ", request.lengths[i]));
}

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : "; ") + text;
  return all;
}

}  // namespace

Term core_term(const Term& term) {
  const Term* core = &term;
  while (!core->operands.empty() && !find_name(core->name)->rotary)
    core = &core->operands.front().expression.terms.front();
  return *core;
}

double key_number(const Term& term, const std::string& key, double fallback) {
  if (!has_key(term, key)) return fallback;
  const Settings settings(term, find_name(term.name)->keys);
  return settings.is_auto(key) ? fallback : settings.number(key);
}

bool has_key(const Term& term, const std::string& key) {
  const auto& keys = find_name(term.name)->keys;
  return std::any_of(keys.begin(), keys.end(), [&](const KeyInfo& info) { return info.name == key; });
}

double reach_of(const Part& part, double length) {
  return part.window > 0 ? std::min(length, static_cast<double>(part.window)) : length;
}

std::vector<Part> parts_of(const FactsRequest& request, const Expression& expression) {
  const auto whole = make_encoding(expression, request.dimensions);
  const std::int64_t layers = request.model ? request.model->config().layers : whole->period();
  std::map<std::string, at::Tensor> tensors;
  if (request.model)
    for (const ModelParameter& parameter : request.model->parameters()) tensors[parameter.name] = parameter.tensor;
  std::vector<Part> parts;
  std::map<std::string, std::size_t> places;  // of parts that mean the same in every layer that has them
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const std::int64_t window = request.model ? request.model->config().window_of(layer) : 0;
    for (const Leaf& leaf : leaves_of(expression, whole->dimensions(), layer)) {
      Part part;
      part.term = leaf.term;
      part.encoding = leaf.encoding;
      part.name = {print(leaf.term), {layer}, leaf.first_head, leaf.heads()};
      part.window = window;
      bool one_for_all = true;
      for (const ParameterInfo& info : leaf.encoding->parameters(layer)) {
        part.trained = true;
        one_for_all &= info.shared;
        const auto found = tensors.find(leaf.parameter_name(info, layer));
        if (found != tensors.end())
          part.parameters.merge(plain_parameters({{info.name, found->second}}));
        else if (info.initial.kind == Initial::Kind::Values)
          part.parameters[info.name] = info.initial.values;
        else
          part.known = false;
      }
      // Drawn tensors say nothing that would differ from layer to layer.
      const std::string key =
          str(part.name.term, '|', leaf.first_head, '|', leaf.heads(), '|', one_for_all || !request.model ? -1 : layer);
      const auto [place, added] = places.emplace(key, parts.size());
      if (added) {
        parts.push_back(std::move(part));
        continue;
      }
      Part& known = parts[place->second];
      known.name.layers.push_back(layer);
      known.window = known.window == 0 || window == 0 ? 0 : std::max(known.window, window);
    }
  }
  return parts;
}

// --------------------------------------------------------------------------------------------------------------------
// Memory

namespace {

constexpr std::int64_t kProbe = 32;                          // tokens of the smaller of two calls
constexpr std::int64_t kMostProbed = std::int64_t{1} << 24;  // numbers of q; larger heads are not tried

struct CallBytes {
  double bias = 0, keys = 0, kept = 0;
};

/// What a part's answers take in a call of so many random tokens.
CallBytes bytes_of_call(const Part& part, std::int64_t tokens, std::int64_t layers) {
  const Dimensions& d = part.encoding->dimensions();
  const auto random = [&](std::int64_t heads) { return at::ones({1, heads, tokens, d.head_dim}); };
  const at::Tensor q = random(d.heads), k = random(d.kv_heads), v = random(d.kv_heads);
  AttendOptions options;
  options.layer = part.name.layers.front();
  options.layers = layers;
  options.x = at::ones({1, tokens, d.width});
  for (const ParameterInfo& info : part.encoding->parameters(options.layer))
    options.parameters[info.name] = at::zeros(info.shape);
  if (const std::int64_t axes = part.encoding->traits().axes; axes != 1)
    options.positions = at::arange(tokens, at::kDouble).view({1, -1, 1}).expand({1, tokens, axes});
  CallBytes bytes;
  options.look = [&](const CoreInput& input) {
    std::set<const void*> counted;
    const auto count = [&](const at::Tensor& tensor) {
      if (tensor.defined() && counted.insert(tensor.storage().data()).second)
        bytes.bias += static_cast<double>(tensor.storage().nbytes());
    };
    for (BiasForm bias : input.biases) {
      visit_form(bias, [&](at::Tensor& tensor) { count(tensor); });
      // At whole distances a function is tabulated, a value a head and distance.
      if (std::holds_alternative<LogForm>(bias.form) || std::holds_alternative<PowerForm>(bias.form) ||
          std::holds_alternative<CosineForm>(bias.form))
        bytes.bias += 4.0 * static_cast<double>(bias.heads.size() * tokens);
    }
    bytes.keys = static_cast<double>(input.k.size(1) * input.k.size(3) * tokens);
  };
  attend_full(q, k, v, *part.encoding, options);
  const Sides sides = resolve_sides(q, k, options, part.encoding->traits());
  NamedTensors running;
  for (const auto& [name, tensor] : part.encoding->arrive(arrival_question(q, k, v, sides, options), running))
    bytes.kept += static_cast<double>(tensor.numel() * static_cast<std::int64_t>(tensor.element_size()));
  return bytes;
}

}  // namespace

std::vector<MemoryFacts> memory_facts(const std::vector<Part>& parts, const FactsRequest& request) {
  const Dimensions& d = request.dimensions;
  const std::int64_t layers = request.model ? request.model->config().layers : 1;
  // All answers grow in a straight line with the tokens: two calls tell it.
  double fixed = 0, each = 0, keys = static_cast<double>(d.kv_heads * d.head_dim), kept = 0;
  bool known = true;
  for (const Part& part : parts) {
    if (part.name.layers.front() != parts.front().name.layers.front()) continue;  // one layer stands for all
    if (!part.encoding->inputs().empty() || d.heads * d.head_dim * 2 * kProbe > kMostProbed) {
      known = false;
      continue;
    }
    try {
      const CallBytes one = bytes_of_call(part, kProbe, std::max(layers, part.name.layers.front() + 1)),
                      two = bytes_of_call(part, 2 * kProbe, std::max(layers, part.name.layers.front() + 1));
      each += (two.bias - one.bias) / static_cast<double>(kProbe);
      fixed += 2 * one.bias - two.bias;
      kept += two.kept / static_cast<double>(2 * kProbe);
      keys = std::max(keys, two.keys / static_cast<double>(2 * kProbe));
    } catch (const Error&) {
      known = false;  // it asks for more than a text of ones brings
    }
  }
  std::vector<MemoryFacts> all;
  for (const std::int64_t length : request.lengths) {
    const double tokens = static_cast<double>(length);
    MemoryFacts facts;
    facts.length = length;
    facts.naive = 4 * static_cast<double>(d.heads) * tokens * tokens;
    if (known) facts.stored = fixed + each * tokens;
    const double numbers = keys + static_cast<double>(d.kv_heads * d.head_dim);
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      const std::int64_t window = request.model ? request.model->config().window_of(layer) : 0;
      const double held = window > 0 ? std::min(tokens, static_cast<double>(window)) : tokens;
      facts.cache_float32 += held * (4 * numbers + kept);
      facts.cache_bf16 += held * (2 * numbers + kept);
    }
    all.push_back(facts);
  }
  return all;
}

Facts facts_of(const FactsRequest& given) {
  check(given);
  FactsRequest request = given;
  const Expression expression = parse(request.encoding);
  const auto whole = make_encoding(expression, request.dimensions);
  request.dimensions = whole->dimensions();
  Facts facts;
  facts.encoding = print(expression);
  facts.dimensions = request.dimensions;
  facts.lengths = request.lengths;
  if (request.model)
    for (std::int64_t layer = 0; layer < request.model->config().layers; ++layer)
      facts.windows.push_back(request.model->config().window_of(layer));
  const std::vector<Part> parts = parts_of(request, expression);
  bool rotates = false;
  for (const Part& part : parts) {
    const Traits traits = part.encoding->traits();
    rotates |= traits.rotates;
    std::vector<RotationFacts> rotations = rotation_facts(part, request);
    if (traits.rotates && (rotations.empty() || traits.content)) {
      const std::vector<std::string> content = part.encoding->content();
      facts.unknown.push_back(str(part.name.term, ": ",
                                  traits.content
                                      ? (content.empty() ? "its turns depend on the content" : joined(content))
                                      : "its frequencies are trained"));
    }
    std::move(rotations.begin(), rotations.end(), std::back_inserter(facts.rotations));
    if (auto bias = bias_facts(part, request)) {
      if (bias->distances.empty())
        facts.unknown.push_back(
            str(part.name.term, ": ", bias->content.empty() ? "its numbers are trained" : joined(bias->content)));
      facts.biases.push_back(std::move(*bias));
    }
    if (auto embedding = embedding_facts(part, request)) facts.embeddings.push_back(std::move(*embedding));
    Question question;
    question.query.positions = at::zeros({1, 1, traits.axes}, at::kDouble);
    question.key = question.query;
    if (traits.forms.empty() && !traits.rotates && !traits.absolute && !part.encoding->logit_scales(question).empty()) {
      TemperatureFacts temperature{part.name.term, {}};
      for (const std::int64_t length : request.lengths) {
        const std::vector<double> last(static_cast<std::size_t>(traits.axes), static_cast<double>(length - 1));
        temperature.factor.push_back(part.encoding->define_query_factor(last.data(), 0, part.name.layers.front()));
      }
      facts.temperatures.push_back(std::move(temperature));
    }
    for (LengthClaim& claim : length_claims(part, request)) facts.claims.push_back(std::move(claim));
  }
  std::sort(facts.unknown.begin(), facts.unknown.end());
  facts.unknown.erase(std::unique(facts.unknown.begin(), facts.unknown.end()), facts.unknown.end());
  facts.twice = rotates && !facts.embeddings.empty();
  facts.positions = rotates || !facts.biases.empty() || !facts.embeddings.empty();
  facts.memory = memory_facts(parts, request);
  return facts;
}

}  // namespace torsor

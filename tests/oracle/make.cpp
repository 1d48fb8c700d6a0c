#include "tests/oracle/make.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <set>

#include "tests/oracle/attention.h"
#include "tests/oracle/rotary.h"
#include "tests/oracle/syntax.h"

namespace oracle {
namespace {

/// splitmix64, seeded with the FNV-1a hash of a text.
class Draws {
 public:
  explicit Draws(const std::string& text) {
    state_ = 0xcbf29ce484222325u;
    for (char c : text) state_ = (state_ ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }

  double uniform() {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return static_cast<double>(z >> 11) * 0x1p-53;
  }

  double between(double low, double high) { return low + (high - low) * uniform(); }

  /// Nearly normal: a sum of twelve, which needs no function whose last bit depends on the machine.
  double normal() {
    double sum = -6.0;
    for (int n = 0; n < 12; ++n) sum += uniform();
    return sum;
  }

 private:
  std::uint64_t state_;
};

double to_float32(double x) { return static_cast<double>(static_cast<float>(x)); }

double to_bf16(double x) {
  auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(x));
  bits += 0x7fffu + ((bits >> 16) & 1u);  // to nearest, halves to even
  return static_cast<double>(std::bit_cast<float>(bits & 0xffff0000u));
}

Tensor normals(std::vector<int> shape, Draws& draws, double size = 1.0) {
  Tensor tensor(std::move(shape));
  for (double& x : tensor.data) x = to_bf16(size * draws.normal());
  return tensor;
}

/// A trained tensor in the range where its encoding is used.
Tensor draw_parameter(const ParameterInfo& info, const Spec& spec, Draws& draws) {
  std::vector<int> shape = info.shape;
  if (shape[0] == -1) shape[0] = spec.frequency_rows;
  Tensor tensor(shape);
  const std::string& name = info.term->name;
  for (std::size_t n = 0; n < tensor.data.size(); ++n) {
    double x = draws.normal();
    if (info.tensor == "slopes") x = draws.between(0.05, 1.0);
    if (info.tensor == "r1") x = draws.between(0.1, 1.5);
    if (info.tensor == "r2") x = draws.between(0.1, 1.2);
    if (name == "txl" && info.tensor == "w") x *= 0.5;
    if (info.tensor == "log_slopes" || info.tensor == "log_alpha") x = draws.between(-3.0, -0.3);
    if (info.tensor == "weight" || name == "tape") x *= 0.5;
    if (name == "sipe") x *= info.tensor == "tau" || info.tensor == "nu" || shape.size() == 1 ? 0.7 : 0.35;
    if (name == "grape-m" && (info.tensor == "a" || info.tensor == "b" || info.tensor == "mix")) x *= 0.5;
    if (info.tensor == "omega" || info.tensor == "theta") x = draws.between(0.2, 1.0);
    if (name == "fire" && info.tensor == "c") x = draws.between(0.08, 0.2);
    if (name == "fire" && info.tensor == "mu") x = draws.between(0.7, 1.4);
    if (info.tensor == "log_freq") {
      const Plane plane = planes_of(*info.term, spec.head_dim).at(n % static_cast<std::size_t>(shape[1]));
      x = -2.0 * plane.index / plane.width * std::log(10000.0) + draws.between(-0.4, 0.4);
      if (name == "grape-m" && !info.term->flag("context", false)) x *= 16.0;
    }
    tensor.data[n] = to_float32(x);
  }
  return tensor;
}

/// Further axes of a position, as an image of two columns and a cycle of three would give them.
double on_axis(double position, int axis) {
  if (axis == 0) return position;
  return axis == 1 ? std::floor(position / 2.0) : position - 3.0 * std::floor(position / 3.0);
}

void put_position(Tensor& positions, int b, int i, double position) {
  for (int axis = 0; axis < positions.size(2); ++axis) {
    positions.data[positions.index(b, i, axis)] = on_axis(position, axis);
  }
}

Tensor given(const std::vector<double>& data, std::vector<int> shape, const std::string& id) {
  Tensor tensor(std::move(shape));
  if (data.size() != tensor.data.size()) throw Error("case '" + id + "': a list of the wrong length");
  tensor.data = data;
  return tensor;
}

Tensor given(const std::vector<int>& data, std::vector<int> shape, const std::string& id) {
  return given(std::vector<double>(data.begin(), data.end()), std::move(shape), id);
}

/// Positions and documents.
void place(const Spec& s, Case& c) {
  c.positions_k = Tensor({s.rows, s.keys, s.axes});
  c.positions_q = Tensor({s.rows, s.queries, s.axes});
  if (!s.lengths.empty()) c.key_lengths = given(s.lengths, {s.rows}, s.id);
  if (!s.documents_k.empty()) {
    c.documents_k = given(s.documents_k, {s.rows, s.keys}, s.id);
    c.documents_q = Tensor({s.rows, s.queries});
  }
  for (int b = 0; b < s.rows; ++b) {
    const int length = s.lengths.empty() ? s.keys : s.lengths[static_cast<std::size_t>(b)];
    const double start = s.start[s.start.size() == 1 ? 0 : static_cast<std::size_t>(b)];
    std::map<int, int> met;  // tokens of each document so far
    for (int j = 0; j < s.keys; ++j) {
      double index = j;
      if (c.documents_k) {
        const int document = static_cast<int>(c.documents_k->at(b, j));
        index = document < 0 ? 0 : met[document]++;
      }
      put_position(c.positions_k, b, j, start + s.step * index);
    }
    for (int i = 0; i < s.queries; ++i) {
      const int token = i + length - s.queries;
      const bool exists = c.documents_k && token >= 0;
      if (exists) c.documents_q->data[c.documents_q->index(b, i)] = c.documents_k->at(b, token);
      if (exists) {
        for (int axis = 0; axis < s.axes; ++axis) {
          c.positions_q.data[c.positions_q.index(b, i, axis)] = c.positions_k.at(b, token, axis);
        }
      } else {
        put_position(c.positions_q, b, i, start + s.step * token);
      }
    }
  }
  if (!s.documents_q.empty()) c.documents_q = given(s.documents_q, {s.rows, s.queries}, s.id);
  if (!s.positions_k.empty()) c.positions_k = given(s.positions_k, {s.rows, s.keys, s.axes}, s.id);
  if (!s.positions_q.empty()) c.positions_q = given(s.positions_q, {s.rows, s.queries, s.axes}, s.id);
}

/// What the tokens bring for the sipe terms of an expression: a quarter of them no tags, arcs to tokens of their row.
void draw_syntax(const Sum& sum, Draws& draws, Case& c) {
  const int B = c.rows(), T = c.keys();
  const auto below = [&](int end) { return static_cast<double>(static_cast<int>(draws.uniform() * end)); };
  for (const Term& term : sum) {
    for (const Item& item : term.items) draw_syntax(item.sum, draws, c);
    if (term.name != "sipe") continue;
    for (const std::string& name : syntax_inputs(term)) {
      if (c.named.count(name) != 0) continue;
      Tensor& tensor = c.named[name];
      if (name == "syntax.tags") tensor = Tensor({B, T, 2});
      if (name == "syntax.vectors") tensor = Tensor({B, T, 64});
      if (name == "syntax.sentences" || name == "syntax.labels") tensor = Tensor({B, T});
      if (name == "syntax.links") tensor = Tensor({B, T, 2, 2}, -1.0);
      for (int b = 0; b < B; ++b) {
        double sentence = 0.0;
        for (int t = 0; t < T; ++t) {
          const bool none = draws.uniform() < 0.25;
          const std::size_t first = static_cast<std::size_t>(b * T + t);
          if (name == "syntax.tags" && !none) tensor.data[2 * first] = below(3), tensor.data[2 * first + 1] = below(6);
          if (name == "syntax.vectors" && !none)
            for (std::size_t d = 0; d < 64; ++d) tensor.data[64 * first + d] = to_bf16(0.4 * draws.normal());
          if (name == "syntax.labels" && !none) tensor.data[first] = below(38);
          if (draws.uniform() < 0.3) sentence += 1.0;
          if (name == "syntax.sentences") tensor.data[first] = none ? -1.0 : sentence;
          if (name == "syntax.links" && !none) {
            for (std::size_t n = 0; n < 2; ++n) {
              tensor.data[4 * first + 2 * n] = 0.0;
              tensor.data[4 * first + 2 * n + 1] = below(std::min(t, 3) + 1);
            }
          }
        }
      }
    }
  }
}

/// Keys and values at and past the length of their row.
void fill_past_lengths(double held, Case& c) {
  for (int b = 0; b < c.rows(); ++b) {
    for (int h = 0; h < c.key_heads(); ++h) {
      for (int j = static_cast<int>(c.key_lengths.value().at(b)); j < c.keys(); ++j) {
        for (int d = 0; d < c.head_dim(); ++d) c.k.data[c.k.index(b, h, j, d)] = held;
        for (int d = 0; d < c.value_dim(); ++d) c.v.data[c.v.index(b, h, j, d)] = held;
      }
    }
  }
}

/// The largest position in units of the largest distance. Who turns q and k apart, each by its own position, has terms
/// of the gradient of a frequency that grow with the position, while their sum grows with the distance only.
double remoteness(const Case& c) {
  double largest = 0.0, distance = 1.0;
  for (int b = 0; b < c.rows(); ++b) {
    for (int axis = 0; axis < c.positions_k.size(2); ++axis) {
      for (int j = 0; j < c.keys(); ++j) {
        const double p = c.positions_k.at(b, j, axis);
        largest = std::max(largest, std::abs(p));
        distance = std::max(distance, std::abs(p - c.positions_k.at(b, 0, axis)));
      }
    }
  }
  return std::max(1.0, largest / distance);
}

/// A rounding error in a precision whose steps are `step` wide, added up over terms that largely cancel, must stay
/// inside the tolerance; otherwise the case says nothing in that precision.
bool meaningful(const Case& c, const Computed& computed, double step, double rel, double abs) {
  for (const auto& [name, sum] : computed.term_sums) {
    const auto gradient = computed.outputs.find(name);
    if (gradient == computed.outputs.end()) continue;
    const double terms = name.ends_with(".log_freq") ? sum * remoteness(c) : sum;
    double largest = 0.0;
    for (double x : gradient->second.data) largest = std::max(largest, std::abs(x));
    if (step * terms > abs + rel * largest) return false;
  }
  return true;
}

Json tolerances(const Spec& spec, const Case& c, const Computed& computed) {
  const bool loud = computed.largest_logit > 20.0;
  Json json;
  // A phase of 1e6 has steps of 1e-10 in float64.
  json["float64"] = spec.far ? Json{{"rel", 1e-9}, {"abs", 1e-10}} : Json{{"rel", 1e-11}, {"abs", 1e-12}};
  // 2e-7: about two float32 steps a term. 8e-3: one bf16 step a term.
  if (loud) {
    json["float32"] = {{"rel", 3e-4}, {"abs", 2e-6}};
  } else if (meaningful(c, computed, 2e-7, 1e-5, 2e-6)) {
    json["float32"] = {{"rel", 1e-5}, {"abs", 2e-6}};
  } else if (remoteness(c) < 50.0 || meaningful(c, computed, 2e-7, 1e-4, 2e-5)) {
    json["float32"] = {{"rel", 1e-4}, {"abs", 2e-5}};
  }
  const bool fire = spec.encoding.find("fire") != std::string::npos;
  if (!loud && !fire && meaningful(c, computed, 8e-3, 0.04, 0.004)) json["bf16"] = {{"rel", 0.04}, {"abs", 0.004}};
  return json;
}

const std::string source =
    "Computed by the plain float64 program in tests/oracle, which shares no code with the library. q, k, v, x and "
    "grad_out are exact in bf16, parameters in float32. The largest error of a tensor is at most abs + rel * its "
    "largest value; a precision without a tolerance is not checked. ";

}  // namespace

Case draw(const Spec& s) {
  Draws draws(s.id);
  Case c;
  c.id = s.id;
  c.note = s.note;
  c.encoding = s.encoding;
  const int value_dim = s.value_dim == 0 ? s.head_dim : s.value_dim;
  c.q = normals({s.rows, s.heads, s.queries, s.head_dim}, draws, s.loudness);
  c.k = normals({s.rows, s.key_heads, s.keys, s.head_dim}, draws);
  c.v = normals({s.rows, s.key_heads, s.keys, value_dim}, draws);
  c.grad_out = normals({s.rows, s.heads, s.queries, value_dim}, draws);
  if (s.has_x) c.x = normals({s.rows, s.keys, s.channels}, draws);
  if (s.state_heads > 0) {
    c.state = Tensor({s.rows, s.state_heads, s.keys, s.state_width});
    for (double& z : c.state->data) z = to_float32(0.8 * draws.normal());
  }
  if (s.has_mlp) c.mlp_out = normals({s.rows, s.keys, s.channels}, draws);
  c.causal = s.causal;
  c.window = s.window;
  c.scale = s.scale;
  c.layer = s.layer;
  c.layers = s.layers;
  place(s, c);
  if (s.leftover) fill_past_lengths(*s.leftover, c);
  std::set<std::string> left;
  for (const auto& [name, values] : s.parameters) left.insert(name);
  const Sum expression = parse(s.encoding);
  for (const ParameterInfo& info : parameters_of(expression, c, s.channels)) {
    Tensor tensor = draw_parameter(info, s, draws);
    if (left.erase(info.name) != 0) {
      tensor = given(s.parameters.at(info.name), tensor.shape, s.id);
      for (double& x : tensor.data) x = to_float32(x);
    }
    c.parameters[info.name] = std::move(tensor);
  }
  draw_syntax(expression, draws, c);
  if (!left.empty()) throw Error("case '" + s.id + "' has no parameter '" + *left.begin() + "'");
  return c;
}

std::vector<Group> groups() {
  return {
      {"masks", "Who sees whom: causal order, windows, documents, key lengths, rows that see nothing.", mask_specs()},
      {"rotary", "rope with all of its keys, and xpos.", rotary_specs()},
      {"scaling", "Scaled frequencies, magnitudes and factors on the query.", scaling_specs()},
      {"bias", "alibi, t5, kerple, sandwich, fire.", bias_specs()},
      {"content", "cope and txl, which read the content.", content_specs()},
      {"gates", "fox, grape-a and grape-ap: gates and probes of the content, summed over the tokens between.",
       gate_specs()},
      {"turns", "grape-m: trained spectra, planes, mixtures that do not commute, bases, phases of the content.",
       turn_specs()},
      {"state",
       "tape: q and k turned by a state of their token, which is given or that of its position; the averages of the "
       "states (carried) and the states after the layer (state), where the case says what the MLP answered.",
       state_specs()},
      {"syntax",
       "sipe: terms, rotations and embeddings changed by the syntax of the tokens, which inputs.named holds (a token's "
       "tags, sentence, vector and arcs). What is added to the embedding is in outputs.embedding and changes nothing "
       "in "
       "out.",
       syntax_specs()},
      {"absolute",
       "What is added to the embedding. q, k and v are given as they are, so it changes nothing in out; "
       "outputs.embedding (B, Tk, C) is the vector that each token gets, from positions_k and the width C of x (whose "
       "values play no part); padding gets zeros. The table of learned has no gradient here.",
       absolute_specs()},
      {"composition", "Sums, heads(...), layers(...) with inputs.layer counted from 0, repeated names.",
       composition_specs()},
      {"positions",
       "Positions are data: left-padded, packed, decode and chunk shapes for every encoding; far, negative and "
       "half-integer positions.",
       position_specs()},
      {"shapes", "Sizes at their edges.", shape_specs()},
  };
}

int make(const std::string& directory) {
  std::filesystem::create_directories(directory);
  std::set<std::string> ids;
  for (const Group& group : groups()) {
    Json file;
    file["format"] = "torsor-conformance-1";
    file["about"] = source + group.about;
    file["cases"] = Json::array();
    int wide = 0, not16 = 0;
    for (const Spec& spec : group.specs) {
      if (!ids.insert(spec.id).second) throw Error("two cases are called '" + spec.id + "'");
      const Case c = draw(spec);
      const Computed computed = compute(c);
      Json json = case_to_json(c);
      json["outputs"] = outputs_to_json(computed.outputs);
      json["tolerance"] = tolerances(spec, c, computed);
      if (json["tolerance"].value("float32", Json{{"rel", 0}})["rel"] != 1e-5) ++wide;
      if (!json["tolerance"].contains("bf16")) ++not16;
      file["cases"].push_back(std::move(json));
    }
    write_file(directory + "/" + group.name + ".json", file);
    std::printf("%s: %zu cases, %d wider in float32, %d not for bf16\n", group.name.c_str(), group.specs.size(), wide,
                not16);
  }
  return 0;
}

}  // namespace oracle

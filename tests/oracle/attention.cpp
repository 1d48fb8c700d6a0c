#include "tests/oracle/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/oracle/bias.h"
#include "tests/oracle/gates.h"
#include "tests/oracle/rotary.h"
#include "tests/oracle/state.h"
#include "tests/oracle/syntax.h"
#include "tests/oracle/turns.h"

namespace oracle {
namespace {

VarTensor variables(const Tensor& tensor, bool record) {
  VarTensor vars;
  vars.shape = tensor.shape;
  for (double x : tensor.data) vars.data.push_back(record ? variable(x) : Var(x));
  return vars;
}

std::vector<Var> row_of(const VarTensor& t, int b, int h, int i) {
  std::vector<Var> row;
  for (int d = 0; d < t.shape[3]; ++d) row.push_back(t.at(b, h, i, d));
  return row;
}

std::vector<double> position_of(const Tensor& positions, int b, int i) {
  std::vector<double> position;
  for (int axis = 0; axis < positions.size(2); ++axis) position.push_back(positions.at(b, i, axis));
  return position;
}

int length_of_row(const Case& c, int b) { return c.key_lengths ? static_cast<int>(c.key_lengths->at(b)) : c.keys(); }

/// T of C4 and C7 for the document of query i: the largest position among its keys, plus one.
double total_length(const Case& c, int b, int i) {
  double largest = -1.0;
  for (int j = 0; j < length_of_row(c, b); ++j) {
    if (c.documents_k && c.documents_k->at(b, j) != c.documents_q->at(b, i)) continue;
    largest = std::max(largest, c.positions_k.at(b, j, 0));
  }
  return largest + 1.0;
}

/// All that stays the same over the pairs of one head.
struct Head {
  int number = 0, key_head = 0;
  std::vector<const Part*> parts;
  std::vector<Rotary> rotaries;
  std::vector<const Part*> rotary_parts;
  const Part* txl = nullptr;
  const Part* grape_m = nullptr;
  const Part* cope = nullptr;
  const PositionState* state = nullptr;
  std::vector<Syntax> syntax;  ///< of the parts that stand in a sipe
  double scale = 1.0;

  const Syntax* syntax_of(const Part* part) const {
    for (const Syntax& one : syntax) {
      if (one.part().term == part->term) return &one;
    }
    return nullptr;
  }
};

Head make_head(const Case& c, const std::vector<Part>& parts, const Parameters& parameters, const PositionState* state,
               int number) {
  Head head;
  head.number = number;
  head.key_head = number / (c.heads() / c.key_heads());
  double softmax_factor = 1.0;
  for (const Part& part : parts) {
    if (!part.covers(number)) continue;
    head.parts.push_back(&part);
    if (part.syntax != nullptr) head.syntax.emplace_back(part, c, parameters);
    if (part.syntax != nullptr && part.term->name == "grape-m") throw Unsupported("sipe(grape-m) is not computed here");
    if (is_rotary(part.term->name)) {
      head.rotaries.emplace_back(part, c.head_dim(), parameters);
      head.rotary_parts.push_back(&part);
      softmax_factor *= head.rotaries.back().softmax_factor();
    }
    if (part.term->name == "tape") {
      softmax_factor *= state->rotary().softmax_factor();
      if (state->given()) {
        head.state = state;
      } else {  // the rotary inside turns
        head.rotaries.push_back(state->rotary());
        head.rotary_parts.push_back(&part);
      }
    }
    if (part.term->name == "txl") head.txl = &part;
    if (part.term->name == "grape-m") head.grape_m = &part;
    if (part.term->name == "cope") head.cope = &part;
    const bool reads_one_axis =
        is_plain_bias(part.term->name) || is_content_bias(part.term->name) || part.term->name == "txl";
    if (reads_one_axis && c.positions_k.size(2) != 1) throw Error("a bias reads one axis, the positions have several");
  }
  if (head.state != nullptr && (head.txl != nullptr || head.grape_m != nullptr || !head.rotaries.empty())) {
    throw Error("tape turns q and k alone");
  }
  if (head.txl != nullptr && !head.rotaries.empty()) throw Error("txl does not go with a rotation");
  if (head.grape_m != nullptr && (head.txl != nullptr || !head.rotaries.empty())) {
    throw Error("grape-m turns the whole head");
  }
  head.scale = c.scale ? *c.scale : softmax_factor / std::sqrt(static_cast<double>(c.head_dim()));
  return head;
}

/// The product of q and k after their moves; `frequencies` has one list a rotary.
Var moved_product(const Head& head, const std::vector<Var>& q, const std::vector<Var>& k,
                  const std::vector<std::vector<Var>>& frequencies, const std::vector<double>& position_q,
                  const std::vector<double>& position_k, const std::vector<Var>& stretch) {
  std::vector<bool> turned(q.size(), false);
  Var product = 0.0;
  for (std::size_t r = 0; r < head.rotaries.size(); ++r) {
    for (const Plane& plane : head.rotaries[r].planes()) {
      for (int channel : {plane.a, plane.b}) {
        if (turned[static_cast<std::size_t>(channel)]) throw Error("two rotations on one plane");
        turned[static_cast<std::size_t>(channel)] = true;
      }
    }
    // A stretched pair turns by angles as large as the distance times its factor.
    std::vector<Var> turned_by = frequencies[r];
    for (Var& frequency : turned_by) {
      if (!stretch.empty()) frequency = frequency * stretch[r];
    }
    product += head.rotaries[r].product(q, k, turned_by, position_q, position_k);
  }
  for (std::size_t d = 0; d < q.size(); ++d) {
    if (!turned[d]) product += q[d] * k[d];
  }
  return product;
}

/// (q + v).(W R_n), before the scale.
Var txl_product(const Part& part, const Parameters& parameters, int head, const std::vector<Var>& q, double distance) {
  const VarTensor& v = parameter(parameters, *part.term, "v");
  const VarTensor& w = parameter(parameters, *part.term, "w");
  const bool halves = part.term->word("order", "halves") == "halves";
  const std::vector<double> r = sinusoid(distance, w.shape[2], 10000.0, halves);
  Var product = 0.0;
  for (int d = 0; d < w.shape[1]; ++d) {
    Var wr = 0.0;
    for (int channel = 0; channel < w.shape[2]; ++channel) {
      wr += w.at(head, d, channel) * r[static_cast<std::size_t>(channel)];
    }
    product += (q[static_cast<std::size_t>(d)] + v.at(head, d)) * wr;
  }
  return product;
}

/// CoPE's bias for every seen key, from their finished logits (B7).
std::vector<Var> cope_bias(const Part& part, const Parameters& parameters, const std::vector<Var>& q,
                           const std::vector<Var>& logits) {
  const VarTensor& table = parameter(parameters, *part.term, "table");
  const int length = table.shape[0];
  std::vector<Var> bias(logits.size());
  for (std::size_t j = 0; j < logits.size(); ++j) {
    Var place = 0.0;
    for (std::size_t t = j; t < logits.size(); ++t) place += sigmoid(logits[t]);
    place = min(place, Var(length - 1.0));
    const int below = static_cast<int>(std::floor(place.value));
    const int above = static_cast<int>(std::ceil(place.value));
    Var at_below = 0.0;
    Var at_above = 0.0;
    for (int d = 0; d < table.shape[1]; ++d) {
      at_below += q[static_cast<std::size_t>(d)] * table.at(below, d);
      at_above += q[static_cast<std::size_t>(d)] * table.at(above, d);
    }
    const Var share = place - static_cast<double>(below);
    bias[j] = at_below * (Var(1.0) - share) + at_above * share;
  }
  return bias;
}

/// Logits of query i over the keys that it sees.
std::vector<Var> logits_of_query(const Head& head, const Parameters& parameters, const SeenTokens& tokens) {
  const Case& c = *tokens.c;
  const VarTensor &q = *tokens.q, &k = *tokens.k;
  const int b = tokens.row, i = tokens.query;
  const std::vector<int>& seen = tokens.seen;
  const std::vector<Var> q_plain = row_of(q, b, head.number, i);
  std::vector<Var> q_moved = q_plain;
  if (head.txl != nullptr) {
    const VarTensor& u = parameter(parameters, *head.txl->term, "u");
    for (int d = 0; d < c.head_dim(); ++d) {
      q_moved[static_cast<std::size_t>(d)] += u.at(head.number - head.txl->first_head, d);
    }
  }
  for (const Syntax& syntax : head.syntax) {
    if (syntax.moves()) q_moved = syntax.moved(tokens, tokens.own, true, q_moved);
  }
  const std::vector<double> position_q = position_of(c.positions_q, b, i);
  double factor = 1.0;
  for (const Part* part : head.parts) factor *= query_factor(*part->term, position_q[0]);
  std::vector<std::vector<Var>> frequencies;
  for (std::size_t r = 0; r < head.rotaries.size(); ++r) {
    const int key_head = head.key_head - head.rotary_parts[r]->first_key_head;
    frequencies.push_back(head.rotaries[r].frequencies(key_head, total_length(c, b, i)));
  }

  std::vector<Var> products;  // of grape-m and tape
  if (head.state != nullptr) products = head.state->products(tokens, q_moved);
  if (head.grape_m != nullptr) products = turned_products(*head.grape_m, parameters, tokens, q_moved);

  std::vector<Var> logits;
  for (int j : seen) {
    const std::vector<double> position_k = position_of(c.positions_k, b, j);
    std::vector<Var> key = row_of(k, b, head.key_head, j);
    std::vector<Var> stretch;
    for (std::size_t r = 0; r < head.rotaries.size(); ++r) {
      const Syntax* syntax = head.syntax_of(head.rotary_parts[r]);
      stretch.push_back(syntax != nullptr && syntax->coupling() == "pair" ? syntax->factor(tokens, j, q_plain)
                                                                          : Var(1.0));
    }
    for (const Syntax& syntax : head.syntax) {
      if (syntax.moves()) key = syntax.moved(tokens, j, false, key);
    }
    const Var product = !products.empty()
                            ? products[logits.size()]
                            : moved_product(head, q_moved, key, frequencies, position_q, position_k, stretch);
    Var logit = product * (head.scale * factor);
    const auto syntax_factor = [&](const Part* part) -> Var {
      const Syntax* syntax = head.syntax_of(part);
      return syntax != nullptr && syntax->multiplies() ? syntax->factor(tokens, j, q_plain) : Var(1.0);
    };
    for (const Part* part : head.parts) {
      const int own = head.number - part->first_head;
      if (part == head.txl) {
        const double distance = position_q[0] - position_k[0];
        logit += syntax_factor(part) * txl_product(*part, parameters, own, q_plain, distance) * head.scale;
      } else if (is_plain_bias(part->term->name)) {
        logit += syntax_factor(part) * plain_bias(*part, parameters, own, position_q[0], position_k[0]);
      }
      if (const Syntax* syntax = head.syntax_of(part)) {
        if (syntax->coupling() == "additive") logit += syntax->alignment(tokens, j, q_plain);
        if (syntax->has_bias()) logit += syntax->key_product(tokens, j, q_plain) * head.scale;
      }
    }
    logits.push_back(logit);
  }
  for (const Part* part : head.parts) {
    if (!is_content_bias(part->term->name)) continue;
    const std::vector<Var> bias = content_bias(*part, parameters, tokens);
    for (std::size_t j = 0; j < logits.size(); ++j) logits[j] += bias[j];
  }
  if (head.cope != nullptr) {
    if (!c.causal) throw Unsupported("cope counts backwards from the query: it needs a causal order");
    const std::vector<Var> bias = cope_bias(*head.cope, parameters, q_plain, logits);
    for (std::size_t j = 0; j < logits.size(); ++j) logits[j] += bias[j];
  }
  return logits;
}

/// The vectors that go on the embedding of every token (B, Tk, C), added up. Padding has no place, so it gets zeros.
void add_embedding(const Case& c, const std::vector<Part>& parts, Outputs& outputs) {
  Parameters constants;
  for (const auto& [name, tensor] : c.parameters) constants[name] = variables(tensor, false);
  for (const Part& part : parts) {
    const Term& term = *part.term;
    const bool adds_s = part.syntax != nullptr && Syntax(part, c, constants).has_input();
    if (term.name != "sinusoidal" && term.name != "learned" && !adds_s) continue;
    if (!c.x) throw Error("case '" + c.id + "': an embedding needs x for its width");
    const int channels = c.x->size(2);
    Tensor& sum = outputs["embedding"];
    if (sum.data.empty()) sum = Tensor({c.rows(), c.keys(), channels});
    for (int b = 0; b < c.rows(); ++b) {
      for (int j = 0; j < c.keys(); ++j) {
        if (c.documents_k && c.documents_k->at(b, j) < 0.0) continue;
        const double p = c.positions_k.at(b, j, 0);
        std::vector<double> row;
        if (adds_s) {
          const Syntax syntax(part, c, constants);
          for (int d = 0; d < channels; ++d) sum.data[sum.index(b, j, d)] += syntax.embedding(b, j, d);
        }
        if (term.name != "sinusoidal" && term.name != "learned") continue;
        if (term.name == "sinusoidal") {
          row = sinusoid(p, channels, term.number("base", 10000.0), term.word("order", "interleaved") == "halves");
        } else {
          const auto found = c.parameters.find(term.key() + ".table");
          if (found == c.parameters.end()) throw Error("the case lacks the parameter '" + term.key() + ".table'");
          if (p < 0.0 || p != std::floor(p) || p >= found->second.size(0)) {
            throw Error("case '" + c.id + "': learned has no row for position " + std::to_string(p));
          }
          for (int d = 0; d < channels; ++d) row.push_back(found->second.at(static_cast<int>(p), d));
        }
        for (int d = 0; d < channels; ++d) sum.data[sum.index(b, j, d)] += row[static_cast<std::size_t>(d)];
      }
    }
  }
}

/// Whether the queries are the tokens: only then is it known what becomes of every token's state.
bool asks_for_all_tokens(const Case& c) {
  if (c.queries() != c.keys() || c.positions_q.data != c.positions_k.data) return false;
  if (c.documents_k && c.documents_q->data != c.documents_k->data) return false;
  return !c.key_lengths || std::all_of(c.key_lengths->data.begin(), c.key_lengths->data.end(),
                                       [&](double length) { return length == c.keys(); });
}

}  // namespace

bool sees(const Case& c, int b, int i, int j) {
  const int length = length_of_row(c, b);
  if (j >= length) return false;
  if (c.documents_k) {
    const double mine = c.documents_q->at(b, i);
    if (mine < 0.0 || mine != c.documents_k->at(b, j)) return false;
  }
  const int behind = i + length - c.queries() - j;  // how many tokens the key stands before the query
  if (c.causal && behind < 0) return false;
  if (c.window && c.causal && behind >= *c.window) return false;
  if (c.window && !c.causal && std::abs(behind) >= *c.window) return false;
  return true;
}

Computed compute(const Case& c, bool gradients) {
  const bool record = gradients && c.grad_out.has_value();
  Tape& tape = Tape::active();
  tape.clear();
  const Sum expression = parse(c.encoding);
  const std::vector<Part> parts = parts_of(expression, c);
  const VarTensor q = variables(c.q, record);
  const VarTensor k = variables(c.k, record);
  const VarTensor v = variables(c.v, record);
  bool reads_x = false;
  for (const Part& part : parts) reads_x = reads_x || reads_hidden_states(*part.term);
  if (reads_x && !c.x) throw Error("case '" + c.id + "' lacks the hidden states x");
  const VarTensor x = reads_x ? variables(*c.x, record) : VarTensor();
  const VarTensor given_state = c.state ? variables(*c.state, record) : VarTensor();
  Parameters parameters;
  for (const auto& [name, tensor] : c.parameters) parameters[name] = variables(tensor, record);
  const std::size_t leaves = tape.size();
  std::optional<PositionState> state;
  for (const Part& part : parts) {
    if (part.term->name != "tape") continue;
    if (state) throw Error("two terms carry a state");
    state.emplace(part, c, parameters, c.state ? &given_state : nullptr);
  }
  if (c.state && !state) throw Unsupported("nothing here reads the state");

  Computed computed;
  Outputs& outputs = computed.outputs;
  outputs["out"] = Tensor({c.rows(), c.heads(), c.queries(), c.value_dim()});
  outputs["lse"] = Tensor({c.rows(), c.heads(), c.queries()}, -std::numeric_limits<double>::infinity());
  Tensor& out = outputs["out"];
  Tensor& lse = outputs["lse"];
  std::vector<double> seeds;
  Tensor carried;
  if (state && state->averages()) carried = Tensor({c.rows(), c.heads(), c.queries(), state->width()});

  for (int h = 0; h < c.heads(); ++h) {
    const Head head = make_head(c, parts, parameters, state ? &*state : nullptr, h);
    for (int b = 0; b < c.rows(); ++b) {
      for (int i = 0; i < c.queries(); ++i) {
        SeenTokens tokens{&c, &q, &k, &v, &x, b, h, head.key_head, i, i + length_of_row(c, b) - c.queries(), {}};
        std::vector<int>& seen = tokens.seen;
        for (int j = 0; j < c.keys(); ++j) {
          if (sees(c, b, i, j)) seen.push_back(j);
        }
        if (seen.empty()) continue;
        const std::vector<Var> logits = logits_of_query(head, parameters, tokens);
        double largest = logits[0].value;
        for (const Var& logit : logits) {
          largest = std::max(largest, logit.value);
          computed.largest_logit = std::max(computed.largest_logit, std::abs(logit.value));
        }
        Var sum = 0.0;
        std::vector<Var> weights;
        for (const Var& logit : logits) {
          weights.push_back(exp(logit - largest));
          sum += weights.back();
        }
        lse.data[lse.index(b, h, i)] = largest + std::log(sum.value);
        if (!carried.data.empty() && state->part().covers(h)) {
          std::vector<double> average(static_cast<std::size_t>(state->width()), 0.0);
          for (std::size_t j = 0; j < seen.size(); ++j) {
            state->add_average(tokens, weights[j].value / sum.value, seen[j], average);
          }
          std::copy(average.begin(), average.end(),
                    carried.data.begin() + static_cast<std::ptrdiff_t>(carried.index(b, h, i, 0)));
        }
        for (int d = 0; d < c.value_dim(); ++d) {
          Var mean = 0.0;
          for (std::size_t j = 0; j < seen.size(); ++j) {
            Var value = v.at(b, head.key_head, seen[j], d);
            for (const Syntax& syntax : head.syntax) {
              if (syntax.has_bias()) value += syntax.value_part(tokens, seen[j], d);
            }
            mean += weights[j] / sum * value;
          }
          out.data[out.index(b, h, i, d)] = mean.value;
          if (record && mean.node >= 0) {
            seeds.resize(tape.size(), 0.0);
            seeds[static_cast<std::size_t>(mean.node)] += c.grad_out->at(b, h, i, d);
          }
        }
      }
    }
  }
  add_embedding(c, parts, outputs);
  if (!carried.shape.empty()) outputs["carried"] = carried;
  if (state && state->updates() && c.mlp_out && asks_for_all_tokens(c)) outputs["state"] = state->after_layer(carried);
  if (!record) return computed;

  const Tape::Adjoints adjoints = tape.backward(seeds);
  std::size_t next = 0;  // the leaves stand first, in the order in which they were made
  const auto take = [&](const std::string& name, const Tensor& like) {
    Tensor gradient(like.shape);
    double largest = 0.0;
    for (double& number : gradient.data) {
      largest = std::max(largest, adjoints.magnitude[next]);
      number = adjoints.sum[next++];
    }
    outputs[name] = std::move(gradient);
    computed.term_sums[name] = largest;
  };
  take("grad.q", c.q);
  take("grad.k", c.k);
  take("grad.v", c.v);
  if (reads_x) take("grad.x", *c.x);
  if (c.state) take("grad.state", *c.state);
  for (const auto& [name, tensor] : c.parameters) take("grad.parameters." + name, tensor);
  if (next != leaves) throw Error("the leaves of the tape were miscounted");
  // An embedding goes on the tokens before attention reads them, not into `out`: its table has no gradient here.
  for (const Part& part : parts) {
    if (part.term->name == "learned") outputs.erase("grad.parameters." + part.term->key() + ".table");
    // Nothing but the embedding reads them.
    if (part.syntax != nullptr && Syntax(part, c, parameters).leaves_attention()) {
      const std::string own = "grad.parameters." + part.syntax->key() + ".";
      std::erase_if(outputs, [&](const auto& one) { return one.first.starts_with(own); });
    }
    if (part.syntax != nullptr) outputs.erase("grad.parameters." + part.syntax->key() + ".w_input");
    // What changes a state is read by the next layer only.
    for (const char* of_tape : {".up_proj", ".x_proj", ".down_proj", ".post_attention"}) {
      if (part.term->name == "tape") outputs.erase("grad.parameters." + part.term->key() + of_tape);
    }
  }
  return computed;
}

double objective(const Case& c) {
  const Tensor out = compute(c, false).outputs.at("out");
  double sum = 0.0;
  for (std::size_t n = 0; n < out.data.size(); ++n) sum += c.grad_out->data[n] * out.data[n];
  return sum;
}

}  // namespace oracle

#include "tests/oracle/gates.h"

#include <cmath>

#include "tests/oracle/bias.h"

namespace oracle {
namespace {

const double probe_epsilon = 0x1p-23;

std::vector<Var> row_of(const VarTensor& t, int b, int h, int i) {
  std::vector<Var> row;
  for (int d = 0; d < t.shape[3]; ++d) row.push_back(t.at(b, h, i, d));
  return row;
}

Var dot(const std::vector<Var>& left, const std::vector<Var>& right) {
  Var sum = 0.0;
  for (std::size_t n = 0; n < left.size(); ++n) sum += left[n] * right[n];
  return sum;
}

/// weight_row . x of a token.
Var projected(const SeenTokens& tokens, int token, const VarTensor& weight, int first) {
  const int channels = tokens.x->shape[2];
  Var sum = 0.0;
  for (int c = 0; c < channels; ++c) {
    sum += weight.data[static_cast<std::size_t>(first * channels + c)] * tokens.x->at(tokens.row, token, c);
  }
  return sum;
}

std::vector<Var> fox(const Part& part, const Parameters& parameters, const SeenTokens& tokens) {
  const VarTensor& weight = parameter(parameters, *part.term, "weight");
  const VarTensor& bias = parameter(parameters, *part.term, "bias");
  const int head = tokens.head - part.first_head;
  std::vector<Var> all(tokens.seen.size());
  for (std::size_t j = 0; j < tokens.seen.size(); ++j) {
    Var sum = 0.0;
    for (std::size_t l = j + 1; l < tokens.seen.size(); ++l) {
      sum += log_sigmoid(projected(tokens, tokens.seen[l], weight, head) + bias.at(head));
    }
    all[j] = sum;
  }
  return all;
}

Var gate(const VarTensor& vectors, int head, const std::vector<Var>& token, bool unit) {
  Var product = 0.0, square = 0.0;
  for (std::size_t d = 0; d < token.size(); ++d) {
    const Var& entry = vectors.at(head, static_cast<int>(d));
    product += entry * token[d];
    square += entry * entry;
  }
  if (unit) product = product / max(sqrt(square), Var(1e-6));
  return softplus(product / std::sqrt(static_cast<double>(token.size())));
}

std::vector<Var> grape_a(const Part& part, const Parameters& parameters, const SeenTokens& tokens) {
  const Term& term = *part.term;
  const std::string gates = term.word("gate", "none");
  const bool paper = term.word("variant", "released") == "paper";
  const int head = tokens.head - part.first_head, key_head = tokens.key_head - part.first_key_head;
  Var scale = 1.0;
  if (gates == "none" || !paper) {
    scale = term.flag("learn_slopes", false) ? exp(parameter(parameters, term, "log_slopes").at(head))
                                             : Var(alibi_slopes(part.heads, 8.0)[static_cast<std::size_t>(head)]);
  }
  if (gates != "none") scale = scale * softplus(parameter(parameters, term, "rho").at(head));
  const double position = tokens.c->positions_q.at(tokens.row, tokens.query, 0);
  std::vector<Var> all;
  for (int j : tokens.seen) {
    const double n = position - tokens.c->positions_k.at(tokens.row, j, 0);
    if (gates == "none") {
      all.push_back(-scale * std::abs(n));
      continue;
    }
    if (!tokens.c->causal || n < 0.0) throw Unsupported("a gated slope needs a causal order");
    Var rate = 0.0;
    if (gates != "q") {
      rate +=
          gate(parameter(parameters, term, "u"), key_head, row_of(*tokens.k, tokens.row, tokens.key_head, j), !paper);
    }
    if (gates != "k") {
      rate += gate(parameter(parameters, term, "v"), head, row_of(*tokens.q, tokens.row, tokens.head, tokens.query),
                   !paper);
    }
    all.push_back(-scale * rate * n);
  }
  return all;
}

std::vector<Var> probe(const Part& part, const Parameters& parameters, const SeenTokens& tokens, int token) {
  const std::string tie = part.term->word("tie", "none");
  if (tie == "k") return row_of(*tokens.k, tokens.row, tokens.key_head, token);
  if (tie == "v") return row_of(*tokens.v, tokens.row, tokens.key_head, token);
  if (tie == "q") {
    const int query = tokens.query + token - tokens.own;  // queries stand beside each other
    if (query < 0) throw Unsupported("tie=q reads the query of every token");
    return row_of(*tokens.q, tokens.row, tokens.head, query);
  }
  const VarTensor& weight = parameter(parameters, *part.term, "weight");
  const int width = weight.shape[1], head = tokens.head - part.first_head;
  std::vector<Var> row;
  for (int n = 0; n < width; ++n) row.push_back(projected(tokens, token, weight, head * width + n));
  return row;
}

std::vector<Var> over_its_mean(const std::vector<Var>& row) {
  const Var length = sqrt(dot(row, row) / static_cast<double>(row.size()) + probe_epsilon);
  std::vector<Var> all;
  for (const Var& entry : row) all.push_back(entry / length);
  return all;
}

std::vector<Var> turned(const std::vector<Var>& row, double angle, bool neighbours) {
  std::vector<Var> all = row;
  const std::size_t planes = row.size() / 2;
  for (std::size_t n = 0; n < planes; ++n) {
    const std::size_t a = neighbours ? 2 * n : n, b = neighbours ? 2 * n + 1 : n + planes;
    all[a] = row[a] * std::cos(angle) - row[b] * std::sin(angle);
    all[b] = row[a] * std::sin(angle) + row[b] * std::cos(angle);
  }
  return all;
}

std::vector<Var> grape_ap(const Part& part, const Parameters& parameters, const SeenTokens& tokens) {
  const Term& term = *part.term;
  const std::string variant = term.word("variant", "released");
  const bool paper = variant == "paper";
  const int head = tokens.head - part.first_head;
  const Var alpha = term.flag("learn_alpha", false)
                        ? exp(parameter(parameters, term, "log_alpha").at(head))
                        : Var(alibi_slopes(part.heads, 8.0)[static_cast<std::size_t>(head)]);
  std::vector<Var> query = probe(part, parameters, tokens, tokens.own);
  if (paper) query = over_its_mean(query);
  if (variant == "relative") {
    query = turned(query, -tokens.c->positions_q.at(tokens.row, tokens.query, 0), false);
  }
  std::vector<Var> edges;
  for (int l : tokens.seen) {
    const double position = tokens.c->positions_k.at(tokens.row, l, 0);
    if (tokens.c->positions_q.at(tokens.row, tokens.query, 0) < position) {
      throw Unsupported("a path integral needs a causal order");
    }
    const std::vector<Var> key =
        turned(over_its_mean(probe(part, parameters, tokens, l)), paper ? position : -position, paper);
    edges.push_back(log_sigmoid(dot(query, key) / static_cast<double>(key.size())));
  }
  std::vector<Var> all(tokens.seen.size());
  for (std::size_t j = 0; j < tokens.seen.size(); ++j) {
    Var sum = 0.0;
    for (std::size_t l = j + 1; l < edges.size(); ++l) sum += edges[l];
    all[j] = alpha * sum;
  }
  return all;
}

}  // namespace

bool is_content_bias(const std::string& name) { return name == "fox" || name == "grape-a" || name == "grape-ap"; }

bool reads_hidden_states(const Term& term) {
  if (term.name == "grape-m") return term.flag("context", false);
  return term.name == "fox" || (term.name == "grape-ap" && term.word("tie", "none") == "none");
}

std::vector<Var> content_bias(const Part& part, const Parameters& parameters, const SeenTokens& tokens) {
  const std::string& name = part.term->name;
  if (name == "grape-a") return grape_a(part, parameters, tokens);
  if (!tokens.c->causal) throw Unsupported("'" + name + "' goes from a key to a later query: it needs a causal order");
  return name == "fox" ? fox(part, parameters, tokens) : grape_ap(part, parameters, tokens);
}

}  // namespace oracle

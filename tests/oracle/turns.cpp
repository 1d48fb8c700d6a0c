#include "tests/oracle/turns.h"

#include <cmath>
#include <utility>

namespace oracle {
namespace {

using Row = std::vector<Var>;
using Rows = std::vector<Row>;

Var dot(const Row& left, const Row& right) {
  Var sum = 0.0;
  for (std::size_t n = 0; n < left.size(); ++n) sum += left[n] * right[n];
  return sum;
}

/// exp(t L) x by many short steps of a Taylor series: slow, and nothing to get wrong.
Row flow(const Rows& L, const Var& t, Row x) {
  double size = 0.0;
  for (const Row& row : L) {
    double sum = 0.0;
    for (const Var& entry : row) sum += std::abs(entry.value);
    size = std::max(size, sum);
  }
  const int steps = 1 + static_cast<int>(2.0 * std::abs(t.value) * size);
  const Var step = t / static_cast<double>(steps);
  for (int s = 0; s < steps; ++s) {
    Row term = x;
    for (int order = 1; order <= 16; ++order) {
      Row next;
      for (const Row& row : L) next.push_back(dot(row, term) * (step / static_cast<double>(order)));
      term = std::move(next);
      for (std::size_t n = 0; n < x.size(); ++n) x[n] += term[n];
    }
  }
  return x;
}

class Turn {
 public:
  Turn(const Part& part, const Parameters& parameters, const SeenTokens& tokens)
      : term_(*part.term),
        parameters_(parameters),
        tokens_(tokens),
        key_head_(tokens.key_head - part.first_key_head),
        width_(tokens.c->head_dim()),
        rank_(static_cast<int>(term_.number("rank", 0))),
        context_(term_.flag("context", false)) {}

  /// Whether planes are pairs of channels.
  bool in_pairs() const { return rank_ == 0 && term_.word("planes", "canonical") == "canonical"; }

  /// How far the query has come since the key, one number an axis.
  Row distance(std::size_t j) const {
    if (context_) {
      if (!tokens_.c->causal) throw Unsupported("a phase from a later key back to a query has no meaning");
      Var sum = 0.0;
      for (std::size_t l = j; l + 1 < tokens_.seen.size(); ++l) sum += rate(tokens_.seen[l]);
      return {sum};
    }
    Row all;
    for (int axis = 0; axis < tokens_.c->positions_k.size(2); ++axis) {
      all.push_back(tokens_.c->positions_q.at(tokens_.row, tokens_.query, axis) -
                    tokens_.c->positions_k.at(tokens_.row, tokens_.seen[j], axis));
    }
    return all;
  }

  /// x in the trained basis.
  Row in_basis(const Row& x) const {
    const std::string basis = term_.word("basis", "none");
    if (basis == "householder") return reflected(x);
    if (basis == "cayley") return rotated(x);
    return x;
  }

  /// The key as the query sees it: turned by what lies between.
  Row turned(const Row& key, const Row& distance) const {
    if (!in_pairs()) return flow(generator(), -distance[0], key);
    const VarTensor& log_freq = tensor("log_freq");
    const int axes = static_cast<int>(term_.number("axes", 1)), each = width_ / axes;
    const bool neighbours = term_.word("layout", "half") == "interleaved";
    const double sign = term_.word("orientation", "plus") == "minus" ? 1.0 : -1.0;
    Row y = key;
    for (int plane = 0; plane < width_ / 2; ++plane) {
      const int axis = plane / (each / 2), i = plane % (each / 2);
      const auto a = static_cast<std::size_t>(axis * each + (neighbours ? 2 * i : i));
      const auto b = static_cast<std::size_t>(axis * each + (neighbours ? 2 * i + 1 : i + each / 2));
      const Var logarithm = log_freq.at(log_freq.shape[0] == 1 ? 0 : key_head_, plane);
      const Var angle = exp(context_ ? logarithm : logarithm / 16.0) * distance[static_cast<std::size_t>(axis)] * sign;
      y[a] = key[a] * cos(angle) - key[b] * sin(angle);
      y[b] = key[a] * sin(angle) + key[b] * cos(angle);
    }
    return y;
  }

 private:
  const VarTensor& tensor(const char* name) const { return parameter(parameters_, term_, name); }

  Var rate(int token) const {
    const VarTensor &weight = tensor("gate_weight"), &bias = tensor("gate_bias");
    const int row = weight.shape[0] == 1 ? 0 : key_head_;
    Var gate = bias.at(row);
    for (int c = 0; c < weight.shape[1]; ++c) gate += weight.at(row, c) * tokens_.x->at(tokens_.row, token, c);
    return term_.word("link", "released") == "softplus" ? softplus(gate) : sigmoid(gate / 16.0);
  }

  Rows generator() const {
    Rows L(static_cast<std::size_t>(width_), Row(static_cast<std::size_t>(width_)));
    const auto add = [&](const Row& a, const Row& b, const Var& theta) {
      for (std::size_t i = 0; i < a.size(); ++i) {
        for (std::size_t j = 0; j < a.size(); ++j) L[i][j] += theta * (a[i] * b[j] - b[i] * a[j]);
      }
    };
    if (rank_ > 0) {
      for (int plane = 0; plane < rank_ / 2; ++plane) {
        Row a, b;
        for (int c = 0; c < width_; ++c) {
          a.push_back(tensor("mix").at(key_head_, c, 2 * plane));
          b.push_back(tensor("mix").at(key_head_, c, 2 * plane + 1));
        }
        add(a, b, tensor("theta").at(key_head_, plane));
      }
      return L;
    }
    const auto row = [&](const char* name) {
      Row all;
      for (int c = 0; c < width_; ++c) all.push_back(tensor(name).at(key_head_, c));
      return all;
    };
    const Row a = row("a");
    Row b = a;
    if (term_.word("planes", "canonical") == "general") {
      b = row("b");
    } else {
      const bool neighbours = term_.word("layout", "half") == "interleaved";
      for (int i = 0; i < width_ / 2; ++i) {
        const auto first = static_cast<std::size_t>(neighbours ? 2 * i : i);
        const auto second = static_cast<std::size_t>(neighbours ? 2 * i + 1 : i + width_ / 2);
        b[first] = -a[second];
        b[second] = a[first];
      }
    }
    add(a, b, tensor("omega").at(key_head_));
    return L;
  }

  /// The product of the reflections from the first on.
  Row reflected(Row x) const {
    const VarTensor& reflectors = tensor("reflectors");
    for (int n = 0; n < reflectors.shape[0]; ++n) {
      Row v;
      for (int c = 0; c < width_; ++c) v.push_back(reflectors.at(n, c));
      const Var along = dot(v, x) * 2.0 / dot(v, v);
      for (std::size_t c = 0; c < x.size(); ++c) x[c] = x[c] - along * v[c];
    }
    return x;
  }

  /// B^T x of B = (I + S)^-1 (I - S): (I + S) z with (I - S) z = x, by elimination to the diagonal.
  Row rotated(const Row& x) const {
    const auto size = static_cast<std::size_t>(width_);
    Rows S(size, Row(size)), left(size, Row(size));
    int entry = 0;
    for (std::size_t i = 0; i < size; ++i) {
      for (std::size_t j = i + 1; j < size; ++j) {
        S[i][j] = tensor("skew").at(entry++);
        S[j][i] = -S[i][j];
      }
    }
    for (std::size_t i = 0; i < size; ++i) {
      for (std::size_t j = 0; j < size; ++j) left[i][j] = (i == j ? Var(1.0) : Var(0.0)) - S[i][j];
    }
    Row z = x;
    for (std::size_t p = 0; p < size; ++p) {
      for (std::size_t i = 0; i < size; ++i) {
        if (i == p) continue;
        const Var factor = left[i][p] / left[p][p];
        for (std::size_t j = 0; j < size; ++j) left[i][j] = left[i][j] - factor * left[p][j];
        z[i] = z[i] - factor * z[p];
      }
    }
    for (std::size_t i = 0; i < size; ++i) z[i] = z[i] / left[i][i];
    Row y = z;
    for (std::size_t i = 0; i < size; ++i) y[i] += dot(S[i], z);
    return y;
  }

  const Term& term_;
  const Parameters& parameters_;
  const SeenTokens& tokens_;
  int key_head_, width_, rank_;
  bool context_;
};

}  // namespace

std::vector<Var> turned_products(const Part& part, const Parameters& parameters, const SeenTokens& tokens,
                                 const std::vector<Var>& q) {
  const Turn turn(part, parameters, tokens);
  const Row query = turn.in_basis(q);
  std::vector<Var> all;
  for (std::size_t j = 0; j < tokens.seen.size(); ++j) {
    Row key;
    for (int d = 0; d < tokens.c->head_dim(); ++d) {
      key.push_back(tokens.k->at(tokens.row, tokens.key_head, tokens.seen[j], d));
    }
    all.push_back(dot(query, turn.turned(turn.in_basis(key), turn.distance(j))));
  }
  return all;
}

}  // namespace oracle

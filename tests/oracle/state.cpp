#include "tests/oracle/state.h"

#include <algorithm>
#include <cmath>

namespace oracle {
namespace {

Part inside(Part part) {
  part.term = &part.term->inner();
  return part;
}

}  // namespace

PositionState::PositionState(const Part& part, const Case& c, const Parameters& parameters, const VarTensor* given)
    : part_(part), c_(c), parameters_(parameters), rotary_(inside(part), c.head_dim(), parameters), given_(given) {
  const Term& term = *part.term;
  post_ = term.flag("attention", true) ? term.word("post", "rowsum") : "none";
  control_ = term.word("control", "none");
  network_ = term.flag("mlp", true);
  shared_ = term.word("gqa", "expand") == "shared";
  heads_ = shared_ ? part.key_heads : part.heads;
  planes_ = static_cast<int>(rotary_.planes().size());
  block_ = static_cast<int>(term.number("block", 2));
  if (given == nullptr) return;
  const int entries = given->shape[3];
  const bool fits = block_ > 2 ? entries == 2 * planes_ * block_ : entries == 2 * planes_ || entries == 4 * planes_;
  if (given->shape[1] != heads_ || !fits) throw Error("case '" + c.id + "': the state does not fit");
}

int PositionState::width() const {
  if (given_ != nullptr) return given_->shape[3];
  return block_ > 2 ? 2 * planes_ * block_ : 2 * planes_;
}

bool PositionState::updates() const {
  const bool changes = network_ || post_ != "none";
  return changes && c_.layer >= part_.term->number("from_layer", 0) && c_.layer + 1 < c_.layers;
}

bool PositionState::averages() const { return updates() && post_ != "none"; }

int PositionState::head_of(const SeenTokens& tokens) const {
  return shared_ ? tokens.key_head - part_.first_key_head : tokens.head - part_.first_head;
}

std::vector<Var> PositionState::products(const SeenTokens& tokens, const std::vector<Var>& q) const {
  const int columns = width() / planes_ == 2 ? 2 : width() / planes_ / 2;
  const int head = head_of(tokens);
  // Entry (row, column) of the block of a plane.
  const auto entry = [&](int token, int plane, int row, int column) -> Var {
    if (width() == 2 * planes_) {
      const Var c = given_->at(tokens.row, head, token, plane);
      const Var s = given_->at(tokens.row, head, token, planes_ + plane);
      if (row == column) return c;
      return row == 0 ? s : -s;
    }
    return given_->at(tokens.row, head, token, (plane * 2 + row) * columns + column);
  };
  const auto turned = [&](const std::vector<Var>& x, int token) {
    std::vector<Var> y;
    for (int p = 0; p < planes_; ++p) {
      const Plane& plane = rotary_.planes()[static_cast<std::size_t>(p)];
      const Var &a = x[static_cast<std::size_t>(plane.a)], &b = x[static_cast<std::size_t>(plane.b)];
      for (int column = 0; column < columns; ++column)
        y.push_back(a * entry(token, p, 0, column) + b * entry(token, p, 1, column));
    }
    return y;
  };
  std::vector<bool> in_plane(q.size(), false);
  for (const Plane& plane : rotary_.planes()) {
    in_plane[static_cast<std::size_t>(plane.a)] = in_plane[static_cast<std::size_t>(plane.b)] = true;
  }
  const std::vector<Var> query = turned(q, std::clamp(tokens.own, 0, c_.keys() - 1));
  std::vector<Var> all;
  for (int j : tokens.seen) {
    std::vector<Var> key;
    for (int d = 0; d < c_.head_dim(); ++d) key.push_back(tokens.k->at(tokens.row, tokens.key_head, j, d));
    const std::vector<Var> moved = turned(key, j);
    Var product = 0.0;
    for (std::size_t n = 0; n < moved.size(); ++n) product += query[n] * moved[n];
    for (std::size_t d = 0; d < q.size(); ++d) {
      if (!in_plane[d]) product += q[d] * key[d];
    }
    all.push_back(product);
  }
  return all;
}

std::vector<double> PositionState::initial(int b, int key_head, int token) const {
  double last = -1.0;
  for (int j = 0; j < c_.keys(); ++j) {
    if (c_.key_lengths && j >= c_.key_lengths->at(b)) continue;
    if (c_.documents_k && c_.documents_k->at(b, j) != c_.documents_k->at(b, token)) continue;
    last = std::max(last, c_.positions_k.at(b, j, 0));
  }
  const std::vector<Var> frequencies = rotary_.frequencies(key_head, last + 1.0);
  std::vector<double> z(static_cast<std::size_t>(width()), 0.0);
  for (int p = 0; p < planes_; ++p) {
    const Plane& plane = rotary_.planes()[static_cast<std::size_t>(p)];
    const double position = c_.positions_k.at(b, token, plane.axis);
    const double angle = rotary_.direction() * position * frequencies[static_cast<std::size_t>(p)].value;
    const double cosine = rotary_.magnitude() * std::cos(angle), sine = rotary_.magnitude() * std::sin(angle);
    const auto at = [&](int n) -> double& { return z[static_cast<std::size_t>(n)]; };
    if (block_ == 2) {
      at(p) = cosine;
      at(planes_ + p) = sine;
    } else {  // the rows of a plane: (cos, sin, 0 ...) and (-sin, cos, 0 ...)
      at(2 * p * block_) = cosine;
      at(2 * p * block_ + 1) = sine;
      at((2 * p + 1) * block_) = -sine;
      at((2 * p + 1) * block_ + 1) = cosine;
    }
  }
  return z;
}

double PositionState::value(int b, int head, int token, int entry) const {
  if (given_ != nullptr) return given_->at(b, head, token, entry).value;
  const int key_head = shared_ ? head : head / (part_.heads / part_.key_heads);
  return initial(b, key_head, token)[static_cast<std::size_t>(entry)];
}

void PositionState::add_average(const SeenTokens& tokens, double weight, int j, std::vector<double>& sum) const {
  for (int n = 0; n < width(); ++n) {
    sum[static_cast<std::size_t>(n)] += weight * value(tokens.row, head_of(tokens), j, n);
  }
}

/// z + Dn (silu(Xp m) * (Up z)) of one token, z by head; the heads one after the other.
std::vector<double> PositionState::mixed(int b, int token, const std::vector<std::vector<double>>& z) const {
  const int inner = tensor("x_proj").shape[0], channels = tensor("x_proj").shape[1];
  std::vector<double> next;
  for (const std::vector<double>& head : z) next.insert(next.end(), head.begin(), head.end());
  for (int i = 0; i < inner; ++i) {
    double gate = 0.0;
    for (int c = 0; c < channels; ++c) gate += trained("x_proj", i, c) * c_.mlp_out.value().at(b, token, c);
    gate = gate / (1.0 + std::exp(-gate));
    for (int n = 0; n < width(); ++n) {
      // Which numbers an entry mixes with, and by which maps.
      const int half = n / planes_, plane = n % planes_;
      double sum = 0.0;
      for (int e = 0; e < heads_; ++e) {
        const auto row = static_cast<std::size_t>(e);
        if (control_ == "mixing") {
          for (int p = 0; p < planes_; ++p) {
            sum += trained("up_proj", i, e * planes_ + p) * z[row][static_cast<std::size_t>(half * planes_ + p)];
          }
        } else if (control_ == "frame") {
          sum += trained("up_proj", half, i, e) * z[row][static_cast<std::size_t>(n)];
        } else {
          sum += trained("up_proj", i, e) * z[row][static_cast<std::size_t>(n)];
        }
      }
      for (int h = 0; h < heads_; ++h) {
        double down = 0.0;
        if (control_ == "mixing") down = trained("down_proj", h * planes_ + plane, i);
        if (control_ == "frame") down = trained("down_proj", half, h, i);
        if (control_ == "none") down = trained("down_proj", h, i);
        next[static_cast<std::size_t>(h * width() + n)] += down * gate * sum;
      }
    }
  }
  return next;
}

Tensor PositionState::after_layer(const Tensor& averages) const {
  const double limit = part_.term->number("clip", 0);
  Tensor after({c_.rows(), heads_, c_.keys(), width()});
  for (int b = 0; b < c_.rows(); ++b) {
    for (int t = 0; t < c_.keys(); ++t) {
      if (c_.documents_k && c_.documents_k->at(b, t) < 0.0) continue;
      // The averages of the query heads that share a state are averaged.
      const int group = part_.heads / heads_;
      std::vector<std::vector<double>> y, z;
      for (int h = 0; h < heads_; ++h) {
        std::vector<double> mean(static_cast<std::size_t>(width()), 0.0), own;
        for (int n = 0; n < width(); ++n) {
          own.push_back(value(b, h, t, n));
          for (int g = 0; g < group && post_ != "none"; ++g) {
            mean[static_cast<std::size_t>(n)] += averages.at(b, part_.first_head + h * group + g, t, n) / group;
          }
        }
        y.push_back(mean);
        z.push_back(own);
      }
      for (int h = 0; h < heads_; ++h) {
        for (int n = 0; n < width(); ++n) {
          double& x = z[static_cast<std::size_t>(h)][static_cast<std::size_t>(n)];
          if (post_ == "scalar")
            x += trained("post_attention", h) * y[static_cast<std::size_t>(h)][static_cast<std::size_t>(n)];
          for (int e = 0; e < heads_ && (post_ == "rowsum" || post_ == "headmix"); ++e) {
            const int from = post_ == "rowsum" ? h : e;
            x += trained("post_attention", h, e) * y[static_cast<std::size_t>(from)][static_cast<std::size_t>(n)];
          }
        }
      }
      std::vector<double> next;
      if (network_) {
        next = mixed(b, t, z);
      } else {
        for (const std::vector<double>& head : z) next.insert(next.end(), head.begin(), head.end());
      }
      for (int h = 0; h < heads_; ++h) {
        double squares = 0.0;
        for (int n = 0; n < width(); ++n) squares += std::pow(next[static_cast<std::size_t>(h * width() + n)], 2.0);
        // A block holds the square of its z twice.
        const double r = std::sqrt(squares / (width() == 2 * planes_ ? planes_ : 2 * planes_));
        const double divisor = limit > 0.0 ? std::max(1.0, r / limit) : 1.0;
        for (int n = 0; n < width(); ++n) {
          after.data[after.index(b, h, t, n)] = next[static_cast<std::size_t>(h * width() + n)] / divisor;
        }
      }
    }
  }
  return after;
}

}  // namespace oracle

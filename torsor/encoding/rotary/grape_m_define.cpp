#include "torsor/encoding/rotary/grape_m_define.h"

#include <cmath>

#include "torsor/encoding/bias/answer.h"

namespace torsor {
namespace {

using Wide = long double;
using Vector = std::vector<Wide>;

/// A square matrix, row by row.
struct Matrix {
  explicit Matrix(std::size_t size) : n(size), entries(size * size, 0) {}
  Wide& operator()(std::size_t i, std::size_t j) { return entries[i * n + j]; }
  Wide operator()(std::size_t i, std::size_t j) const { return entries[i * n + j]; }
  std::size_t n;
  Vector entries;
};

Matrix times(const Matrix& a, const Matrix& b) {
  Matrix c(a.n);
  for (std::size_t i = 0; i < a.n; ++i)
    for (std::size_t k = 0; k < a.n; ++k)
      for (std::size_t j = 0; j < a.n; ++j) c(i, j) += a(i, k) * b(k, j);
  return c;
}

/// exp(t L): halved until it is small, a Taylor series, then squared as often.
Matrix exponential(const Matrix& generator, Wide t) {
  Wide size = 0;
  for (const Wide entry : generator.entries) size += std::fabs(entry * t);
  int halvings = 0;
  while (size > 0.25L && halvings < 200) size /= 2, ++halvings;
  const Wide small = std::ldexp(t, -halvings);
  Matrix sum(generator.n), term(generator.n);
  for (std::size_t i = 0; i < generator.n; ++i) sum(i, i) = term(i, i) = 1;
  for (int order = 1; order <= 20; ++order) {
    term = times(term, generator);
    for (std::size_t i = 0; i < term.entries.size(); ++i) {
      term.entries[i] *= small / order;
      sum.entries[i] += term.entries[i];
    }
  }
  for (int i = 0; i < halvings; ++i) sum = times(sum, sum);
  return sum;
}

std::size_t place(std::int64_t index) { return static_cast<std::size_t>(index); }

class Definition {
 public:
  Definition(const Encoding& encoding, const GrapeMSpec& spec, const std::string& prefix,
             const PlainParameters& parameters)
      : spec_(spec),
        prefix_(prefix),
        parameters_(parameters),
        width_(encoding.dimensions().head_dim),
        channels_(encoding.dimensions().width),
        group_(encoding.group()) {}

  Wide product(const PlainVectors& vectors, const std::vector<double>& distance) const {
    const std::int64_t key_head = vectors.head / group_;
    Vector q(vectors.q, vectors.q + width_), k(vectors.k, vectors.k + width_);
    if (spec_.rank == 0 && spec_.planes == GrapeMSpec::Planes::Canonical) {
      if (spec_.basis != GrapeMSpec::Basis::None) q = in_basis(q), k = in_basis(k);
      return canonical(q, k, key_head, distance);
    }
    // <exp(p L) q, exp(r L) k> = <q, exp((r - p) L) k>
    const Matrix turned = exponential(generator(key_head), -static_cast<Wide>(distance.at(0)));
    Wide sum = 0;
    for (std::size_t i = 0; i < q.size(); ++i)
      for (std::size_t j = 0; j < k.size(); ++j) sum += q[i] * turned(i, j) * k[j];
    return sum;
  }

  Wide rate(const double* x, std::int64_t key_head) const {
    const std::int64_t gate = spec_.per_head ? key_head : 0;
    const std::vector<double>& weight = values("gate_weight");
    Wide z = values("gate_bias").at(place(gate));
    for (std::int64_t c = 0; c < channels_; ++c) z += static_cast<Wide>(weight.at(place(gate * channels_ + c))) * x[c];
    if (spec_.link == group::PhaseLink::Released) return 1 / (1 + std::exp(-z / 16));
    return z > 0 ? z + std::log1p(std::exp(-z)) : std::log1p(std::exp(z));
  }

 private:
  const std::vector<double>& values(const char* tensor) const { return plain(parameters_, str(prefix_, ".", tensor)); }

  // R(a)^T R(b) turns by b - a: a product of turned pairs knows the difference of the angles.
  Wide canonical(const Vector& q, const Vector& k, std::int64_t key_head, const std::vector<double>& distance) const {
    const std::vector<double>& logarithm = values("log_freq");
    const std::int64_t planes = width_ / 2, in_block = planes / spec_.axes;
    const bool shared = static_cast<std::int64_t>(logarithm.size()) == planes;
    Wide sum = 0;
    for (std::int64_t axis = 0; axis < spec_.axes; ++axis)
      for (std::int64_t i = 0; i < in_block; ++i) {
        const std::int64_t plane = axis * in_block + i, first = 2 * axis * in_block;
        const bool half = spec_.layout == Layout::Half;
        const std::size_t a = place(first + (half ? i : 2 * i)), b = place(first + (half ? i + in_block : 2 * i + 1));
        const Wide logged = logarithm.at(place(shared ? plane : key_head * planes + plane));
        const Wide frequency = std::exp(spec_.context ? logged : logged / 16);
        const Wide angle = frequency * distance.at(place(axis)) * (spec_.minus ? -1 : 1);
        sum += (q[a] * k[a] + q[b] * k[b]) * std::cos(angle) + (q[a] * k[b] - q[b] * k[a]) * std::sin(angle);
      }
    return sum;
  }

  Matrix generator(std::int64_t key_head) const {
    Matrix L(place(width_));
    const auto add = [&](const auto& a, const auto& b, Wide theta) {
      for (std::int64_t i = 0; i < width_; ++i)
        for (std::int64_t j = 0; j < width_; ++j) L(place(i), place(j)) += theta * (a(i) * b(j) - b(i) * a(j));
    };
    if (spec_.rank > 0) {
      const std::vector<double>& mix = values("mix");
      for (std::int64_t i = 0; i < spec_.rank / 2; ++i) {
        const auto column = [&](std::int64_t which) {
          return [&, which](std::int64_t c) -> Wide {
            return mix.at(place((key_head * width_ + c) * spec_.rank + which));
          };
        };
        add(column(2 * i), column(2 * i + 1), values("theta").at(place(key_head * spec_.rank / 2 + i)));
      }
      return L;
    }
    const auto row = [&](const char* tensor) {
      return [&of = values(tensor), this, key_head](std::int64_t c) -> Wide {
        return of.at(place(key_head * width_ + c));
      };
    };
    const auto a = row("a");
    const Wide omega = values("omega").at(place(key_head));
    if (spec_.planes == GrapeMSpec::Planes::General) {
      add(a, row("b"), omega);
      return L;
    }
    add(
        a,
        [&](std::int64_t c) -> Wide {  // J a: the second of a pair receives the first, the first minus the second
          const std::int64_t step = spec_.layout == Layout::Half ? width_ / 2 : 1;
          const bool second = spec_.layout == Layout::Half ? c >= width_ / 2 : c % 2 == 1;
          return second ? a(c - step) : -a(c + step);
        },
        omega);
    return L;
  }

  /// B^T x.
  Vector in_basis(const Vector& x) const {
    if (spec_.basis == GrapeMSpec::Basis::Householder) {
      // B = H_1 H_2 ..., each its own transpose: H_1 comes first.
      Vector y = x;
      const std::vector<double>& reflectors = values("reflectors");
      for (std::int64_t r = 0; r < spec_.reflectors; ++r) {
        Wide along = 0, length = 0;
        for (std::int64_t c = 0; c < width_; ++c) {
          const Wide v = reflectors.at(place(r * width_ + c));
          along += v * y[place(c)], length += v * v;
        }
        if (length == 0) continue;
        for (std::int64_t c = 0; c < width_; ++c)
          y[place(c)] -= 2 * along / length * reflectors.at(place(r * width_ + c));
      }
      return y;
    }
    // B^T = (I + S)(I - S)^-1 for skew S; the two commute. y solves (I - S) y = (I + S) x, by elimination.
    Matrix left(place(width_));
    Vector right = x;
    const std::vector<double>& upper = values("skew");
    for (std::int64_t i = 0; i < width_; ++i) left(place(i), place(i)) = 1;
    std::size_t entry = 0;
    for (std::int64_t i = 0; i < width_; ++i)
      for (std::int64_t j = i + 1; j < width_; ++j, ++entry) {
        const Wide s = upper.at(entry);
        left(place(i), place(j)) = -s, left(place(j), place(i)) = s;
        right[place(i)] += s * x[place(j)], right[place(j)] -= s * x[place(i)];
      }
    // I - S has no small pivots: its symmetric part is I.
    for (std::size_t pivot = 0; pivot < left.n; ++pivot)
      for (std::size_t i = pivot + 1; i < left.n; ++i) {
        const Wide factor = left(i, pivot) / left(pivot, pivot);
        for (std::size_t j = pivot; j < left.n; ++j) left(i, j) -= factor * left(pivot, j);
        right[i] -= factor * right[pivot];
      }
    for (std::size_t i = left.n; i-- > 0;) {
      for (std::size_t j = i + 1; j < left.n; ++j) right[i] -= left(i, j) * right[j];
      right[i] /= left(i, i);
    }
    return right;
  }

  const GrapeMSpec& spec_;
  const std::string& prefix_;
  const PlainParameters& parameters_;
  std::int64_t width_, channels_, group_;
};

}  // namespace

double define_grape_m(const Encoding& encoding, const GrapeMSpec& spec, const std::string& prefix,
                      const PlainVectors& vectors, const std::vector<double>& distance,
                      const PlainParameters& parameters) {
  return static_cast<double>(Definition(encoding, spec, prefix, parameters).product(vectors, distance));
}

void define_grape_m_path(const Encoding& encoding, const GrapeMSpec& spec, const std::string& prefix,
                         std::vector<double>& logits, const PlainTokens& tokens, const PlainParameters& parameters) {
  const Definition definition(encoding, spec, prefix, parameters);
  const std::int64_t width = encoding.dimensions().head_dim, key_head = tokens.head / encoding.group();
  // From the query backwards: the key's own rate counts, the query's does not.
  Wide phase = 0;
  for (std::size_t j = tokens.seen.size(); j-- > 0;) {
    const PlainTokens::Token& key = tokens.seen[j];
    if (j + 1 < tokens.seen.size()) phase += definition.rate(key.x, key_head);
    Wide plain = 0;
    for (std::int64_t c = 0; c < width; ++c) plain += static_cast<Wide>(tokens.own.q[c]) * key.k[c];
    const Wide turned = definition.product({tokens.own.q, key.k, tokens.head}, {static_cast<double>(phase)});
    logits[j] += static_cast<double>(tokens.scale * (turned - plain));
  }
}

}  // namespace torsor

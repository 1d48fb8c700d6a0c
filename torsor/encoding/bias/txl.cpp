#include "torsor/encoding/bias/txl.h"

#include <cmath>

#include "torsor/encoding/bias/answer.h"

namespace torsor {
namespace {

class Txl : public Encoding {
 public:
  Txl(const Dimensions& dimensions, const std::string& prefix, bool halves)
      : Encoding(dimensions), u_name_(prefix + ".u"), v_name_(prefix + ".v"), w_name_(prefix + ".w"), halves_(halves) {
    const std::int64_t width = dimensions.width;
    for (std::int64_t i = 0; i < width / 2; ++i)
      frequency_.push_back(std::exp(-std::log(10000.0) * static_cast<double>(2 * i) / static_cast<double>(width)));
  }

  Traits traits() const override {
    Traits traits;
    traits.content = true;
    traits.forms = {"product"};
    return traits;
  }

  /// Normal with deviation 0.02, the authors' init_std.
  std::vector<ParameterInfo> parameters(std::int64_t) const override {
    const auto normal = [](const std::string& name, std::vector<std::int64_t> shape) {
      ParameterInfo info;
      info.name = name;
      info.shape = std::move(shape);
      info.initial.kind = Initial::Kind::Normal;
      info.initial.b = 0.02;
      return info;
    };
    const std::int64_t heads = dimensions_.heads, dim = dimensions_.head_dim;
    ParameterInfo w = normal(w_name_, {heads, dim, dimensions_.width});
    w.decay = true;  // a projection like W_K, not a positional scalar
    return {normal(u_name_, {heads, dim}), normal(v_name_, {heads, dim}), w};
  }

  std::vector<Move> moves(const Question& question, Role role) const override {
    std::vector<Move> list;
    if (role == Role::Query) list.emplace_back(AddedVector{all_heads(), trained(question, u_name_)});
    return list;
  }

  std::vector<BiasForm> biases(const Question& question) const override {
    const at::ScalarType type = answer_type(question);
    const at::Tensor q = question.q.to(type) + trained(question, v_name_).unsqueeze(1);
    const at::Tensor a = at::matmul(q, trained(question, w_name_)) * question.scale;  // (B, H, Tq, C)
    const std::int64_t half = dimensions_.width / 2;
    const at::Tensor sines = halves_ ? a.narrow(3, 0, half) : a.slice(3, 0, 2 * half, 2);
    const at::Tensor cosines = halves_ ? a.narrow(3, half, half) : a.slice(3, 1, 2 * half, 2);
    const at::Tensor at_query = angles(question, question.query), at_key = angles(question, question.key);
    const at::Tensor sin_q = at_query.sin().to(type), cos_q = at_query.cos().to(type);
    const at::Tensor query = at::cat({sines * sin_q + cosines * cos_q, cosines * sin_q - sines * cos_q}, 3);
    const at::Tensor key = at::cat({at_key.cos().to(type), at_key.sin().to(type)}, 3);
    return {{all_heads(), ProductForm{query, key}}};
  }

  CacheContract cache(std::int64_t) const override {
    CacheContract contract;
    contract.shift = contract.evict = "exact";
    contract.note = "keys are kept as they are; only positions move";
    return contract;
  }

  double define_product(const PlainPair& pair, const PlainParameters& parameters) const override {
    const std::vector<double>& u = plain(parameters, u_name_);
    double sum = 0;
    for (std::int64_t d = 0; d < dimensions_.head_dim; ++d)
      sum += (pair.q[d] + u.at(static_cast<std::size_t>(pair.head * dimensions_.head_dim + d))) * pair.k[d];
    return sum;
  }

  double define_bias(const PlainPair& pair, const PlainParameters& parameters) const override {
    const std::vector<double>& v = plain(parameters, v_name_);
    const std::vector<double>& w = plain(parameters, w_name_);
    const double n = pair.pq[0] - pair.pk[0];
    const std::int64_t width = dimensions_.width;
    double sum = 0;
    for (std::int64_t c = 0; c < width; ++c) {
      const std::int64_t plane = halves_ ? c % (width / 2) : c / 2;
      const bool sine = halves_ ? c < width / 2 : c % 2 == 0;
      const double angle = n / std::pow(10000.0, 2.0 * static_cast<double>(plane) / static_cast<double>(width));
      const double feature = sine ? std::sin(angle) : std::cos(angle);
      for (std::int64_t d = 0; d < dimensions_.head_dim; ++d) {
        const auto row = static_cast<std::size_t>(pair.head * dimensions_.head_dim + d);
        sum += (pair.q[d] + v.at(row)) * w.at(row * static_cast<std::size_t>(width) + static_cast<std::size_t>(c)) *
               feature;
      }
    }
    return pair.scale * sum;
  }

  std::vector<std::string> content() const override { return {"distance term (q + v).(W R_n) (B, H, Tq, Tk)"}; }

 private:
  /// Position times frequency in float64: (B|1, 1, T, C/2).
  at::Tensor angles(const Question& question, const Side& side) const {
    const at::Tensor positions = distinct_positions(side).to(answer_device(question), at::kDouble);
    return (positions.unsqueeze(2) * fixed(question, frequency_, at::kDouble)).unsqueeze(1);
  }

  std::string u_name_, v_name_, w_name_;
  bool halves_;
  std::vector<double> frequency_;
};

}  // namespace

NameInfo txl_name() {
  NameInfo info;
  info.name = "txl";
  info.summary = "Transformer-XL: a content vector and a distance vector a head, both compared with the query";
  info.formula = "logit = scale * ((q + u).k + (q + v).(W R_n));  R_n = sinusoid of n = p_q - p_k at the model's width";
  info.source = "Dai et al. 2019 (arXiv 1901.02860), section 3.3";
  info.page = "txl";
  info.no_rotation = true;
  info.keys = {
      {.name = "order",
       .type = KeyInfo::Type::Word,
       .fallback = std::string("halves"),
       .about = "channels of R_n: sines then cosines, or a sine and a cosine in turn",
       .words = {"halves", "interleaved"}},
  };
  info.make = [](MakeRequest& request) {
    if (request.dimensions.width % 2 != 0)
      throw UsageError(
          str("txl needs an even model width for its sines and cosines, found width ", request.dimensions.width));
    return std::make_unique<Txl>(request.dimensions, request.prefix, request.settings.word("order") == "halves");
  };
  return info;
}

}  // namespace torsor

#include "torsor/encoding/bias/cope.h"

#include <algorithm>
#include <cmath>

#include "torsor/encoding/bias/answer.h"

namespace torsor {
namespace {

class Cope : public Encoding {
 public:
  Cope(const Dimensions& dimensions, const std::string& prefix, std::int64_t length)
      : Encoding(dimensions), table_name_(prefix + ".table"), length_(length) {}

  Traits traits() const override {
    Traits traits;
    traits.content = true;
    traits.forms = {"content"};
    return traits;
  }

  std::vector<ParameterInfo> parameters(std::int64_t) const override {
    ParameterInfo info;
    info.name = table_name_;
    info.shape = {length_, dimensions_.head_dim};
    info.initial.kind = Initial::Kind::Constant;  // zeros, as in the paper's listing: training starts without a bias
    return {info};
  }

  std::vector<BiasForm> biases(const Question& question) const override {
    if (!question.causal)
      throw Refusal(
          "cope counts the tokens between a key and a query that comes after it, so it needs causal attention");
    return {{all_heads(), ContentForm{question.q.to(answer_type(question)), trained(question, table_name_)}}};
  }

  CacheContract cache(std::int64_t) const override {
    CacheContract contract;
    contract.shift = "exact";
    contract.evict =
        "cope counts every token between key and query: without an evicted key the counts past it change; dropping a "
        "row's oldest tokens is exact";
    contract.evict_oldest = "exact";
    contract.note = "keys are kept as they are; positions are never read";
    return contract;
  }

  void define_row(std::vector<double>& logits, const double* q, std::int64_t, std::int64_t,
                  const PlainParameters& parameters) const override {
    const std::vector<double>& table = plain(parameters, table_name_);
    const std::int64_t width = dimensions_.head_dim;
    const auto product = [&](std::int64_t row) {
      double sum = 0;
      for (std::int64_t c = 0; c < width; ++c) sum += q[c] * table.at(static_cast<std::size_t>(row * width + c));
      return sum;
    };
    double count = 0;
    for (auto logit = logits.rbegin(); logit != logits.rend(); ++logit) {
      count += 1 / (1 + std::exp(-*logit));
      const double position = std::min(count, static_cast<double>(length_ - 1));
      const double below = std::floor(position), part = position - below;
      *logit += (1 - part) * product(static_cast<std::int64_t>(below));
      if (part > 0) *logit += part * product(static_cast<std::int64_t>(below) + 1);
    }
  }

  std::vector<std::string> content() const override {
    return {"gates sigmoid(logit) (B, H, Tq, Tk), summed from the key to the query"};
  }

 private:
  std::string table_name_;
  std::int64_t length_;
};

}  // namespace

NameInfo cope_name() {
  NameInfo info;
  info.name = "cope";
  info.summary = "positions that count only the tokens a query cares about, by gates that read the content";
  info.formula =
      "g_ij = sigmoid(logit_ij);  p_ij = min(g_ij + ... + g_ii, length - 1);  b = q_i . table[p_ij], linear between "
      "rows";
  info.source = "Golovneva, Wang, Weston, Sukhbaatar 2024 (arXiv 2405.18719), section 4";
  info.page = "cope";
  info.keys = {
      {.name = "length",
       .type = KeyInfo::Type::Integer,
       .fallback = 64.0,  // the paper's experiments
       .about = "rows of the table; counts stop at length - 1",
       .low = 1,
       .high = 65536},
  };
  info.make = [](MakeRequest& request) {
    return std::make_unique<Cope>(request.dimensions, request.prefix, request.settings.integer("length"));
  };
  return info;
}

}  // namespace torsor

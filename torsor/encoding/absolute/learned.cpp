#include "torsor/encoding/absolute/learned.h"

#include <cmath>

#include "torsor/encoding/bias/answer.h"

namespace torsor {
namespace {

class Learned : public Encoding {
 public:
  Learned(const Dimensions& dimensions, const std::string& prefix, std::int64_t length)
      : Encoding(dimensions), table_name_(prefix + ".table"), length_(length) {}

  Traits traits() const override {
    Traits traits;
    traits.absolute = true;
    traits.relative = false;
    return traits;
  }

  std::vector<ParameterInfo> parameters(std::int64_t) const override {
    ParameterInfo info;
    info.name = table_name_;
    info.shape = {length_, dimensions_.width};
    info.initial.kind = Initial::Kind::Normal;
    info.initial.b = 0.02;  // GPT-2 and BERT
    info.shared = true;
    return {info};
  }

  at::Tensor embedding(const Side& tokens, const NamedTensors& parameters, const NamedTensors&,
                       const at::Tensor&) const override {
    const at::Tensor& table = find_trained(&parameters, table_name_);
    at::Tensor positions = distinct_positions(tokens).to(table.device(), at::kDouble);
    at::Tensor padding;
    if (tokens.documents.defined()) {
      padding = tokens.documents.lt(0).to(table.device());
      positions = positions.expand_as(padding).masked_fill(padding, 0);
    }
    check(positions);
    // at::embedding adds the gradients of a row in token order, whatever the number of threads.
    at::Tensor vectors = at::embedding(table, positions.to(at::kLong));
    if (padding.defined()) vectors = vectors.masked_fill(padding.unsqueeze(2), 0);
    return vectors.expand({tokens.positions.size(0), tokens.tokens(), dimensions_.width});
  }

  CacheContract cache(std::int64_t) const override {
    CacheContract contract;
    contract.shift =
        "learned is part of the hidden states: cached keys and values keep the positions they were made at";
    contract.evict = "exact";
    contract.note = "keys are kept as they are; their positions are fixed at arrival";
    return contract;
  }

  double define_embedding(double position, std::int64_t channel, const PlainParameters& parameters) const override {
    if (position < 0 || position >= static_cast<double>(length_) || position != std::trunc(position))
      refuse(position, "");
    const std::int64_t entry = static_cast<std::int64_t>(position) * dimensions_.width + channel;
    return plain(parameters, table_name_).at(static_cast<std::size_t>(entry));
  }

 private:
  /// Throws for the first position that has no row; written so that NaN has none either.
  void check(const at::Tensor& positions) const {
    const at::Tensor good = positions.ge(0)
                                .logical_and(positions.lt(static_cast<double>(length_)))
                                .logical_and(positions.eq(positions.floor()));
    if (good.all().item<bool>()) return;
    const at::Tensor first = good.logical_not().nonzero().select(0, 0).to(at::kCPU);
    const std::int64_t row = first[0].item<std::int64_t>(), token = first[1].item<std::int64_t>();
    refuse(positions.index({row, token}).item<double>(), str(" (row ", row, ", token ", token, ")"));
  }

  [[noreturn]] void refuse(double position, const std::string& where) const {
    throw Refusal(str("learned: position ", print(Value(position)), where, " has no vector: the table of length=",
                      length_, " holds the whole positions from 0 to ", length_ - 1));
  }

  std::string table_name_;
  std::int64_t length_;
};

}  // namespace

NameInfo learned_name() {
  NameInfo info;
  info.name = "learned";
  info.summary = "a trained vector for every position, added to the token embedding; nothing past the table";
  info.formula = "e = table[p], p a whole number in [0, length)";
  info.source = "Gehring et al. 2017 (arXiv 1705.03122), section 3.1";
  info.page = "learned";
  info.absolute = true;
  info.keys = {
      {.name = "length",
       .type = KeyInfo::Type::Integer,
       .fallback = 0.0,
       .about = "rows of the table; 0 = the model's training length",
       .low = 0,
       .high = 1 << 24},
  };
  info.make = [](MakeRequest& request) {
    std::int64_t length = request.settings.integer("length");
    if (length == 0) length = request.dimensions.train_length;
    if (length == 0) throw UsageError("learned needs a length: the model has no training length here, give length=");
    return std::make_unique<Learned>(request.dimensions, request.prefix, length);
  };
  return info;
}

}  // namespace torsor

// Rotations past the training length: turns made in training, what a scaling does to them, angles in small dtypes.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "torsor/lab/diagnosis_facts.h"

namespace torsor {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;
constexpr double kSame = 1e-6;  // relative: frequencies so near are one
constexpr std::int64_t kLeastSearched = std::int64_t{1} << 20, kMostSearched = std::int64_t{1} << 22;
constexpr std::int64_t kAnglesAtOnce = std::int64_t{1} << 18;

std::vector<double> absolute(std::vector<double> values) {
  for (double& value : values) value = std::abs(value);
  return values;
}

/// The rotation that a scaling scales; nothing for a plain one.
std::optional<Term> scaled_term(const Term& term) {
  if (!find_name(term.name)->rotary || term.operands.empty()) return std::nullopt;
  return term.operands.front().expression.terms.front();
}

std::optional<RotationInfo> rotation_of(const Term& term, Dimensions dimensions, Precision precision, double length,
                                        const PlainParameters& parameters) {
  dimensions.precision = precision;
  return make_encoding(Expression{{term}, ""}, dimensions)->rotation(length, parameters);
}

void judge_treatment(RotationAtLength& at, const std::vector<double>& plain, bool own_divisors) {
  double most = 1;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    at.slowed.push_back(at.frequency[i] == 0 ? 1 : plain[i] / at.frequency[i]);
    most = std::max(most, at.slowed.back());
  }
  for (const double slowed : at.slowed) {
    const bool kept = std::abs(slowed - 1) <= kSame;
    const bool stretched = own_divisors ? !kept : slowed >= most * (1 - kSame);
    at.treatment.push_back(kept ? Treatment::Kept : stretched ? Treatment::Stretched : Treatment::Blended);
  }
}

/// Angles beyond those of training, of planes that did not go all the way round there.
void judge_angles(RotationAtLength& at, const std::vector<double>& trained_turns) {
  for (std::size_t i = 0; i < trained_turns.size(); ++i) {
    const double turns = at.reach * at.frequency[i] / kTurn;
    if (at.frequency[i] == 0 || trained_turns[i] >= 1 || turns <= trained_turns[i] * (1 + kSame)) continue;
    at.unseen.push_back(static_cast<std::int64_t>(i));
    at.worst = std::max(at.worst, turns / trained_turns[i]);
  }
}

}  // namespace

const char* treatment_name(Treatment treatment) {
  switch (treatment) {
    case Treatment::Kept:
      return "kept";
    case Treatment::Blended:
      return "blended";
    case Treatment::Stretched:
      return "stretched";
  }
  return "";
}

DtypeFacts dtype_facts(const std::vector<double>& exact, const std::vector<double>& rounded, at::ScalarType dtype,
                       std::int64_t limit) {
  DtypeFacts facts;
  facts.dtype = dtype == at::kBFloat16 ? "bf16" : dtype == at::kHalf ? "float16" : "float32";
  facts.searched = limit;
  const std::int64_t planes = static_cast<std::int64_t>(exact.size());
  const at::Tensor truth = at::tensor(exact, at::kDouble), frequency = at::tensor(rounded, at::kDouble).to(dtype);
  // Small pieces first: in half precision the answer is among the first few hundred.
  std::int64_t piece = 1024;
  for (std::int64_t begin = 0; begin < limit;
       begin += piece, piece = std::max<std::int64_t>(1, kAnglesAtOnce / planes)) {
    const std::int64_t end = std::min(limit, begin + piece);
    const at::Tensor position = at::arange(begin, end, at::kDouble).unsqueeze(1);
    const at::Tensor error = ((position.to(dtype) * frequency).to(at::kDouble) - position * truth).abs();
    // Written so that an infinite angle is wrong too.
    const at::Tensor wrong = error.le(kAngleBound).logical_not();
    if (!wrong.any().item<bool>()) continue;
    const std::int64_t row = wrong.any(1).to(at::kLong).argmax().item<std::int64_t>();
    facts.position = begin + row;
    facts.plane = wrong[row].to(at::kLong).argmax().item<std::int64_t>();
    facts.error = error[row][facts.plane].item<double>();
    return facts;
  }
  return facts;
}

std::vector<RotationFacts> rotation_facts(const Part& part, const FactsRequest& request) {
  const double trained = static_cast<double>(request.dimensions.train_length);
  const auto first = part.encoding->rotation(trained, part.parameters);
  if (!first) return {};
  const Term term = core_term(part.term);
  const std::optional<Term> inner = scaled_term(term);
  const Dimensions& dimensions = part.encoding->dimensions();
  const bool own_divisors = term.name == "longrope";
  const auto plain = inner ? rotation_of(*inner, dimensions, dimensions.precision, trained, part.parameters) : first;
  std::vector<RotationFacts> all;
  for (std::size_t row = 0; row < first->inv_freq.size(); ++row) {
    RotationFacts facts;
    facts.part = part.name;
    if (first->inv_freq.size() > 1) facts.key_head = static_cast<std::int64_t>(row);
    facts.axis = first->axis;
    facts.plain = absolute((plain ? plain : first)->inv_freq[row]);
    facts.magnitude = first->magnitude;
    facts.softmax_factor = part.encoding->softmax_factor();
    facts.length_dependent = part.encoding->traits().length_dependent;
    facts.initial = part.trained && request.model == nullptr;
    if (inner) {
      facts.scaling = term.name;
      facts.factor = key_number(term, "factor", 1);
      if (has_key(term, "train_length")) facts.scaling_length = key_number(term, "train_length", trained);
    }
    for (const Decay& decay : part.encoding->decays()) {
      const at::Tensor rate = decay.rate.contiguous();
      facts.decay.assign(rate.const_data_ptr<double>(), rate.const_data_ptr<double>() + rate.numel());
    }
    const auto at_length = [&](double length) {
      return absolute(part.encoding->rotation(length, part.parameters)->inv_freq[row]);
    };
    // What training showed: the plain planes as far as the scaling takes them as trained, or the scaled ones where the
    // model itself was trained with them.
    const std::vector<double> here = at_length(trained);
    const double plain_length = facts.scaling_length > 0 ? facts.scaling_length : trained;
    const bool with_scaling = facts.scaling_length > 0 ? trained > facts.scaling_length : request.own;
    const bool with_plain = facts.scaling_length > 0 || !request.own || !inner;
    for (std::size_t i = 0; i < here.size(); ++i) {
      double turns = 0;
      if (with_plain) turns = std::max(turns, facts.plain[i] * reach_of(part, plain_length) / kTurn);
      if (with_scaling) turns = std::max(turns, here[i] * reach_of(part, trained) / kTurn);
      facts.trained_turns.push_back(turns);
    }
    std::vector<std::int64_t> lengths = {request.dimensions.train_length};
    for (const std::int64_t length : request.lengths)
      if (length > lengths.front()) lengths.push_back(length);
    for (const std::int64_t length : lengths) {
      RotationAtLength at;
      at.length = length;
      at.reach = reach_of(part, static_cast<double>(length));
      at.frequency = at_length(static_cast<double>(length));
      if (inner) judge_treatment(at, facts.plain, own_divisors);
      judge_angles(at, facts.trained_turns);
      facts.lengths.push_back(std::move(at));
    }
    const std::int64_t limit = std::clamp(request.lengths.back(), kLeastSearched, kMostSearched);
    for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf, at::kFloat}) {
      std::vector<double> rounded = here;
      if (dtype == at::kFloat)
        if (const auto float32 = rotation_of(term, dimensions, Precision::HuggingFace, trained, part.parameters))
          rounded = absolute(float32->inv_freq[row]);
      // The truth is float64 even where the model itself asks for float32.
      const auto exact = rotation_of(term, dimensions, Precision::Exact, trained, part.parameters);
      facts.dtypes.push_back(dtype_facts(exact ? absolute(exact->inv_freq[row]) : here, rounded, dtype, limit));
    }
    all.push_back(std::move(facts));
  }
  return all;
}

}  // namespace torsor

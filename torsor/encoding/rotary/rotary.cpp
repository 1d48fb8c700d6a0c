#include "torsor/encoding/rotary/rotary.h"

#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "torsor/encoding/rotary/document_lengths.h"

namespace torsor {
namespace {

// The queries' and the keys' tables of one call.
constexpr std::size_t kRemembered = 2;
// Larger tables are made anew: 2^24 numbers are 64 MiB in float32.
constexpr std::int64_t kLargestRemembered = std::int64_t{1} << 24;

std::vector<std::int64_t> plane_axes(const RotarySpec& spec) {
  std::vector<std::int64_t> axis;
  if (spec.axes == 1 || spec.arrangement == Arrangement::Axial) {
    for (std::int64_t plane = 0; plane < spec.planes(); ++plane)
      axis.push_back(spec.axes == 1 ? 0 : plane / spec.block_planes());
    return axis;
  }
  if (spec.arrangement == Arrangement::Contiguous) {
    for (std::size_t a = 0; a < spec.sections.size(); ++a)
      axis.insert(axis.end(), static_cast<std::size_t>(spec.sections[a]), static_cast<std::int64_t>(a));
    return axis;
  }
  axis.assign(static_cast<std::size_t>(spec.planes()), 0);
  for (std::int64_t a = 1; a < spec.axes; ++a)
    for (std::int64_t turn = 0; turn < spec.sections[static_cast<std::size_t>(a)]; ++turn)
      axis[static_cast<std::size_t>(a + turn * spec.axes)] = a;
  return axis;
}

/// Equal numbers in tensors of one type and shape on the CPU.
bool same_numbers(const at::Tensor& one, const at::Tensor& other) {
  if (one.scalar_type() != at::kDouble || !one.is_contiguous() || !other.is_contiguous()) return one.equal(other);
  const double *a = one.const_data_ptr<double>(), *b = other.const_data_ptr<double>();
  return std::equal(a, a + one.numel(), b);
}

}  // namespace

Rotary::Rotary(const Dimensions& dimensions, RotarySpec spec)
    : Encoding(dimensions), spec_(std::move(spec)), axis_(plane_axes(spec_)) {}

Traits Rotary::traits() const {
  Traits traits;
  traits.rotates = true;
  traits.length_dependent = length_dependent();
  traits.relative = !length_dependent();  // a shift changes T, and with it the frequencies
  traits.axes = spec_.axes;
  return traits;
}

std::vector<ParameterInfo> Rotary::parameters(std::int64_t /*layer*/) const {
  if (spec_.trained.empty()) return {};
  ParameterInfo info;
  info.name = spec_.trained;
  const std::int64_t rows = static_cast<std::int64_t>(spec_.bases.size());
  info.shape = {rows, spec_.planes()};
  if (rows != dimensions_.kv_heads) info.also = {{dimensions_.kv_heads, spec_.planes()}};
  info.initial.kind = Initial::Kind::Values;
  for (const double base : spec_.bases)
    for (std::int64_t block = 0; block < spec_.blocks; ++block)
      for (const double frequency : Rotary::frequencies(base, 0)) info.initial.values.push_back(std::log(frequency));
  return {info};
}

CacheContract Rotary::cache(std::int64_t /*layer*/) const {
  CacheContract contract;
  contract.shift = contract.evict = "exact";
  if (!length_dependent()) return contract;
  contract.key = CacheContract::Key::Raw;
  contract.note =
      str(spec_.scaled_by,
          ": keys are kept unmoved and turned at each read, because their frequencies depend on the length of "
          "the document; one attention call equals the full pass, but in a model the deeper layers' cached "
          "values were made with the earlier frequencies: recompute them when the frequencies change");
  return contract;
}

// --------------------------------------------------------------------------------------------------------------------
// Frequencies

std::vector<double> Rotary::frequencies(double base, double /*length*/) const {
  std::vector<double> all(static_cast<std::size_t>(spec_.block_planes()), 0.0);
  for (std::int64_t i = 0; i < spec_.live; ++i)
    all[static_cast<std::size_t>(i)] =
        1.0 / std::pow(base, 2.0 * static_cast<double>(i) / static_cast<double>(spec_.exponent_width));
  return all;
}

at::Tensor Rotary::frequencies_float32(double base, double /*length*/) const {
  const at::Tensor exponent = at::arange(0, 2 * spec_.live, 2, at::kLong).to(at::kFloat) / spec_.exponent_width;
  at::Tensor turning = at::pow(at::Scalar(base), exponent).reciprocal();
  if (spec_.live == spec_.block_planes()) return turning;
  return at::cat({turning, at::zeros({spec_.block_planes() - spec_.live})});
}

// (1 or key heads, planes), signed; on the CPU
at::Tensor Rotary::frequency_table(double length, at::ScalarType type) const {
  std::vector<at::Tensor> rows;
  for (const double base : spec_.bases)
    rows.push_back((dimensions_.precision == Precision::HuggingFace
                        ? frequencies_float32(base, length)
                        : at::tensor(frequencies(base, length), at::kDouble))
                       .repeat({spec_.blocks}));
  const at::Tensor table = at::stack(rows).to(type);
  return spec_.minus ? table.neg() : table;
}

// The scalings that take trained frequencies (linear, yarn) multiply each plane by a number of its own, whatever the
// frequency is: what they make of the plain one tells it.
std::vector<double> Rotary::trained_factors(std::size_t row) const {
  const double base = spec_.bases.size() == 1 ? spec_.bases[0] : spec_.bases[row];
  const std::vector<double> plain = Rotary::frequencies(base, 0), scaled = frequencies(base, 0);
  std::vector<double> factors;
  for (std::int64_t block = 0; block < spec_.blocks; ++block)
    for (std::size_t i = 0; i < plain.size(); ++i) factors.push_back(scaled[i] / plain[i]);
  return factors;
}

at::Tensor Rotary::trained_frequencies(const Question& question) const {
  const NamedTensors* given = question.parameters;
  const auto found = given ? given->find(spec_.trained) : NamedTensors::const_iterator{};
  if (!given || found == given->end() || !found->second.defined())
    throw Error(str(spec_.name, ": the trained tensor '", spec_.trained, "' (1 or ", dimensions_.kv_heads, ", ",
                    spec_.planes(), ") is missing"));
  const at::Tensor& logarithm = found->second;
  if (logarithm.dim() != 2 || logarithm.size(1) != spec_.planes() ||
      (logarithm.size(0) != 1 && logarithm.size(0) != dimensions_.kv_heads))
    throw Error(str(spec_.name, ": the trained tensor '", spec_.trained, "' must have shape (1 or ",
                    dimensions_.kv_heads, ", ", spec_.planes(), "), found ", logarithm.sizes()));
  const bool float32 = dimensions_.precision == Precision::HuggingFace;
  at::Tensor frequency = logarithm.to(float32 ? at::kFloat : at::kDouble).exp();
  if (!spec_.scaled_by.empty()) {
    std::vector<at::Tensor> rows;
    for (std::int64_t row = 0; row < logarithm.size(0); ++row)
      rows.push_back(at::tensor(trained_factors(static_cast<std::size_t>(row)), at::kDouble));
    frequency = frequency * at::stack(rows).to(frequency.options());
  }
  return spec_.minus ? frequency.neg() : frequency;
}

// --------------------------------------------------------------------------------------------------------------------
// The answer

// positions (B, T, axes); frequency (rows, planes), or (B, rows, T, planes)
std::pair<at::Tensor, at::Tensor> Rotary::turn(const at::Tensor& positions, const at::Tensor& frequency,
                                               at::ScalarType type, double magnitude) const {
  at::Tensor clock = positions.to(frequency.scalar_type());
  if (spec_.axes > 1) clock = clock.index_select(2, at::tensor(axis_, at::kLong).to(clock.device()));
  clock = clock.unsqueeze(1);  // (B, 1, T, 1 or planes)
  const at::Tensor angle = clock * (frequency.dim() == 2 ? frequency.unsqueeze(1) : frequency);
  at::Tensor cosine = angle.cos(), sine = angle.sin();
  if (magnitude != 1) {
    cosine = cosine * magnitude;
    sine = sine * magnitude;
  }
  return {cosine.to(type), sine.to(type)};
}

std::pair<at::Tensor, at::Tensor> Rotary::remembered(const at::Tensor& positions, double length,
                                                     at::ScalarType type) const {
  const at::ScalarType working = dimensions_.precision == Precision::HuggingFace ? at::kFloat : at::kDouble;
  const std::int64_t numbers =
      positions.size(0) * static_cast<std::int64_t>(spec_.bases.size()) * positions.size(1) * spec_.planes();
  // An accelerator computes a table faster than it answers whether two tensors are equal.
  if (!positions.is_cpu() || numbers > kLargestRemembered)
    return turn(positions, frequency_table(length, working).to(positions.device()), type, magnitude());

  const double same = length_dependent() ? regime(length) : 0;
  const bool inference = c10::InferenceMode::is_enabled();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const Table& table : tables_)
      if (table.type == type && table.regime == same && table.cosine.is_inference() == inference &&
          table.positions.sizes() == positions.sizes() && table.positions.scalar_type() == positions.scalar_type() &&
          same_numbers(table.positions, positions))
        return {table.cosine, table.sine};
  }
  const c10::NoGradGuard no_gradient;
  auto [cosine, sine] = turn(positions, frequency_table(length, working), type, magnitude());
  const std::lock_guard<std::mutex> lock(mutex_);
  if (tables_.size() >= kRemembered) tables_.erase(tables_.begin());
  tables_.push_back({positions.clone(), cosine, sine, type, same});
  return {cosine, sine};
}

// Each token turns with the frequencies of its own document.
std::pair<at::Tensor, at::Tensor> Rotary::per_token(const at::Tensor& positions, const at::Tensor& lengths,
                                                    at::ScalarType type) const {
  const at::Tensor plain = lengths.to(at::kCPU).contiguous();
  const double* values = plain.const_data_ptr<double>();
  std::map<double, std::int64_t> number;  // regime -> row of the tables
  std::vector<double> distinct;
  std::vector<std::int64_t> row(static_cast<std::size_t>(plain.numel()));
  for (std::size_t i = 0; i < row.size(); ++i) {
    const auto [place, added] = number.emplace(regime(values[i]), static_cast<std::int64_t>(distinct.size()));
    if (added) distinct.push_back(values[i]);
    row[i] = place->second;
  }
  const bool one_row = positions.size(0) == 1 || positions.stride(0) == 0;
  if (distinct.size() == 1) return remembered(one_row ? positions.narrow(0, 0, 1) : positions, distinct.front(), type);

  const at::ScalarType working = dimensions_.precision == Precision::HuggingFace ? at::kFloat : at::kDouble;
  std::vector<at::Tensor> tables;
  for (const double length : distinct) tables.push_back(frequency_table(length, working));
  const at::Tensor table = at::stack(tables).to(positions.device());  // (regimes, rows, planes)
  const at::Tensor frequency = table.index_select(0, at::tensor(row, at::kLong).to(positions.device()))
                                   .view({lengths.size(0), lengths.size(1), table.size(1), table.size(2)})
                                   .transpose(1, 2);
  return turn(positions, frequency, type, magnitude());
}

std::vector<Move> Rotary::moves(const Question& question, Role role) const {
  const Side& side = role == Role::Query ? question.query : question.key;
  const at::Tensor& like = role == Role::Query ? question.q : question.k;
  const at::Tensor& positions = side.positions;
  if (!positions.defined() || positions.dim() != 3 || positions.size(2) != spec_.axes)
    throw Error(str(spec_.name, ": positions must have shape (batch, tokens, ", spec_.axes,
                    "), one value an axis; found ",
                    positions.defined() ? str(positions.sizes()) : std::string("none")));
  const at::ScalarType type = like.defined() && like.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;

  std::pair<at::Tensor, at::Tensor> turned;
  const bool some = positions.size(0) > 0 && positions.size(1) > 0;
  const bool one_row = some && (positions.size(0) == 1 || positions.stride(0) == 0);
  const at::Tensor needed = one_row ? positions.narrow(0, 0, 1) : positions;
  if (!spec_.trained.empty())
    turned = turn(needed, trained_frequencies(question), type, magnitude());
  else if (length_dependent() && some)
    turned = per_token(positions, document_lengths(side, question.key), type);
  else
    turned = remembered(needed, 0, type);

  return {planes_of(turned)};
}

Planes Rotary::planes_of(const std::pair<at::Tensor, at::Tensor>& turned) const {
  Planes planes;
  planes.heads = all_heads();
  planes.layout = spec_.layout;
  planes.offset = spec_.offset;
  planes.width = spec_.width;
  planes.blocks = spec_.blocks;
  planes.cosine = turned.first;
  planes.sine = turned.second;
  return planes;
}

// R(p + n) = R(n) R(p): a turn of its own on the same planes, axis by axis.
std::vector<Move> Rotary::shift_moves(const Question& question, const at::Tensor& offsets) const {
  if (length_dependent())
    throw Error(str(spec_.name,
                    ": frequencies depend on the length, so keys are kept unmoved and shift_moves() is "
                    "not asked"));
  const at::ScalarType type =
      question.k.defined() && question.k.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::ScalarType working = dimensions_.precision == Precision::HuggingFace ? at::kFloat : at::kDouble;
  const at::Tensor frequency =
      spec_.trained.empty() ? frequency_table(0, working).to(offsets.device()) : trained_frequencies(question);
  return {planes_of(turn(offsets, frequency, type, 1))};
}

std::optional<RotationInfo> Rotary::rotation(double length, const PlainParameters& parameters) const {
  RotationInfo info;
  info.layout = spec_.layout;
  info.offset = spec_.offset;
  info.width = spec_.width;
  info.blocks = spec_.blocks;
  info.axis = axis_;
  info.magnitude = magnitude();
  const std::size_t planes = static_cast<std::size_t>(spec_.planes());
  if (!spec_.trained.empty()) {
    const auto found = parameters.find(spec_.trained);
    if (found == parameters.end()) return std::nullopt;
    for (std::size_t begin = 0; begin + planes <= found->second.size(); begin += planes) {
      info.inv_freq.emplace_back();
      const std::vector<double> factors = trained_factors(begin / planes);
      for (std::size_t i = 0; i < planes; ++i)
        info.inv_freq.back().push_back(std::exp(found->second[begin + i]) * factors[i] * (spec_.minus ? -1 : 1));
    }
    return info;
  }
  const at::Tensor table = frequency_table(length, at::kDouble).contiguous();
  const double* values = table.const_data_ptr<double>();
  for (std::int64_t row = 0; row < table.size(0); ++row, values += planes)
    info.inv_freq.emplace_back(values, values + planes);
  return info;
}

// --------------------------------------------------------------------------------------------------------------------
// The definition

double Rotary::define_frequency(double base, std::int64_t index, double /*length*/) const {
  if (index >= spec_.live) return 0;
  return std::exp(-2.0 * static_cast<double>(index) / static_cast<double>(spec_.exponent_width) * std::log(base));
}

// The axis that turns a plane, read off the plane's place (plane_axes walks the axes instead).
std::int64_t Rotary::define_axis(std::int64_t plane) const {
  if (spec_.axes == 1) return 0;
  if (spec_.arrangement == Arrangement::Axial) return plane * spec_.axes / spec_.planes();
  if (spec_.arrangement == Arrangement::Interleaved) {
    const std::int64_t axis = plane % spec_.axes;
    return plane < spec_.axes * spec_.sections[static_cast<std::size_t>(axis)] ? axis : 0;
  }
  std::int64_t axis = 0;
  for (std::int64_t left = plane; left >= spec_.sections[static_cast<std::size_t>(axis)]; ++axis)
    left -= spec_.sections[static_cast<std::size_t>(axis)];
  return axis;
}

// A product of turned pairs depends on the difference of the angles only:
// <R(a) q, R(b) k> = (q_a k_a + q_b k_b) cos(a - b) + (q_a k_b - q_b k_a) sin(a - b).
double Rotary::define_product(const PlainPair& pair, const PlainParameters& parameters) const {
  double sum = 0;
  for (std::int64_t c = 0; c < dimensions_.head_dim; ++c)
    if (c < spec_.offset || c >= spec_.offset + spec_.width) sum += pair.q[c] * pair.k[c];

  const std::int64_t key_head = pair.head / group();
  const std::int64_t each = spec_.width / spec_.blocks;
  for (std::int64_t plane = 0; plane < spec_.planes(); ++plane) {
    const std::int64_t block = plane / (each / 2), index = plane % (each / 2);
    const std::int64_t first = spec_.offset + block * each + (spec_.layout == Layout::Half ? index : 2 * index);
    const std::int64_t second = spec_.layout == Layout::Half ? first + each / 2 : first + 1;
    const double base = spec_.bases.size() == 1 ? spec_.bases[0] : spec_.bases[static_cast<std::size_t>(key_head)];
    double frequency = define_frequency(base, index, pair.length);
    if (!spec_.trained.empty()) {
      const std::vector<double>& logarithm = parameters.at(spec_.trained);
      const bool one = static_cast<std::int64_t>(logarithm.size()) == spec_.planes();
      const double trained =
          std::exp(logarithm[static_cast<std::size_t>(plane + (one ? 0 : key_head * spec_.planes()))]);
      frequency = trained * frequency / Rotary::define_frequency(base, index, pair.length);
    }
    const std::int64_t axis = define_axis(plane);
    const double distance = pair.pq[axis] - pair.pk[axis];
    const double angle = (spec_.minus ? -frequency : frequency) * distance;
    const double turned = (pair.q[first] * pair.k[first] + pair.q[second] * pair.k[second]) * std::cos(angle) +
                          (pair.q[first] * pair.k[second] - pair.q[second] * pair.k[first]) * std::sin(angle);
    sum += turned * define_magnitude() * define_magnitude() * define_decay(index, distance);
  }
  return sum;
}

}  // namespace torsor

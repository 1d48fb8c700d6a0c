#include "torsor/encoding/rotary/grape_m.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "torsor/encoding/bias/answer.h"
#include "torsor/encoding/own_tokens.h"
#include "torsor/encoding/rotary/grape_m_define.h"
#include "torsor/encoding/running_sum.h"
#include "torsor/group/basis.h"
#include "torsor/group/phase.h"
#include "torsor/group/planes.h"
#include "torsor/group/rank2.h"

namespace torsor {
namespace {

// ln(e^0.001 - 1): under softplus, a token with no input moves the phase by 1e-3.
constexpr double kFirstGate = -6.907255237315470;

/// Entry c of row `row` of the orthonormal basis of cosines: planes of different rows are orthogonal at the start, and
/// hardly an entry is zero (none where the width is a power of two), so that training finds a gradient in all channels.
double first_entry(std::int64_t row, std::int64_t c, std::int64_t width) {
  const double n = static_cast<double>(width);
  const double wave =
      std::cos(std::numbers::pi * (2 * static_cast<double>(c) + 1) * static_cast<double>(row) / (2 * n));
  return row == 0 ? 1 / std::sqrt(n) : std::sqrt(2 / n) * wave;
}

class GrapeM : public Encoding {
 public:
  GrapeM(const Dimensions& dimensions, const std::string& prefix, const GrapeMSpec& spec)
      : Encoding(dimensions), prefix_(prefix), spec_(spec) {}

  Traits traits() const override {
    Traits traits;
    traits.rotates = true;
    traits.content = spec_.context;
    traits.axes = spec_.axes;
    return traits;
  }

  std::vector<ParameterInfo> parameters(std::int64_t /*layer*/) const override {
    std::vector<ParameterInfo> all;
    if (spec_.rank > 0)
      add_mixture(all);
    else if (spec_.planes == GrapeMSpec::Planes::Canonical)
      add_spectrum(all);
    else
      add_plane(all);
    if (spec_.basis == GrapeMSpec::Basis::Cayley) add(all, "skew", {width() * (width() - 1) / 2}, {});
    if (spec_.basis == GrapeMSpec::Basis::Householder) {
      // Equal reflectors in pairs undo each other: the basis starts as the identity and moves at the first step.
      std::vector<double> values;
      for (std::int64_t row = 0; row < spec_.reflectors; ++row)
        for (std::int64_t c = 0; c < width(); ++c) values.push_back(first_entry(row / 2 % width(), c, width()));
      add(all, "reflectors", {spec_.reflectors, width()}, std::move(values));
    }
    if (spec_.context) {
      const std::int64_t gates = spec_.per_head ? dimensions_.kv_heads : 1;
      add(all, "gate_weight", {gates, dimensions_.width}, {});
      add(all, "gate_bias", {gates}, std::vector<double>(static_cast<std::size_t>(gates), kFirstGate));
    }
    return all;
  }

  NamedTensors arrive(const Question& question, NamedTensors& state) const override {
    if (!spec_.context) return {};
    // Float64 throughout: the phases of a long row are large, and their cosines need all of their digits.
    const at::Tensor weight = wide(question, "gate_weight"), bias = wide(question, "gate_bias");
    const at::Tensor gate = of_tokens(hidden_states(question, prefix_).to(at::kDouble),
                                      [&](const at::Tensor& x) { return at::matmul(x, weight.t()) + bias; });
    const at::Tensor rate = group::phase_rate(gate.transpose(1, 2), spec_.link);
    const group::RunningSums sum = running_sum(rate, question.key, prefix_, state);
    return {{name_of("phase"), sum.before}, {name_of("reach"), sum.through}};
  }

  NamedTensors rewind(const Side& tokens, const NamedTensors& kept) const override {
    const auto reach = kept.find(name_of("reach"));
    return reach == kept.end() ? NamedTensors() : rewound_sum(reach->second, tokens, prefix_);
  }

  std::vector<Move> moves(const Question& question, Role role) const override {
    const at::Tensor clock = clock_of(question, role);
    if (free()) return {rank_turn(question, clock)};
    std::vector<Move> all;
    if (spec_.basis != GrapeMSpec::Basis::None) all.push_back(torsor::Basis{all_heads(), basis(question)});
    all.push_back(planes(question, role, clock));
    return all;
  }

  // Keys are kept in the trained basis, in which the planes turn on.
  std::vector<Move> shift_moves(const Question& question, const at::Tensor& offsets) const override {
    if (spec_.context) return {};
    const at::Tensor clock = offsets.to(at::kDouble).unsqueeze(1);
    if (free()) return {rank_turn(question, clock)};
    return {planes(question, Role::Key, clock)};
  }

  CacheContract cache(std::int64_t /*layer*/) const override {
    CacheContract contract;
    contract.shift = contract.evict = "exact";
    if (!spec_.context) return contract;
    contract.kept = {name_of("phase"), name_of("reach")};
    contract.note =
        "phases come from the content, so a shift of positions changes nothing; the phase of every token is kept, so "
        "rolling back is exact, and what is evicted stays in the phases of the tokens behind it";
    return contract;
  }

  std::optional<RotationInfo> rotation(double /*length*/, const PlainParameters& parameters) const override {
    const auto found = parameters.find(name_of("log_freq"));
    if (spec_.context || free() || found == parameters.end()) return std::nullopt;
    RotationInfo info;
    info.layout = spec_.layout;
    info.width = width();
    info.blocks = spec_.axes;
    const std::size_t count = static_cast<std::size_t>(width() / 2);
    for (std::size_t i = 0; i < count; ++i)
      info.axis.push_back(static_cast<std::int64_t>(i) / (width() / 2 / spec_.axes));
    for (std::size_t begin = 0; begin + count <= found->second.size(); begin += count) {
      info.inv_freq.emplace_back();
      for (std::size_t i = 0; i < count; ++i)
        info.inv_freq.back().push_back(std::exp(found->second[begin + i] / group::kSpectrumScale) *
                                       (spec_.minus ? -1 : 1));
    }
    return info;
  }

  std::vector<std::string> content() const override {
    if (!spec_.context) return {};
    return {str("phases (B, ", spec_.per_head ? "K" : "1", ", T): sums of ",
                spec_.link == group::PhaseLink::Released ? "sigmoid((gate_weight x + gate_bias) / 16)"
                                                         : "softplus(gate_weight x + gate_bias)",
                " over the earlier tokens, in place of positions")};
  }

  double define_product(const PlainPair& pair, const PlainParameters& parameters) const override {
    if (spec_.context) return Encoding::define_product(pair, parameters);  // define_path turns it
    std::vector<double> distance;
    for (std::int64_t axis = 0; axis < spec_.axes; ++axis) distance.push_back(pair.pq[axis] - pair.pk[axis]);
    return define_grape_m(*this, spec_, prefix_, {pair.q, pair.k, pair.head}, distance, parameters);
  }

  void define_path(std::vector<double>& logits, const PlainTokens& tokens,
                   const PlainParameters& parameters) const override {
    if (spec_.context) define_grape_m_path(*this, spec_, prefix_, logits, tokens, parameters);
  }

 private:
  std::int64_t width() const { return dimensions_.head_dim; }
  /// Planes of trained vectors instead of pairs of channels.
  bool free() const { return spec_.planes != GrapeMSpec::Planes::Canonical || spec_.rank > 0; }
  std::string name_of(const char* tensor) const { return str(prefix_, ".", tensor); }

  /// `values` empty = zeros.
  void add(std::vector<ParameterInfo>& all, const char* tensor, std::vector<std::int64_t> shape,
           std::vector<double> values) const {
    ParameterInfo info;
    info.name = name_of(tensor);
    info.shape = std::move(shape);
    if (!values.empty()) info.initial = {Initial::Kind::Values, 0, 0, std::move(values)};
    all.push_back(std::move(info));
  }

  void add_spectrum(std::vector<ParameterInfo>& all) const {
    const std::int64_t heads = dimensions_.kv_heads, rows = spec_.per_head ? heads : 1;
    const double scale = spec_.context ? 1 : group::kSpectrumScale;
    std::vector<double> values;
    for (std::int64_t block = 0; block < rows * spec_.axes; ++block)
      for (const double logarithm : group::log_spectrum(spec_.base, width() / spec_.axes))
        values.push_back(scale * logarithm);
    add(all, "log_freq", {rows, width() / 2}, std::move(values));
    if (heads > 1) all.back().also = {{spec_.per_head ? 1 : heads, width() / 2}};
  }

  // The paper says unit length, a right angle, and the scale in omega; heads share the spectrum among them.
  void add_plane(std::vector<ParameterInfo>& all) const {
    const std::int64_t heads = dimensions_.kv_heads;
    std::vector<double> a, b, omega;
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t c = 0; c < width(); ++c) {
        a.push_back(first_entry(2 * h % width(), c, width()));
        b.push_back(first_entry((2 * h + 1) % width(), c, width()));
      }
      omega.push_back(std::pow(spec_.base, -static_cast<double>(h) / static_cast<double>(heads)));
    }
    add(all, "a", {heads, width()}, std::move(a));
    if (spec_.planes == GrapeMSpec::Planes::General) add(all, "b", {heads, width()}, std::move(b));
    add(all, "omega", {heads}, std::move(omega));
  }

  void add_mixture(std::vector<ParameterInfo>& all) const {
    const std::int64_t heads = dimensions_.kv_heads, r = spec_.rank;
    std::vector<double> mix, theta;
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t c = 0; c < width(); ++c)
        for (std::int64_t i = 0; i < r; ++i) mix.push_back(first_entry((h * r + i) % width(), c, width()));
      for (const double logarithm : group::log_spectrum(spec_.base, r)) theta.push_back(std::exp(logarithm));
    }
    add(all, "mix", {heads, width(), r}, std::move(mix));
    add(all, "theta", {heads, r / 2}, std::move(theta));
  }

  at::Tensor wide(const Question& question, const char* tensor) const {
    return find_trained(question.parameters, name_of(tensor)).to(answer_device(question), at::kDouble);
  }

  /// How far every token has come: (B|1, 1 or K, T, axes) float64.
  at::Tensor clock_of(const Question& question, Role role) const {
    if (spec_.context) {
      need_causal(question, prefix_, "sums the rates of the tokens");
      const auto found = question.kept ? question.kept->find(name_of("phase")) : NamedTensors::const_iterator{};
      if (!question.kept || found == question.kept->end())
        throw Refusal(str(prefix_, ": the angle of a token comes from the tokens before it, not from its position"));
      const at::Tensor phase = role == Role::Key ? found->second : own_tokens(question, found->second);
      return phase.unsqueeze(-1);
    }
    at::Tensor positions = role == Role::Query ? question.query.positions : question.key.positions;
    if (!positions.defined() || positions.dim() != 3 || positions.size(2) != spec_.axes)
      throw Error(str(prefix_, ": positions must have shape (batch, tokens, ", spec_.axes,
                      "), one value an axis; found ",
                      positions.defined() ? str(positions.sizes()) : std::string("none")));
    if (positions.size(0) > 1 && positions.stride(0) == 0) positions = positions.narrow(0, 0, 1);
    return positions.to(at::kDouble).unsqueeze(1);
  }

  torsor::Planes planes(const Question& question, Role role, const at::Tensor& clock) const {
    const at::Tensor& like = role == Role::Query ? question.q : question.k;
    const at::ScalarType type = like.defined() && like.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const double scale = spec_.context ? 1 : group::kSpectrumScale;
    const at::Tensor frequency = (wide(question, "log_freq") / scale).exp();           // (1 or K, planes)
    const at::Tensor by_axis = frequency.unflatten(1, {spec_.axes, -1}).unsqueeze(1);  // (1 or K, 1, axes, planes)
    const at::Tensor angle = (clock.unsqueeze(-1) * (spec_.minus ? -by_axis : by_axis)).flatten(-2);
    torsor::Planes planes;
    planes.heads = all_heads();
    planes.layout = spec_.layout;
    planes.width = width();
    planes.blocks = spec_.axes;
    planes.cosine = angle.cos().to(type);
    planes.sine = angle.sin().to(type);
    return planes;
  }

  RankTurn rank_turn(const Question& question, const at::Tensor& clock) const {
    RankTurn turn;
    turn.heads = all_heads();
    turn.turn = clock.squeeze(-1);
    if (spec_.rank > 0) {
      turn.generator = wide(question, "mix");
      turn.frequency = wide(question, "theta");
      return turn;
    }
    const at::Tensor a = wide(question, "a");
    const at::Tensor b = spec_.planes == GrapeMSpec::Planes::General
                             ? wide(question, "b")
                             : group::quarter_turn(a, spec_.layout == Layout::Interleaved);
    turn.generator = at::stack({a, b}, 2);
    turn.frequency = wide(question, "omega").unsqueeze(1);
    return turn;
  }

  at::Tensor basis(const Question& question) const {
    if (spec_.basis == GrapeMSpec::Basis::Cayley)
      return group::cayley(group::skew_matrix(wide(question, "skew"))).unsqueeze(0);
    return group::householder(wide(question, "reflectors")).unsqueeze(0);
  }

  std::string prefix_;
  GrapeMSpec spec_;
};

/// Throws where two keys say what cannot be had together.
void refuse_combinations(const Settings& settings, const GrapeMSpec& spec) {
  const auto refuse = [](const std::string& problem) { throw UsageError("grape-m: " + problem); };
  const bool canonical = spec.planes == GrapeMSpec::Planes::Canonical, mixture = spec.rank > 0;
  const std::string planes = str("planes=", settings.word("planes"));
  if (mixture && !canonical)
    refuse(str(planes, " and rank=", spec.rank, " both say which planes turn; give one of them"));
  const std::string trained = mixture ? str("rank=", spec.rank) : planes;
  const bool free = mixture || !canonical;  // planes of trained vectors
  if (free && spec.basis != GrapeMSpec::Basis::None)
    refuse(str("basis=", settings.word("basis"), " says nothing beside ", trained,
               ", whose vectors may point anywhere; leave it out"));
  if (free && spec.axes > 1)
    refuse(str("axes=", spec.axes, " needs planes of its own for each axis; with ", trained,
               " the generators of the axes would not commute and distances would lose their meaning"));
  if (free && spec.minus)
    refuse(str("orientation=minus says nothing beside ", trained, ", whose frequencies have a sign of their own"));
  if (spec.layout == Layout::Interleaved && (mixture || spec.planes == GrapeMSpec::Planes::General))
    refuse(str("layout=interleaved says nothing beside ", trained, ", which pairs no channels"));
  if (spec.per_head && free && !spec.context)
    refuse(str("per_head=true says nothing beside ", trained, ", which has vectors for each key head anyway"));
  if (spec.context && spec.axes > 1)
    refuse(str("context=true puts one phase in the place of the position, which has axes=", spec.axes));
  if (settings.given("link") && !spec.context) refuse("link= says how a gate becomes a rate and needs context=true");
  if (settings.given("reflectors") && spec.basis != GrapeMSpec::Basis::Householder)
    refuse("reflectors= needs basis=householder");
}

std::unique_ptr<Encoding> make_grape_m(MakeRequest& request) {
  const Settings& settings = request.settings;
  const std::int64_t width = request.dimensions.head_dim;
  GrapeMSpec spec;
  const std::string &planes = settings.word("planes"), &basis = settings.word("basis");
  spec.planes = planes == "general" ? GrapeMSpec::Planes::General
                : planes == "ja"    ? GrapeMSpec::Planes::QuarterTurn
                                    : GrapeMSpec::Planes::Canonical;
  spec.basis = basis == "cayley"        ? GrapeMSpec::Basis::Cayley
               : basis == "householder" ? GrapeMSpec::Basis::Householder
                                        : GrapeMSpec::Basis::None;
  spec.rank = settings.integer("rank");
  spec.base = settings.number("base");
  spec.reflectors = settings.integer("reflectors");
  spec.context = settings.boolean("context");
  spec.link = settings.word("link") == "softplus" ? group::PhaseLink::Softplus : group::PhaseLink::Released;
  spec.axes = settings.integer("axes");
  spec.per_head = settings.boolean("per_head");
  spec.layout = settings.word("layout") == "interleaved" ? Layout::Interleaved : Layout::Half;
  spec.minus = settings.word("orientation") == "minus";
  refuse_combinations(settings, spec);

  if (spec.rank % 2 != 0)
    throw UsageError(str("grape-m: rank=", spec.rank, " must be even: a plane takes two vectors"));
  if (spec.rank > width) throw UsageError(str("grape-m: rank=", spec.rank, " must be at most head_dim=", width));
  if (spec.basis == GrapeMSpec::Basis::Householder && spec.reflectors % 2 != 0)
    throw UsageError(str("grape-m: reflectors=", spec.reflectors, " must be even: an odd number mirrors the head"));
  if (spec.planes == GrapeMSpec::Planes::General && width < 2)
    throw UsageError(str("grape-m: planes=general needs a head_dim of at least 2, found ", width));
  if (spec.planes == GrapeMSpec::Planes::QuarterTurn && width % 2 != 0)
    throw UsageError(str("grape-m: planes=ja needs an even head_dim, found ", width));
  if (spec.planes == GrapeMSpec::Planes::Canonical && spec.rank == 0 && width % (2 * spec.axes) != 0)
    throw UsageError(
        str("grape-m: axes=", spec.axes, " needs a head_dim that is a multiple of ", 2 * spec.axes, ", found ", width));
  return std::make_unique<GrapeM>(request.dimensions, request.prefix, spec);
}

}  // namespace

NameInfo grape_m_name() {
  using Type = KeyInfo::Type;
  NameInfo info;
  info.name = "grape-m";
  info.summary = "a rotation whose frequencies, planes or clock are trained";
  info.formula = "q, k -> exp(n L) q, exp(n L) k, L skew; n = position, or with context the sum of the rates before it";
  info.source = "Zhang et al. 2025 (arXiv 2512.07805), sections 2 and 3, appendices D and G, and its released code";
  info.page = "grape-m";
  info.turns = true;
  info.keys = {
      {"planes",
       Type::Word,
       std::string("canonical"),
       "pairs of channels; general: the plane of two trained vectors a key head; ja: of one and its quarter turn",
       {"canonical", "general", "ja"}},
      {"base", Type::Number, 10000.0, "base of the first frequencies: log_freq, omega or theta", {}, 1, 1e300, true},
      {"rank", Type::Integer, 0.0, "trained vectors of a mixture, two a plane; 0 = no mixture", {}, 0},
      {"basis",
       Type::Word,
       std::string("none"),
       "trained orthogonal basis in which pairs of channels turn",
       {"none", "cayley", "householder"}},
      {"reflectors", Type::Integer, 2.0, "reflections of basis=householder, an even number", {}, 2, 4096},
      {"context", Type::Boolean, false, "the content, not the position, says how far a token turns", {}},
      {"link",
       Type::Word,
       std::string("released"),
       "rate of a gate: sigmoid(gate / 16), starting at 0.394, or softplus(gate), starting at 0.001",
       {"released", "softplus"}},
      {"axes", Type::Integer, 1.0, "axes of a position, a block of channels each", {}, 1, 3},
      {"per_head", Type::Boolean, false, "frequencies and gates for each key head", {}},
      {"layout",
       Type::Word,
       std::string("half"),
       "pairs (i, i + d/2), or interleaved pairs (2i, 2i + 1)",
       {"half", "interleaved"}},
      {"orientation", Type::Word, std::string("plus"), "sign of the angle", {"plus", "minus"}},
  };
  info.make = make_grape_m;
  return info;
}

}  // namespace torsor

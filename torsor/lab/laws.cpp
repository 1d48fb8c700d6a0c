#include "torsor/lab/laws.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include "torsor/attention/moves.h"
#include "torsor/base/error.h"
#include "torsor/base/random.h"
#include "torsor/group/laws.h"
#include "torsor/lab/conformance_check.h"

namespace torsor {
namespace {

constexpr std::int64_t kTokens = 14;  // long enough for whole chunks and a rest
constexpr int kDraws = 3;
constexpr double kFar = 1e6;  // largest shift of all positions
// Float64 phases at positions near 1e6 carry errors near 1e-10.
constexpr double kFarBound = 1e-8;
constexpr double kNearBound = 1e-10;
constexpr std::int64_t kAbsoluteLength = 64;  // rows for tables that hold every position that is used here
constexpr std::int64_t kShortLength = 8;      // below kTokens, so that scalings that start past it are at work

/// The encoding, with the fewest assumptions about the model.
std::shared_ptr<const Encoding> make_subject(const LawsRequest& request) {
  const Expression expression = parse(request.encoding);
  const auto make = [&](std::int64_t heads, std::int64_t kv_heads) {
    Dimensions dimensions{.heads = heads, .kv_heads = kv_heads, .head_dim = request.head_dim};
    dimensions.train_length = request.train_length > 0 ? request.train_length : kAbsoluteLength;
    std::shared_ptr<const Encoding> encoding = make_encoding(expression, dimensions);
    if (request.train_length > 0 || encoding->traits().absolute) return encoding;
    dimensions.train_length = kShortLength;
    return make_encoding(expression, dimensions);
  };
  if (request.heads > 0 || request.kv_heads > 0)
    return make(request.heads > 0 ? request.heads : request.kv_heads, request.kv_heads);
  try {
    return make(4, 2);
  } catch (const UsageError&) {
    // Head mixtures and lists of bases say how many heads they are for.
    for (std::int64_t heads = 1; heads <= 128; ++heads) try {
        return make(heads, heads);
      } catch (const UsageError&) {
      }
    throw;
  }
}

struct Tester {
  Tester(std::shared_ptr<const Encoding> encoding, std::int64_t layer_number, std::uint64_t seed)
      : whole(std::move(encoding)),
        layer(layer_encoding(whole, layer_number)),
        number(layer_number),
        random(seed, stream_of("laws")) {
    for (const ParameterInfo& info : layer->parameters(number)) parameters[info.name] = draw(info);
  }

  at::Tensor normal(const std::vector<std::int64_t>& shape) {
    at::Tensor tensor = at::empty(shape, at::kDouble);
    double* values = tensor.data_ptr<double>();
    for (std::int64_t i = 0; i < tensor.numel(); ++i) values[i] = random.normal();
    return tensor;
  }

  /// A first value with some noise: tables that start at zero would make every law hold.
  at::Tensor draw(const ParameterInfo& info) {
    at::Tensor tensor = normal(info.shape) * 0.1;
    switch (info.initial.kind) {
      case Initial::Kind::Constant:
        return tensor + info.initial.a;
      case Initial::Kind::Normal:
        return tensor + info.initial.a + info.initial.b * normal(info.shape);
      case Initial::Kind::Uniform: {
        const at::Tensor uniform = at::empty(info.shape, at::kDouble);
        double* values = uniform.data_ptr<double>();
        for (std::int64_t i = 0; i < uniform.numel(); ++i)
          values[i] = info.initial.a + (info.initial.b - info.initial.a) * random.uniform();
        return tensor + uniform;
      }
      case Initial::Kind::Values:
        return tensor + at::tensor(info.initial.values, at::kDouble).view(info.shape);
    }
    return tensor;
  }

  /// Positions 0, 1, 2 ... on every axis; on further axes in other orders.
  at::Tensor counted(std::int64_t batch, std::int64_t tokens) {
    std::vector<at::Tensor> axes = {at::arange(tokens, at::kDouble)};
    for (std::int64_t axis = 1; axis < whole->traits().axes; ++axis)
      axes.push_back(at::arange(tokens, at::kDouble).mul(static_cast<double>(2 * axis + 1)).remainder(5));
    return at::stack(axes, 1).unsqueeze(0).expand({batch, tokens, whole->traits().axes}).contiguous();
  }

  ConformanceCase attention_case(std::int64_t batch, std::int64_t tokens) {
    const Dimensions& d = whole->dimensions();
    ConformanceCase c;
    c.q = normal({batch, d.heads, tokens, d.head_dim});
    c.k = normal({batch, d.kv_heads, tokens, d.head_dim});
    c.v = normal({batch, d.kv_heads, tokens, d.head_dim});
    c.x = normal({batch, tokens, d.width});
    c.positions_k = c.positions_q = counted(batch, tokens);
    c.parameters = parameters;
    c.layer = number;
    c.layers = std::max(whole->period(), number + 1);
    return c;
  }

  NamedTensors full(const ConformanceCase& c) const { return compute_case(c, *whole, at::kDouble, Path::Reference); }

  std::shared_ptr<const Encoding> whole, layer;
  std::int64_t number;
  Random random;
  NamedTensors parameters;
};

/// Largest difference in units of the largest value; -inf must stand in the same places.
double distance(const at::Tensor& a, const at::Tensor& b) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (a.sizes() != b.sizes()) return infinity;
  if (a.numel() == 0) return 0;
  const at::Tensor nothing = a.eq(-infinity);
  if (!nothing.equal(b.eq(-infinity))) return infinity;
  const at::Tensor x = a.masked_fill(nothing, 0), y = b.masked_fill(nothing, 0);
  const double error = (x - y).abs().max().item<double>();
  return error == 0 ? 0 : error / std::max(x.abs().max().item<double>(), 1e-300);
}

/// A part of each output: tokens [first, first + n) of row `row`, or of all rows when it is negative.
NamedTensors part(const NamedTensors& outputs, std::int64_t row, std::int64_t first, std::int64_t n) {
  NamedTensors parts;
  for (const auto& [name, tensor] : outputs) {
    const std::int64_t axis = name == "embedding" ? 1 : 2;
    const at::Tensor rows = row < 0 ? tensor : tensor.narrow(0, row, 1);
    parts[name] = rows.narrow(axis, first, n);
  }
  return parts;
}

double distance(const NamedTensors& a, const NamedTensors& b) {
  double worst = 0;
  for (const auto& [name, tensor] : a)
    if (const auto found = b.find(name); found != b.end()) worst = std::max(worst, distance(tensor, found->second));
  return worst;
}

// --------------------------------------------------------------------------------------------------------------------
// Rotations: every plane of a token is one complex number; what turns no fixed planes is a matrix

struct Turns {
  std::vector<at::Tensor> planes;  ///< complex (G, T, planes), one for each answer
  at::Tensor matrices;             ///< (T, heads, D, D) of the turns without fixed planes; undefined = none
  bool adds = false;               ///< a vector is added as well
  bool any() const { return !planes.empty() || matrices.defined(); }
};

/// What queries at these positions are multiplied with, in a document that always reaches the same length.
Turns turns_at(const Tester& t, const std::vector<double>& positions) {
  const std::int64_t axes = t.whole->traits().axes, count = static_cast<std::int64_t>(positions.size());
  const Dimensions& d = t.layer->dimensions();
  const auto moves_of = [&](const at::Tensor& at_positions) {
    const std::int64_t batch = at_positions.size(0), tokens = at_positions.size(1);
    Question question;
    question.parameters = &t.parameters;
    question.layer = t.number;
    question.layers = t.number + 1;
    question.q = at::zeros({batch, d.heads, tokens, d.head_dim}, at::kDouble);
    question.k = at::zeros({batch, d.kv_heads, 1, d.head_dim}, at::kDouble);
    question.x = at::zeros({batch, tokens, d.width}, at::kDouble);
    question.query.positions = at_positions;
    question.key.positions = at::full({batch, 1, axes}, 2 * kFar, at::kDouble);
    return t.layer->moves(question, Role::Query);
  };
  const at::Tensor column = at::tensor(positions, at::kDouble);
  Turns turns;
  bool free = false;
  for (const Move& move : moves_of(column.view({1, -1, 1}).expand({1, count, axes}).contiguous())) {
    if (const Planes* planes = std::get_if<Planes>(&move))
      turns.planes.push_back(
          at::complex(planes->cosine[0].to(at::kDouble).contiguous(), planes->sine[0].to(at::kDouble).contiguous()));
    turns.adds |= std::holds_alternative<AddedVector>(move);
    free |= std::holds_alternative<RankTurn>(move);
  }
  if (!free) return turns;
  // A row a position, a token a channel: what becomes of the unit vectors.
  std::vector<Move> all = moves_of(column.view({-1, 1, 1}).expand({count, d.head_dim, axes}).contiguous());
  std::erase_if(all, [](const Move& move) { return !std::holds_alternative<RankTurn>(move); });
  const at::Tensor unit = at::eye(d.head_dim, at::kDouble).expand({count, d.heads, d.head_dim, d.head_dim});
  turns.matrices = apply_moves(unit, all, Role::Query, t.layer->group(), d.precision).transpose(2, 3);
  return turns;
}

std::vector<double> some_positions(Tester& t) {
  std::vector<double> positions = {0, 1, 2, 0.5, -1, -3.5, 100, 12345.5, kFar, -kFar};
  for (int i = 0; i < 6; ++i) positions.push_back(std::round((t.random.uniform() - 0.5) * 4000) / 2);
  return positions;
}

double identity_error(Tester& t) {
  double worst = 0;
  const Turns zero = turns_at(t, {0});
  for (const at::Tensor& z : zero.planes) worst = std::max(worst, at::imag(z).abs().max().item<double>());
  if (zero.matrices.defined()) worst = std::max(worst, group::identity_error(zero.matrices));
  // Products at equal positions are those at position 0.
  ConformanceCase c = t.attention_case(1, 1);
  const Dimensions& d = t.layer->dimensions();
  const auto product = [&](double position) {
    Question question;
    question.parameters = &t.parameters;
    question.layer = t.number;
    question.layers = c.layers;
    question.q = c.q;
    question.k = c.k;
    question.x = c.x;
    question.query.positions = at::full_like(c.positions_q, position);
    // A second key keeps the length of the document, and with it the frequencies.
    question.key.positions = at::cat({question.query.positions, at::full_like(c.positions_q, 2 * kFar)}, 1);
    question.k = at::cat({c.k, c.k}, 2);
    const auto moved = [&](const at::Tensor& x, Role role) {
      return apply_moves(x, t.layer->moves(question, role), role, t.layer->group(), d.precision);
    };
    const at::Tensor keys = moved(question.k, Role::Key).narrow(2, 0, 1).repeat_interleave(t.layer->group(), 1);
    return (moved(question.q, Role::Query) * keys).sum(-1);
  };
  const at::Tensor at_zero = product(0);
  for (const double position : some_positions(t)) worst = std::max(worst, distance(at_zero, product(position)));
  return worst;
}

/// A law of turns by a, b, a + b and -a: its largest error, of complex numbers with their magnitude and of matrices.
struct GroupLaw {
  std::function<at::Tensor(const at::Tensor& a, const at::Tensor& b, const at::Tensor& both, const at::Tensor& minus_a,
                           const at::Tensor& magnitude)>
      planes;
  std::function<double(const at::Tensor& a, const at::Tensor& b, const at::Tensor& both, const at::Tensor& minus_a)>
      matrices;
};

double group_error(Tester& t, const GroupLaw& law) {
  std::vector<double> a = some_positions(t), b = some_positions(t), both, minus_a;
  std::reverse(b.begin(), b.end());
  for (std::size_t i = 0; i < a.size(); ++i) {
    both.push_back(a[i] + b[i]);
    minus_a.push_back(-a[i]);
  }
  const Turns of_a = turns_at(t, a), of_b = turns_at(t, b), of_both = turns_at(t, both),
              of_minus = turns_at(t, minus_a), zero = turns_at(t, {0});
  double worst = 0;
  for (std::size_t i = 0; i < of_a.planes.size(); ++i) {
    const at::Tensor magnitude = zero.planes[i].abs();
    const at::Tensor error =
        law.planes(of_a.planes[i], of_b.planes[i], of_both.planes[i], of_minus.planes[i], magnitude);
    worst = std::max(worst, (error.abs() / magnitude.square().clamp_min(1e-300)).max().item<double>());
  }
  if (of_a.matrices.defined())
    worst = std::max(worst, law.matrices(of_a.matrices, of_b.matrices, of_both.matrices, of_minus.matrices));
  return worst;
}

// --------------------------------------------------------------------------------------------------------------------
// Attention

double relative_error(Tester& t) {
  double worst = 0;
  for (const double stretch : {1.0, 0.5}) {  // whole and half positions
    ConformanceCase c = t.attention_case(1, kTokens);
    const at::Tensor positions = c.positions_k * stretch;
    c.positions_k = c.positions_q = positions;
    const NamedTensors here = t.full(c);
    for (const double shift : {1.0, 0.5, -7.0, 1000.5, kFar, -kFar}) {
      c.positions_k = c.positions_q = positions + shift;
      worst = std::max(worst, distance(here, t.full(c)));
    }
  }
  return worst;
}

double cache_error(Tester& t, std::int64_t tokens) {
  const ConformanceCase c = t.attention_case(2, kTokens);
  return distance(compute_through_cache(c, t.whole, at::kDouble, tokens), t.full(c));
}

/// One row whose first tokens are padding that holds large numbers.
double padded_error(Tester& t) {
  double worst = 0;
  for (const std::int64_t pad : {1, 5}) {
    const ConformanceCase plain = t.attention_case(1, kTokens - pad);
    ConformanceCase padded = t.attention_case(1, kTokens);
    const auto filled = [&](const at::Tensor& tensor, const at::Tensor& with, std::int64_t axis) {
      return at::cat({tensor.narrow(axis, 0, pad) * 50, with}, axis);
    };
    padded.q = filled(padded.q, plain.q, 2);
    padded.k = filled(padded.k, plain.k, 2);
    padded.v = filled(padded.v, plain.v, 2);
    padded.x = filled(padded.x, plain.x, 1);
    padded.positions_k = padded.positions_q =
        at::cat({at::zeros_like(padded.positions_k.narrow(1, 0, pad)), plain.positions_k}, 1);
    padded.documents_k = padded.documents_q =
        at::cat({at::full({1, pad}, -1, at::kLong), at::zeros({1, kTokens - pad}, at::kLong)}, 1);
    worst = std::max(worst, distance(t.full(plain), part(t.full(padded), -1, pad, kTokens - pad)));
  }
  return worst;
}

double packed_error(Tester& t) {
  const std::int64_t first = 6, second = kTokens - first;
  const ConformanceCase a = t.attention_case(1, first), b = t.attention_case(1, second);
  ConformanceCase packed = a;
  const auto joined = [](const at::Tensor& one, const at::Tensor& two, std::int64_t axis) {
    return at::cat({one, two}, axis);
  };
  packed.q = joined(a.q, b.q, 2);
  packed.k = joined(a.k, b.k, 2);
  packed.v = joined(a.v, b.v, 2);
  packed.x = joined(a.x, b.x, 1);
  packed.positions_k = packed.positions_q = joined(a.positions_k, b.positions_k, 1);
  packed.documents_k = packed.documents_q =
      joined(at::zeros({1, first}, at::kLong), at::ones({1, second}, at::kLong), 1);
  const NamedTensors both = t.full(packed);
  return std::max(distance(t.full(a), part(both, -1, 0, first)), distance(t.full(b), part(both, -1, first, second)));
}

double causality_error(Tester& t) {
  const ConformanceCase c = t.attention_case(1, kTokens);
  const std::int64_t kept = 5;
  const auto changed = [&](const at::Tensor& tensor, std::int64_t axis) {
    const at::Tensor fresh = t.normal(tensor.sizes().vec());
    return at::cat({tensor.narrow(axis, 0, kept), fresh.narrow(axis, kept, kTokens - kept)}, axis);
  };
  ConformanceCase other = c;
  other.q = changed(c.q, 2);
  other.k = changed(c.k, 2);
  other.v = changed(c.v, 2);
  other.x = changed(c.x, 1);
  return distance(part(t.full(c), -1, 0, kept), part(t.full(other), -1, 0, kept));
}

/// Rows and tokens that see nothing: zero out, lse of minus infinity, no gradient.
double nothing_error(Tester& t) {
  ConformanceCase c = t.attention_case(2, kTokens);
  const std::int64_t padding = 4;
  at::Tensor documents = at::zeros({2, kTokens}, at::kLong);
  documents.narrow(1, 0, padding).fill_(-1);
  documents[1].fill_(-1);
  c.documents_k = c.documents_q = documents;
  c.grad_out = t.normal(c.q.sizes().vec());
  const NamedTensors outputs = t.full(c);
  double worst = 0;
  const auto empty = [&](const at::Tensor& tensor) {
    worst = std::max(
        {worst, tensor[1].abs().max().item<double>(), tensor[0].narrow(1, 0, padding).abs().max().item<double>()});
  };
  for (const char* name : {"out", "grad.q", "grad.k", "grad.v"})
    if (outputs.count(name)) empty(outputs.at(name));
  const at::Tensor lse = outputs.at("lse");
  const bool minus_infinity =
      at::isneginf(lse[1]).all().item<bool>() && at::isneginf(lse[0].narrow(1, 0, padding)).all().item<bool>();
  return minus_infinity ? worst : std::numeric_limits<double>::infinity();
}

/// What is added to the logits, (1, H, T, T), -inf where hidden: queries of zeros leave nothing else, and values that
/// are unit vectors make the weights the output.
at::Tensor added_to_logits(Tester& t) {
  ConformanceCase c = t.attention_case(1, kTokens);
  c.q = at::zeros_like(c.q);
  c.v = at::eye(kTokens, at::kDouble).expand({1, c.v.size(1), kTokens, kTokens}).contiguous();
  const NamedTensors outputs = t.full(c);
  return outputs.at("out").log() + outputs.at("lse").unsqueeze(3);
}

/// The largest of what must not be above 0, in units of the largest bias or of 1: the weights, from which biases are
/// read here, are rounded.
double penalty_error(Tester& t) {
  const at::Tensor bias = added_to_logits(t), hidden = bias.isinf();
  const double above = bias.max().item<double>(), own = bias.diagonal(0, 2, 3).abs().max().item<double>();
  return std::max({above, own, 0.0}) / std::max(bias.masked_fill(hidden, 0).abs().max().item<double>(), 1.0);
}

/// How much a farther token gets beyond the nearer one beside it, in the same units.
double falling_error(Tester& t) {
  const at::Tensor bias = added_to_logits(t);
  const at::Tensor seen = at::ones({kTokens, kTokens}, at::kBool).tril().narrow(0, 1, kTokens - 1);
  const at::Tensor rise = bias.narrow(3, 0, kTokens - 1) - bias.narrow(3, 1, kTokens - 1);  // keys j over j + 1
  const at::Tensor both = rise.narrow(2, 1, kTokens - 1).masked_fill(seen.narrow(1, 1, kTokens - 1).logical_not(), 0);
  const double largest = bias.masked_fill(bias.isinf(), 0).abs().max().item<double>();
  return std::max(both.max().item<double>(), 0.0) / std::max(largest, 1.0);
}

double batch_error(Tester& t) {
  const ConformanceCase c = t.attention_case(3, kTokens);
  const at::Tensor order = at::tensor(std::vector<std::int64_t>{2, 0, 1}, at::kLong);
  ConformanceCase other = c;
  for (at::Tensor* tensor : {&other.q, &other.k, &other.v, &other.x, &other.positions_q, &other.positions_k})
    *tensor = tensor->index_select(0, order);
  NamedTensors expected = t.full(c);
  for (auto& [name, tensor] : expected) tensor = tensor.index_select(0, order);
  return distance(expected, t.full(other));
}

}  // namespace

std::vector<Law> check_laws(const LawsRequest& request) { return check_laws(make_subject(request), request.seed); }

std::vector<Law> check_laws(const std::shared_ptr<const Encoding>& whole, std::uint64_t seed) {
  std::vector<Tester> testers;
  for (std::int64_t layer = 0; layer < whole->period(); ++layer) testers.emplace_back(whole, layer, seed);
  bool turns = false, adds = false;
  std::string content;  // why the angle at a position cannot be asked for
  for (const Tester& tester : testers) try {
      const Turns one = turns_at(tester, {0});
      turns |= one.any();
      adds |= one.adds;
    } catch (const Refusal& refusal) {
      content = refusal.what();
    }
  const Traits traits = whole->traits();

  std::vector<Law> laws;
  const auto law = [&](const std::string& name, const std::string& about, const std::string& unclaimed, double bound,
                       const std::function<double(Tester&)>& measure) {
    Law one{name, about, unclaimed.empty(), false, std::nullopt, bound, unclaimed};
    if (measure) try {
        double worst = 0;
        for (Tester& tester : testers)
          for (int draw = 0; draw < kDraws; ++draw) worst = std::max(worst, measure(tester));
        one.worst = worst;
        one.holds = worst <= bound;
      } catch (const Error& problem) {
        one.note += (one.note.empty() ? "" : "; ") + std::string(problem.what());
      }
    laws.push_back(one);
  };
  using Measure = std::function<double(Tester&)>;
  turns &= content.empty();
  const std::string still = !content.empty() ? content : turns ? "" : "nothing turns";
  const auto rotating = [&](Measure measure) { return turns ? std::move(measure) : Measure(); };

  law("identity", "position 0 turns nothing, and equal positions leave the product of q and k",
      adds ? "a vector is added to q" : content, kFarBound, content.empty() ? Measure(identity_error) : Measure());
  const auto group_law = [&](const std::string& name, const std::string& about, double bound, const GroupLaw& one) {
    law(name, about, still, bound, rotating([one](Tester& t) { return group_error(t, one); }));
  };
  group_law(
      "composition", "turning by a and then by b is turning by a + b", kFarBound,
      {[](const auto& a, const auto& b, const auto& both, const auto&, const auto& m) { return a * b - m * both; },
       [](const auto& a, const auto& b, const auto& both, const auto&) {
         return group::composition_error(a, b, both);
       }});
  group_law(
      "inverse", "turning by -a undoes turning by a", kFarBound,
      {[](const auto& a, const auto&, const auto&, const auto& minus, const auto& m) { return a * minus - m * m; },
       [](const auto& a, const auto&, const auto&, const auto& minus) {
         return std::max(group::inverse_error(a, minus), group::transpose_error(a, minus));
       }});
  group_law("norm", "turning keeps lengths", kNearBound,
            {[](const auto& a, const auto&, const auto&, const auto&, const auto& m) { return a.abs() * m - m * m; },
             [](const auto& a, const auto&, const auto&, const auto&) { return group::orthogonality_error(a); }});
  law("relative", str("moving all positions by the same amount, up to ", kFar, ", changes nothing"),
      traits.relative           ? ""
      : traits.length_dependent ? "frequencies depend on the largest position"
                                : "it reads absolute positions",
      kFarBound, relative_error);
  law("streaming", "token by token through the KV cache gives what one call gives", "", kNearBound,
      [](Tester& t) { return cache_error(t, 1); });
  law("chunked", "chunks through the KV cache give what one call gives", "", kNearBound,
      [](Tester& t) { return cache_error(t, 3); });
  law("left-padded", "padding before a text changes nothing", "", kNearBound, padded_error);
  law("packed", "texts packed into one row do not see each other", "", kNearBound, packed_error);
  law("causality", "a later token never changes an earlier output", "", 0, causality_error);
  law("nothing seen", "a query that sees nothing gives zeros and has no gradient", "", 0, nothing_error);
  // What a bias must be of for a law of its values; other forms may be anything.
  const auto made_of = [&](const std::set<std::string>& forms) -> std::string {
    if (traits.forms.empty()) return "nothing is added to a logit";
    for (const std::string& form : traits.forms)
      if (forms.count(form) == 0) return str("a bias of the form '", form, "' may be anything");
    return "";
  };
  const std::string lowers = made_of({"potential", "gated", "path"}), falls = made_of({"potential", "path"});
  law("penalty", "what is added to a logit is never above 0, and is 0 for the token itself", lowers, kNearBound,
      lowers.empty() ? Measure(penalty_error) : Measure());
  law("falling", "a farther token never has more added than a nearer one", falls, kNearBound,
      falls.empty() ? Measure(falling_error) : Measure());
  law("batch order", "rows of a batch do not depend on their order", "", kNearBound, batch_error);
  return laws;
}

std::string verdict(const Law& law) {
  if (law.claimed) return law.holds ? "holds" : "does not hold";
  return law.worst && !law.holds ? "does not hold" : "not claimed";
}

}  // namespace torsor

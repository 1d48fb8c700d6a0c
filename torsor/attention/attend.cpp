#include "torsor/attention/attend.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "torsor/attention/moves.h"
#include "torsor/attention/plain.h"
#include "torsor/base/error.h"
#include "torsor/encoding/own_tokens.h"

namespace torsor {
namespace {

void check_tensors(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Encoding& encoding) {
  const auto shapes = [&] { return str("q ", q.sizes(), ", k ", k.sizes(), ", v ", v.sizes()); };
  if (!q.defined() || !k.defined() || !v.defined()) throw Error("attend: q, k and v must be given");
  if (q.dim() != 4 || k.dim() != 4 || v.dim() != 4)
    throw Error(str("attend: expected q (B, Hq, Tq, D), k (B, Hk, Tk, D), v (B, Hk, Tk, Dv), found ", shapes()));
  if (q.size(0) != k.size(0) || q.size(0) != v.size(0)) throw Error(str("attend: batch sizes differ: ", shapes()));
  if (k.size(1) != v.size(1) || k.size(2) != v.size(2))
    throw Error(str("attend: k and v must agree in heads and tokens: ", shapes()));
  if (q.size(3) != k.size(3)) throw Error(str("attend: q and k must have one head width: ", shapes()));
  const Dimensions& dimensions = encoding.dimensions();
  if (q.size(1) != dimensions.heads || k.size(1) != dimensions.kv_heads || q.size(3) != dimensions.head_dim)
    throw Error(str("attend: the encoding was made for ", dimensions.heads, " query heads, ", dimensions.kv_heads,
                    " key heads of width ", dimensions.head_dim, "; found ", shapes()));
  const at::ScalarType dtype = q.scalar_type();
  if (dtype != at::kDouble && dtype != at::kFloat && dtype != at::kBFloat16)
    throw Error(str("attend: expected float64, float32 or bfloat16, found ", dtype));
  if (k.scalar_type() != dtype || v.scalar_type() != dtype)
    throw Error(
        str("attend: q, k and v must have one dtype, found ", dtype, ", ", k.scalar_type(), ", ", v.scalar_type()));
  if (k.device() != q.device() || v.device() != q.device())
    throw Error(
        str("attend: q, k and v must be on one device, found ", q.device(), ", ", k.device(), ", ", v.device()));
}

[[noreturn]] void wrong_shape(const char* name, const std::string& expected, const at::Tensor& tensor) {
  throw Error(str("attend: ", name, " must have shape ", expected, ", found ", tensor.sizes()));
}

at::Tensor checked_positions(const at::Tensor& positions, const char* name, std::int64_t batch, std::int64_t tokens,
                             std::int64_t axes, at::Device device) {
  if (positions.dim() != 3 || positions.size(0) != batch || positions.size(1) != tokens || positions.size(2) != axes)
    wrong_shape(name, str("(", batch, ", ", tokens, ", ", axes, ") (batch, tokens, axes)"), positions);
  if (at::isComplexType(positions.scalar_type()))
    throw Error(str("attend: ", name, " must be real numbers, found ", positions.scalar_type()));
  // A tensor that fits is asked for nothing: for a single token the question costs more than its answer is worth.
  if (positions.scalar_type() == at::kDouble && positions.device() == device) return positions;
  return positions.to(at::TensorOptions(at::kDouble).device(device));
}

at::Tensor checked_documents(const at::Tensor& documents, const char* name, std::int64_t batch, std::int64_t tokens,
                             at::Device device) {
  if (documents.dim() != 2 || documents.size(0) != batch || documents.size(1) != tokens)
    wrong_shape(name, str("(", batch, ", ", tokens, ") (batch, tokens)"), documents);
  if (!at::isIntegralType(documents.scalar_type(), false))
    throw Error(str("attend: ", name, " must be integers, found ", documents.scalar_type()));
  return documents.to(at::TensorOptions(at::kLong).device(device));
}

at::Tensor checked_counts(const at::Tensor& counts, const char* name, std::int64_t batch, at::Device device) {
  if (counts.dim() != 1 || counts.size(0) != batch) wrong_shape(name, str("(", batch, ")"), counts);
  if (!at::isIntegralType(counts.scalar_type(), false))
    throw Error(str("attend: ", name, " must be integers, found ", counts.scalar_type()));
  return counts.to(at::TensorOptions(at::kLong).device(device));
}

/// Positions of tokens that do not exist are set to 0 where they are not finite, so that 0 * NaN reaches no gradient.
void clean_positions(at::Tensor& positions, const at::Tensor& absent) {
  if (!absent.defined() || at::isfinite(positions).all().item<bool>()) return;
  positions = positions.masked_fill(absent.unsqueeze(2), 0);
}

/// `tensor` with zeros for absent tokens; tokens on `axis`, rows on axis 0.
at::Tensor without(const at::Tensor& tensor, const at::Tensor& absent, std::int64_t axis) {
  if (!tensor.defined() || !absent.defined()) return tensor;
  std::vector<std::int64_t> shape(static_cast<std::size_t>(tensor.dim()), 1);
  shape[0] = absent.size(0);
  shape[static_cast<std::size_t>(axis)] = absent.size(1);
  return tensor.masked_fill(absent.view(shape), 0);
}

/// Keys that do not exist, (B, Tk): past their row's length, or padding. Undefined = all exist.
at::Tensor absent_keys(const Side& key) {
  at::Tensor absent;
  if (key.documents.defined()) absent = key.documents.eq(-1);
  if (key.lengths.defined()) {
    const at::Tensor past = at::arange(key.tokens(), key.lengths.options()).ge(key.lengths.unsqueeze(1));
    absent = absent.defined() ? absent.logical_or(past) : past;
  }
  return absent.defined() && absent.any().item<bool>() ? absent : at::Tensor();
}

/// Queries that are padding, (B, Tq). Undefined = none.
at::Tensor absent_queries(const Side& query) {
  if (!query.documents.defined()) return {};
  const at::Tensor absent = query.documents.eq(-1);
  return absent.any().item<bool>() ? absent : at::Tensor();
}

/// The queries (B, Hq, Tk, D) of the keys' own tokens, or undefined where a token that exists has none.
at::Tensor queries_of_tokens(const at::Tensor& q, const Sides& sides) {
  const std::int64_t queries = q.size(2), tokens = sides.key.tokens();
  if (!sides.offsets.defined() && !sides.key.lengths.defined()) return queries == tokens ? q : at::Tensor();
  const at::Tensor length = sides.key.lengths.defined()
                                ? sides.key.lengths
                                : at::full({q.size(0)}, tokens, at::TensorOptions(at::kLong).device(q.device()));
  const at::Tensor first = sides.offsets.defined() ? sides.offsets : length - queries;
  if (!first.le(0).logical_and((first + queries).ge(length)).all().item<bool>()) return {};
  return own_tokens(q, 2, tokens, {}, -first);  // the other way round: a token's own query
}

/// Moves and options.after_moves. A token that is not finite becomes NaN as a whole and has no gradient: the products
/// with its angles and weights would carry NaN into trained tensors even where nobody sees the token.
at::Tensor move(const at::Tensor& x, const std::vector<Move>& moves, Role role, const Encoding& encoding,
                const AttendOptions& options) {
  if (moves.empty() && !options.after_moves) return x;
  const bool clean = all_finite(x);
  at::Tensor bad;
  if (!clean) bad = at::isfinite(x).all(-1, true).logical_not();
  at::Tensor moved =
      apply_moves(clean ? x : x.masked_fill(bad, 0), moves, role, encoding.group(), encoding.dimensions().precision);
  if (options.after_moves) moved = options.after_moves(moved, role);
  return clean ? moved : moved.masked_fill(bad, std::numeric_limits<double>::quiet_NaN());
}

/// A mixture's heads may have softmax factors of their own, beside the one that the scale already holds.
void add_softmax_factors(std::vector<LogitScale>& scales, const Encoding& encoding, const Question& question) {
  const std::vector<double> factors = encoding.softmax_factors();
  const double shared = encoding.softmax_factor();
  for (std::size_t begin = 0, end = 0; begin < factors.size(); begin = end) {
    while (end < factors.size() && factors[end] == factors[begin]) ++end;
    if (factors[begin] == shared) continue;
    const HeadRange heads{static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end)};
    scales.push_back(
        {heads, at::full({1, question.query.tokens()}, factors[begin] / shared, question.query.positions.options())});
  }
}

}  // namespace

Sides resolve_sides(const at::Tensor& q, const at::Tensor& k, const AttendOptions& options, const Traits& traits) {
  const std::int64_t batch = q.size(0), tq = q.size(2), tk = k.size(2);
  const at::Device device = q.device();
  Sides sides;
  if (options.key_lengths.defined()) {
    sides.key.lengths = checked_counts(options.key_lengths, "key_lengths", batch, device);
    if (batch > 0 && (sides.key.lengths.lt(0).any().item<bool>() || sides.key.lengths.gt(tk).any().item<bool>()))
      throw Error(str("attend: key_lengths must lie in [0, ", tk, "], the number of keys"));
  }
  if (options.positions.defined()) {
    sides.key.positions = checked_positions(options.positions, "positions", batch, tk, traits.axes, device);
  } else {
    if (traits.axes != 1)
      throw Error(str("attend: the encoding reads ", traits.axes, " position axes; positions must be given"));
    const at::Tensor count = at::arange(tk, at::TensorOptions(at::kDouble).device(device));
    sides.key.positions = count.view({1, tk, 1}).expand({batch, tk, 1});
  }
  if (options.query_offsets.defined())
    sides.offsets = checked_counts(options.query_offsets, "query_offsets", batch, device);
  const auto of_queries = [&](const at::Tensor& per_key) {
    return own_tokens(per_key, 1, tq, sides.key.lengths, sides.offsets);
  };
  sides.query.positions =
      options.query_positions.defined()
          ? checked_positions(options.query_positions, "query_positions", batch, tq, traits.axes, device)
          : of_queries(sides.key.positions);
  if (options.documents.defined()) {
    sides.key.documents = checked_documents(options.documents, "documents", batch, tk, device);
    sides.query.documents = options.query_documents.defined()
                                ? checked_documents(options.query_documents, "query_documents", batch, tq, device)
                                : of_queries(sides.key.documents);
  } else if (options.query_documents.defined()) {
    throw Error("attend: query_documents were given without documents of the keys");
  }
  sides.absent_keys = absent_keys(sides.key);
  sides.absent_queries = absent_queries(sides.query);
  clean_positions(sides.key.positions, sides.absent_keys);
  clean_positions(sides.query.positions, sides.absent_queries);
  return sides;
}

void check_call(const Encoding& encoding, const AttendOptions& options, std::int64_t batch, std::int64_t tokens) {
  if (options.layer < 0 || options.layer >= options.layers)
    throw Error(
        str("attend: layer must lie in [0, ", options.layers, "), the number of layers, found ", options.layer));
  check_parameters(encoding, options.layer, options.parameters);
  if (options.window && *options.window < 1)
    throw Error(str("attend: window must be at least 1 (a token sees itself); leave it unset for none, found ",
                    *options.window));
  if (options.scale && !std::isfinite(*options.scale))
    throw Error(str("attend: scale must be finite, found ", *options.scale));
  const std::int64_t width = encoding.dimensions().width;
  if (options.x.defined() && options.x.sizes() != at::IntArrayRef({batch, tokens, width}))
    wrong_shape("x", str("(", batch, ", ", tokens, ", ", width, ") (batch, tokens, width)"), options.x);
  for (const std::string& name : encoding.inputs()) {
    const auto found = options.named.find(name);
    if (found == options.named.end() || !found->second.defined())
      throw Error(str("attend: the encoding reads the per-token input '", name, "', which was not given"));
    const at::Tensor& given = found->second;
    if (given.dim() < 2 || given.size(0) != batch || given.size(1) != tokens)
      wrong_shape(name.c_str(), str("(", batch, ", ", tokens, ", ...) (batch, tokens, ...)"), given);
  }
}

Question arrival_question(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Sides& sides,
                          const AttendOptions& options) {
  Question question;
  question.parameters = &options.parameters;
  question.layer = options.layer;
  question.layers = options.layers;
  question.x = without(options.x, sides.absent_keys, 1);
  question.q = without(q, sides.absent_keys, 2);
  question.k = without(k, sides.absent_keys, 2);
  question.v = without(v, sides.absent_keys, 2);
  question.query = question.key = sides.key;
  question.causal = options.causal;
  question.named = &options.named;
  question.state = without(options.state, sides.absent_keys, 2);
  return question;
}

Question query_question(const at::Tensor& q, const Sides& sides, const NamedTensors& kept, const Encoding& encoding,
                        const AttendOptions& options) {
  Question question;
  question.parameters = &options.parameters;
  question.layer = options.layer;
  question.layers = options.layers;
  question.x = without(options.x, sides.absent_queries, 1);
  question.q = without(q, sides.absent_queries, 2);
  question.query = sides.query;
  question.key = sides.key;
  question.offsets = sides.offsets;
  question.scale = options.scale.value_or(encoding.softmax_factor() / std::sqrt(static_cast<double>(q.size(3))));
  question.causal = options.causal;
  question.named = &options.named;
  question.kept = &kept;
  question.state = without(options.state, sides.absent_queries, 2);
  return question;
}

Question layer_question(const AttendOptions& options, std::int64_t batch, std::int64_t tokens, const Encoding& encoding,
                        const at::TensorOptions& kind) {
  const Dimensions& d = encoding.dimensions();
  AttendOptions own = options;
  own.query_positions = own.query_documents = own.key_lengths = own.query_offsets = at::Tensor();
  const at::Tensor none = at::empty({batch, d.heads, tokens, 0}, kind);
  return arrival_question(none, none, none, resolve_sides(none, none, own, encoding.traits()), options);
}

at::Tensor move_keys(const at::Tensor& keys, const Encoding& encoding, const Question& question,
                     const AttendOptions& options) {
  return move(keys, encoding.moves(question, Role::Key), Role::Key, encoding, options);
}

CoreInput ask_for_core(const Encoding& encoding, const Question& question, const at::Tensor& moved_keys,
                       const at::Tensor& values, const AttendOptions& options) {
  CoreInput input;
  input.q = move(question.q, encoding.moves(question, Role::Query), Role::Query, encoding, options);
  input.k = moved_keys;
  // Keys that turned a query head each have values that did not.
  const bool widened = moved_keys.size(1) != values.size(1);
  input.v = widened ? values.repeat_interleave(moved_keys.size(1) / values.size(1), 1) : values;
  input.scale = question.scale;
  input.logit_scales = encoding.logit_scales(question);
  if (!options.scale) add_softmax_factors(input.logit_scales, encoding, question);
  input.decays = encoding.decays();
  input.biases = encoding.biases(question);
  input.carried = encoding.carried(question);
  if (!input.biases.empty() && question.key.positions.size(2) != 1)
    throw Error(str("a bias reads one position axis, the positions have ", question.key.positions.size(2)));
  input.query_positions = question.query.positions.select(2, 0);
  input.key_positions = question.key.positions.select(2, 0);
  input.mask.causal = options.causal;
  input.mask.window = options.window;
  input.mask.key_lengths = question.key.lengths;
  input.mask.offsets = question.offsets;
  input.mask.query_documents = question.query.documents;
  input.mask.key_documents = question.key.documents;
  input.need_lse = options.need_lse;
  return input;
}

/// Below so many keys a call without a bias is as fast in libtorch's own attention; bench/README.md has the figures.
static constexpr std::int64_t fewest_fused_keys = 64;

Attended run_core(const CoreInput& input, Path path) {
  if (path == Path::Reference) return reference_attention(input);
  const bool few = path == Path::Auto && input.k.size(2) < fewest_fused_keys;
  if (few && plain_attention_applies(input)) return plain_attention(input);
  if (std::optional<Attended> attended = fused_attention(input)) return *std::move(attended);
  if (path == Path::Fused)
    throw NotFused(
        "attend: this call does not lower to the fused kernel (dtype, device, a decay, a bias that has no form there, "
        "or "
        "numbers that are not finite)");
  if (plain_attention_applies(input)) return plain_attention(input);
  return reference_attention(input);
}

Attended ask_and_run(const Encoding& encoding, const Question& question, const at::Tensor& moved_keys,
                     const at::Tensor& values, const AttendOptions& options) {
  const CoreInput input = ask_for_core(encoding, question, moved_keys, values, options);
  if (options.look) options.look(input);
  Attended attended = run_core(input, options.path);
  if (!attended.averages.defined()) return attended;
  const at::Tensor added = encoding.after_attention(question, attended.averages);
  if (!added.defined()) return attended;
  if (added.sizes() != attended.out.sizes())
    throw Error(str("attend: the averages add ", added.sizes(), " to an output of shape ", attended.out.sizes(),
                    "; values must be as wide as a head"));
  attended.out = attended.out + added.to(attended.out.scalar_type());
  return attended;
}

Attended attend_full(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Encoding& whole,
                     const AttendOptions& options) {
  const std::shared_ptr<const Encoding> of_layer = whole.at_layer(std::max<std::int64_t>(options.layer, 0));
  const Encoding& encoding = of_layer ? *of_layer : whole;
  check_tensors(q, k, v, encoding);
  check_call(encoding, options, k.size(0), k.size(2));
  const Sides sides = resolve_sides(q, k, options, encoding.traits());

  // First the tokens arrive, as they do in a cache; then the queries ask.
  Question arriving = arrival_question(queries_of_tokens(q, sides), k, v, sides, options);
  NamedTensors running;
  const NamedTensors kept = encoding.arrive(arriving, running);
  arriving.kept = &kept;
  const at::Tensor keys = move_keys(arriving.k, encoding, arriving, options);

  const auto of_queries = [&](const at::Tensor& per_key, std::int64_t axis) {
    return per_key.defined() ? own_tokens(per_key, axis, q.size(2), sides.key.lengths, sides.offsets) : per_key;
  };
  AttendOptions asking = options;
  asking.x = of_queries(options.x, 1);
  asking.state = of_queries(options.state, 2);
  for (const std::string& name : encoding.inputs()) asking.named[name] = of_queries(options.named.at(name), 1);
  const Question question = query_question(q, sides, kept, encoding, asking);
  return ask_and_run(encoding, question, keys, arriving.v, asking);
}

at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Encoding& encoding,
                  const AttendOptions& options) {
  return attend_full(q, k, v, encoding, options).out;
}

}  // namespace torsor

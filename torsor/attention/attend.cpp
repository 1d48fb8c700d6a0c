#include "torsor/attention/attend.h"

#include <cmath>

#include "torsor/attention/moves.h"
#include "torsor/base/error.h"

namespace torsor {
namespace {

void check_tensors(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Encoding& encoding) {
  const auto shapes = [&] { return str("q ", q.sizes(), ", k ", k.sizes(), ", v ", v.sizes()); };
  if (!q.defined() || !k.defined() || !v.defined()) throw Error("attend: q, k and v must be given");
  if (q.dim() != 4 || k.dim() != 4 || v.dim() != 4)
    throw Error(str("attend: expected q (B, Hq, Tq, D), k (B, Hk, Tk, D), v (B, Hk, Tk, Dv), found ", shapes()));
  if (q.size(0) != k.size(0) || q.size(0) != v.size(0)) throw Error(str("attend: batch sizes differ: ", shapes()));
  if (k.size(1) != v.size(1) || k.size(2) != v.size(2)) throw Error(str("attend: k and v must agree in heads and tokens: ", shapes()));
  if (q.size(3) != k.size(3)) throw Error(str("attend: q and k must have one head width: ", shapes()));
  const Dimensions& dimensions = encoding.dimensions();
  if (q.size(1) != dimensions.heads || k.size(1) != dimensions.kv_heads || q.size(3) != dimensions.head_dim)
    throw Error(str("attend: the encoding was made for ", dimensions.heads, " query heads, ", dimensions.kv_heads,
                    " key heads of width ", dimensions.head_dim, "; found ", shapes()));
  const at::ScalarType dtype = q.scalar_type();
  if (dtype != at::kDouble && dtype != at::kFloat && dtype != at::kBFloat16)
    throw Error(str("attend: expected float64, float32 or bfloat16, found ", dtype));
  if (k.scalar_type() != dtype || v.scalar_type() != dtype)
    throw Error(str("attend: q, k and v must have one dtype, found ", dtype, ", ", k.scalar_type(), ", ", v.scalar_type()));
  if (k.device() != q.device() || v.device() != q.device())
    throw Error(str("attend: q, k and v must be on one device, found ", q.device(), ", ", k.device(), ", ", v.device()));
}

[[noreturn]] void wrong_shape(const char* name, const std::string& expected, const at::Tensor& tensor) {
  throw Error(str("attend: ", name, " must have shape ", expected, ", found ", tensor.sizes()));
}

at::Tensor checked_positions(const at::Tensor& positions, const char* name, std::int64_t batch, std::int64_t tokens,
                             std::int64_t axes, at::Device device) {
  const std::string expected = str("(", batch, ", ", tokens, ", ", axes, ") (batch, tokens, axes)");
  if (positions.dim() != 3 || positions.size(0) != batch || positions.size(1) != tokens || positions.size(2) != axes)
    wrong_shape(name, expected, positions);
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

/// The entries of each row's last Tq tokens. Rows shorter than Tq repeat their first token for queries that see nothing.
at::Tensor last_tokens(const at::Tensor& of_keys, std::int64_t tq, const at::Tensor& lengths) {
  const std::int64_t tk = of_keys.size(1);
  if (!lengths.defined() && tq <= tk) return of_keys.narrow(1, tk - tq, tq);
  if (tk == 0) {
    std::vector<std::int64_t> shape = of_keys.sizes().vec();
    shape[1] = tq;
    return at::zeros(shape, of_keys.options());
  }
  const at::Tensor i = at::arange(tq, at::TensorOptions(at::kLong).device(of_keys.device())).unsqueeze(0);
  const at::Tensor end = lengths.defined() ? lengths.unsqueeze(1) : at::full({1, 1}, tk, i.options());
  const at::Tensor index = (end - tq + i).clamp_min(0).expand({of_keys.size(0), tq});
  if (of_keys.dim() == 2) return of_keys.gather(1, index);
  return of_keys.gather(1, index.unsqueeze(-1).expand({-1, -1, of_keys.size(2)}));
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
    if (traits.axes != 1) throw Error(str("attend: the encoding reads ", traits.axes, " position axes; positions must be given"));
    const at::Tensor count = at::arange(tk, at::TensorOptions(at::kDouble).device(device));
    sides.key.positions = count.view({1, tk, 1}).expand({batch, tk, 1});
  }
  sides.query.positions = options.query_positions.defined()
                              ? checked_positions(options.query_positions, "query_positions", batch, tq, traits.axes, device)
                              : last_tokens(sides.key.positions, tq, sides.key.lengths);
  if (options.documents.defined()) {
    sides.key.documents = checked_documents(options.documents, "documents", batch, tk, device);
    sides.query.documents = options.query_documents.defined()
                                ? checked_documents(options.query_documents, "query_documents", batch, tq, device)
                                : last_tokens(sides.key.documents, tq, sides.key.lengths);
  } else if (options.query_documents.defined()) {
    throw Error("attend: query_documents were given without documents of the keys");
  }
  return sides;
}

at::Tensor move_keys(const at::Tensor& keys, const Encoding& encoding, const Question& question,
                     const AttendOptions& options) {
  const at::Tensor moved = apply_moves(keys, encoding.moves(question, Role::Key), Role::Key, encoding.group(),
                                       encoding.dimensions().precision);
  return options.after_moves ? options.after_moves(moved, Role::Key) : moved;
}

CoreInput ask_for_core(const Encoding& encoding, const Question& question, const at::Tensor& moved_keys,
                       const at::Tensor& values, const AttendOptions& options) {
  CoreInput input;
  input.q = apply_moves(question.q, encoding.moves(question, Role::Query), Role::Query, encoding.group(),
                        encoding.dimensions().precision);
  if (options.after_moves) input.q = options.after_moves(input.q, Role::Query);
  input.k = moved_keys;
  input.v = values;
  input.scale = question.scale;
  input.logit_scales = encoding.logit_scales(question);
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
  if (options.query_offsets.defined())
    input.mask.offsets = checked_counts(options.query_offsets, "query_offsets", question.q.size(0), question.q.device());
  input.mask.query_documents = question.query.documents;
  input.mask.key_documents = question.key.documents;
  input.need_lse = options.need_lse;
  return input;
}

Attended run_core(const CoreInput& input, Path path) {
  if (path == Path::Auto && plain_attention_applies(input)) return plain_attention(input);
  return reference_attention(input);
}

Attended attend_full(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Encoding& whole,
                     const AttendOptions& options) {
  const std::shared_ptr<const Encoding> of_layer = whole.at_layer(options.layer);
  const Encoding& encoding = of_layer ? *of_layer : whole;
  check_tensors(q, k, v, encoding);
  check_parameters(encoding, options.layer, options.parameters);
  if (options.window && *options.window < 1)
    throw Error(str("attend: window must be at least 1 (a token sees itself); leave it unset for none, found ", *options.window));
  if (options.scale && !std::isfinite(*options.scale)) throw Error("attend: scale must be finite");
  const Sides sides = resolve_sides(q, k, options, encoding.traits());
  if (options.x.defined() && (options.x.dim() != 3 || options.x.size(0) != q.size(0) || options.x.size(1) != k.size(2)))
    wrong_shape("x", str("(", q.size(0), ", ", k.size(2), ", C) (batch, tokens, width)"), options.x);

  Question question;
  question.parameters = &options.parameters;
  question.layer = options.layer;
  question.layers = options.layers;
  question.x = options.x;
  question.q = q;
  question.k = k;
  question.v = v;
  question.query = sides.query;
  question.key = sides.key;
  question.scale = options.scale.value_or(encoding.softmax_factor() / std::sqrt(static_cast<double>(q.size(3))));
  question.causal = options.causal;
  question.named = &options.named;
  question.state = options.state;
  NamedTensors running;
  const NamedTensors kept = encoding.arrive(question, running);
  question.kept = &kept;
  const at::Tensor keys = move_keys(k, encoding, question, options);
  return run_core(ask_for_core(encoding, question, keys, v, options), options.path);
}

at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Encoding& encoding,
                  const AttendOptions& options) {
  return attend_full(q, k, v, encoding, options).out;
}

}  // namespace torsor

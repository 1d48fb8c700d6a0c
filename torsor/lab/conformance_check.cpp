#include "torsor/lab/conformance_check.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "torsor/attention/kv_cache.h"
#include "torsor/base/error.h"
#include "torsor/encoding/syntax/sipe.h"

namespace torsor {
namespace {

using Lengths = std::vector<std::int64_t>;

constexpr std::int64_t kChunk = 3;  // tokens a time on the chunk path: most cases then end in a part of a chunk
constexpr double kInfinity = std::numeric_limits<double>::infinity();
const std::string kGradient = "grad.";

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

/// The model width: that of x or mlp_out, or of a trained tensor that has it (the table of `learned`, the w of `txl`,
/// the x_proj of `tape`, the tables of `sipe`), or 0.
std::int64_t width_of(const ConformanceCase& c) {
  if (c.x.defined()) return c.x.size(2);
  if (c.mlp_out.defined()) return c.mlp_out.size(2);
  for (const auto& [name, tensor] : c.parameters) {
    const std::string owner = name.substr(0, name.find_first_of("#."));
    const bool wide = (owner == "txl" && tensor.dim() == 3) || (owner == "learned" && tensor.dim() == 2) ||
                      (owner == "tape" && tensor.dim() == 2 && name.ends_with(".x_proj")) ||
                      (owner == "sipe" && (name.ends_with(".tau") || name.ends_with(".nu")));
    if (wide) return tensor.size(-1);
  }
  return 0;
}

/// The dtype of everything that is not q, k, v, x, mlp_out, out or grad_out.
at::ScalarType wide(at::ScalarType dtype) { return dtype == at::kDouble ? at::kDouble : at::kFloat; }

at::Tensor as(const at::Tensor& tensor, at::ScalarType dtype) { return tensor.defined() ? tensor.to(dtype) : tensor; }

/// What every path hands over; positions, documents, x and the state are added by the paths.
AttendOptions common_options(const ConformanceCase& c, at::ScalarType dtype) {
  AttendOptions options;
  options.causal = c.causal;
  options.window = c.window;
  options.scale = c.scale;
  options.layer = c.layer;
  options.layers = c.layers;
  options.need_lse = true;
  for (const auto& [name, tensor] : c.parameters) options.parameters[name] = tensor.to(wide(dtype));
  options.named = named_inputs(c);
  return options;
}

AttendOptions whole_options(const ConformanceCase& c, at::ScalarType dtype) {
  AttendOptions options = common_options(c, dtype);
  options.positions = c.positions_k;
  options.query_positions = c.positions_q;
  options.documents = c.documents_k;
  options.query_documents = c.documents_q;
  options.key_lengths = c.key_lengths;
  options.x = as(c.x, dtype);
  options.state = as(c.state, wide(dtype));
  return options;
}

at::Tensor embedding_of(const ConformanceCase& c, const Encoding& encoding, const NamedTensors& parameters,
                        at::ScalarType dtype) {
  if (!encoding.traits().absolute) return {};
  Side side{c.positions_k, c.documents_k, c.key_lengths};
  if (!side.positions.defined())
    side.positions = at::arange(c.k.size(2), at::kDouble).view({1, -1, 1}).expand({c.k.size(0), c.k.size(2), 1});
  const at::Tensor embedding = encoding.embedding(side, parameters, named_inputs(c), as(c.x, wide(dtype)));
  return embedding.defined() ? embedding.detach().to(wide(dtype)) : embedding;
}

/// Whether every token of the case has its query, and nothing else has one: then what becomes of their states is known.
bool asks_for_all_tokens(const ConformanceCase& c) {
  const auto alike = [](const at::Tensor& of_queries, const at::Tensor& of_keys) {
    return !of_queries.defined() || of_queries.equal(of_keys);
  };
  return c.q.size(2) == c.k.size(2) && alike(c.positions_q, c.positions_k) && alike(c.documents_q, c.documents_k) &&
         (!c.key_lengths.defined() || c.key_lengths.eq(c.k.size(2)).all().item<bool>());
}

/// The state after the layer, zeros for padding; undefined where it stays as it is or nobody can say.
at::Tensor next_state(const ConformanceCase& c, const Encoding& layer, const AttendOptions& options,
                      const at::Tensor& averages, at::ScalarType dtype) {
  if (!c.mlp_out.defined() || !layer.traits().carries || !asks_for_all_tokens(c)) return {};
  const at::Tensor mlp = c.mlp_out.to(dtype);
  const Question question = layer_question(options, mlp.size(0), mlp.size(1), layer, mlp.options());
  const at::Tensor state = layer.after_layer(question, averages, mlp);
  if (!state.defined() || !c.documents_k.defined()) return state;
  return state.masked_fill(c.documents_k.eq(-1).view({c.k.size(0), 1, c.k.size(2), 1}), 0);
}

// --------------------------------------------------------------------------------------------------------------------
// Through the cache

/// n tokens of every row, row b from its token first[b] on; indices outside are brought inside (what stands there is
/// never looked at).
at::Tensor piece(const at::Tensor& tensor, std::int64_t axis, const Lengths& first, std::int64_t n) {
  if (!tensor.defined()) return {};
  std::vector<at::Tensor> rows;
  for (std::size_t b = 0; b < first.size(); ++b) {
    const at::Tensor index = (at::arange(n, at::kLong) + first[b]).clamp(0, tensor.size(axis) - 1);
    rows.push_back(tensor[static_cast<std::int64_t>(b)].index_select(axis - 1, index));
  }
  return at::stack(rows);
}

bool alike(const Lengths& values) { return std::equal(values.begin() + 1, values.end(), values.begin()); }

class ThroughCache {
 public:
  ThroughCache(const ConformanceCase& c, std::shared_ptr<const Encoding> encoding, at::ScalarType dtype, std::int64_t n,
               const AfterMoves& after_moves)
      : c_(c),
        n_(n),
        options_(common_options(c, dtype)),
        q_(c.q.to(dtype)),
        k_(c.k.to(dtype)),
        v_(c.v.to(dtype)),
        x_(as(c.x, dtype)),
        state_(as(c.state, wide(dtype))),
        named_(named_inputs(c)),
        traits_(layer_encoding(encoding, c.layer)->traits()),
        sides_(resolve_sides(q_, k_, whole_options(c, dtype), encoding->traits())),
        cache_(std::move(encoding), {.capacity = std::max<std::int64_t>(c.k.size(2), 1),
                                     .batch = c.q.size(0),
                                     .layers = c.layers,
                                     .value_dim = c.v.size(3),
                                     .dtype = dtype}),
        have_(static_cast<std::size_t>(c.q.size(0)), 0) {
    options_.after_moves = after_moves;
    for (std::int64_t b = 0; b < c.q.size(0); ++b)
      length_.push_back(c.key_lengths.defined() ? c.key_lengths[b].item<std::int64_t>() : c.k.size(2));
  }

  NamedTensors run() {
    const std::int64_t queries = q_.size(2);
    // Frequencies that depend on the length are those of the full pass only when all keys are there; and without causal
    // order a query sees keys that come after it.
    const bool as_they_come = c_.causal && !traits_.length_dependent;
    append_up_to(as_they_come ? before_query(0) : length_);
    std::vector<at::Tensor> out, lse, carried;
    for (std::int64_t first = 0; first < queries; first += n_) {
      const std::int64_t n = std::min(n_, queries - first);
      const Attended one = as_they_come ? arrive_and_attend(first, n) : read(first, n);
      out.push_back(one.out);
      lse.push_back(one.lse);
      if (one.averages.defined() && traits_.carries) carried.push_back(one.averages);
    }
    if (queries == 0)
      return {{"out", at::zeros({q_.size(0), q_.size(1), 0, v_.size(3)}, q_.options())},
              {"lse", at::zeros({q_.size(0), q_.size(1), 0}, q_.options())}};
    NamedTensors outputs = {{"out", at::cat(out, 2)}, {"lse", at::cat(lse, 2)}};
    if (!carried.empty()) outputs["carried"] = at::cat(carried, 2);
    return outputs;
  }

 private:
  /// Where query `first` stands among the tokens of each row; negative when the row is shorter than the queries.
  Lengths index_of(std::int64_t first) const {
    Lengths index;
    for (const std::int64_t length : length_) index.push_back(length - q_.size(2) + first);
    return index;
  }
  /// How many tokens stand before query `first`.
  Lengths before_query(std::int64_t first) const {
    Lengths count = index_of(first);
    for (std::int64_t& one : count) one = std::max<std::int64_t>(one, 0);
    return count;
  }

  AttendOptions arriving(std::int64_t n) const {
    AttendOptions options = options_;
    options.causal = true;  // tokens arrive in order, whoever sees them later
    options.positions = piece(sides_.key.positions, 1, have_, n);
    options.documents = piece(sides_.key.documents, 1, have_, n);
    options.x = piece(x_, 1, have_, n);
    options.state = piece(state_, 2, have_, n);
    for (auto& [name, tensor] : options.named) tensor = piece(named_.at(name), 1, have_, n);
    return options;
  }

  void append_up_to(const Lengths& wanted) {
    for (;;) {
      Lengths counts;
      for (std::size_t b = 0; b < have_.size(); ++b)
        counts.push_back(std::clamp<std::int64_t>(wanted[b] - have_[b], 0, n_));
      const std::int64_t n = *std::max_element(counts.begin(), counts.end());
      if (n == 0) return;
      cache_.append(piece(k_, 2, have_, n), piece(v_, 2, have_, n), arriving(n),
                    alike(counts) ? at::Tensor() : at::tensor(counts, at::kLong));
      for (std::size_t b = 0; b < have_.size(); ++b) have_[b] += counts[b];
    }
  }

  Attended read(std::int64_t first, std::int64_t n) const {
    AttendOptions options = options_;
    options.query_positions = sides_.query.positions.narrow(1, first, n);
    if (sides_.query.documents.defined()) options.query_documents = sides_.query.documents.narrow(1, first, n);
    options.query_offsets = at::tensor(index_of(first), at::kLong);
    options.x = piece(x_, 1, index_of(first), n);
    options.state = piece(state_, 2, index_of(first), n);
    for (auto& [name, tensor] : options.named) tensor = piece(named_.at(name), 1, index_of(first), n);
    return cache_.read(q_.narrow(2, first, n), options);
  }

  Attended arrive_and_attend(std::int64_t first, std::int64_t n) {
    // The usual step of a decoder, wherever the new tokens of every row are exactly the queries.
    if (index_of(first) == have_) {
      const AttendOptions options = arriving(n);
      const bool same =
          options.positions.equal(sides_.query.positions.narrow(1, first, n)) &&
          (!options.documents.defined() || options.documents.equal(sides_.query.documents.narrow(1, first, n)));
      if (same) {
        Attended one = cache_.attend(q_.narrow(2, first, n), piece(k_, 2, have_, n), piece(v_, 2, have_, n), options);
        for (std::int64_t& have : have_) have += n;
        return one;
      }
    }
    append_up_to(before_query(first + n));
    return read(first, n);
  }

  const ConformanceCase& c_;
  std::int64_t n_;
  AttendOptions options_;
  at::Tensor q_, k_, v_, x_, state_;
  NamedTensors named_;
  Traits traits_;
  Sides sides_;
  KvCache cache_;
  Lengths have_, length_;
};

/// Why a case has no cache order; empty when it has one.
std::string no_cache_order(const ConformanceCase& c) {
  if (c.q.size(0) == 0) return "a cache holds at least one row";
  if (c.v.size(3) == 0) return "a cache holds values of at least one channel";
  return "";
}

// --------------------------------------------------------------------------------------------------------------------
// Comparing

/// The largest error of one tensor against its tolerance; infinite where something cannot be compared, with the reason.
struct Difference {
  double error = 0, share = 0;
  std::string reason;
};

Difference compare(const at::Tensor& expected, const at::Tensor& found, const Tolerance& tolerance) {
  const auto hopeless = [](const std::string& why) { return Difference{kInfinity, kInfinity, why}; };
  if (!found.defined()) return hopeless("is not computed by this encoding from these inputs");
  if (expected.sizes() != found.sizes())
    return hopeless(str("has shape ", found.sizes(), ", expected ", expected.sizes()));
  const at::Tensor actual = found.detach().to(at::kDouble);
  const at::Tensor nothing = expected.eq(-kInfinity);
  if (!nothing.equal(actual.eq(-kInfinity))) return hopeless("has minus infinity in other places");
  if (actual.masked_fill(nothing, 0).isfinite().logical_not().any().item<bool>())
    return hopeless("holds NaN or infinity");
  if (expected.numel() == 0) return {};
  const at::Tensor wanted = expected.masked_fill(nothing, 0);
  Difference difference;
  difference.error = (actual.masked_fill(nothing, 0) - wanted).abs().max().item<double>();
  const double bound = tolerance.abs + tolerance.rel * wanted.abs().max().item<double>();
  difference.share = difference.error == 0 ? 0 : difference.error / bound;
  return difference;
}

}  // namespace

NamedTensors named_inputs(const ConformanceCase& c) {
  NamedTensors named;
  for (const auto& [name, tensor] : c.named)
    named[name] = name == kSyntaxVectors ? tensor.to(at::kFloat) : tensor.to(at::kLong);
  return named;
}

CheckPath check_path_named(const std::string& name) {
  if (name == "reference") return CheckPath::Reference;
  if (name == "fused") return CheckPath::Fused;
  if (name == "step") return CheckPath::Step;
  if (name == "chunk") return CheckPath::Chunk;
  throw UsageError(str("path must be reference, fused, step or chunk, found '", name, "'"));
}

at::ScalarType check_dtype_named(const std::string& name) {
  if (name == "float64") return at::kDouble;
  if (name == "float32") return at::kFloat;
  if (name == "bf16") return at::kBFloat16;
  throw UsageError(str("dtype must be float64, float32 or bf16, found '", name, "'"));
}

std::shared_ptr<const Encoding> encoding_of(const ConformanceCase& c) {
  try {
    Dimensions dimensions;
    dimensions.heads = c.q.size(1);
    dimensions.kv_heads = c.k.size(1);
    dimensions.head_dim = c.q.size(3);
    dimensions.width = width_of(c);
    dimensions.layers = c.layers;
    std::shared_ptr<const Encoding> encoding = make_encoding(c.encoding, dimensions);
    try {
      check_parameters(*layer_encoding(encoding, c.layer), c.layer, c.parameters);
    } catch (const Error& error) {
      if (dimensions.width > 0) throw;
      throw Error(str(first_line(error.what()),
                      " (without inputs.x or inputs.mlp_out the model width counts as heads times head_dim)"));
    }
    const Traits traits = encoding->traits();
    if (c.positions_k.defined() && c.positions_k.size(2) != traits.axes)
      throw Error(str("the encoding reads ", traits.axes, " position axes, positions_k has ", c.positions_k.size(2)));
    if (!c.positions_k.defined() && traits.axes != 1)
      throw Error(str("the encoding reads ", traits.axes, " position axes: positions_k and positions_q must be given"));
    return encoding;
  } catch (const Error& error) {
    throw Error(str(c.where, ": ", first_line(error.what())));
  }
}

NamedTensors compute_case(const ConformanceCase& c, const Encoding& encoding, at::ScalarType dtype, Path path,
                          const AfterMoves& after_moves) {
  const bool gradients = c.grad_out.defined();
  const auto leaf = [&](const at::Tensor& tensor, at::ScalarType type) {
    return tensor.to(type).detach().clone().requires_grad_(gradients);
  };
  AttendOptions options = whole_options(c, dtype);
  options.path = path;
  options.after_moves = after_moves;
  std::vector<std::pair<std::string, at::Tensor>> leaves = {
      {"grad.q", leaf(c.q, dtype)}, {"grad.k", leaf(c.k, dtype)}, {"grad.v", leaf(c.v, dtype)}};
  if (c.x.defined()) leaves.emplace_back("grad.x", options.x = leaf(c.x, dtype));
  if (c.state.defined()) leaves.emplace_back("grad.state", options.state = leaf(c.state, wide(dtype)));
  for (auto& [name, tensor] : options.parameters)
    leaves.emplace_back("grad.parameters." + name, tensor = leaf(tensor, wide(dtype)));

  const at::AutoGradMode mode(gradients);
  const Attended attended = attend_full(leaves[0].second, leaves[1].second, leaves[2].second, encoding, options);
  NamedTensors outputs;
  outputs["out"] = attended.out.detach();
  outputs["lse"] = attended.lse.detach();
  const std::shared_ptr<const Encoding> own = encoding.at_layer(c.layer);
  // Averages that have become a part of the output are nobody else's.
  if (attended.averages.defined() && (own ? *own : encoding).traits().carries)
    outputs["carried"] = attended.averages.detach();
  if (const at::Tensor state = next_state(c, own ? *own : encoding, options, attended.averages, dtype); state.defined())
    outputs["state"] = state.detach();
  if (const at::Tensor embedding = embedding_of(c, encoding, options.parameters, dtype); embedding.defined())
    outputs["embedding"] = embedding;
  if (gradients && attended.out.requires_grad()) {
    attended.out.backward(c.grad_out.to(attended.out.scalar_type()));
    for (const auto& [name, tensor] : leaves)
      if (tensor.grad().defined()) outputs[name] = tensor.grad();
  }
  return outputs;
}

NamedTensors compute_through_cache(const ConformanceCase& c, std::shared_ptr<const Encoding> encoding,
                                   at::ScalarType dtype, std::int64_t tokens, const AfterMoves& after_moves) {
  const at::NoGradGuard no_gradient;
  return ThroughCache(c, std::move(encoding), dtype, tokens, after_moves).run();
}

CaseResult check_case(const ConformanceCase& c, CheckPath path, const std::string& dtype) {
  using Status = CaseResult::Status;
  CaseResult result;
  result.id = c.id;
  const auto end = [&](Status status, const std::string& reason) {
    result.status = status;
    result.reason = reason;
    return result;
  };
  if (!c.fault.empty()) return end(Status::Failed, first_line(c.fault));
  std::shared_ptr<const Encoding> encoding;
  try {
    encoding = encoding_of(c);
  } catch (const Error& error) {  // the case is wrong: the others are checked all the same
    return end(Status::Failed, first_line(error.what()));
  }
  if (path == CheckPath::Fused && dtype == "float64")
    return end(Status::NotOnThisPath, "the fused kernel computes in float32 and bf16");
  const bool cached = path == CheckPath::Step || path == CheckPath::Chunk;
  if (cached)
    if (const std::string why = no_cache_order(c); !why.empty()) return end(Status::NotOnThisPath, why);
  const auto tolerance = c.tolerance.find(dtype);
  if (tolerance == c.tolerance.end()) return end(Status::Skipped, str("no tolerance for ", dtype));

  NamedTensors expected = c.outputs;
  if (cached)
    std::erase_if(expected,
                  [](const auto& one) { return one.first != "out" && one.first != "lse" && one.first != "carried"; });
  if (expected.empty())
    return end(Status::Skipped,
               c.outputs.empty() ? "no outputs yet (torsor record fills them in)" : "no out and no lse");

  NamedTensors found;
  try {
    const at::ScalarType type = check_dtype_named(dtype);
    found = cached ? compute_through_cache(c, encoding, type, path == CheckPath::Step ? 1 : kChunk)
                   : compute_case(c, *encoding, type, path == CheckPath::Fused ? Path::Fused : Path::Reference);
  } catch (const NotFused& error) {
    return end(Status::NotOnThisPath, first_line(error.what()));
  } catch (const Refusal& error) {
    // What tokens bring may be known of all of them together alone (sipe, mode=oracle).
    return end(cached ? Status::NotOnThisPath : Status::Failed, first_line(error.what()));
  } catch (const Error& error) {
    return end(Status::Failed, first_line(error.what()));
  } catch (const c10::Error& error) {
    return end(Status::Failed, first_line(error.what_without_backtrace()));
  }
  for (const auto& [name, tensor] : expected) {
    at::Tensor actual = found.count(name) ? found.at(name) : at::Tensor();
    // Nothing depends on this tensor, so its gradient is zero.
    if (!actual.defined() && name.starts_with(kGradient)) actual = at::zeros_like(tensor);
    const Difference difference = compare(tensor, actual, tolerance->second);
    if (!result.tensor.empty() && difference.share <= result.share) continue;
    result.tensor = name;
    result.share = difference.share;
    result.error = difference.error;
    result.reason = difference.reason.empty() ? "" : str(name, " ", difference.reason);
  }
  result.status = result.share <= 1 ? Status::Passed : Status::Failed;
  return result;
}

Recorded record_missing(ConformanceFile& file) {
  Recorded recorded;
  Json& cases = file.json["cases"];
  for (std::size_t i = 0; i < file.cases.size(); ++i) {
    const ConformanceCase& c = file.cases[i];
    const NamedTensors computed = compute_case(c, *encoding_of(c), at::kDouble, Path::Reference);
    bool filled = false;
    const auto fill = [&](Json& object, const std::string& key, const std::string& name) {
      const auto found = computed.find(name);
      if (found == computed.end() || (object.contains(key) && !object[key].is_null())) return;
      object[key] = tensor_to_json(found->second, str(c.where, ": ", name));
      filled = true;
    };
    Json& outputs = cases[i]["outputs"];
    if (outputs.is_null()) outputs = Json::object();
    for (const char* name : {"out", "lse", "state", "carried", "embedding"}) fill(outputs, name, name);
    if (c.grad_out.defined()) {
      Json& gradients = outputs["grad"];
      if (gradients.is_null()) gradients = Json::object();
      for (const char* name : {"q", "k", "v", "x", "state"}) fill(gradients, name, kGradient + name);
      Json& of_parameters = gradients["parameters"];
      if (of_parameters.is_null()) of_parameters = Json::object();
      for (const auto& [name, tensor] : c.parameters) fill(of_parameters, name, "grad.parameters." + name);
    }
    if (filled) ++recorded.cases;
  }
  return recorded;
}

}  // namespace torsor

#include "tests/attention/call.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "torsor/encoding/syntax/sipe.h"

namespace torsor::attention_test {
namespace {

/// A trained tensor away from its start, so that its effect shows, yet inside its range.
at::Tensor drawn(const ParameterInfo& info) {
  const Initial& initial = info.initial;
  const at::Tensor noise = at::randn(info.shape, doubles());
  switch (initial.kind) {
    case Initial::Kind::Uniform:
      return initial.a + (initial.b - initial.a) * (0.2 + 0.6 * at::rand(info.shape, doubles()));
    case Initial::Kind::Normal:
      return initial.a + 0.5 * noise;
    case Initial::Kind::Values:
      return at::tensor(initial.values, doubles()).view(info.shape) * (1 + 0.1 * noise);
    case Initial::Kind::Constant:
      break;
  }
  return initial.a == 0 ? 0.5 * noise : initial.a * (1 + 0.2 * noise.clamp(-2, 2));
}

/// A view of (B, T, H, D), or (B, H, T, D) as it stands.
at::Tensor with_layout(const at::Tensor& tensor, bool transposed) {
  return transposed ? tensor.transpose(1, 2).contiguous().transpose(1, 2) : tensor.contiguous();
}

}  // namespace

Tokens Tokens::slice(std::int64_t first, std::int64_t count) const {
  Tokens part{q.narrow(2, first, count), k.narrow(2, first, count), v.narrow(2, first, count),
              x.defined() ? x.narrow(1, first, count) : x};
  for (const auto& [name, tensor] : named) part.named[name] = tensor.narrow(1, first, count);
  return part;
}

Tokens Tokens::row(std::int64_t row) const {
  Tokens one{q.narrow(0, row, 1), k.narrow(0, row, 1), v.narrow(0, row, 1), x.defined() ? x.narrow(0, row, 1) : x};
  for (const auto& [name, tensor] : named) one.named[name] = tensor.narrow(0, row, 1);
  return one;
}

Tokens Tokens::requires_grad() const {
  const auto leaf = [](const at::Tensor& one) {
    return one.defined() ? one.detach().clone().requires_grad_(true) : one;
  };
  return {leaf(q), leaf(k), leaf(v), leaf(x), named};
}

namespace {
Tokens cat(const std::vector<Tokens>& parts, std::int64_t axis) {
  std::vector<at::Tensor> q, k, v, x;
  for (const Tokens& one : parts) {
    q.push_back(one.q), k.push_back(one.k), v.push_back(one.v);
    if (one.x.defined()) x.push_back(one.x);
  }
  Tokens all{at::cat(q, axis), at::cat(k, axis), at::cat(v, axis), x.empty() ? at::Tensor() : at::cat(x, axis ? 1 : 0)};
  for (const auto& [name, first] : parts.front().named) {
    std::vector<at::Tensor> of_parts;
    for (const Tokens& one : parts) of_parts.push_back(one.named.at(name));
    all.named[name] = at::cat(of_parts, axis ? 1 : 0);
  }
  return all;
}
}  // namespace

Tokens join_tokens(const std::vector<Tokens>& parts) { return cat(parts, 2); }
Tokens stack_rows(const std::vector<Tokens>& rows) { return cat(rows, 0); }

NamedTensors draw_syntax(const std::vector<std::string>& names, std::int64_t rows, std::int64_t count) {
  NamedTensors named;
  const auto below = [&](std::int64_t end, const std::vector<std::int64_t>& shape) {
    return at::randint(end, shape, at::TensorOptions(at::kLong));
  };
  for (const std::string& name : names) {
    if (name == kSyntaxTags) {
      named[name] =
          at::stack({below(3, {rows, count}), below(6, {rows, count})}, 2) * below(4, {rows, count, 1}).clamp_max(1);
    } else if (name == kSyntaxVectors) {
      named[name] = at::randn({rows, count, kSyntaxVectorWidth}) * 0.3 * below(4, {rows, count, 1}).clamp_max(1);
    } else if (name == kSyntaxSentences) {
      const at::Tensor numbers = below(2, {rows, count}).cumsum(1) / 2;
      named[name] = numbers.floor().to(at::kLong).masked_fill(below(6, {rows, count}).eq(0), -1);
    } else {
      // Two arcs a token at most, to itself or one of the four tokens before it.
      const at::Tensor reach = at::arange(count, at::TensorOptions(at::kLong)).clamp_max(4).view({1, count, 1});
      const auto end = [&] { return at::minimum(below(5, {rows, count, 2}), reach); };
      const at::Tensor none = below(2, {rows, count, 2}).eq(0);
      named[name] = at::stack({end() * below(2, {rows, count, 2}), end()}, 3).masked_fill(none.unsqueeze(3), -1);
    }
  }
  return named;
}

Subject::Subject(const EncodingCase& row, const Setting& setting, std::uint64_t seed) : row_(&row), setting_(setting) {
  if (row.averages) setting_.value_dim = 0;  // what is averaged is added to a value, and as wide as a head
  Dimensions dimensions;
  dimensions.heads = setting.heads.heads;
  dimensions.kv_heads = setting.heads.kv_heads;
  dimensions.head_dim = setting.head_dim ? setting.head_dim : row.head_dim;
  dimensions.width = kCaseWidth;
  dimensions.train_length = kCaseTrainLength;
  dimensions.precision = setting.precision;
  encoding_ = make_encoding(row.expression, dimensions);
  of_layer_ = layer_encoding(encoding_, setting.layer);
  at::manual_seed(seed);
  for (const ParameterInfo& info : of_layer_->parameters(setting.layer))
    parameters_[info.name] = drawn(info).to(setting.dtype == at::kDouble ? at::kDouble : at::kFloat);
  if (!row.absolute) return;
  const auto projection = [&](std::int64_t outputs) { return at::randn({kCaseWidth, outputs}, doubles()) * 0.4; };
  project_q_ = projection(dimensions.heads * head_dim());
  project_k_ = projection(dimensions.kv_heads * head_dim());
  project_v_ = projection(dimensions.kv_heads * value_dim());
}

Tokens Subject::draw(std::int64_t rows, std::int64_t count) const {
  const HeadCounts& heads = setting_.heads;
  const auto normal = [&](std::int64_t h, std::int64_t d) {
    return with_layout(at::randn({rows, h, count, d}, doubles()).to(setting_.dtype), setting_.transposed);
  };
  const at::Tensor q = normal(heads.heads, head_dim()), k = normal(heads.kv_heads, head_dim());
  const at::Tensor v = normal(heads.kv_heads, value_dim());
  Tokens tokens{q, k, v};
  if (row_->hidden) tokens.x = at::randn({rows, count, kCaseWidth}, doubles()).to(setting_.dtype);
  tokens.named = draw_syntax(encoding_->inputs(), rows, count);
  return tokens;
}

at::Tensor Subject::run_of_positions(std::int64_t rows, std::int64_t count, double first) const {
  const at::Tensor steps = at::arange(count, doubles()).view({1, count, 1}).expand({rows, count, 1});
  if (row_->axes == 1) return steps + first;
  // A grid three tokens wide: the second axis counts its lines, the third its columns.
  const at::Tensor line = (steps / 3).floor(), column = steps - 3 * line;
  std::vector<at::Tensor> axes = {steps, line, column};
  axes.resize(static_cast<std::size_t>(row_->axes));
  return at::cat(axes, 2) + first;
}

Placed Subject::place(const Tokens& tokens, const at::Tensor& positions, const at::Tensor& documents) const {
  if (!row_->absolute) {
    const auto laid = [&](const at::Tensor& one) { return with_layout(one, setting_.transposed); };
    return {{laid(tokens.q), laid(tokens.k), laid(tokens.v), tokens.x, tokens.named}, positions, documents};
  }
  Side side;
  side.positions = positions;
  side.documents = documents;
  // What is added may read the embedding, here ones.
  const at::Tensor ones = at::ones({positions.size(0), positions.size(1), kCaseWidth}, doubles());
  const at::Tensor added = encoding_->embedding(side, parameters_, tokens.named, ones).to(at::kDouble);  // (B, T, C)
  const auto plus = [&](const at::Tensor& base, const at::Tensor& projection) {
    const at::Tensor flat = at::matmul(added, projection);
    const at::Tensor split = flat.view({flat.size(0), flat.size(1), base.size(1), base.size(3)}).transpose(1, 2);
    return with_layout((base.to(at::kDouble) + split).to(base.scalar_type()), setting_.transposed);
  };
  return {{plus(tokens.q, project_q_), plus(tokens.k, project_k_), plus(tokens.v, project_v_), {}, tokens.named},
          positions,
          documents};
}

AttendOptions Subject::options(const Placed& placed) const {
  AttendOptions options;
  options.positions = placed.positions;
  options.documents = placed.documents;
  options.x = placed.tokens.x;
  options.named = placed.tokens.named;
  options.window = setting_.window;
  options.parameters = parameters_;
  options.layer = setting_.layer;
  options.layers = std::max<std::int64_t>(setting_.layer + 1, 4);
  return options;
}

at::Tensor Subject::full(const Placed& placed, Path path) const {
  AttendOptions call = options(placed);
  call.path = path;
  return attend(placed.tokens.q, placed.tokens.k, placed.tokens.v, *encoding_, call);
}

KvCache Subject::cache(std::int64_t rows, std::int64_t capacity, std::int64_t window) const {
  CacheOptions options;
  options.capacity = capacity;
  options.batch = rows;
  options.layers = std::max<std::int64_t>(setting_.layer + 1, 4);
  options.value_dim = value_dim();
  options.dtype = setting_.dtype;
  options.window = {window};
  options.rollback = 2;
  return KvCache(encoding_, options);
}

at::Tensor Subject::cached(const Placed& placed, const std::vector<std::int64_t>& chunks) const {
  KvCache held = cache(placed.tokens.rows(), placed.tokens.count());
  std::vector<at::Tensor> outs;
  std::size_t turn = 0;
  for (std::int64_t first = 0; first < placed.tokens.count();) {
    const std::int64_t count = std::min(chunks[std::min(turn, chunks.size() - 1)], placed.tokens.count() - first);
    const Placed part = slice(placed, first, count);
    outs.push_back(held.attend(part.tokens.q, part.tokens.k, part.tokens.v, options(part)).out);
    first += count;
    ++turn;
  }
  return at::cat(outs, 2);
}

void each_row(const std::function<void(const Subject&)>& check) {
  std::uint64_t seed = 1;
  for (const EncodingCase& row : case_table())
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
      Setting setting;
      setting.heads = row.heads[seed / 2 % row.heads.size()];
      setting.dtype = dtype;
      setting.transposed = seed % 3 == 0;
      setting.layer = static_cast<std::int64_t>(seed % 2);
      const Subject subject(row, setting, seed++);
      SCOPED_TRACE(subject.name());
      check(subject);
      if (::testing::Test::HasFailure()) return;
    }
}

std::string Subject::name() const {
  std::ostringstream out;
  out << *row_ << " | heads " << setting_.heads.heads << ':' << setting_.heads.kv_heads << ", " << setting_.dtype
      << ", head_dim " << head_dim() << ", value_dim " << value_dim();
  if (setting_.window) out << ", window " << *setting_.window;
  if (setting_.transposed) out << ", transposed";
  if (setting_.layer) out << ", layer " << setting_.layer;
  return out.str();
}

Placed slice(const Placed& placed, std::int64_t first, std::int64_t count) {
  Placed part;
  part.tokens = placed.tokens.slice(first, count);
  part.positions = placed.positions.narrow(1, first, count);
  if (placed.documents.defined()) part.documents = placed.documents.narrow(1, first, count);
  return part;
}

double row_error(const at::Tensor& found, const at::Tensor& wanted) {
  if (found.sizes() != wanted.sizes()) return std::numeric_limits<double>::infinity();
  if (found.numel() == 0) return 0;
  const at::Tensor right = wanted.detach().to(at::kDouble);
  const at::Tensor error = (found.detach().to(at::kDouble) - right).norm(2, {-1});
  // A row whose values cancel in the average has an error as large as the values, not as the row: it is judged against
  // the usual size of a row.
  const at::Tensor own = right.norm(2, {-1});
  const at::Tensor size = at::maximum(own, own.square().mean().sqrt());
  const double worst = (error / size.masked_fill(size.eq(0), 1)).max().item<double>();
  return std::isnan(worst) ? std::numeric_limits<double>::infinity() : worst;
}

double tensor_error(const at::Tensor& found, const at::Tensor& wanted) {
  if (found.sizes() != wanted.sizes()) return std::numeric_limits<double>::infinity();
  if (found.numel() == 0) return 0;
  const at::Tensor right = wanted.detach().to(at::kDouble);
  const double error = (found.detach().to(at::kDouble) - right).abs().max().item<double>();
  const double size = right.abs().max().item<double>();
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : error / (size > 0 ? size : 1);
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() && a.equal(b);
}

double row_bound(at::ScalarType dtype) { return dtype == at::kDouble ? 1e-10 : 4e-6; }

}  // namespace torsor::attention_test

#include "torsor/lab/bench_forms.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "torsor/attention/evaluate.h"
#include "torsor/base/error.h"
#include "torsor/base/random.h"

namespace torsor {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();
constexpr std::int64_t kPathWidth = 8;  // P of every configuration that GRAPE-AP ships
constexpr std::int64_t kTags = 18;      // three terminal times six other hexatags
constexpr std::int64_t kHidden = 32;    // of FIRE's network
// Of the RMS normalisation of GRAPE-AP's probes: the spacing of float32 at 1.
constexpr double kNormEpsilon = 1.1920929e-7;

class Maker {
 public:
  Maker(std::uint64_t seed, bool trained)
      : generator_(at::make_generator<at::CPUGeneratorImpl>(seed)), trained_(trained) {}

  at::Tensor normal(at::IntArrayRef shape, at::ScalarType dtype = at::kFloat) {
    return at::randn(shape, generator_, at::TensorOptions().dtype(at::kFloat)).to(dtype);
  }
  at::Tensor uniform(at::IntArrayRef shape, double low, double high) {
    return at::rand(shape, generator_, at::TensorOptions().dtype(at::kFloat)) * (high - low) + low;
  }
  at::Tensor integers(at::IntArrayRef shape, std::int64_t low, std::int64_t high) {
    return at::randint(low, high, shape, generator_, at::TensorOptions().dtype(at::kLong));
  }
  at::Tensor leaf(const at::Tensor& tensor) const { return tensor.detach().requires_grad_(trained_); }

 private:
  at::Generator generator_;
  bool trained_;
};

/// 2^(-8 h / H), h = 1 ... H: ALiBi's slopes where H is a power of two.
at::Tensor falling_slopes(std::int64_t heads) {
  const at::Tensor h = at::arange(1, heads + 1, at::kDouble);
  return at::pow(2.0, h * (-8.0 / static_cast<double>(heads))).to(at::kFloat);
}

std::vector<at::Tensor> leaves_of(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& tensor : tensors)
    if (tensor.requires_grad()) leaves.push_back(tensor);
  return leaves;
}

/// Half layout, frequency 1: channel pairs (i, i + P/2) of token l turn by -l.
at::Tensor turned_back(const at::Tensor& p) {
  const std::int64_t tokens = p.size(2), half = p.size(3) / 2;
  const at::Tensor angle = at::arange(tokens, at::kDouble).view({tokens, 1});
  const at::Tensor cosine = angle.cos().to(p.scalar_type()), sine = angle.sin().to(p.scalar_type());
  const at::Tensor a = p.narrow(3, 0, half), b = p.narrow(3, half, half);
  return at::cat({a * cosine + b * sine, b * cosine - a * sine}, 3);
}

at::Tensor probe_keys(const at::Tensor& p) {
  return turned_back(p * at::rsqrt(p.square().mean(-1, true) + kNormEpsilon));
}

}  // namespace

BenchTensors bench_tensors(const BenchShape& shape, std::int64_t queries, std::int64_t keys, at::ScalarType dtype,
                           std::uint64_t seed, bool trained) {
  Maker make(seed, trained);
  const std::int64_t key_heads = shape.key_heads > 0 ? shape.key_heads : shape.heads;
  BenchTensors tensors;
  tensors.q = make.leaf(make.normal({shape.batch, shape.heads, queries, shape.head_dim}, dtype));
  tensors.k = make.leaf(make.normal({shape.batch, key_heads, keys, shape.head_dim}, dtype));
  tensors.v = make.leaf(make.normal({shape.batch, key_heads, keys, shape.head_dim}, dtype));
  if (trained) tensors.dout = make.normal({shape.batch, shape.heads, queries, shape.head_dim}, dtype);
  return tensors;
}

CoreInput bench_input(const BenchTensors& tensors) {
  const std::int64_t batch = tensors.q.size(0), queries = tensors.q.size(2), keys = tensors.k.size(2);
  CoreInput input;
  input.q = tensors.q;
  input.k = tensors.k;
  input.v = tensors.v;
  input.scale = 1 / std::sqrt(static_cast<double>(tensors.q.size(3)));
  const at::Tensor positions = at::arange(keys, at::kDouble).expand({batch, keys});
  input.key_positions = positions;
  input.query_positions = positions.narrow(1, keys - queries, queries);
  input.need_lse = false;
  return input;
}

const std::vector<std::string>& form_names() {
  static const std::vector<std::string> names = {"linear", "table",         "function", "fire",  "potential",
                                                 "gated",  "path integral", "product",  "factor"};
  return names;
}

FormCase make_form(const std::string& name, const BenchShape& shape, std::int64_t tokens, std::uint64_t seed,
                   bool trained) {
  // Numbers of its own for every form, unlike those of q, k and v.
  Maker make(random_at(seed, stream_of(name), 0), trained);
  const std::int64_t batch = shape.batch, heads = shape.heads;
  const HeadRange range{0, heads};
  const auto finish = [&](const std::vector<at::Tensor>& tensors, std::function<BiasForm()> form) {
    return FormCase{leaves_of(tensors), std::move(form)};
  };
  if (name == "linear") {
    const at::Tensor slope = make.leaf(falling_slopes(heads));
    return finish({slope}, [=] { return BiasForm{range, LinearForm{slope}}; });
  }
  if (name == "table") {
    const at::Tensor table = make.leaf(make.normal({32, heads}));
    return finish({table}, [=] { return BiasForm{range, TableForm{Buckets{}, table}}; });
  }
  if (name == "function") {
    const at::Tensor r1 = make.leaf(make.uniform({heads}, 0.5, 2)), r2 = make.leaf(make.uniform({heads}, 0.1, 1));
    return finish({r1, r2}, [=] { return BiasForm{range, LogForm{r1, r2}}; });
  }
  if (name == "fire") {
    PiecewiseForm form;
    form.w1 = make.leaf(make.normal({kHidden}));
    form.b1 = make.leaf(make.normal({kHidden}) * 0.3);
    form.w2 = make.leaf(make.normal({heads, kHidden}) * 0.3);
    form.b2 = make.leaf(make.normal({heads}) * 0.1);
    form.c = make.leaf(at::full({1}, 0.1, at::kFloat));
    form.mu = make.leaf(at::full({1}, 1.0, at::kFloat));
    return finish({form.w1, form.b1, form.w2, form.b2, form.c, form.mu}, [=] { return BiasForm{range, form}; });
  }
  if (name == "potential") {
    // A gate of about 0.98 a token.
    const at::Tensor gate = make.leaf(make.normal({batch, heads, tokens}) + 4);
    return finish({gate}, [=] {
      const at::Tensor sum = at::log_sigmoid(gate).to(at::kDouble).cumsum(-1);
      return BiasForm{range, PotentialForm{sum, sum}};
    });
  }
  if (name == "gated") {
    const at::Tensor omega = make.leaf(falling_slopes(heads));
    const at::Tensor query = make.leaf(make.uniform({batch, heads, tokens}, 0, 1)),
                     key = make.leaf(make.uniform({batch, heads, tokens}, 0, 1));
    return finish({omega, query, key}, [=] { return BiasForm{range, GatedForm{omega, query, key}}; });
  }
  if (name == "path integral") {
    const at::Tensor query = make.leaf(make.normal({batch, heads, tokens, kPathWidth})),
                     key = make.leaf(make.normal({batch, heads, tokens, kPathWidth})),
                     alpha = make.leaf(falling_slopes(heads));
    return finish({query, key, alpha}, [=] { return BiasForm{range, PathForm{query, key, alpha}}; });
  }
  if (name == "product") {
    const double size = 1 / std::sqrt(static_cast<double>(shape.head_dim));
    const at::Tensor query = make.leaf(make.normal({batch, heads, tokens, shape.head_dim}) * size),
                     key = make.leaf(make.normal({batch, heads, tokens, shape.head_dim}));
    return finish({query, key}, [=] { return BiasForm{range, ProductForm{query, key}}; });
  }
  if (name == "factor") {
    const at::Tensor slope = make.leaf(falling_slopes(heads));
    const at::Tensor left = make.leaf(make.normal({batch, heads, tokens, kTags}) * 0.3);
    const at::Tensor tag = make.integers({batch, tokens}, -1, kTags);
    return finish({slope, left}, [=] {
      FactorForm form;
      form.base = std::make_shared<BiasForm>(BiasForm{range, LinearForm{slope}});
      form.left = left;
      form.tag = tag;
      return BiasForm{range, form};
    });
  }
  throw Error(str("no bias form is called ", name));
}

at::Tensor causal_mask(const BenchShape& shape, std::int64_t tokens) {
  return at::full({1, shape.heads, tokens, tokens}, kMinusInfinity, at::kFloat).triu_(1);
}

at::Tensor materialised_mask(const BiasForm& form, const CoreInput& input) {
  at::NoGradGuard no_grad;
  const std::int64_t queries = input.q.size(2), keys = input.k.size(2), heads = input.q.size(1);
  // 2^21 pairs of a head at a time: what a form's evaluation holds for a pair then stays below a gigabyte.
  const std::int64_t step = std::clamp<std::int64_t>((std::int64_t{1} << 21) / keys, 1, queries);
  const at::Tensor index = at::arange(keys, at::kLong);
  at::Tensor mask;
  for (std::int64_t first = 0; first < queries; first += step) {
    Block block;
    block.first_query = first;
    block.queries = std::min(step, queries - first);
    block.keys = keys;
    block.query_positions = input.query_positions.narrow(1, first, block.queries);
    block.key_positions = input.key_positions;
    const at::Tensor own = index.narrow(0, keys - queries + first, block.queries).unsqueeze(-1);
    block.visible = index.unsqueeze(0).le(own).unsqueeze(0).unsqueeze(0);
    block.group = heads / input.k.size(1);
    const at::Tensor values = evaluate_form(form, block);
    if (!mask.defined()) mask = at::empty({values.size(0), heads, queries, keys}, at::kFloat);
    mask.narrow(2, first, block.queries).copy_(values.masked_fill(block.visible.logical_not(), kMinusInfinity));
  }
  return mask;
}

Probes authors_probes(const BenchShape& shape, std::int64_t tokens, std::uint64_t seed, bool trained) {
  Maker make(random_at(seed, stream_of("probes"), 0), trained);
  return {make.leaf(make.normal({shape.batch, shape.heads, tokens, kPathWidth}) * 0.5), falling_slopes(shape.heads)};
}

at::Tensor authors_path_mask(const at::Tensor& p, const at::Tensor& slope, const at::Tensor& future) {
  const at::Tensor z = at::matmul(p, probe_keys(p).transpose(-1, -2)) / static_cast<double>(p.size(3));
  const at::Tensor psi = (slope.view({1, -1, 1, 1}) * at::log_sigmoid(z.to(at::kFloat))).masked_fill(future, 0);
  return (psi.sum(-1, true) - psi.cumsum(-1)).masked_fill(future, kMinusInfinity);
}

at::Tensor authors_path_attention(const BenchTensors& tensors, const at::Tensor& p, const at::Tensor& slope,
                                  const at::Tensor& future) {
  return at::scaled_dot_product_attention(tensors.q, tensors.k, tensors.v, authors_path_mask(p, slope, future));
}

BiasForm path_form(const at::Tensor& p, const at::Tensor& slope) {
  return {{0, p.size(1)}, PathForm{p, probe_keys(p), slope}};
}

}  // namespace torsor

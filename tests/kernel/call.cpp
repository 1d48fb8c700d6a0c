#include "tests/kernel/call.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <thread>

#include "tests/kernel/targets.h"

namespace torsor::kernel {
namespace {

constexpr double untouched = 7;

std::size_t index(std::int64_t value) { return static_cast<std::size_t>(value); }

/// Strides, and where the first number lies.
struct Arrangement {
  std::array<std::int64_t, 3> strides;
  std::int64_t start, count;

  Arrangement(const Tensor& of, Layout layout) {
    const auto [batch, heads, tokens, width] = of.extent;
    const std::int64_t space = layout == Layout::Spaced ? 3 : 0;
    start = space / 2;
    const std::int64_t row = width + space;
    strides = layout == Layout::TokensFirst ? std::array{tokens * heads * row, row, heads * row}
                                            : std::array{heads * tokens * row, tokens * row, row};
    count = start + batch * heads * tokens * row;
    for (std::size_t axis = 0; axis < 3; ++axis)
      if (of.extent[axis] == 1) strides[axis] = axis == 2 ? strides[axis] : 0;
  }
  /// Calls visit(n, place) for each row, in the tensor's order: its numbers begin at the tensor's n-th and lie at
  /// `place` in memory.
  template <class Visit>
  void each_row(const Tensor& of, const Visit& visit) const {
    std::size_t n = 0;
    for (std::int64_t b = 0; b < of.extent[0]; ++b)
      for (std::int64_t h = 0; h < of.extent[1]; ++h)
        for (std::int64_t t = 0; t < of.extent[2]; ++t, n += index(of.extent[3]))
          visit(n, index(start + b * strides[0] + h * strides[1] + t * strides[2]));
  }
};

BFloat16 to_half(double value) {
  BFloat16 half;
  narrow(static_cast<float>(value), half);
  return half;
}

/// The arrays of a call, in the types that the kernel reads.
class Arrays {
 public:
  Input input(const Tensor& of, Layout layout, bool half = false) {
    if (of.empty()) return {};
    const Arrangement lie(of, layout);
    Input input;
    input.strides = lie.strides;
    const auto copy = [&](auto& to, const auto& convert) {
      lie.each_row(of, [&](std::size_t n, std::size_t place) {
        std::transform(of.data.data() + n, of.data.data() + n + of.extent[3], to.data() + place, convert);
      });
    };
    if (half) {
      std::vector<BFloat16>& to = halves_.emplace_back(index(lie.count), to_half(std::nan("")));
      copy(to, to_half);
      input.half = to.data() + lie.start;
    } else {
      std::vector<float>& to = floats_.emplace_back(index(lie.count), std::numeric_limits<float>::quiet_NaN());
      copy(to, [](double value) { return static_cast<float>(value); });
      input.data = to.data() + lie.start;
    }
    return input;
  }
  const float* single(const Tensor& of) {
    return of.empty() ? nullptr : floats_.emplace_back(of.data.begin(), of.data.end()).data();
  }
  const double* wide(const Tensor& of) { return of.empty() ? nullptr : of.data.data(); }
  /// Positions, (batch, tokens): not null even without tokens.
  static const std::int64_t* whole(const std::vector<std::int64_t>& of) { return of.empty() ? nullptr : of.data(); }

 private:
  std::deque<std::vector<float>> floats_;
  std::deque<std::vector<BFloat16>> halves_;
};

std::array<std::int64_t, 2> strides_of(const Tensor& of) {
  return {of.extent[0] == 1 ? 0 : of.extent[1] * of.extent[2], of.extent[2]};
}

Factor factor_of(const BiasNumbers& bias, Arrays& arrays, Layout layout) {
  const FactorNumbers& from = *bias.factor;
  Factor factor;
  factor.kind = from.kind;
  factor.left = arrays.input(bias.is.left, layout);
  factor.right = arrays.input(bias.is.right, layout);
  factor.width = bias.is.left.extent[3];
  factor.tags = Arrays::whole(from.tags);
  factor.beta = arrays.single(bias.is.beta);
  factor.bound = static_cast<float>(from.bound);
  factor.query_groups = Arrays::whole(from.query_groups);
  factor.key_groups = Arrays::whole(from.key_groups);
  return factor;
}

Bias bias_of(const BiasNumbers& from, Arrays& arrays, Layout layout) {
  const Parameters& is = from.is;
  const Positions positions{from.query_positions.data.data(), from.key_positions.data.data()};
  const std::int64_t* first_distance = Arrays::whole(from.first_distance);
  Bias bias;
  bias.first_head = from.first_head, bias.last_head = from.last_head;
  switch (from.form) {
    case Form::DistanceTable:
      bias.form = DistanceTable{arrays.single(is.table), from.most, is.table.extent[3], first_distance};
      break;
    case Form::DistanceLookup:
      bias.form = DistanceLookup{arrays.single(is.table), from.most, is.table.extent[3], positions};
      break;
    case Form::Slope:
      bias.form = Slope{arrays.single(is.slope), positions};
      break;
    case Form::Log:
    case Form::Power:
      bias.form = Curve{from.form == Form::Log ? Curve::Kind::Log : Curve::Kind::Power, arrays.single(is.r1),
                        arrays.single(is.r2), positions};
      break;
    case Form::Piecewise:
      bias.form = Piecewise{is.c.data[0],          arrays.wide(is.reach), from.breaks.data(), is.slope.extent[3],
                            arrays.wide(is.slope), arrays.wide(is.level), positions,          first_distance};
      break;
    case Form::Potential:
      bias.form = Potential{arrays.wide(is.query), arrays.wide(is.key), strides_of(is.query), strides_of(is.key)};
      break;
    case Form::Gated:
      bias.form =
          Gated{arrays.single(is.query), arrays.single(is.key), strides_of(is.query), strides_of(is.key), positions};
      break;
    case Form::Path:
      bias.form = Path{arrays.input(is.query, layout), arrays.input(is.key, layout), is.query.extent[3],
                       arrays.single(is.alpha)};
      break;
    case Form::Product:
      bias.form = Product{arrays.input(is.query, layout), arrays.input(is.key, layout),
                          std::max<std::int64_t>(1, from.heads() / std::max<std::int64_t>(1, is.key.extent[1])),
                          is.query.extent[3]};
      break;
  }
  if (from.factor) bias.factor = factor_of(from, arrays, layout);
  return bias;
}

Attention attention_of(const Problem& p, Arrays& arrays, Layout layout) {
  const Shape& s = p.shape;
  Attention call;
  call.batch = s.batch, call.heads = s.heads, call.key_heads = s.key_heads, call.queries = s.queries;
  call.keys = s.keys, call.width = s.width, call.value_width = s.value_width;
  call.q = arrays.input(p.q, layout, p.half);
  call.k = arrays.input(p.k, layout, p.half || p.half_cache);
  call.v = arrays.input(p.v, layout, p.half || p.half_cache);
  call.scale = static_cast<float>(p.scale);
  if (!p.query_scale.empty()) {
    Tensor heads_first(s.heads, s.batch, s.queries, 1);
    for (std::int64_t h = 0; h < s.heads; ++h)
      for (std::int64_t b = 0; b < s.batch; ++b)
        for (std::int64_t i = 0; i < s.queries; ++i) heads_first(h, b, i, 0) = p.query_scale(b, h, i, 0);
    call.query_scale = arrays.single(heads_first);
  }
  call.visible = {p.causal,
                  p.window,
                  Arrays::whole(p.lengths),
                  Arrays::whole(p.offsets),
                  Arrays::whole(p.query_documents),
                  Arrays::whole(p.key_documents)};
  for (const BiasNumbers& bias : p.biases) call.biases.push_back(bias_of(bias, arrays, layout));
  if (!p.carried.empty()) {
    call.carried.values = arrays.input(p.carried, layout);
    call.carried.group = s.heads / p.carried.extent[1];
    call.carried.width = p.carried.extent[3];
  }
  return call;
}

/// An array that the kernel writes.
class Written {
 public:
  Written(const Tensor& shape, Layout layout, bool half) : shape_(shape), lie_(shape, layout), half_(half) {
    if (half_)
      halves_.assign(index(lie_.count), to_half(untouched));
    else
      floats_.assign(index(lie_.count), static_cast<float>(untouched));
  }
  Output output() {
    Output output;
    output.strides = lie_.strides;
    if (half_)
      output.half = halves_.data() + lie_.start;
    else
      output.data = floats_.data() + lie_.start;
    return output;
  }
  Input input() const {
    Input input;
    input.strides = lie_.strides;
    if (half_)
      input.half = halves_.data() + lie_.start;
    else
      input.data = floats_.data() + lie_.start;
    return input;
  }
  /// Also checks that nothing was written between the rows.
  Tensor read() const {
    Tensor tensor = shape_;
    std::vector<char> used(index(lie_.count));
    lie_.each_row(shape_, [&](std::size_t n, std::size_t place) {
      for (std::size_t c = 0; c < index(shape_.extent[3]); ++c) {
        tensor.data[n + c] = number(place + c);
        used[place + c] = 1;
      }
    });
    for (std::size_t n = 0; n < used.size(); ++n)
      if (!used[n]) {
        EXPECT_EQ(number(n), untouched) << "written between the rows";
      }
    return tensor;
  }

 private:
  double number(std::size_t n) const { return half_ ? widen(halves_[n]) : floats_[n]; }
  Tensor shape_;
  Arrangement lie_;
  bool half_;
  std::vector<float> floats_;
  std::vector<BFloat16> halves_;
};

Tensor out_shape(const Shape& s, std::int64_t width) { return Tensor(s.batch, s.heads, s.queries, width); }

/// A forward pass whose arrays stay.
struct Forward {
  Arrays arrays;
  Attention call;
  Written out, averages;
  std::vector<float> lse;

  Forward(const Problem& p, const Run& run, Layout layout, bool with_lse)
      : call(attention_of(p, arrays, layout)),
        out(out_shape(p.shape, p.shape.value_width), layout, p.half && !p.wide_out),
        averages(out_shape(p.shape, p.carried.extent[3]), layout, false),
        lse(index(p.shape.batch * p.shape.heads * p.shape.queries), static_cast<float>(untouched)) {
    Results results;
    results.out = out.output();
    if (with_lse) results.lse = lse.data();
    if (!p.carried.empty()) results.averages = averages.output();
    attention_forward(call, run, results);
  }
  Result read(const Problem& p) const {
    Result result;
    result.out = out.read();
    result.lse = out_shape(p.shape, 1);
    result.lse.data.assign(lse.begin(), lse.end());
    if (!p.carried.empty()) result.averages = averages.read();
    return result;
  }
};

// ---------------------------------------------------------------------------------------------------------------------
// Comparisons

double slack_of(double largest_logit) { return std::max(1.0, largest_logit / 8); }

bool has_path(const Problem& p, std::int64_t head) {
  return std::any_of(p.biases.begin(), p.biases.end(), [&](const BiasNumbers& bias) {
    return bias.form == Form::Path && head >= bias.first_head && head < bias.last_head;
  });
}

/// Rows against rows and the whole against the whole, in Euclidean length. Where a row is of few numbers they may all
/// cancel: those are compared with what had to.
void expect_rows(const char* name, const Problem& p, const Tensor& found, const Tensor& expected, const Tensor& sizes,
                 double slack) {
  ASSERT_EQ(found.data.size(), expected.data.size()) << name;
  const std::size_t width = index(expected.extent[3]);
  const std::vector<double>& measure = (width < 6 ? sizes : expected).data;
  double all_error = 0, all_size = 0;
  bool any_path = false;
  for (std::size_t row = 0; width > 0 && row < expected.data.size() / width; ++row) {
    const bool path = has_path(p, static_cast<std::int64_t>(row) / p.shape.queries % p.shape.heads);
    any_path = any_path || path;
    double error = 0, size = 0;
    for (std::size_t n = row * width; n < (row + 1) * width; ++n) {
      error += std::pow(found.data[n] - expected.data[n], 2);
      size += std::pow(measure[n], 2);
    }
    const double bound = p.half ? 4e-3 : (path ? 6e-6 : 2e-6) * slack;
    EXPECT_LE(std::sqrt(error), bound * std::sqrt(size)) << name << ", row " << row;
    all_error += error, all_size += size;
  }
  const double bound = p.half ? 4e-3 : (any_path ? 1.5e-6 : 5e-7) * slack;
  EXPECT_LE(std::sqrt(all_error), bound * std::sqrt(all_size)) << name;
}

double length(const Tensor& of) {
  double sum = 0;
  for (const double value : of.data) sum += value * value;
  return std::sqrt(sum);
}

/// In Euclidean length, against the gradient itself or, for numbers that are sums over pairs, against the sums of the
/// terms' magnitudes. A gradient that is zero (one key seen: its weight cannot change) is compared with what had to
/// cancel, and where there is nothing to cancel, with the numbers drawn, which are of size 1.
void expect_gradient(const char* name, const Tensor& found, const Tensor& expected, const Tensor& sizes, bool of_pairs,
                     double bound) {
  ASSERT_EQ(found.data.size(), expected.data.size()) << name;
  double error = 0;
  for (std::size_t n = 0; n < expected.data.size(); ++n) error += std::pow(found.data[n] - expected.data[n], 2);
  const double size = length(expected), uncancelled = length(sizes);
  const double measure = uncancelled == 0 ? 1 : of_pairs || size < 1e-12 * uncancelled ? uncancelled : size;
  EXPECT_LE(std::sqrt(error), bound * measure) << name;
}

/// Slopes, tables, gates: numbers that meet every key or every query as they are. A probe or a factor's vector is no
/// such number, its gradient is that of a product.
bool is_of_pairs(const BiasNumbers& bias, Parameters::Member member) {
  if (member == &Parameters::left || member == &Parameters::right) return bias.has_factor(Factor::Kind::Tag);
  const bool product = bias.form == Form::Path || bias.form == Form::Product;
  return !(product && (member == &Parameters::query || member == &Parameters::key));
}

}  // namespace

const char* name_of(Layout layout) {
  static const std::array<const char*, 3> names = {"heads first", "tokens first", "spaced"};
  return names[static_cast<std::size_t>(layout)];
}

Run workers(std::int64_t threads) {
  Run run;
  run.threads = threads;
  if (threads > 1)
    run.executor = [](std::int64_t begin, std::int64_t end, std::int64_t, const auto& body) {
      for (std::int64_t n = end - 1; n >= begin; --n) body(n, n + 1);
    };
  return run;
}

Run alone(std::int64_t threads) {
  Run run;
  run.threads = threads;
  return run;
}

Run side_by_side(std::int64_t threads) {
  Run run;
  run.threads = threads;
  run.executor = [threads](std::int64_t begin, std::int64_t end, std::int64_t, const auto& body) {
    std::vector<std::thread> running;
    const std::int64_t share = std::max<std::int64_t>(1, (end - begin + threads - 1) / threads);
    for (std::int64_t first = begin; first < end; first += share)
      running.emplace_back([&body, first, last = std::min(end, first + share)] { body(first, last); });
    for (std::thread& one : running) one.join();
  };
  return run;
}

Result run_forward(const Problem& p, const Run& run, Layout layout, bool with_lse) {
  return Forward(p, run, layout, with_lse).read(p);
}

Found run_backward(const Problem& p, const Incoming& in, const Run& run, Layout layout, const Asked& asked) {
  const Shape& s = p.shape;
  Forward forward(p, run, layout, true);
  Arrays arrays;
  Upstream upstream;
  upstream.out = forward.out.input();
  upstream.lse = forward.lse.data();
  upstream.dout = arrays.input(in.dout, layout, p.half);
  upstream.dlse = arrays.single(in.dlse);
  if (!p.carried.empty()) {
    upstream.averages = forward.averages.input();
    upstream.daverages = arrays.input(in.daverages, layout);
  }

  Written q(Tensor(s.batch, s.heads, s.queries, s.width), layout, p.half);
  Written k(Tensor(s.batch, s.key_heads, s.keys, s.width), layout, p.half);
  Written v(Tensor(s.batch, s.key_heads, s.keys, s.value_width), layout, p.half);
  Gradients gradients;
  gradients.q = q.output(), gradients.k = k.output(), gradients.v = v.output();
  // The definition's shapes, without its numbers.
  GradientNumbers found = gradient_shapes(p);
  const auto asked_for = [](Tensor& of) {
    std::fill(of.data.begin(), of.data.end(), untouched);
    return of.empty() ? nullptr : of.data.data();
  };
  if (asked.carried) gradients.carried = asked_for(found.carried);
  for (std::size_t m = 0; asked.biases && m < found.biases.size(); ++m) {
    BiasGradient& gradient = gradients.biases.emplace_back();
    if (asked.only_bias && *asked.only_bias != m) continue;
    for (const Parameters::Name& name : Parameters::all())
      if (!asked.only_number || asked.only_number == name.member)
        gradient.*name.gradient = asked_for(found.biases[m].*name.member);
  }
  attention_backward(forward.call, run, upstream, gradients);
  found.q = q.read(), found.k = k.read(), found.v = v.read();
  return {forward.read(p), std::move(found)};
}

void expect_result(const Problem& p, const Result& found, const Result& expected) {
  const double slack = slack_of(expected.largest_logit);
  expect_rows("out", p, found.out, expected.out, expected.out_sizes, slack);
  if (!p.carried.empty()) expect_rows("averages", p, found.averages, expected.averages, expected.averages_sizes, slack);
  for (std::size_t row = 0; row < expected.lse.data.size(); ++row) {
    const double is = found.lse.data[row], meant = expected.lse.data[row];
    if (std::isinf(meant)) {
      EXPECT_EQ(is, meant) << "lse " << row;
      continue;
    }
    const bool path = has_path(p, static_cast<std::int64_t>(row) / p.shape.queries % p.shape.heads);
    const double bound = p.half ? 4e-3 : (path ? 3e-6 : 1e-6) * slack;
    EXPECT_NEAR(is, meant, bound * std::max(1.0, std::abs(meant))) << "lse " << row;
  }
}

void expect_gradients(const Problem& p, const GradientNumbers& found, const Defined& expected, double largest_logit) {
  const double bound = (p.half ? 6e-3 : 1e-6) * slack_of(largest_logit);
  const GradientNumbers &sums = expected.sums, &sizes = expected.sizes;
  expect_gradient("q", found.q, sums.q, sizes.q, false, bound);
  expect_gradient("k", found.k, sums.k, sizes.k, false, bound);
  expect_gradient("v", found.v, sums.v, sizes.v, false, bound);
  expect_gradient("carried", found.carried, sums.carried, sizes.carried, false, bound);
  for (std::size_t m = 0; m < p.biases.size(); ++m) {
    SCOPED_TRACE(::testing::Message() << "bias " << m << ": " << name_of(p.biases[m].form));
    for (const Parameters::Name& one : Parameters::all())
      expect_gradient(one.name, found.biases[m].*one.member, sums.biases[m].*one.member, sizes.biases[m].*one.member,
                      is_of_pairs(p.biases[m], one.member), bound);
  }
}

void expect_forward(const Problem& p, Layout layout) {
  const Result expected = define(p);
  testing::on_every_target([&] { expect_result(p, run_forward(p, {}, layout), expected); });
}

void expect_both(const Problem& p, const Incoming& in, Layout layout) {
  const Result expected = define(p);
  const Defined gradients = define_gradients(p, in);
  testing::on_every_target([&] {
    const Found found = run_backward(p, in, {}, layout);
    expect_result(p, found.result, expected);
    expect_gradients(p, found.gradients, gradients, expected.largest_logit);
  });
}

void expect_both(const Problem& p) { expect_both(p, incoming(p)); }

namespace {

void expect_same(const char* name, const Tensor& one, const Tensor& other) {
  ASSERT_EQ(one.data.size(), other.data.size()) << name;
  if (one.data.empty()) return;
  EXPECT_EQ(std::memcmp(one.data.data(), other.data.data(), one.data.size() * sizeof(double)), 0) << name;
}

}  // namespace

void expect_same(const Result& one, const Result& other) {
  expect_same("out", one.out, other.out);
  expect_same("lse", one.lse, other.lse);
  expect_same("averages", one.averages, other.averages);
}

void expect_same(const GradientNumbers& one, const GradientNumbers& other) {
  expect_same("q", one.q, other.q);
  expect_same("k", one.k, other.k);
  expect_same("v", one.v, other.v);
  expect_same("carried", one.carried, other.carried);
  ASSERT_EQ(one.biases.size(), other.biases.size());
  for (std::size_t m = 0; m < one.biases.size(); ++m)
    for (const Parameters::Name& name : Parameters::all())
      expect_same(name.name, one.biases[m].*name.member, other.biases[m].*name.member);
}

}  // namespace torsor::kernel

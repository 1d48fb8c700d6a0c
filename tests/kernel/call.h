// Feeds the kernel with a problem's numbers, in any layout, and holds what it gives against the definition.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "tests/kernel/definition.h"
#include "tests/kernel/problem.h"

namespace torsor::kernel {

/// How numbers lie in memory.
enum class Layout {
  HeadsFirst,   ///< (batch, head, token, channel)
  TokensFirst,  ///< (batch, token, head, channel)
  Spaced        ///< heads first, with numbers between the rows that nobody may use or write
};
constexpr std::array<Layout, 3> every_layout = {Layout::HeadsFirst, Layout::TokensFirst, Layout::Spaced};
const char* name_of(Layout layout);

/// Workers one after the other, the last first, so that tiles are done in another order than with one.
Run workers(std::int64_t threads);
/// All the workers' shares in one call.
Run alone(std::int64_t threads);
/// Workers side by side.
Run side_by_side(std::int64_t threads);

Result run_forward(const Problem& p, const Run& run = {}, Layout layout = Layout::HeadsFirst, bool with_lse = true);

struct Found {
  Result result;
  GradientNumbers gradients;
};
/// The gradients that are asked for: all, or one number of one bias.
struct Asked {
  bool biases = true, carried = true;
  std::optional<std::size_t> only_bias;
  Parameters::Member only_number = nullptr;
};
/// Forward and then backward. A gradient that the kernel leaves alone stays 7.
Found run_backward(const Problem& p, const Incoming& in, const Run& run = {}, Layout layout = Layout::HeadsFirst,
                   const Asked& asked = {});

/// The bounds of attention.h.
void expect_result(const Problem& p, const Result& found, const Result& expected);
void expect_gradients(const Problem& p, const GradientNumbers& found, const Defined& expected, double largest_logit);

/// The forward pass on every instruction set.
void expect_forward(const Problem& p, Layout layout = Layout::HeadsFirst);
/// Both passes on every instruction set.
void expect_both(const Problem& p, const Incoming& in, Layout layout = Layout::HeadsFirst);
void expect_both(const Problem& p);

/// The same bits; NaN equals NaN.
void expect_same(const Result& one, const Result& other);
void expect_same(const GradientNumbers& one, const GradientNumbers& other);

}  // namespace torsor::kernel

#include "torsor/base/random.h"

#include <cmath>
#include <limits>
#include <sstream>

#include "torsor/base/error.h"
#include "torsor/base/utf8.h"

namespace torsor {
namespace {

// Multipliers and key increments (golden ratio, sqrt(3) - 1) of Philox4x32: Salmon et al. 2011, table 2 and section 3.
constexpr std::uint32_t multiplier_0 = 0xD2511F53;
constexpr std::uint32_t multiplier_1 = 0xCD9E8D57;
constexpr std::uint32_t increment_0 = 0x9E3779B9;
constexpr std::uint32_t increment_1 = 0xBB67AE85;

constexpr std::string_view state_head = "philox4x32-10";

std::array<std::uint32_t, 4> block_at(std::uint64_t seed, std::uint64_t stream, std::uint64_t block) {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
  return philox4x32({low(block), high(block), low(stream), high(stream)}, {low(seed), high(seed)});
}

std::uint64_t join(std::uint32_t low, std::uint32_t high) { return std::uint64_t{high} << 32 | low; }

double to_uniform(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

// The C library's log, sin and cos differ in the last bit between platforms, and a compiler may fuse a multiplication
// with an addition or not. So the three functions below are written with operations that IEEE 754 rounds exactly, and
// with every fusion spelt out: all platforms then give the same bits.

/// ln(x) for normal x > 0, within 2 units in the last place on (0, 1]: 2 artanh((m - 1) / (m + 1)) + e ln 2.
double natural_log(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);
  if (m < 0.70710678118654752) {  // sqrt(1/2): then |s| <= 0.1716 and the first term left out is below 2e-18
    m *= 2;
    --exponent;
  }
  const double s = (m - 1) / (m + 1);
  const double square = s * s;
  double series = 0;
  for (int k = 21; k >= 3; k -= 2) series = std::fma(series, square, 1.0 / k);
  const double tail = s * square * series;           // artanh(s) - s
  constexpr double ln_2_high = 0x1.62e42fefa38p-1;   // 42 bits of ln 2, so that e * ln_2_high is exact
  constexpr double ln_2_low = 0x1.ef35793c7673p-45;  // the rest
  const double low = std::fma(exponent, ln_2_low, 2 * tail);
  return std::fma(exponent, ln_2_high, std::fma(2.0, s, low));
}

struct Direction {
  double cosine;
  double sine;
};

/// cos(2 pi t) and sin(2 pi t) for t in [0, 1], by their Taylor series on an eighth of a turn.
Direction direction(double t) {
  constexpr double half_pi = 1.57079632679489662;
  const double quarters = std::floor(std::fma(t, 4.0, 0.5));
  const double x = std::fma(t, 4.0, -quarters) * half_pi;  // the difference is exact; |x| <= pi/4
  const double square = x * x;
  double sine = 0;
  double cosine = 0;
  // 1/19! and 1/20! are the first terms left out: below 1e-19 at pi/4.
  for (int k = 17; k >= 1; k -= 2) sine = std::fma(sine, square * (-1.0 / ((k + 1) * (k + 2))), 1.0);
  for (int k = 18; k >= 0; k -= 2) cosine = std::fma(cosine, square * (-1.0 / ((k + 1) * (k + 2))), 1.0);
  sine *= x;
  switch (static_cast<int>(quarters) % 4) {
    case 0:
      return {cosine, sine};
    case 1:
      return {-sine, cosine};
    case 2:
      return {-cosine, -sine};
    default:
      return {sine, -cosine};
  }
}

/// The two independent normals of a block: Box and Muller, "A note on the generation of random normal deviates", 1958.
std::array<double, 2> normals_of(const std::array<std::uint32_t, 4>& block) {
  // In (0, 1]: ln 0 cannot happen, and the largest radius is sqrt(2 * 53 ln 2) = 8.572.
  const double u = static_cast<double>((join(block[0], block[1]) >> 11) + 1) * 0x1p-53;
  const double radius = std::sqrt(-2 * natural_log(u));
  const Direction turn = direction(to_uniform(join(block[2], block[3])));
  return {radius * turn.cosine, radius * turn.sine};
}

/// The product of two 64-bit numbers, as high and low half.
std::array<std::uint64_t, 2> multiply(std::uint64_t a, std::uint64_t b) {
  const std::uint64_t mask = 0xFFFFFFFF;
  const std::uint64_t low = (a & mask) * (b & mask);
  const std::uint64_t cross = (a >> 32) * (b & mask) + (low >> 32);
  const std::uint64_t other = (a & mask) * (b >> 32) + (cross & mask);
  return {(a >> 32) * (b >> 32) + (cross >> 32) + (other >> 32), other << 32 | (low & mask)};
}

}  // namespace

std::array<std::uint32_t, 4> philox4x32(const std::array<std::uint32_t, 4>& counter,
                                        const std::array<std::uint32_t, 2>& key) {
  std::array<std::uint32_t, 4> x = counter;
  std::array<std::uint32_t, 2> k = key;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product_0 = std::uint64_t{multiplier_0} * x[0];
    const std::uint64_t product_1 = std::uint64_t{multiplier_1} * x[2];
    x = {static_cast<std::uint32_t>(product_1 >> 32) ^ x[1] ^ k[0], static_cast<std::uint32_t>(product_1),
         static_cast<std::uint32_t>(product_0 >> 32) ^ x[3] ^ k[1], static_cast<std::uint32_t>(product_0)};
    k[0] += increment_0;
    k[1] += increment_1;
  }
  return x;
}

std::uint64_t stream_of(std::string_view name) {
  // Offset basis and prime of 64-bit FNV-1a (Fowler, Noll, Vo; IETF draft-eastlake-fnv).
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) {
    hash ^= static_cast<std::uint8_t>(c);
    hash *= 0x100000001b3;
  }
  return hash;
}

std::uint64_t random_at(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  const auto block = block_at(seed, stream, index / 2);
  return index % 2 == 0 ? join(block[0], block[1]) : join(block[2], block[3]);
}

double uniform_at(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return to_uniform(random_at(seed, stream, index));
}

double normal_at(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return normals_of(block_at(seed, stream, index / 2))[index % 2];
}

void fill_normal(float* values, std::size_t count, double mean, double deviation, std::uint64_t seed,
                 std::uint64_t stream, std::uint64_t first) {
  std::array<double, 2> pair{};
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t index = first + i;
    if (i == 0 || index % 2 == 0) pair = normals_of(block_at(seed, stream, index / 2));
    values[i] = static_cast<float>(std::fma(deviation, pair[index % 2], mean));
  }
}

void fill_uniform(float* values, std::size_t count, double low, double high, std::uint64_t seed, std::uint64_t stream,
                  std::uint64_t first) {
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(std::fma(high - low, uniform_at(seed, stream, first + i), low));
  }
}

std::uint32_t Random::next_uint32() {
  if (position_ % 4 == 0 || !cached_) {
    block_ = block_at(seed_, stream_, position_ / 4);
    cached_ = true;
  }
  half_ = false;
  return block_[position_++ % 4];
}

std::uint64_t Random::next_uint64() {
  const std::uint32_t low = next_uint32();
  return join(low, next_uint32());
}

double Random::uniform() { return to_uniform(next_uint64()); }

double Random::normal() {
  if (half_) {
    half_ = false;
    return normals_of(block_at(seed_, stream_, position_ / 4 - 1))[1];
  }
  position_ = (position_ + 3) / 4 * 4;  // a pair takes a whole block, none of whose words has been given away
  const double first = normals_of(block_at(seed_, stream_, position_ / 4))[0];
  position_ += 4;
  half_ = true;
  return first;
}

std::uint64_t Random::below(std::uint64_t bound) {
  if (bound == 0) throw UsageError("Random::below: expected a bound of at least 1, got 0");
  // Lemire, "Fast random integer generation in an interval", 2019: the high half of bits * bound, where the low halves
  // below 2^64 mod bound are drawn again.
  const std::uint64_t threshold = (0 - bound) % bound;
  for (;;) {
    const auto [high, low] = multiply(next_uint64(), bound);
    if (low >= threshold) return high;
  }
}

std::string Random::save() const {
  return str(state_head, ' ', seed_, ' ', stream_, ' ', position_, ' ', half_ ? 1 : 0);
}

void Random::restore(std::string_view state) {
  std::istringstream in{std::string(state)};
  std::string head;
  Random read(0);
  int half = 0;
  in >> head >> read.seed_ >> read.stream_ >> read.position_ >> half;
  read.half_ = half == 1;
  // Comparing with what save() would write refuses signs, spare zeros, other separators and trailing text at once.
  if (in.fail() || head != state_head || read.save() != state || (read.half_ && read.position_ % 4 != 0) ||
      (read.half_ && read.position_ == 0)) {
    throw Error(str("expected a random state '", state_head, " SEED STREAM POSITION HALF', got ", quote(state)));
  }
  *this = read;
}

}  // namespace torsor

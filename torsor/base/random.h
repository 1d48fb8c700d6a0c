// Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011). Every number is a pure function of (seed, stream, position), so a state is three integers,
// results do not depend on the number of threads, and all platforms agree bit for bit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace torsor {

/// Ten rounds of Philox4x32: 128 random bits for a counter and a key.
std::array<std::uint32_t, 4> philox4x32(const std::array<std::uint32_t, 4>& counter,
                                        const std::array<std::uint32_t, 2>& key);

/// A stream number from a name (64-bit FNV-1a of its bytes), so that "dropout" and "data" never share numbers.
std::uint64_t stream_of(std::string_view name);

/// The `index`-th result of next_uint64() of a new Random(seed, stream).
std::uint64_t random_at(std::uint64_t seed, std::uint64_t stream, std::uint64_t index);

/// The `index`-th result of uniform() of a new Random(seed, stream).
double uniform_at(std::uint64_t seed, std::uint64_t stream, std::uint64_t index);

/// The `index`-th result of normal() of a new Random(seed, stream).
double normal_at(std::uint64_t seed, std::uint64_t stream, std::uint64_t index);

/// values[i] = mean + deviation * normal_at(seed, stream, first + i), rounded to float once; `values` has `count`
/// places.
void fill_normal(float* values, std::size_t count, double mean, double deviation, std::uint64_t seed,
                 std::uint64_t stream, std::uint64_t first = 0);

/// values[i] = low + (high - low) * uniform_at(seed, stream, first + i), rounded to float once.
void fill_uniform(float* values, std::size_t count, double low, double high, std::uint64_t seed, std::uint64_t stream,
                  std::uint64_t first = 0);

/// A sequence of random numbers. Copies continue independently from the same place. Not for use by two threads at once.
class Random {
 public:
  explicit Random(std::uint64_t seed, std::uint64_t stream = 0) : seed_(seed), stream_(stream) {}

  std::uint32_t next_uint32();
  std::uint64_t next_uint64();
  /// In [0, 1): a multiple of 2^-53.
  double uniform();
  /// Standard normal, by the method of Box and Muller in double; always within +-8.58. Numbers come in pairs: a draw of
  /// another kind between the two drops the second.
  double normal();
  /// In [0, bound), every value exactly equally likely. Throws UsageError when `bound` is 0.
  std::uint64_t below(std::uint64_t bound);

  /// A uniformly drawn order of the elements (Fisher and Yates). `values` offers size() and operator[].
  template <class Values>
  void shuffle(Values& values) {
    for (std::size_t left = values.size(); left > 1; --left) {
      using std::swap;
      swap(values[left - 1], values[static_cast<std::size_t>(below(left))]);
    }
  }

  std::uint64_t seed() const { return seed_; }
  std::uint64_t stream() const { return stream_; }

  /// The state in one line of ASCII, and back. restore() throws Error for a line that save() did not write.
  std::string save() const;
  void restore(std::string_view state);

 private:
  std::uint64_t seed_;
  std::uint64_t stream_;
  std::uint64_t position_ = 0;  // 32-bit words already taken
  bool half_ = false;           // the second number of the last pair of normals is still unused
  bool cached_ = false;         // block_ holds the words around position_
  std::array<std::uint32_t, 4> block_{};
};

}  // namespace torsor

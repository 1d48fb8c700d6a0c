// What all rotary encodings share: one set of planes, one frequency a plane, the position as the angle's clock.
//
//   angle of plane i = orientation * frequency_i * position[axis_i]
//   the pair (x_a, x_b) turns by that angle and is multiplied by the magnitude
//
// A rotary encoding says which planes there are (RotarySpec) and what their frequencies are, twice: the numbers that
// are used (frequencies, frequencies_float32) and, apart from them, the definition (define_frequency).
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "torsor/encoding/encoding.h"

namespace torsor {

/// How the planes are given to the axes of a position.
///
///   axial, 3 axes         [t t t|h h h|w w w]   a block an axis; the frequency index restarts in each (vision models)
///   contiguous [2, 3, 3]  [t t h h h w w w]     runs of planes; the index runs on (Qwen2-VL)
///   interleaved [4, 2, 2] [t h w t h w t t]     axes take turns while their section lasts, then axis 0 (Qwen3-VL)
enum class Arrangement { Axial, Contiguous, Interleaved };

/// The planes of a rotary encoding. Checked by whoever makes it.
struct RotarySpec {
  std::string name;       ///< for messages
  std::string scaled_by;  ///< the scaling whose frequencies these are; empty = none
  Layout layout = Layout::Half;
  bool minus = false;       ///< turns by minus the angle
  std::int64_t offset = 0;  ///< first channel of the span
  std::int64_t width = 0;   ///< channels of the span, even
  std::int64_t blocks = 1;  ///< equal blocks of the span, each with its own pairs and its own frequency index
  std::int64_t axes = 1;
  Arrangement arrangement = Arrangement::Axial;
  std::vector<std::int64_t> sections;   ///< planes of each axis, for Contiguous and Interleaved
  std::vector<double> bases = {10000};  ///< one, or one a key head
  std::int64_t exponent_width = 0;      ///< d in base^(-2i/d)
  std::int64_t live = 0;                ///< planes of a block that turn; the others have frequency 0
  bool proportional = false;
  std::string trained;  ///< name of the trained log frequencies; empty = fixed

  std::int64_t planes() const { return width / 2; }
  std::int64_t block_planes() const { return width / blocks / 2; }
};

class Rotary : public Encoding {
 public:
  Rotary(const Dimensions& dimensions, RotarySpec spec);

  const RotarySpec& spec() const { return spec_; }

  Traits traits() const override;
  std::vector<ParameterInfo> parameters(std::int64_t layer) const override;
  /// One Planes with cosine and sine (1 or B, 1 or key heads, T, planes): float64 when the side's q or k is, else
  /// float32. Throws Error when the positions do not have as many axes as the encoding.
  std::vector<Move> moves(const Question& question, Role role) const override;
  std::vector<Move> shift_moves(const Question& question, const at::Tensor& offsets) const override;
  CacheContract cache(std::int64_t layer) const override;
  double define_product(const PlainPair& pair, const PlainParameters& parameters) const override;
  /// inv_freq is negative with orientation=minus, so that angle = inv_freq * position always holds.
  std::optional<RotationInfo> rotation(double length, const PlainParameters& parameters) const override;
  bool frequencies_change(double from, double to) const override {
    return length_dependent() && regime(from) != regime(to);
  }

 protected:
  /// Frequencies of the planes of one block, for a document of `length` tokens.
  virtual std::vector<double> frequencies(double base, double length) const;
  /// The same in float32 operations, in the order of Hugging Face transformers: (block planes) on the CPU.
  virtual at::Tensor frequencies_float32(double base, double length) const;
  virtual double magnitude() const { return 1; }
  /// Documents of equal regime have equal frequencies. Only read when length_dependent().
  virtual double regime(double /*length*/) const { return 0; }
  virtual bool length_dependent() const { return false; }

  /// The definition: frequency of the plane with this index in its block, magnitude, and factor of the plane's product
  /// at a distance (xPos).
  virtual double define_frequency(double base, std::int64_t index, double length) const;
  virtual double define_magnitude() const { return 1; }
  virtual double define_decay(std::int64_t /*index*/, double /*distance*/) const { return 1; }

 private:
  struct Table {
    at::Tensor positions, cosine, sine;
    at::ScalarType type = at::kFloat;
    double regime = 0;
  };

  at::Tensor trained_frequencies(const Question& question) const;
  /// What a scaling multiplies the trained frequencies of one row with, plane by plane.
  std::vector<double> trained_factors(std::size_t row) const;
  at::Tensor frequency_table(double length, at::ScalarType type) const;
  std::pair<at::Tensor, at::Tensor> turn(const at::Tensor& positions, const at::Tensor& frequency, at::ScalarType type,
                                         double magnitude) const;
  Planes planes_of(const std::pair<at::Tensor, at::Tensor>& turned) const;
  std::pair<at::Tensor, at::Tensor> remembered(const at::Tensor& positions, double regime, at::ScalarType type) const;
  std::pair<at::Tensor, at::Tensor> per_token(const at::Tensor& positions, const at::Tensor& lengths,
                                              at::ScalarType type) const;
  std::int64_t define_axis(std::int64_t plane) const;

  RotarySpec spec_;
  std::vector<std::int64_t> axis_;
  // Every layer asks for the same positions. Tables are found again by the values of the positions, never by their
  // length or address, so that the answer cannot depend on earlier calls.
  mutable std::mutex mutex_;
  mutable std::vector<Table> tables_;
};

}  // namespace torsor

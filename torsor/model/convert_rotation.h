// Conversions between rotations: what becomes of the vectors of a head, and of the trained tensors.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "torsor/model/convert_leaves.h"

namespace torsor {

/// The converted vectors of one key head and of the query heads that read it: x' = P F^T x, P a permutation of the
/// channels and F an orthogonal frame. Scores stay, because q and k take it alike.
struct HeadMap {
  std::vector<std::pair<std::int64_t, std::int64_t>> moved;  ///< channel of F^T x, channel of x'
  at::Tensor frame;                                          ///< F (D, D) float64; undefined = identity
  /// Before, moved vectors came back into the channels of the head (they were F R F^T x); now they are not.
  bool leaves_frame = false;
  /// The same for a conversion that leaves the projections alone: moved vectors come back now and did not before.
  bool enters_frame = false;
  bool turned = false;                    ///< a rotation stands on these heads
  bool read = false;                      ///< another term reads the channels of q or k one by one
  std::vector<std::int64_t> permutation;  ///< channel c of x' is channel permutation[c] of F^T x; see complete()

  /// Makes the permutation of `moved`: channels that no plane takes stay where they are if they can.
  void complete(std::int64_t head_dim);
  bool identity() const;
  /// `rows` (D, ...), what makes or meets x: rows of a projection, vectors that stand in a product with x. Bit-exact
  /// without a frame, else in float64 and rounded once.
  at::Tensor apply(const at::Tensor& rows) const;
};

/// Whether a leaf is a rotation of the kinds that convert_rotation() takes.
bool is_rotation(const Leaf& leaf);

/// Fills the trained tensors of `target`, which holds its initial ones, and `maps` (one a key head of the model) for
/// the target to turn the converted vectors as `source` turned the old ones. Throws Refusal with the reason where that
/// cannot be had exactly.
void convert_rotation(const Leaf& source, Leaf& target, Precision precision, std::vector<HeadMap>& maps);

}  // namespace torsor

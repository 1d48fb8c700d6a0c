// The case table: one row an encoding expression. It drives the spine, the definitions, the gradients and, later, the
// speed table and the support page. Adding an encoding means one pair of files, one line in the registry and one row
// here.
//
// A row states what its encoding is known for; case_table_test.cpp checks that the encoding says the same of itself.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace torsor::attention_test {

struct HeadCounts {
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
};

struct EncodingCase {
  std::string expression;
  std::int64_t head_dim = 8;
  std::int64_t axes = 1;
  bool trained = false;           ///< has trained tensors
  bool relative = true;           ///< unchanged when all positions move by the same amount
  bool length_dependent = false;  ///< frequencies depend on the length of the document
  bool absolute = false;          ///< adds to the token embedding; the tests then make q, k and v from hidden states
  bool hidden = false;            ///< reads the block's input x
  bool needs_causal = false;      ///< refuses calls without causal order
  bool carries = false;           ///< a state goes from layer to layer; trained tensors that change it for the next
                                  ///< layer have no gradient in one call. Rows run with the states of positions
  bool raw_keys = false;          ///< a cache keeps its keys unturned although no frequency changes
  bool averages = false;          ///< adds what attention averaged to the output
  double farthest = 2e6;          ///< largest position that it takes
  /// Query and key heads that the expression fits: one, two and four a key head, one key head for all, one head.
  std::vector<HeadCounts> heads = {{2, 2}, {4, 2}, {3, 1}, {1, 1}, {8, 2}};
};

/// Model width and training length that every row is made for.
inline constexpr std::int64_t kCaseWidth = 10;
inline constexpr std::int64_t kCaseTrainLength = 8;

const std::vector<EncodingCase>& case_table();

/// "yarn(rope, factor=4), head_dim 8, trained, relative, ..."
std::ostream& operator<<(std::ostream& out, const EncodingCase& one);

}  // namespace torsor::attention_test

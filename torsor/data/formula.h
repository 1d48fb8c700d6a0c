// The predictions of SyntaxGym suites: "[(7;%match%) < (7;%mismatch%)] & [...]", parsed, checked and evaluated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace torsor {

/// A region's value as a formula names it: "(7;%match%)".
struct RegionReference {
  static constexpr std::int64_t kAll = -1;  ///< "(*;%match%)": the sum over all regions of the condition

  std::int64_t region = 0;
  std::string condition;
  std::size_t column = 0;  ///< where the formula names it first, from 1, in bytes

  bool same_as(const RegionReference& other) const { return region == other.region && condition == other.condition; }
};

/// A relation between surprisals:
///
///     bool   := cmp (('&' | '|') cmp)*              one level, from left to right
///     cmp    := sum (('<' | '>' | '=') sum)?        a comparison cannot be compared again
///     sum    := atom (('+' | '-') atom)*            from left to right
///     atom   := region | number | '[' bool ']' | '(' bool ')'
///     region := '(' (INT | '*') ';' '%' NAME '%' ')'          NAME: letters, digits, '_' and '-'
///
/// Published suites group with square brackets, the last grammar of syntaxgym-core with round ones; both are read.
/// Blanks may stand between any two tokens. `a = b` holds when |a - b| <= 1e-3 + 1e-5 |b|. Whatever compares with a NaN
/// does not hold. Immutable.
class Formula {
 public:
  static constexpr std::size_t kLongest = 16384;  ///< bytes of a formula
  static constexpr int kDeepest = 64;             ///< brackets inside each other

  /// Throws Error "SOURCE: column N: ..." for what is not a formula, and for one that has no meaning: a truth value
  /// that is added or compared, a number that is joined with '&', a formula that is a number as a whole.
  static Formula parse(std::string_view text, const std::string& source = "formula");

  /// What it reads, each once, in the order of the text.
  const std::vector<RegionReference>& references() const { return references_; }

  /// Whether it holds where values[i] is that of references()[i]. Throws Error for another number of values.
  bool holds(std::span<const double> values) const;

  /// The formula as text, with square brackets where the grammar needs them. parse() gives the same formula.
  std::string text() const;

  bool operator==(const Formula& other) const;

 private:
  friend class FormulaParser;
  enum class Operation { Reference, Number, Add, Subtract, Less, Greater, Equal, And, Or };
  // In postfix order, so that neither evaluation nor printing recurses.
  struct Step {
    Operation operation;
    std::size_t reference = 0;
    double number = 0;
  };

  std::vector<Step> steps_;
  std::vector<RegionReference> references_;
};

}  // namespace torsor

// The one line that names an encoding: grammar, tree, canonical form.
//
//   sum  := term ('+' term)*
//   term := name [ '(' argument (',' argument)* ')' ]
//   argument := key '=' value | sum            (operands of wrappers; `sum ['*' integer]` inside heads and layers)
//   value := number | true | false | word | '[' number (',' number)* ']'
//
// This file knows the grammar only. Names, keys and their meaning come from the registry (registry.h), and `parse`
// there puts both together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "torsor/base/error.h"

namespace torsor {

/// An expression that cannot be understood. `what()` says what is wrong and what is possible; `column()` counts bytes
/// from 1.
class ExpressionError : public UsageError {
 public:
  ExpressionError(std::string_view source, std::size_t column, const std::string& problem);
  std::size_t column() const { return column_; }

 private:
  std::size_t column_;
};

/// The value of a key: a boolean, a number, a word, or a list of numbers.
using Value = std::variant<bool, double, std::string, std::vector<double>>;

struct Argument {
  std::string key;
  Value value;
  std::size_t column = 0;
};

struct Item;

/// One name with its operands and keys.
struct Term {
  std::string name;
  std::vector<Item> operands;       // sub-expressions in the order written
  std::vector<Argument> arguments;  // key=value, in the order written (after `parse`: in the registry's order)
  std::size_t column = 0;
};

/// A sum of terms. `source` keeps the text it was read from, for error columns.
struct Expression {
  std::vector<Term> terms;
  std::string source;
};

/// An operand with its repeat count (`t5 * 4` inside heads and layers; 1 elsewhere).
struct Item {
  Expression expression;
  std::int64_t count = 1;
};

/// Reads the grammar without knowing any name. Throws ExpressionError.
/// Nesting deeper than 16, text longer than 65536 bytes and bytes outside printable ASCII are refused.
Expression parse_grammar(std::string_view text);

/// The tree with every `wrapper`(E, ...), at any depth, replaced by the terms of E, its first operand.
Expression unwrapped(const Expression& expression, std::string_view wrapper);

/// Prints the tree as it stands. Numbers take the shortest form that reads back to the same value.
std::string print(const Expression& expression);
std::string print(const Term& term);
std::string print(const Value& value);

}  // namespace torsor

// A small reader of encoding expressions, written from the grammar alone:
//   sum := term ('+' term)*     term := name ['(' argument (',' argument)* ')']
//   argument := key '=' value | sum ['*' integer]
#pragma once

#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace oracle {

/// The data or the expression is wrong.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Fine in itself, but outside what this program computes; such a case is skipped.
struct Unsupported : Error {
  using Error::Error;
};

struct Item;

/// The value of `key=value`. A word, a truth value and a number are kept as text; a list is read as numbers.
struct Value {
  std::string text;
  std::vector<double> list;
  bool is_list = false;
};

struct Term {
  std::string name;
  std::vector<Item> items;               ///< what stands in the brackets without a key
  std::map<std::string, Value> options;  ///< what stands there with one
  int occurrence = 1;                    ///< 2 for the second term of this name in the expression

  /// The name that its trained tensors carry: `t5`, `t5#2`.
  std::string key() const;

  bool has(const std::string& option) const { return options.count(option) != 0; }
  double number(const std::string& option, double otherwise) const;
  double number(const std::string& option) const;  ///< throws Error where it is absent
  bool flag(const std::string& option, bool otherwise) const;
  std::string word(const std::string& option, const std::string& otherwise) const;
  std::vector<double> list(const std::string& option) const;  ///< empty where absent; a number is a list of one

  /// The only term of the only item, as the rotary inside yarn(...).
  const Term& inner() const;
};

using Sum = std::vector<Term>;

struct Item {
  Sum sum;
  int count = 1;
};

/// Reads an expression, checks names and keys, numbers repeated names. Throws Error, or Unsupported for a name that
/// exists in the vocabulary but not here.
Sum parse(const std::string& text);

}  // namespace oracle

// The registry of names, and the two steps from text to encoding: parse (names, keys, types, ranges, legal
// combinations; needs no dimensions) and make_encoding (what the model's dimensions decide).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "torsor/encoding/encoding.h"
#include "torsor/encoding/expression.h"

namespace torsor {

/// A key of a name.
struct KeyInfo {
  enum class Type { Boolean, Integer, Number, NumberOrAuto, NumberOrList, List, Word };
  std::string name;
  Type type = Type::Number;
  Value fallback;                  ///< the default; an empty word = required
  std::string about;               ///< one line for people, with the unit
  std::vector<std::string> words;  ///< what a Word may be
  double low = -1e300;             ///< smallest value allowed (numbers, list entries)
  double high = 1e300;
  bool open_low = false;  ///< the smallest value itself is not allowed
};

/// The keys of one term with defaults filled in. Reading a key that the name does not have is a programming error.
class Settings {
 public:
  Settings(const Term& term, const std::vector<KeyInfo>& keys);
  double number(std::string_view key) const;
  std::int64_t integer(std::string_view key) const;
  bool boolean(std::string_view key) const;
  const std::string& word(std::string_view key) const;
  std::vector<double> list(std::string_view key) const;  ///< a single number gives a list of one
  bool is_auto(std::string_view key) const;              ///< the value is the word `auto`
  bool given(std::string_view key) const;                ///< written by the user

 private:
  const Value& at(std::string_view key) const;
  const Term* term_;
  const std::vector<KeyInfo>* keys_;
};

/// What a maker receives.
struct MakeRequest {
  const Term& term;
  Settings settings;
  const Dimensions& dimensions;
  std::string prefix;  ///< parameter prefix: the name, or NAME#2 for its second term
  std::vector<std::unique_ptr<Encoding>>
      operands;  ///< the made operand of a scaling (heads and layers are made elsewhere)
};

/// Who may stand inside a name's brackets: nobody, one rotation, one of the names of a list, items with counts.
enum class Operand { None, Rotary, Listed, Items };

struct NameInfo {
  std::string name;
  std::string summary;  ///< one line: what it does
  std::string formula;  ///< plain text
  std::string source;   ///< paper and equation
  std::string page;     ///< file name under docs/encodings
  Operand operand = Operand::None;
  std::vector<std::string> operands = {};  ///< for Operand::Listed: the names that may stand inside
  bool rotary = false;                     ///< may stand inside a scaling
  bool turns = false;                      ///< a rotation of the whole head that no scaling takes
  std::vector<KeyInfo> keys;
  std::function<std::unique_ptr<Encoding>(MakeRequest&)> make;
  bool absolute = false;     ///< adds to the embedding: stands beside a rotation only with allow=absolute on it
  bool alone = false;        ///< has no meaning in a sum (none)
  bool no_rotation = false;  ///< refuses a rotation beside it (txl)
};

/// All names, in the order of the documentation.
const std::vector<NameInfo>& registry();
/// nullptr when there is none.
const NameInfo* find_name(std::string_view name);

/// Reads, checks and normalises: keys in registry order, defaults left out. print(parse(e)) is the canonical form.
/// Throws ExpressionError with the column and what is possible.
Expression parse(std::string_view text);

/// Makes the encoding for a model. Throws UsageError when the dimensions do not fit the expression.
std::shared_ptr<const Encoding> make_encoding(const Expression& expression, const Dimensions& dimensions);
std::shared_ptr<const Encoding> make_encoding(std::string_view text, const Dimensions& dimensions);

/// The encoding that answers for a layer: at_layer, or the encoding itself.
std::shared_ptr<const Encoding> layer_encoding(const std::shared_ptr<const Encoding>& encoding, std::int64_t layer);

/// Checks the parameters given for a layer: every name there, no other, shapes equal. Throws Error naming the tensor.
void check_parameters(const Encoding& encoding, std::int64_t layer, const NamedTensors& parameters);

}  // namespace torsor

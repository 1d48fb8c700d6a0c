#include "torsor/model/convert_leaves.h"

#include <algorithm>

#include "torsor/encoding/composition.h"
#include "torsor/model/decoder.h"

namespace torsor {
namespace {

class Walk {
 public:
  explicit Walk(std::int64_t layer) : layer_(layer) {}

  // Terms of other layers are walked as well: they count where names are numbered.
  void sum(const Expression& expression, const Dimensions& dimensions, std::int64_t first_head, bool present) {
    for (const Term& term : expression.terms) {
      if (find_name(term.name)->operand != Operand::Items) {
        leaf(term, dimensions, first_head, present);
      } else if (term.name == "heads") {
        std::int64_t first = first_head;
        for (const Item& item : term.operands) {
          sum(item.expression, part_dimensions(dimensions, item.count), first, present);
          first += item.count;
        }
      } else {
        std::int64_t period = 0, first = 0;
        for (const Item& item : term.operands) period += item.count;
        for (const Item& item : term.operands) {
          const std::int64_t place = layer_ % period - first;
          sum(item.expression, dimensions, first_head, present && place >= 0 && place < item.count);
          first += item.count;
        }
      }
    }
  }

  std::vector<Leaf> found;

 private:
  void leaf(const Term& term, const Dimensions& dimensions, std::int64_t first_head, bool present) {
    Leaf leaf;
    leaf.term = term;
    leaf.first_head = first_head;
    // A scaling is numbered before its operand.
    for (const Term* one = &term; one;
         one = one->operands.empty() ? nullptr : &one->operands.front().expression.terms.front()) {
      const int number = ++seen_[one->name];
      leaf.prefixes[one->name] = number == 1 ? one->name : str(one->name, "#", number);
    }
    if (!present || term.name == "none") return;
    Expression alone;
    alone.terms.push_back(term);
    leaf.encoding = make_encoding(alone, dimensions);
    found.push_back(std::move(leaf));
  }

  std::int64_t layer_;
  std::map<std::string, int> seen_;
};

}  // namespace

Settings Leaf::settings() const { return Settings(term, find_name(term.name)->keys); }

std::string Leaf::parameter_name(const ParameterInfo& info, std::int64_t layer) const {
  const std::size_t dot = info.name.find('.');
  const std::string name = prefixes.at(info.name.substr(0, dot)) + info.name.substr(dot);
  return info.shared ? "model.position." + name : str("model.layers.", layer, ".self_attn.position.", name);
}

std::vector<Leaf> leaves_of(const Expression& expression, const Dimensions& dimensions, std::int64_t layer) {
  Walk walk(layer);
  walk.sum(expression, dimensions, 0, true);
  return std::move(walk.found);
}

void refuse_conversion(const Leaf& source, const Leaf& target, const std::string& reason) {
  throw Refusal(str("no exact conversion from '", print(source.term), "' to '", print(target.term), "': ", reason));
}

NamedTensors initial_tensors(const Leaf& leaf, std::int64_t layer, std::uint64_t seed) {
  NamedTensors tensors;
  for (const ParameterInfo& info : leaf.encoding->parameters(layer)) {
    if (info.initial.kind == Initial::Kind::Constant)
      tensors[info.name] = at::full(info.shape, info.initial.a, at::kDouble);
    else if (info.initial.kind == Initial::Kind::Values)
      tensors[info.name] = at::tensor(info.initial.values, at::kDouble).view(info.shape);
    else
      tensors[info.name] = drawn_tensor(leaf.parameter_name(info, layer), info.shape, info.initial, seed);
  }
  return tensors;
}

}  // namespace torsor

#include "tests/oracle/terms.h"

#include "tests/oracle/rotary.h"
#include "tests/oracle/syntax.h"

namespace oracle {
namespace {

void collect(const Sum& sum, const Part& range, const Case& c, std::vector<Part>& parts) {
  for (const Term& term : sum) {
    if (term.name == "heads") {
      int total = 0;
      for (const Item& item : term.items) total += item.count;
      if (total != range.heads) {
        throw Error("heads(...) speaks for " + std::to_string(total) + " heads, there are " +
                    std::to_string(range.heads));
      }
      const int group = range.heads / range.key_heads;  // query heads that share a key head
      int done = 0;
      for (const Item& item : term.items) {
        if (done % group != 0 || item.count % group != 0) throw Error("heads(...) cuts a group of query heads");
        Part inner = range;
        inner.first_head = range.first_head + done;
        inner.heads = item.count;
        inner.first_key_head = range.first_key_head + done / group;
        inner.key_heads = item.count / group;
        collect(item.sum, inner, c, parts);
        done += item.count;
      }
    } else if (term.name == "layers") {
      int period = 0;
      for (const Item& item : term.items) period += item.count;
      if (period == 0) throw Error("layers(...) is empty");
      int start = 0;
      for (const Item& item : term.items) {
        const int place = c.layer % period;
        if (place >= start && place < start + item.count) collect(item.sum, range, c, parts);
        start += item.count;
      }
    } else {
      Part part = range;
      part.term = &term;
      if (term.name == "sipe") {
        part.syntax = &term;
        part.term = &term.inner();
      }
      parts.push_back(part);
    }
  }
}

/// Of the rotary inside a tape.
int number_of_planes(const Term& tape, int head_dim) {
  const Term* rotary = &tape.inner();
  while (is_scaling(rotary->name)) rotary = &rotary->inner();
  return static_cast<int>(planes_of(*rotary, head_dim).size());
}

}  // namespace

std::vector<Part> parts_of(const Sum& sum, const Case& c) {
  Part everything;
  everything.heads = c.heads();
  everything.key_heads = c.key_heads();
  std::vector<Part> parts;
  collect(sum, everything, c, parts);
  return parts;
}

std::vector<ParameterInfo> parameters_of(const Sum& sum, const Case& c, int channels) {
  std::vector<ParameterInfo> all;
  for (const Part& part : parts_of(sum, c)) {
    const Term* term = part.term;
    const int H = part.heads;
    const int D = c.head_dim();
    const auto add = [&](const std::string& tensor, std::vector<int> shape) {
      all.push_back({term->key() + "." + tensor, tensor, term, std::move(shape), part.key_heads});
    };
    if (term->name == "tape") {
      const int carriers = term->word("gqa", "expand") == "shared" ? part.key_heads : H;
      const std::string control = term->word("control", "none"), post = term->word("post", "rowsum");
      const double given = term->number("width", 0);
      const int inner = given > 0.0 ? static_cast<int>(given) : 4 * H;
      const bool acts = c.layer >= term->number("from_layer", 0);
      if (acts && term->flag("mlp", true)) {
        const int rows = control == "mixing" ? carriers * number_of_planes(*term, D) : carriers;
        const bool frame = control == "frame";
        add("up_proj", frame ? std::vector<int>{2, inner, rows} : std::vector<int>{inner, rows});
        add("x_proj", {inner, channels});
        add("down_proj", frame ? std::vector<int>{2, rows, inner} : std::vector<int>{rows, inner});
      }
      if (acts && term->flag("attention", true) && post != "none") {
        add("post_attention", post == "scalar" ? std::vector<int>{carriers} : std::vector<int>{carriers, carriers});
      }
      term = &term->inner();
    }
    if (part.syntax != nullptr) {
      for (const auto& [tensor, shape] : syntax_tensors(*part.syntax, part, c, channels))
        all.push_back({part.syntax->key() + "." + tensor, tensor, part.syntax, shape, part.key_heads});
    }
    while (is_scaling(term->name)) term = &term->inner();
    if (term->name == "learned") add("table", {static_cast<int>(term->number("length")), channels});
    if (term->name == "rope" && term->flag("learn", false)) {
      add("log_freq", {-1, static_cast<int>(planes_of(*term, D).size())});
    }
    if (term->name == "alibi" && term->flag("learn", false)) add("slopes", {H});
    // shared=true shares the table between layers; within one layer it says nothing
    if (term->name == "t5") add("table", {static_cast<int>(term->number("buckets", 32)), H});
    if (term->name == "kerple") {
      add("r1", {H});
      add("r2", {H});
    }
    if (term->name == "fire") {
      const int hidden = static_cast<int>(term->number("hidden", 32));
      add("w1", {hidden});
      add("b1", {hidden});
      add("w2", {H, hidden});
      add("b2", {H});
      add("c", {1});
      add("mu", {1});
    }
    if (term->name == "cope") add("table", {static_cast<int>(term->number("length", 64)), D});
    if (term->name == "fox") {
      add("weight", {H, channels});
      add("bias", {H});
    }
    if (term->name == "grape-a") {
      const std::string gate = term->word("gate", "none");
      if (gate == "k" || gate == "qk") add("u", {part.key_heads, D});
      if (gate == "q" || gate == "qk") add("v", {H, D});
      if (gate != "none") add("rho", {H});
      if (term->flag("learn_slopes", false)) add("log_slopes", {H});
    }
    if (term->name == "grape-ap") {
      if (term->word("tie", "none") == "none") add("weight", {H, static_cast<int>(term->number("width", 8)), channels});
      if (term->flag("learn_alpha", false)) add("log_alpha", {H});
    }
    if (term->name == "grape-m") {
      const int rank = static_cast<int>(term->number("rank", 0));
      const std::string planes = term->word("planes", "canonical"), basis = term->word("basis", "none");
      const bool per_head = term->flag("per_head", false);
      if (rank > 0) {
        add("mix", {part.key_heads, D, rank});
        add("theta", {part.key_heads, rank / 2});
      } else if (planes == "canonical") {
        add("log_freq", {per_head ? part.key_heads : -1, D / 2});
      } else {
        add("a", {part.key_heads, D});
        if (planes == "general") add("b", {part.key_heads, D});
        add("omega", {part.key_heads});
      }
      if (basis == "cayley") add("skew", {D * (D - 1) / 2});
      if (basis == "householder") add("reflectors", {static_cast<int>(term->number("reflectors", 2)), D});
      if (term->flag("context", false)) {
        add("gate_weight", {per_head ? part.key_heads : 1, channels});
        add("gate_bias", {per_head ? part.key_heads : 1});
      }
    }
    if (term->name == "txl") {
      add("u", {H, D});
      add("v", {H, D});
      add("w", {H, D, channels});
    }
  }
  return all;
}

const VarTensor& parameter(const Parameters& parameters, const Term& term, const std::string& tensor) {
  const auto found = parameters.find(term.key() + "." + tensor);
  if (found == parameters.end()) throw Error("the case lacks the parameter '" + term.key() + "." + tensor + "'");
  return found->second;
}

}  // namespace oracle

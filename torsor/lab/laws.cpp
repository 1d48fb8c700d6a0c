#include "torsor/lab/laws.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/group/laws.h"
#include "torsor/lab/law_measures.h"

namespace torsor {
namespace {

using law::Tester;

constexpr int kDraws = 3;
// Float64 phases at positions near 1e6 carry errors near 1e-10.
constexpr double kFarBound = 1e-8;
constexpr double kNearBound = 1e-10;
constexpr std::int64_t kAbsoluteLength = 64;  // rows for tables that hold every position that is used here
constexpr std::int64_t kShortLength = 8;  // below the tokens of a case, so that scalings that start past it are at work

/// The encoding, with the fewest assumptions about the model.
std::shared_ptr<const Encoding> make_subject(const LawsRequest& request) {
  const Expression expression = parse(request.encoding);
  const auto make = [&](std::int64_t heads, std::int64_t kv_heads) {
    Dimensions dimensions{.heads = heads, .kv_heads = kv_heads, .head_dim = request.head_dim};
    dimensions.train_length = request.train_length > 0 ? request.train_length : kAbsoluteLength;
    std::shared_ptr<const Encoding> encoding = make_encoding(expression, dimensions);
    if (request.train_length > 0 || encoding->traits().absolute) return encoding;
    dimensions.train_length = kShortLength;
    return make_encoding(expression, dimensions);
  };
  if (request.heads > 0 || request.kv_heads > 0)
    return make(request.heads > 0 ? request.heads : request.kv_heads, request.kv_heads);
  try {
    return make(4, 2);
  } catch (const UsageError&) {
    // Head mixtures and lists of bases say how many heads they are for.
    for (std::int64_t heads = 1; heads <= 128; ++heads) try {
        return make(heads, heads);
      } catch (const UsageError&) {
      }
    throw;
  }
}

/// Why a law of biases is not claimed for a form.
std::string why_not(const std::string& form) {
  if (form == "path") return "weighs the tokens by the query, so that each row has a path of its own";
  if (form == "gated") return "has a rate for each query and key";
  return "may be anything";
}

}  // namespace

std::vector<Law> check_laws(const LawsRequest& request) {
  return check_laws(make_subject(request), request.seed, request.qk_norm);
}

std::vector<Law> check_laws(const std::shared_ptr<const Encoding>& whole, std::uint64_t seed, QkNorm qk_norm) {
  const Traits traits = whole->traits();
  if (qk_norm == QkNorm::After && traits.moved_width != 0)
    throw UsageError(str("laws: a norm after the moves has one gain for each of ", whole->dimensions().head_dim,
                         " channels of a head, but the encoding makes heads of ", traits.moved_width));
  std::vector<Tester> testers;
  for (std::int64_t layer = 0; layer < whole->period(); ++layer) testers.emplace_back(whole, layer, seed, qk_norm);
  bool turns = false, adds = false;
  std::string content;  // why the angle at a position cannot be asked for
  for (const Tester& tester : testers) try {
      const law::Turns one = law::turns_at(tester, {0});
      turns |= one.any();
      adds |= one.adds;
    } catch (const Refusal& refusal) {
      content = refusal.what();
    }

  std::vector<Law> laws;
  const auto add = [&](const std::string& name, const std::string& about, const std::string& unclaimed, double bound,
                       const std::function<double(Tester&)>& measure) {
    Law one{name, about, unclaimed.empty(), false, std::nullopt, bound, unclaimed};
    if (measure) try {
        double worst = 0;
        for (Tester& tester : testers)
          for (int draw = 0; draw < kDraws; ++draw) worst = std::max(worst, measure(tester));
        one.worst = worst;
        one.holds = worst <= bound;
      } catch (const Refusal& refusal) {
        one.claimed = false;
        one.note += (one.note.empty() ? "" : "; ") + std::string(refusal.what());
      } catch (const Error& problem) {
        one.note += (one.note.empty() ? "" : "; ") + std::string(problem.what());
      }
    laws.push_back(one);
  };
  using Measure = std::function<double(Tester&)>;
  turns &= content.empty();
  const std::string still = !content.empty() ? content : turns ? "" : "nothing turns";
  const auto rotating = [&](Measure measure) { return turns ? std::move(measure) : Measure(); };

  // Gains that stand behind the turning weigh the two channels of a plane differently.
  const std::string weighed =
      turns && qk_norm == QkNorm::After ? "the gains of a norm after the rotation weigh turned channels" : "";
  add("identity", "position 0 turns nothing, and equal positions leave the product of q and k",
      adds              ? "a vector is added to q"
      : content.empty() ? weighed
                        : content,
      kFarBound, content.empty() ? Measure(law::identity_error) : Measure());
  const auto group_law = [&](const std::string& name, const std::string& about, double bound,
                             const law::GroupLaw& one) {
    add(name, about, still, bound, rotating([one](Tester& t) { return law::group_error(t, one); }));
  };
  group_law(
      "composition", "turning by a and then by b is turning by a + b", kFarBound,
      {[](const auto& a, const auto& b, const auto& both, const auto&, const auto& m) { return a * b - m * both; },
       [](const auto& a, const auto& b, const auto& both, const auto&) {
         return group::composition_error(a, b, both);
       }});
  group_law(
      "inverse", "turning by -a undoes turning by a", kFarBound,
      {[](const auto& a, const auto&, const auto&, const auto& minus, const auto& m) { return a * minus - m * m; },
       [](const auto& a, const auto&, const auto&, const auto& minus) {
         return std::max(group::inverse_error(a, minus), group::transpose_error(a, minus));
       }});
  group_law("norm", "turning keeps lengths", kNearBound,
            {[](const auto& a, const auto&, const auto&, const auto&, const auto& m) { return a.abs() * m - m * m; },
             [](const auto& a, const auto&, const auto&, const auto&) { return group::orthogonality_error(a); }});
  add("relative", str("moving all positions by the same amount, up to ", law::kFar, ", changes nothing"),
      traits.relative           ? weighed
      : traits.length_dependent ? "frequencies depend on the largest position"
      : traits.carries          ? "it reads absolute positions, or what is handed on tells them"
                                : "it reads absolute positions",
      kFarBound, law::relative_error);
  add("streaming", "token by token through the KV cache gives what one call gives", "", kNearBound,
      [](Tester& t) { return law::cache_error(t, 1); });
  add("chunked", "chunks through the KV cache give what one call gives", "", kNearBound,
      [](Tester& t) { return law::cache_error(t, 3); });
  add("left-padded", "padding before a text changes nothing", "", kNearBound, law::padded_error);
  add("packed", "texts packed into one row do not see each other", "", kNearBound, law::packed_error);
  add("causality", "a later token never changes an earlier output",
      traits.leaks ? "its inputs come from whole sentences: those of a token tell of tokens behind it" : "", 0,
      law::causality_error);
  add("nothing seen", "a query that sees nothing gives zeros and has no gradient", "", 0, law::nothing_error);
  // What a bias must be of for a law of its values; other forms may be anything.
  using Forms = std::set<std::string>;
  const auto made_of = [&](const Forms& forms) -> std::string {
    if (traits.forms.empty()) return "nothing is added to a logit";
    for (const std::string& form : traits.forms)
      if (forms.count(form) == 0) return str("a bias of the form '", form, "' ", why_not(form));
    return "";
  };
  const auto bias_law = [&](const std::string& name, const std::string& about, const std::string& unclaimed,
                            bool measured, const Measure& measure) {
    add(name, about, unclaimed, kNearBound, measured ? measure : Measure());
  };
  const std::string lowers = made_of({"potential", "gated", "path"}), falls = made_of({"potential", "path"}),
                    composes = made_of({"linear", "potential", "path"}), chains = made_of({"linear", "potential"});
  bias_law("penalty", "what is added to a logit is never above 0, and is 0 for the token itself", lowers,
           lowers.empty(), law::penalty_error);
  bias_law("falling", "a farther token never has more added than a nearer one", falls, falls.empty(),
           law::falling_error);
  // Forms that are a part of the product cannot be told from it.
  const bool readable =
      made_of({"linear", "table", "log", "power", "cosine", "piecewise", "potential", "gated", "path"}).empty();
  bias_law("row composition", "b(i, j) = b(i, m) + edges of the tokens j + 1 to m, which read those and query i alone",
           composes, readable, law::row_composition_error);
  bias_law("chaining", "b(i, j) = b(i, m) + b(m, j), by way of any token m between", chains, readable,
           law::chaining_error);
  if (const std::shared_ptr<const Encoding> inner = whole->without_inputs()) {
    // A norm has gains that are drawn anew, and what stands beside the attention has nothing to compare.
    add("no inputs", "where no token brings an input it is the encoding inside, bit for bit", "", 0,
        law::no_inputs_error);
    add("first values", "as it starts it is the encoding inside, bit for bit",
        traits.warm_start ? "" : "it starts elsewhere", 0, law::first_values_error);
    const std::vector<std::string> inside = inner->traits().forms;
    const bool linear =
        std::all_of(inside.begin(), inside.end(), [](const std::string& one) { return one == "linear"; });
    if (!inside.empty() && linear)
      add("falling alike", "where all tokens bring the same inputs, a farther one never has more added than a nearer",
          traits.monotone ? "" : "factors may be negative, or differ by more than the inputs", kNearBound,
          law::falling_alike_error);
  }
  add("batch order", "rows of a batch do not depend on their order", "", kNearBound, law::batch_error);
  if (!traits.carries) return laws;

  std::string ordered;
  for (Tester& tester : testers)
    if (ordered.empty()) ordered = law::order_is_needed(tester);
  add("permutation", "tokens in another order, where all see each other, give the same in that order", ordered,
      kNearBound, ordered.empty() ? Measure(law::permutation_error) : Measure());
  const std::string turned = traits.relative ? weighed : "turned states need not give turned states";
  add("phase", "turning all states of a plane by one angle changes no output and turns the next states", turned,
      kNearBound, law::phase_error);
  add("reflection", "reflecting all states of a plane, as blocks, changes no output and reflects the next states",
      turned, kNearBound, traits.relative ? Measure(law::reflection_error) : Measure());
  add("state bound", "no average is longer than the longest state, no next state than the trained maps allow", "",
      kNearBound, law::bound_error);
  return laws;
}

std::string verdict(const Law& law) {
  if (law.claimed) return law.holds ? "holds" : "does not hold";
  return law.worst && !law.holds ? "does not hold" : "not claimed";
}

}  // namespace torsor

#include "tests/oracle/syntax.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace oracle {
namespace {

const int hidden_units = 64;
const int vector_width = 64;

bool is_term(const std::string& name) {
  static const std::set<std::string> names = {"alibi", "t5", "kerple", "sandwich", "fire", "txl"};
  return names.count(name) != 0;
}

bool is_placeless(const std::string& name) { return name == "none" || name == "sinusoidal" || name == "learned"; }

std::string coupling_of(const Term& sipe) {
  const std::string inner = sipe.inner().name, word = sipe.word("coupling", "auto");
  if (word != "auto") return word;
  if (is_placeless(inner)) return sipe.word("inject", "auto") == "auto" ? "input" : "bias";
  if (!is_term(inner)) return "rotation";
  return inner == "txl" ? "tag_align" : "bilinear";
}

bool adds_input(const Term& sipe) {
  const std::string word = sipe.word("inject", "auto");
  return word == "input" || word == "joint" || (word == "auto" && coupling_of(sipe) == "input");
}

/// The form of the pair's number behind the coupling.
std::string form_of(const std::string& coupling) {
  if (coupling == "sparse" || coupling == "pair") return "bilinear";
  return coupling == "sparse_mlp" ? "mlp" : coupling;
}

bool acts(const Term& sipe, const Case& c) {
  return sipe.word("mode", "auto") != "none" && sipe.word("inject", "auto") != "input" &&
         coupling_of(sipe) != "input" && c.layer + 1 >= sipe.number("inject_from", 1);
}

}  // namespace

std::vector<std::pair<std::string, std::vector<int>>> syntax_tensors(const Term& sipe, const Part& part, const Case& c,
                                                                     int channels) {
  std::vector<std::pair<std::string, std::vector<int>>> all;
  const bool tags = sipe.word("prior", "hexatags") == "hexatags";
  const int d = tags ? channels : vector_width, D = c.head_dim();
  const std::string coupling = coupling_of(sipe), form = form_of(coupling);
  const bool input = adds_input(sipe), mode_none = sipe.word("mode", "auto") == "none";
  const bool attends =
      sipe.word("inject", "auto") != "input" && coupling != "input" && c.layer + 1 >= sipe.number("inject_from", 1);
  const std::string labels = sipe.word("labels", "off");
  if (tags && labels != "only" && (attends || input)) {
    all.push_back({"tau", {2, channels}});
    all.push_back({"nu", {5, channels}});
  }
  if (labels != "off") all.push_back({"labels", {37, channels}});
  if (input && !tags) all.push_back({"w_input", {channels, d}});
  if (!attends) return all;
  (void)mode_none;  // a term that reads nothing has its tensors all the same
  if (form == "tag_align" || form == "additive") all.push_back({"w_e", {part.heads, D, d}});
  if (form == "bilinear") {
    const int rank = static_cast<int>(sipe.number("rank", 16));
    all.push_back({"u", {rank, d}});
    all.push_back({"v", {rank, d}});
  }
  if (form == "mlp") {
    all.push_back({"a", {hidden_units, d}});
    all.push_back({"b", {hidden_units, d}});
    all.push_back({"b1", {hidden_units}});
    all.push_back({"w2", {hidden_units}});
    all.push_back({"b2", {1}});
  }
  if (form == "rotation") {
    const Term* rotary = &sipe.inner();
    while (is_scaling(rotary->name)) rotary = &rotary->inner();
    all.push_back({"w_phi", {static_cast<int>(planes_of(*rotary, D).size()), d}});
  }
  if (form == "prerot") {
    all.push_back({"w_q", {part.heads, D, d}});
    all.push_back({"w_k", {part.key_heads, D, d}});
  }
  if (form == "bilinear" || form == "mlp" || form == "rotation") all.push_back({"beta", {1}});
  if (form == "bias" || sipe.word("inject", "auto") == "combined") {
    all.push_back({"w_key", {part.key_heads, D, d}});
    all.push_back({"w_value", {part.key_heads, D, d}});
    all.push_back({"alpha", {1}});
  }
  return all;
}

std::vector<std::string> syntax_inputs(const Term& sipe) {
  if (sipe.word("mode", "auto") == "none") return {};
  const std::string coupling = coupling_of(sipe), form = form_of(coupling);
  const bool sparse = coupling == "sparse" || coupling == "sparse_mlp";
  const std::string labels = sipe.word("labels", "off");
  std::vector<std::string> names;
  if (labels != "only") names.emplace_back(sipe.word("prior", "hexatags") == "fsyn" ? "syntax.vectors" : "syntax.tags");
  if (labels != "off") names.emplace_back("syntax.labels");
  const bool pairs = (form == "bilinear" || form == "mlp") && !sparse;
  const bool apart = pairs ? !sipe.flag("cross_sentence", false) : sipe.flag("same_sentence", false);
  if (apart && sipe.word("inject", "auto") != "input") names.emplace_back("syntax.sentences");
  if (sparse) names.emplace_back("syntax.links");
  return names;
}

Syntax::Syntax(const Part& part, const Case& c, const Parameters& parameters)
    : part_(part), c_(c), parameters_(parameters) {
  const Term& sipe = *part.syntax;
  tags_ = sipe.word("prior", "hexatags") == "hexatags";
  labels_ = sipe.word("labels", "off");
  // What joins the first attention's output is no part of the token embedding.
  input_ = adds_input(sipe) && sipe.word("mode", "auto") != "none" && sipe.word("fuse", "add") != "skip";
  if (sipe.word("fuse", "add") == "mix" || sipe.word("fuse", "add") == "concat")
    throw Unsupported("this fuse is not computed here");
  if (!acts(sipe, c)) return;
  coupling_ = coupling_of(sipe);
  bias_ = coupling_ == "bias" || sipe.word("inject", "auto") == "combined";
  form_ = form_of(coupling_);
  sparse_ = coupling_ == "sparse" || coupling_ == "sparse_mlp";
  const bool penalty = part.term->name == "alibi" || part.term->name == "kerple";
  factor_ = sipe.word("factor", "auto");
  if (factor_ == "auto") factor_ = penalty ? "bounded" : "linear";
}

bool Syntax::multiplies() const { return form_ == "tag_align" || form_ == "bilinear" || form_ == "mlp"; }

bool Syntax::exists(int b, int token) const {
  if (token < 0 || token >= c_.keys()) return false;
  if (c_.key_lengths && token >= c_.key_lengths->at(b)) return false;
  return !c_.documents_k || c_.documents_k->at(b, token) >= 0.0;
}

double Syntax::named(const char* name, int b, int token, int entry, int entries) const {
  const auto found = c_.named.find(name);
  if (found == c_.named.end()) throw Error("case '" + c_.id + "' lacks the input '" + name + "'");
  return found->second.data[static_cast<std::size_t>((b * c_.keys() + token) * entries + entry)];
}

std::vector<Var> Syntax::s(int b, int token) const {
  if (!exists(b, token)) return {};
  std::vector<Var> s;
  if (!tags_) {
    bool any = false;
    for (int d = 0; d < vector_width; ++d) {
      s.emplace_back(named("syntax.vectors", b, token, d, vector_width));
      any = any || s.back().value != 0.0;
    }
    return any ? s : std::vector<Var>();
  }
  const bool tagged = labels_ != "only";
  const int tau = tagged ? static_cast<int>(named("syntax.tags", b, token, 0, 2)) : 0;
  const int nu = tagged ? static_cast<int>(named("syntax.tags", b, token, 1, 2)) : 0;
  const int label = labels_ != "off" ? static_cast<int>(named("syntax.labels", b, token, 0, 1)) : 0;
  if (tau == 0 && nu == 0 && label == 0) return {};
  for (int d = 0; d < tensor(tagged ? "tau" : "labels").shape[1]; ++d) {
    Var sum = 0.0;
    if (label > 0) sum += tensor("labels").at(label - 1, d);
    if (tau > 0) sum += tensor("tau").at(tau - 1, d);
    if (nu > 0) sum += tensor("nu").at(nu - 1, d);
    s.push_back(sum);
  }
  return s;
}

Var Syntax::times(const char* name, int row, const std::vector<Var>& s) const {
  const VarTensor& matrix = tensor(name);
  Var sum = 0.0;
  for (std::size_t d = 0; d < s.size(); ++d) sum += matrix.data[static_cast<std::size_t>(row) * s.size() + d] * s[d];
  return sum;
}

Var Syntax::beta() const {
  const Var given = tensor("beta").at(0);
  if (factor_ != "bounded" || form_ == "rotation") return given;
  return tanh(given) * 0.9;
}

/// Distances by arcs, from the query's token outwards, one arc a round.
bool Syntax::near(const SeenTokens& tokens, int j) const {
  const std::string mode = part_.syntax->word("mode", "auto");
  const bool so_far = mode == "incremental" || mode == "oracle_revealed" || (mode == "auto" && c_.causal);
  if (tokens.own < 0 || tokens.own >= c_.keys()) return false;
  const int arcs = c_.named.at("syntax.links").size(2);
  std::set<int> reached = {tokens.own};
  for (int hop = 0; hop < static_cast<int>(part_.syntax->number("hops", 3)); ++hop) {
    const std::set<int> before = reached;
    for (int t = 0; t < c_.keys() && !(so_far && t > tokens.own); ++t) {
      if (!exists(tokens.row, t)) continue;
      for (int n = 0; n < arcs; ++n) {
        const int back = static_cast<int>(named("syntax.links", tokens.row, t, 2 * n, 2 * arcs));
        const int other = static_cast<int>(named("syntax.links", tokens.row, t, 2 * n + 1, 2 * arcs));
        if (back < 0 || other < 0 || back > t || other > t) continue;
        if (before.count(t - back) != 0) reached.insert(t - other);
        if (before.count(t - other) != 0) reached.insert(t - back);
      }
    }
  }
  return reached.count(j) != 0;
}

bool Syntax::same_sentence(const SeenTokens& tokens, int j) const {
  if (!exists(tokens.row, tokens.own) || !exists(tokens.row, j)) return false;
  const double mine = named("syntax.sentences", tokens.row, tokens.own, 0, 1);
  return mine >= 0.0 && mine == named("syntax.sentences", tokens.row, j, 0, 1);
}

Var Syntax::alignment(const SeenTokens& tokens, int j, const std::vector<Var>& q) const {
  const std::vector<Var> key = s(tokens.row, j);
  Var sum = 0.0;
  if (key.empty()) return sum;
  const int head = tokens.head - part_.first_head;
  for (int d = 0; d < c_.head_dim(); ++d) {
    Var own = q[static_cast<std::size_t>(d)];
    if (part_.term->name == "txl") own += parameter(parameters_, *part_.term, "v").at(head, d);
    sum += own * times("w_e", head * c_.head_dim() + d, key);
  }
  return sum / std::sqrt(static_cast<double>(c_.head_dim()));
}

Var Syntax::factor(const SeenTokens& tokens, int j, const std::vector<Var>& q) const {
  const std::vector<std::string> inputs = syntax_inputs(*part_.syntax);
  if (std::count(inputs.begin(), inputs.end(), "syntax.sentences") != 0 && !same_sentence(tokens, j)) return 1.0;
  Var z = 0.0, b = 1.0;
  if (form_ == "tag_align") {
    z = alignment(tokens, j, q);
    if (factor_ == "bounded") return Var(1.0) + tanh(z) * 0.9;
  } else {
    const std::vector<Var> own = s(tokens.row, tokens.own), key = s(tokens.row, j);
    if (own.empty() || key.empty() || (sparse_ && !near(tokens, j))) return 1.0;
    b = beta();
    if (form_ == "mlp") {
      z = tensor("b2").at(0);
      for (int n = 0; n < hidden_units; ++n) {
        z += tensor("w2").at(n) * gelu(times("a", n, own) + times("b", n, key) + tensor("b1").at(n));
      }
      if (factor_ == "bounded") return Var(1.0) + b * tanh(z);
    } else {
      const int rank = tensor("u").shape[0];
      for (int n = 0; n < rank; ++n) z += times("u", n, own) * times("v", n, key);
      z = z / std::sqrt(static_cast<double>(rank));
      if (factor_ != "exp") z = tanh(z);
    }
  }
  if (factor_ == "exp") return exp(max(min(b * z, Var(2.0)), Var(-2.0)));
  const Var linear = Var(1.0) + b * z;
  return factor_ == "clamp" ? max(linear, Var(0.0)) : linear;
}

Var Syntax::key_product(const SeenTokens& tokens, int j, const std::vector<Var>& q) const {
  const std::vector<Var> key = s(tokens.row, j);
  Var sum = 0.0;
  const int row = (tokens.key_head - part_.first_key_head) * c_.head_dim();
  for (int d = 0; d < c_.head_dim() && !key.empty(); ++d) {
    sum += q[static_cast<std::size_t>(d)] * times("w_key", row + d, key);
  }
  return sum;
}

Var Syntax::value_part(const SeenTokens& tokens, int j, int d) const {
  const std::vector<Var> key = s(tokens.row, j);
  if (key.empty()) return 0.0;
  const int row = (tokens.key_head - part_.first_key_head) * c_.head_dim();
  return tensor("alpha").at(0) * times("w_value", row + d, key);
}

std::vector<Var> Syntax::moved(const SeenTokens& tokens, int token, bool query, const std::vector<Var>& x) const {
  const std::vector<Var> own = s(tokens.row, token);
  if (own.empty()) return x;
  std::vector<Var> y = x;
  if (form_ == "prerot") {
    const int head = query ? tokens.head - part_.first_head : tokens.key_head - part_.first_key_head;
    for (int d = 0; d < c_.head_dim(); ++d) {
      y[static_cast<std::size_t>(d)] += times(query ? "w_q" : "w_k", head * c_.head_dim() + d, own);
    }
    return y;
  }
  const Term* rope = part_.term;
  while (is_scaling(rope->name)) rope = &rope->inner();
  const std::vector<Plane> planes = planes_of(*rope, c_.head_dim());
  for (std::size_t p = 0; p < planes.size(); ++p) {
    Var phi = times("w_phi", static_cast<int>(p), own);
    if (part_.syntax->word("bound", "none") == "warp") {
      const std::vector<double> bases = rope->list("base");
      const double base = bases.empty() ? 10000.0 : bases[0];
      phi = tanh(phi) * (4.0 * std::pow(base, -2.0 * planes[p].index / planes[p].width));
    }
    const Var angle = tensor("beta").at(0) * phi;
    const auto a = static_cast<std::size_t>(planes[p].a), b = static_cast<std::size_t>(planes[p].b);
    const Var cosine = cos(angle), sine = sin(angle);
    y[a] = x[a] * cosine - x[b] * sine;
    y[b] = x[a] * sine + x[b] * cosine;
  }
  return y;
}

double Syntax::embedding(int b, int token, int channel) const {
  const std::vector<Var> own = s(b, token);
  if (own.empty()) return 0.0;
  return tags_ ? own[static_cast<std::size_t>(channel)].value : times("w_input", channel, own).value;
}

}  // namespace oracle

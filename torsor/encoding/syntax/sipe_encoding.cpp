#include "torsor/encoding/syntax/sipe_encoding.h"

#include <cmath>
#include <utility>

#include "torsor/encoding/bias/answer.h"

namespace torsor {
namespace {

using Coupling = SipeOptions::Coupling;
using Factor = SipeOptions::Factor;
using Start = SipeOptions::Start;

constexpr double kTableDeviation = 0.02;  // of tau and nu at the start; s, the sum of the two, has sqrt(2) of it

/// Weights (H, D, n) on x (B, H, T, D), H query heads or one matrix a group of them: (B, H, T, n).
at::Tensor by_heads(const at::Tensor& x, const at::Tensor& weight) {
  if (x.size(1) == weight.size(0)) return at::matmul(x, weight);
  return at::matmul(x.unflatten(1, {weight.size(0), x.size(1) / weight.size(0)}), weight.unsqueeze(1)).flatten(1, 2);
}

}  // namespace

Sipe::Sipe(const Dimensions& dimensions, std::string prefix, std::shared_ptr<const Encoding> operand,
           const SipeOptions& options, std::vector<std::vector<double>> plane_frequency)
    : Encoding(dimensions),
      prefix_(std::move(prefix)),
      operand_(std::move(operand)),
      options_(options),
      reader_{prefix_,
              options.prior,
              options.needs_sentences(),
              options.needs_links(),
              options.labels != SipeOptions::Labels::Only,
              options.labels != SipeOptions::Labels::Off},
      plane_frequency_(std::move(plane_frequency)) {
  for (const ParameterInfo& info : operand_->parameters(0))
    if (options_.operand == "txl" && info.name.ends_with(".v")) v_name_ = info.name;
  if (options_.coupling == Coupling::Rotation || options_.coupling == Coupling::Pair) find_planes();
  if (options_.coupling == Coupling::Pair) {
    const auto rotation = operand_->rotation(1, {});
    const Traits inner = operand_->traits();
    if (!rotation || inner.axes != 1 || inner.length_dependent || !operand_->decays().empty())
      throw UsageError(str("sipe: coupling=pair needs fixed frequencies on one position axis, not those of '",
                           options_.operand, "'"));
  }
}

/// Asks the encoding inside about no tokens.
void Sipe::find_planes() {
  Question question;
  question.q = at::zeros({1, dimensions_.heads, 0, dimensions_.head_dim});
  question.k = at::zeros({1, dimensions_.kv_heads, 0, dimensions_.head_dim});
  const Traits inner = operand_->traits();
  question.query.positions = question.key.positions = at::zeros({1, 0, inner.axes}, at::TensorOptions(at::kDouble));
  NamedTensors first;
  for (const ParameterInfo& info : operand_->parameters(0)) first[info.name] = at::zeros(info.shape);
  question.parameters = &first;
  const std::vector<Move> moves = inner.content ? std::vector<Move>() : operand_->moves(question, Role::Key);
  const Planes* planes = moves.size() == 1 ? std::get_if<Planes>(&moves.front()) : nullptr;
  if (!planes || planes->width == 0)
    throw UsageError(str("sipe: coupling=", options_.coupling_word, " turns pairs of channels once more; '",
                         options_.operand, "' with these keys turns other planes, or by its content"));
  planes_ = *planes;
  planes_.cosine = planes_.sine = at::Tensor();
}

Traits Sipe::traits() const {
  Traits traits = operand_->traits();
  traits.content = true;
  traits.averages = options_.bias && options_.mode != SipeMode::None;
  traits.leaks = options_.mode == SipeMode::Oracle || options_.mode == SipeMode::OracleRevealed;
  traits.warm_start = options_.starts_warm();
  traits.monotone = options_.kind == SipeOperand::Term && !options_.sparse && options_.factor != Factor::Linear;
  if (options_.input) {
    traits.absolute = true;
    traits.whole = "sipe with inject=input or joint adds to the token embedding, which has no heads";
  }
  if (options_.mode == SipeMode::None) return traits;
  if (options_.of_pairs() || options_.coupling == Coupling::TagAlign)
    traits.forms = {options_.coupling == Coupling::Pair ? "stretch" : "factor"};
  if (options_.bias || options_.coupling == Coupling::Additive) traits.forms.emplace_back("product");
  return traits;
}

std::vector<ParameterInfo> Sipe::parameters(std::int64_t layer) const {
  std::vector<ParameterInfo> all = operand_->parameters(layer);
  const std::int64_t d = width(), heads = dimensions_.heads, keys = dimensions_.kv_heads, head = dimensions_.head_dim,
                     channels = dimensions_.width;
  // Deviations are such that a product with s starts near 1 a number.
  const double s_size = options_.prior == SipePrior::Fsyn ? 1 : kTableDeviation * std::sqrt(2.0);
  const double unit = 1 / (s_size * std::sqrt(static_cast<double>(d)));
  const bool zero = options_.start == Start::Zero, random = options_.start == Start::Random;
  const auto add = [&](const char* name, std::vector<std::int64_t> shape, double deviation, bool decay,
                       bool shared = false) {
    ParameterInfo info;
    info.name = name_of(name);
    info.shape = std::move(shape);
    if (deviation != 0) info.initial = {Initial::Kind::Normal, 0, deviation, {}};
    info.decay = decay;
    info.shared = shared;
    all.push_back(std::move(info));
  };
  const auto add_constant = [&](const char* name, double value, bool shared = false) {
    add(name, {1}, 0, false, shared);
    all.back().initial.a = value;
  };
  const bool acts = layer + 1 >= options_.inject_from && (options_.bias || options_.coupling != Coupling::None);
  if (reads_tags() && (acts || options_.input)) {
    add("tau", {2, channels}, zero ? 0 : kTableDeviation, false, true);
    add("nu", {5, channels}, zero ? 0 : kTableDeviation, false, true);
  }
  if (options_.labels != SipeOptions::Labels::Off)
    add("labels", {kSyntaxLabelCount, channels}, zero ? 0 : kTableDeviation, false, true);
  if (options_.input) {
    // As small as a token embedding.
    const double small = zero ? 0 : kTableDeviation / std::sqrt(static_cast<double>(d));
    if (options_.fuse == SipeOptions::Fuse::Concat) {
      add("w_x", {channels, channels}, 0, true, true);
      add("w_s", {channels, d}, random ? unit * kTableDeviation : 0, true, true);
    } else if (options_.prior == SipePrior::Fsyn) {
      add("w_input", {channels, d}, small, true, true);
    }
    if (options_.fuse == SipeOptions::Fuse::Mix) add_constant("mix", random ? 0.5 : 1, true);
  }
  if (!acts) return all;
  // With a beta of 0 it moves first and the rest is drawn; else the last factor starts at zero and moves first.
  const bool drawn = random || options_.beta_init == 0;
  switch (options_.coupling) {
    case Coupling::None:
      break;
    case Coupling::TagAlign:
    case Coupling::Additive:
      add("w_e", {heads, head, d}, random ? kTableDeviation : 0, true);
      break;
    case Coupling::Bilinear:
    case Coupling::Pair:
      add("u", {options_.rank, d}, unit, true);
      add("v", {options_.rank, d}, drawn ? unit : 0, true);
      break;
    case Coupling::Mlp:
      add("a", {kSipeHidden, d}, unit, true);
      add("b", {kSipeHidden, d}, unit, true);
      add("b1", {kSipeHidden}, 0, false);
      add("w2", {kSipeHidden}, drawn ? 1 / std::sqrt(static_cast<double>(kSipeHidden)) : 0, true);
      add("b2", {1}, 0, false);
      break;
    case Coupling::Rotation:
      add("w_phi", {planes_.width / 2, d}, drawn && !zero ? unit : 0, true);
      break;
    case Coupling::Prerot:
      add("w_q", {heads, head, d}, random ? kTableDeviation : 0, true);
      add("w_k", {keys, head, d}, random ? kTableDeviation : 0, true);
      break;
  }
  if (options_.has_beta()) {
    const bool bounded = options_.of_pairs() && options_.factor == Factor::Bounded;
    add_constant("beta", bounded ? std::atanh(options_.beta_init / kBoundedBeta) : options_.beta_init);
  }
  if (options_.bias) {
    add("w_key", {keys, head, d}, random ? kTableDeviation : 0, true);
    add("w_value", {keys, head, d}, random ? kTableDeviation : 0, true);
    add_constant("alpha", 1);
  }
  return all;
}

std::vector<std::string> Sipe::inputs() const {
  return options_.mode == SipeMode::None ? std::vector<std::string>() : reader_.inputs();
}

// --------------------------------------------------------------------------------------------------------------------
// Answers

at::Tensor Sipe::input_vectors(const Side& tokens, const NamedTensors& parameters, const NamedTensors& named,
                               at::Tensor& valid) const {
  const auto find = [&](const char* name) { return find_trained(&parameters, name_of(name)); };
  const bool fsyn = options_.prior == SipePrior::Fsyn;
  const bool concat = options_.fuse == SipeOptions::Fuse::Concat;
  const at::Tensor like = concat ? find("w_s") : fsyn ? find("w_input") : find(reads_tags() ? "tau" : "labels");
  const SyntaxTokens syntax = reader_.read(&named, tokens.positions.size(0), tokens.tokens(), absent_tokens(tokens),
                                           like.scalar_type(), like.device());
  valid = syntax.valid;
  if (fsyn) return at::matmul(syntax.vectors, like.t());
  const auto look_up = [&](at::Tensor rows, const at::Tensor& which) {
    if (concat) rows = at::matmul(rows, like.t());
    return rows.index_select(0, which.flatten()).view({which.size(0), which.size(1), dimensions_.width});
  };
  at::Tensor s;
  if (reads_tags()) s = look_up(table(find("tau"), find("nu")), syntax.tag);
  if (options_.labels == SipeOptions::Labels::Off) return s;
  const at::Tensor labels = find("labels");
  const at::Tensor of_label =
      look_up(at::cat({at::zeros({1, dimensions_.width}, labels.options()), labels}), syntax.label);
  return s.defined() ? s + of_label : of_label;
}

at::Tensor Sipe::embedding(const Side& tokens, const NamedTensors& parameters, const NamedTensors& named,
                           const at::Tensor& x) const {
  const at::Tensor inner = operand_->embedding(tokens, parameters, named, x);
  if (!options_.input || options_.fuse == SipeOptions::Fuse::Skip || options_.mode == SipeMode::None) return inner;
  at::Tensor valid;
  at::Tensor s = input_vectors(tokens, parameters, named, valid);
  if (options_.fuse != SipeOptions::Fuse::Add) {
    if (!x.defined()) throw Error(str(prefix_, ": fuse=mix and concat read the token embedding, which was not given"));
    const at::Tensor here = x.to(s.scalar_type());
    const auto find = [&](const char* name) { return find_trained(&parameters, name_of(name)); };
    // Only tokens with syntax are changed.
    s = options_.fuse == SipeOptions::Fuse::Concat ? s + at::linear(here, find("w_x")) : (1 - find("mix")) * (s - here);
    s = at::where(valid.unsqueeze(-1), s, at::zeros({}, s.options()));
  }
  return inner.defined() ? inner + s.to(inner.scalar_type()) : s;
}

at::Tensor Sipe::behind_attention(const Side& tokens, const NamedTensors& parameters, const NamedTensors& named) const {
  const at::Tensor inner = operand_->behind_attention(tokens, parameters, named);
  if (!options_.input || options_.fuse != SipeOptions::Fuse::Skip || options_.mode == SipeMode::None) return inner;
  at::Tensor valid;
  const at::Tensor s = input_vectors(tokens, parameters, named, valid);
  return inner.defined() ? inner + s.to(inner.scalar_type()) : s;
}

std::vector<Move> Sipe::moves(const Question& question, Role role) const {
  if (!acts_in(question.layer) || (options_.coupling != Coupling::Prerot && options_.coupling != Coupling::Rotation))
    return operand_->moves(question, role);
  const SyntaxTokens tokens = tokens_of(question, role);
  std::vector<Move> all;
  if (options_.coupling == Coupling::Prerot) {
    const at::Tensor w = trained(question, name_of(role == Role::Query ? "w_q" : "w_k"));  // (heads, D, d)
    const at::Tensor vectors = project(question, w.flatten(0, 1), tokens).unflatten(2, {w.size(0), w.size(1)});
    all.emplace_back(AddedVector{all_heads(), vectors.transpose(1, 2)});
  }
  for (Move& move : operand_->moves(question, role)) all.push_back(std::move(move));
  if (options_.coupling == Coupling::Rotation) {
    // A turn of its own after the position's: their sum would lose a small turn beside a large angle.
    at::Tensor phi = project(question, trained(question, name_of("w_phi")), tokens);
    phi = phi.unsqueeze(1);  // (B, 1, T, planes)
    if (options_.warp) {
      std::vector<at::Tensor> rows;
      for (const std::vector<double>& row : plane_frequency_) rows.push_back(fixed(question, row, phi.scalar_type()));
      phi = kWarpPositions * at::stack(rows).unsqueeze(1) * phi.tanh();
    }
    const at::Tensor turn = beta(question) * phi;
    Planes planes = planes_;
    planes.cosine = turn.cos();
    planes.sine = turn.sin();
    all.emplace_back(std::move(planes));
  }
  return all;
}

/// Where no key brings syntax the encoding inside answers alone, on the path that it takes by itself.
bool Sipe::steps_back(const Question& question) const {
  const bool other_path = has_slow_factor() || options_.bias || options_.coupling == Coupling::Additive;
  return other_path && !tokens_of(question, Role::Key).valid.any().item<bool>();
}

std::vector<BiasForm> Sipe::biases(const Question& question) const {
  std::vector<BiasForm> all = operand_->biases(question);
  if (!acts_in(question.layer)) return all;
  const at::ScalarType type = answer_type(question);
  const bool multiplies = options_.coupling == Coupling::TagAlign || options_.coupling == Coupling::Bilinear ||
                          options_.coupling == Coupling::Mlp;
  if (steps_back(question)) return all;
  if (multiplies) {
    const FactorForm shared = factor(question);
    for (BiasForm& one : all) {
      FactorForm form = shared;
      const HeadRange heads = one.heads;
      form.base = std::make_shared<BiasForm>(std::move(one));
      one = {heads, std::move(form)};
    }
  }
  if (options_.coupling == Coupling::Pair) all.push_back(stretch(question));
  if (!options_.bias && options_.coupling != Coupling::Additive) return all;
  const SyntaxTokens key = tokens_of(question, Role::Key);
  const at::Tensor of_keys = features(key, type);
  if (options_.coupling == Coupling::Additive) {
    all.push_back({all_heads(), ProductForm{alignment(question), of_keys}});
  }
  if (options_.bias) {
    const at::Tensor w = trained(question, name_of("w_key"));  // (K, D, d)
    const at::Tensor by = options_.prior == SipePrior::Fsyn ? w : at::matmul(w, table(question).t());
    all.push_back({all_heads(), ProductForm{by_heads(question.q.to(type) * question.scale, by), of_keys}});
  }
  return all;
}

std::optional<Carried> Sipe::carried(const Question& question) const {
  if (!options_.bias || !acts_in(question.layer) || steps_back(question)) return std::nullopt;
  return Carried{features(tokens_of(question, Role::Key), answer_type(question))};
}

at::Tensor Sipe::after_attention(const Question& question, const at::Tensor& averages) const {
  if (!options_.bias || !acts_in(question.layer)) return {};
  const at::Tensor w = trained(question, name_of("w_value"));  // (K, D, d)
  const at::Tensor by = options_.prior == SipePrior::Fsyn ? w : at::matmul(w, table(question).t());
  return trained(question, name_of("alpha")) * by_heads(averages.to(by.scalar_type()), by.transpose(1, 2));
}

// --------------------------------------------------------------------------------------------------------------------
// The cache

bool Sipe::keeps(std::int64_t layer) const {
  if (!acts_in(layer)) return false;
  // Keys that are moved again at each read need their own syntax then.
  return options_.reads_keys() || operand_->cache(layer).key == CacheContract::Key::Raw;
}

CacheContract Sipe::cache(std::int64_t layer) const {
  CacheContract contract = operand_->cache(layer);
  if (options_.mode == SipeMode::None) return contract;
  if (keeps(layer))
    for (const std::string& name : reader_.kept_names()) contract.kept.push_back(name);
  if (acts_in(layer) && options_.coupling == Coupling::Pair) contract.kept.push_back(name_of("key"));
  if (acts_in(layer) && options_.sparse)
    contract.evict = "the way between two tokens may lead over one that is gone, and then they are no longer near";
  const std::string own =
      options_.mode == SipeMode::Oracle
          ? "a parse of whole sentences changes as they grow: a cache takes all tokens at once and none behind them"
          : "a token's syntax is final when it arrives";
  contract.note += (contract.note.empty() ? "" : "; ") + own;
  return contract;
}

NamedTensors Sipe::arrive(const Question& question, NamedTensors& state) const {
  NamedTensors all = operand_->arrive(question, state);
  if (options_.mode == SipeMode::Oracle) {
    // Tokens that each row holds.
    const at::Tensor fresh = at::ones({question.key.positions.size(0), question.key.tokens()}, at::kDouble);
    at::Tensor count = fresh.sum(1);
    if (question.key.lengths.defined()) count = question.key.lengths.to(at::kCPU, at::kDouble);
    const auto before = state.find(name_of("arrived"));
    if (before != state.end()) {
      if (before->second.gt(0).logical_and(count.gt(0)).any().item<bool>())
        throw Refusal(str(prefix_,
                          ": mode=oracle is a parse of whole sentences, which later tokens change: a cache cannot take "
                          "tokens behind others; use mode=incremental"));
      count = count + before->second;
    }
    state[name_of("arrived")] = count;
  }
  if (keeps(question.layer)) {
    const SyntaxTokens tokens =
        reader_.read(question.named, question.key.positions.size(0), question.key.tokens(), absent_tokens(question.key),
                     answer_type(question), answer_device(question));
    for (auto& [name, tensor] : reader_.keep(tokens)) all.emplace(name, tensor);
  }
  if (acts_in(question.layer) && options_.coupling == Coupling::Pair) all.emplace(name_of("key"), question.k);
  return all;
}

NamedTensors Sipe::rewind(const Side& tokens, const NamedTensors& kept) const {
  NamedTensors state = operand_->rewind(tokens, kept);
  if (options_.mode == SipeMode::Oracle) state[name_of("arrived")] = tokens.lengths.to(at::kCPU, at::kDouble);
  return state;
}

std::vector<std::string> Sipe::content() const {
  std::vector<std::string> all = operand_->content();
  if (options_.mode == SipeMode::None) return all;
  if (options_.input) all.push_back("s of the tokens (B, T, C), on the token embedding");
  if (options_.bias) all.push_back("products of q with the keys' s (B, H, Tq, Tk), and the average of s");
  const bool aligned = options_.coupling == Coupling::TagAlign;
  if (aligned || options_.of_pairs())
    all.push_back(
        str(options_.coupling == Coupling::Pair ? "factor of the angles (B, " : "factor of the position term (B, ",
            aligned ? "H" : "1", ", Tq, Tk), ",
            options_.sparse ? str("other than 1 within ", options_.hops, " arcs")
            : aligned       ? "by the query and the key's syntax"
                            : "by the syntax of both tokens"));
  if (options_.coupling == Coupling::Additive) all.push_back("product of q with the keys' s (B, H, Tq, Tk)");
  if (options_.coupling == Coupling::Rotation)
    all.push_back(str("a second turn of each plane by the token's syntax (B, 1, T, ", planes_.width / 2, ")"));
  if (options_.coupling == Coupling::Prerot) all.push_back("vectors of the token's syntax, added to q and k");
  return all;
}

}  // namespace torsor

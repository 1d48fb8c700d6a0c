#include "torsor/encoding/state/tape.h"

#include <utility>

#include "torsor/encoding/bias/answer.h"
#include "torsor/encoding/state/position_network.h"

namespace torsor {
namespace {

enum class Post { RowSum, HeadMix, Scalar, None };
enum class Control { None, Mixing, Frame };

struct TapeOptions {
  Post post = Post::RowSum;
  Control control = Control::None;
  bool network = true;
  bool shared = false;
  std::int64_t inner = 0;  ///< I
  std::int64_t block = 2;  ///< R
  std::int64_t from_layer = 0;
  double clip = 0;
};

class Tape : public Encoding {
 public:
  Tape(const Dimensions& dimensions, std::string prefix, std::unique_ptr<Encoding> operand, const TapeOptions& options)
      : Encoding(dimensions), prefix_(std::move(prefix)), operand_(std::move(operand)), options_(options) {
    heads_ = options_.shared ? dimensions_.kv_heads : dimensions_.heads;
    const Planes probe = planes_at(Role::Key, probe_question());
    planes_ = probe.width / 2;
  }

  Traits traits() const override {
    Traits traits = operand_->traits();
    traits.content = traits.carries = true;
    traits.relative = traits.relative && options_.control == Control::None;
    if (widens())
      traits.whole =
          "tape with gqa=expand turns a key for each query head, so all heads must be its own; write gqa=shared";
    if (options_.block != 2) {
      traits.moved_width = dimensions_.head_dim + (options_.block - 2) * planes_;
      traits.whole = "tape with block above 2 changes the width of a head, and all heads have one width";
    }
    return traits;
  }

  std::vector<ParameterInfo> parameters(std::int64_t layer) const override {
    std::vector<ParameterInfo> all = operand_->parameters(layer);
    if (layer < options_.from_layer) return all;
    const std::int64_t inner = options_.inner, width = dimensions_.width;
    const Initial zero{Initial::Kind::Constant, 0, 0, {}}, normal{Initial::Kind::Normal, 0, 0.02, {}};
    const auto add = [&](const char* name, std::vector<std::int64_t> shape, const Initial& initial, bool decay) {
      ParameterInfo info;
      info.name = prefix_ + name;
      info.shape = std::move(shape);
      info.initial = initial;
      info.decay = decay;
      all.push_back(std::move(info));
    };
    if (options_.network) {
      const std::int64_t rows = options_.control == Control::Mixing ? heads_ * planes_ : heads_;
      std::vector<std::int64_t> up = {inner, rows}, down = {rows, inner};
      if (options_.control == Control::Frame) up.insert(up.begin(), 2), down.insert(down.begin(), 2);
      add(".up_proj", up, zero, true);
      add(".x_proj", {inner, width}, normal, true);
      add(".down_proj", down, normal, true);
    }
    if (options_.post == Post::Scalar) add(".post_attention", {heads_}, zero, false);
    if (options_.post == Post::RowSum || options_.post == Post::HeadMix)
      add(".post_attention", {heads_, heads_}, zero, false);
    return all;
  }

  std::vector<Move> moves(const Question& question, Role role) const override {
    std::vector<Move> all;
    if (widens()) all.push_back(Widen{all_heads()});
    const at::Tensor state = state_of(question, role);
    const Planes shape = shape_;
    const std::int64_t columns = state.size(3) / planes_;
    if (columns == 2) {
      Planes planes = shape;
      planes.cosine = state.narrow(3, 0, planes_);
      planes.sine = state.narrow(3, planes_, planes_);
      all.push_back(std::move(planes));
    } else {
      PairBlocks pairs;
      pairs.heads = all_heads();
      pairs.layout = shape.layout;
      pairs.offset = shape.offset;
      pairs.width = shape.width;
      pairs.blocks = shape.blocks;
      pairs.block = state.unflatten(3, {planes_, 2, columns / 2});
      all.push_back(std::move(pairs));
    }
    return all;
  }

  double softmax_factor() const override { return operand_->softmax_factor(); }
  std::vector<LogitScale> logit_scales(const Question& question) const override {
    return operand_->logit_scales(question);
  }

  std::optional<Carried> carried(const Question& question) const override {
    if (options_.post == Post::None || !updates(question)) return std::nullopt;
    return Carried{state_of(question, Role::Key)};
  }

  at::Tensor after_layer(const Question& question, const at::Tensor& averages,
                         const at::Tensor& mlp_output) const override {
    if (!updates(question)) return {};
    const std::int64_t batch = mlp_output.size(0), tokens = mlp_output.size(1);
    at::Tensor state = state_of(question, Role::Query);
    state = state.expand({batch, heads_, tokens, state.size(3)});
    if (options_.post != Post::None) state = state + post(question, averages);
    if (options_.network) {
      const at::Tensor x_proj = trained(question, prefix_ + ".x_proj");
      const at::Tensor gate = of_tokens(mlp_output.to(state.scalar_type()),
                                        [&](const at::Tensor& m) { return at::silu(at::linear(m, x_proj)); });
      state = network(question, state, gate);
    }
    return options_.clip > 0 ? clipped(state) : state;
  }

  CacheContract cache(std::int64_t layer) const override {
    CacheContract contract;
    if (widens() || options_.block != 2 || operand_->cache(layer).key == CacheContract::Key::Raw)
      contract.key = CacheContract::Key::Raw;
    const bool last = layer + 1 >= dimensions_.layers;
    if (layer > options_.from_layer && (!last || contract.key == CacheContract::Key::Raw))
      contract.kept = {kept_name()};
    contract.shift =
        "the states of tokens have mixed: moving all tokens of a row alike changes no logit, moving some does not "
        "exist";
    contract.evict = "exact";
    contract.note = contract.key == CacheContract::Key::Rotated
                        ? "turned keys, values and states make the next token exact"
                    : widens() ? "with gqa=shared, or a key head a query head, keys would be kept turned"
                               : "keys are kept unturned and turned at each read by the kept states";
    return contract;
  }

  NamedTensors arrive(const Question& question, NamedTensors&) const override {
    // Nothing need be kept of states that follow from the positions, nor in a layer where nobody reads them again.
    const bool turned_later = cache(question.layer).key == CacheContract::Key::Raw;
    if (!question.state.defined() || (!turned_later && !updates(question))) return {};
    if (!turned_later && options_.post == Post::None) return {};
    return {{kept_name(), checked(question.state, answer_type(question))}};
  }

  double define_product(const PlainPair& pair, const PlainParameters& parameters) const override {
    return operand_->define_product(pair, parameters);
  }
  std::optional<RotationInfo> rotation(double length, const PlainParameters& parameters) const override {
    return operand_->rotation(length, parameters);
  }
  bool frequencies_change(double from, double to) const override { return operand_->frequencies_change(from, to); }
  std::vector<std::string> content() const override {
    return {str("position state (B, ", heads_, ", T, ", options_.block * planes_ * (options_.block > 2 ? 2 : 1),
                "), updated after every layer but the last")};
  }

 private:
  std::string kept_name() const { return prefix_ + ".state"; }
  bool widens() const { return !options_.shared && dimensions_.kv_heads != dimensions_.heads; }
  /// Whether the layer of the question changes the state and somebody reads it afterwards.
  bool updates(const Question& question) const {
    return question.layer >= options_.from_layer && question.layer + 1 < question.layers &&
           (options_.network || options_.post != Post::None);
  }

  Question probe_question() const {
    Question question;
    question.q = at::zeros({1, dimensions_.heads, 0, dimensions_.head_dim});
    question.k = at::zeros({1, dimensions_.kv_heads, 0, dimensions_.head_dim});
    question.query.positions = question.key.positions =
        at::zeros({1, 0, operand_->traits().axes}, at::TensorOptions(at::kDouble));
    return question;
  }

  /// The operand's planes for the tokens of one side. Throws UsageError where it moves q and k by anything else.
  Planes planes_at(Role role, const Question& question) {
    NamedTensors first;
    Question asking = question;
    for (const ParameterInfo& info : operand_->parameters(0)) first[info.name] = at::zeros(info.shape);
    asking.parameters = &first;
    const std::vector<Move> moves = operand_->moves(asking, role);
    const Planes* planes = moves.size() == 1 ? std::get_if<Planes>(&moves.front()) : nullptr;
    if (!planes || planes->width == 0 || !operand_->decays().empty())
      throw UsageError(
          "tape: a position state starts as the cosines and sines of planes; its operand must be a rotation by them "
          "and nothing else");
    shape_ = *planes;
    shape_.cosine = shape_.sine = at::Tensor();
    return *planes;
  }

  /// Of tokens that no layer has touched, (B|1, 1 or Hs, T, 2F) or the blocks that hold the same.
  at::Tensor initial(const Question& question, Role role) const {
    Question asking = question;  // queries ask about keys without bringing any: the type of the tables is that of q
    if (!asking.k.defined()) asking.k = asking.q;
    const std::vector<Move> moves = operand_->moves(asking, role);
    const Planes& planes = std::get<Planes>(moves.front());
    at::Tensor cosine = planes.cosine, sine = planes.sine;
    if (options_.block != 2) {
      const at::Tensor none = at::zeros_like(cosine);
      std::vector<at::Tensor> upper = {cosine, sine}, lower = {sine.neg(), cosine};
      upper.resize(static_cast<std::size_t>(options_.block), none);
      lower.resize(static_cast<std::size_t>(options_.block), none);
      cosine = at::stack({at::stack(upper, -1), at::stack(lower, -1)}, -2).flatten(-3);
    } else {
      cosine = at::cat({cosine, sine}, 3);
    }
    // The operand's tables are those of key heads.
    return cosine.size(1) == 1 || cosine.size(1) == heads_ ? cosine : cosine.repeat_interleave(group(), 1);
  }

  at::Tensor checked(const at::Tensor& state, at::ScalarType type) const {
    const std::int64_t least = options_.block == 2 ? 2 * planes_ : 2 * planes_ * options_.block;
    // What tells cosines from sines, or one plane from another, has no meaning for blocks.
    const bool blocks_too = options_.block == 2 && options_.control == Control::None;
    const bool fits = state.dim() == 4 && state.size(1) == heads_ &&
                      (state.size(3) == least || (blocks_too && state.size(3) == 4 * planes_));
    if (!fits)
      throw Error(str(prefix_, ": the position state must have shape (batch, ", heads_, ", tokens, ", least,
                      blocks_too ? str(" or ", 4 * planes_) : std::string(), "), found ", state.sizes()));
    return state.to(type);
  }

  /// Role::Key: of all keys of the question. Role::Query: of the queries' own tokens.
  at::Tensor state_of(const Question& question, Role role) const {
    const at::ScalarType type = answer_type(question);
    if (role == Role::Key && question.kept) {
      const auto found = question.kept->find(kept_name());
      if (found != question.kept->end()) return found->second.to(type);
    }
    // While tokens arrive, the state of the question is that of the keys.
    const bool own = role == Role::Query || question.key.tokens() == question.query.tokens();
    if (question.state.defined() && own) return checked(question.state, type);
    return initial(question, role).to(type);
  }

  at::Tensor post(const Question& question, const at::Tensor& averages) const {
    if (!averages.defined()) throw Error(str(prefix_, ": the averages of the position states are missing"));
    const at::Tensor weight = trained(question, prefix_ + ".post_attention");
    const at::Tensor y =
        heads_ == averages.size(1) ? averages : averages.unflatten(1, {heads_, averages.size(1) / heads_}).mean(2);
    if (options_.post == Post::HeadMix) return at::einsum("he,betw->bhtw", {weight, y});
    const at::Tensor factor = options_.post == Post::RowSum ? weight.sum(1) : weight;
    return factor.view({1, heads_, 1, 1}) * y;
  }

  at::Tensor network(const Question& question, const at::Tensor& state, const at::Tensor& gate) const {
    const at::Tensor up = trained(question, prefix_ + ".up_proj"), down = trained(question, prefix_ + ".down_proj");
    switch (options_.control) {
      case Control::None:
        return position_network(state, gate, up, down);
      case Control::Frame: {
        const auto half = [&](std::int64_t which) {
          return position_network(state.narrow(3, which * planes_, planes_), gate, up[which], down[which]);
        };
        return at::cat({half(0), half(1)}, 3);
      }
      case Control::Mixing: {
        // Heads and planes together are the axis that is mixed.
        const std::int64_t batch = state.size(0), tokens = state.size(2);
        const at::Tensor joint =
            state.unflatten(3, {2, planes_}).permute({0, 1, 4, 2, 3}).reshape({batch, heads_ * planes_, tokens, 2});
        const at::Tensor inner = at::einsum("ir,brtw->bitw", {up, joint}) * gate.transpose(1, 2).unsqueeze(3);
        const at::Tensor mixed = joint + at::einsum("ri,bitw->brtw", {down, inner});
        return mixed.unflatten(1, {heads_, planes_}).permute({0, 1, 3, 4, 2}).reshape(state.sizes());
      }
    }
    return state;
  }

  /// z / max(1, r / clip) with r the root of the planes' mean |z|^2: the same factor for all planes of a token and
  /// head, so it commutes with every rotation, and 1 where nothing has grown.
  at::Tensor clipped(const at::Tensor& state) const {
    // A block holds |z|^2 in each of its two rows.
    const double numbers = static_cast<double>(state.size(3) == 2 * planes_ ? planes_ : 2 * planes_);
    const at::Tensor r = (state.square().sum(3, true) / numbers).sqrt();
    return state / (r / options_.clip).clamp_min(1);
  }

  std::string prefix_;
  std::unique_ptr<Encoding> operand_;
  TapeOptions options_;
  std::int64_t heads_ = 1;   ///< Hs
  std::int64_t planes_ = 0;  ///< F
  Planes shape_;             ///< where the planes lie; no tables
};

TapeOptions read_options(const MakeRequest& request) {
  const Settings& settings = request.settings;
  TapeOptions options;
  const std::string &post = settings.word("post"), &control = settings.word("control");
  options.post = post == "rowsum"    ? Post::RowSum
                 : post == "headmix" ? Post::HeadMix
                 : post == "scalar"  ? Post::Scalar
                                     : Post::None;
  if (!settings.boolean("attention")) {
    if (settings.given("post") && options.post != Post::None)
      throw UsageError(str("tape: attention=false takes no post=", post, ", nothing is averaged"));
    options.post = Post::None;
  }
  options.network = settings.boolean("mlp");
  options.shared = settings.word("gqa") == "shared";
  options.inner = settings.integer("width") > 0 ? settings.integer("width") : 4 * request.dimensions.heads;
  options.block = settings.integer("block");
  options.from_layer = settings.integer("from_layer");
  options.clip = settings.number("clip");
  if (options.clip > 0 && options.clip < 1)
    throw UsageError(
        str("tape: clip is 0 (off) or at least 1, the size of a state that nothing has changed; found ", options.clip));
  options.control = control == "mixing" ? Control::Mixing : control == "frame" ? Control::Frame : Control::None;
  if (!options.network && settings.integer("width") > 0)
    throw UsageError("tape: width= is that of the position network, which mlp=false leaves out");
  const std::int64_t layers = request.dimensions.layers;
  if (layers > 1 && options.from_layer >= layers)
    throw UsageError(str("tape: from_layer=", options.from_layer, " lies beyond the model's ", layers,
                         " layers: no state would ever change"));
  if (options.control != Control::None && !options.network)
    throw UsageError(str("tape: control=", control, " changes the position network, which mlp=false leaves out"));
  if (options.control != Control::None && options.block != 2)
    throw UsageError(str("tape: control=", control, " is for block=2"));
  return options;
}

}  // namespace

NameInfo tape_name() {
  NameInfo info;
  info.name = "tape";
  info.summary = "lets positions evolve from layer to layer with the content";
  info.formula =
      "q, k turn by z_i; z' = z1 + Dn (silu(Xp m) * (Up z1)), z1 = z + post(sum_j A_ij z_j); z starts as E's";
  info.source = "Zhu et al. 2025, arXiv:2501.00712, and its released code (adape)";
  info.page = "tape";
  info.operand = Operand::Rotary;
  info.keys = {
      {.name = "post",
       .type = KeyInfo::Type::Word,
       .fallback = std::string("rowsum"),
       .about = "what becomes of the averaged states: a number a head (rowsum, scalar), a head mixture, nothing",
       .words = {"rowsum", "headmix", "scalar", "none"}},
      {.name = "width",
       .type = KeyInfo::Type::Integer,
       .fallback = 0.0,
       .about = "inner width I of the position network; 0 = four times the query heads",
       .low = 0,
       .high = 65536},
      {.name = "mlp",
       .type = KeyInfo::Type::Boolean,
       .fallback = true,
       .about = "whether the position network is there"},
      {.name = "attention",
       .type = KeyInfo::Type::Boolean,
       .fallback = true,
       .about = "whether attention averages the states; false is post=none"},
      {.name = "block",
       .type = KeyInfo::Type::Integer,
       .fallback = 2.0,
       .about = "numbers R that a plane's pair of channels becomes",
       .low = 2,
       .high = 64},
      {.name = "from_layer",
       .type = KeyInfo::Type::Integer,
       .fallback = 0.0,
       .about = "first layer that changes the states",
       .low = 0},
      {.name = "gqa",
       .type = KeyInfo::Type::Word,
       .fallback = std::string("expand"),
       .about = "with fewer key heads: a state a query head (expand) or a key head (shared)",
       .words = {"expand", "shared"}},
      {.name = "clip",
       .type = KeyInfo::Type::Number,
       .fallback = 0.0,
       .about = "largest root mean square of a head's state, 1 or more; 0 = no limit",
       .low = 0},
      {.name = "control",
       .type = KeyInfo::Type::Word,
       .fallback = std::string("none"),
       .about = "breaks an equivariance on purpose: planes mixed, or cosines and sines apart",
       .words = {"none", "mixing", "frame"}},
  };
  info.make = [](MakeRequest& request) -> std::unique_ptr<Encoding> {
    return std::make_unique<Tape>(request.dimensions, request.prefix, std::move(request.operands.front()),
                                  read_options(request));
  };
  return info;
}

}  // namespace torsor

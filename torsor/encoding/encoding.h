// The contract of an encoding: a value that answers six questions, asked layer by layer.
//
//   1  what is added to the token embedding?              embedding()
//   2  how do q and k move?                               moves(), decays()
//   3  what scales the logit?                             softmax_factor(), logit_scales()
//   4  what is added to the logit?                        biases()
//   5  what does attention carry along, what becomes of it?   carried(), after_layer(), after_attention()
//   6  what must a KV cache keep?                         cache(), arrive()
//
// docs/contract.md holds the reasons, and the contract tried on paper against every planned encoding.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "torsor/encoding/dimensions.h"
#include "torsor/encoding/expression.h"
#include "torsor/encoding/forms.h"

namespace torsor {

/// The encoding does not allow what was asked, and says why: an answer, not a fault (a learned table past its last
/// row).
class Refusal : public Error {
 public:
  using Error::Error;
};

using NamedTensors = std::map<std::string, at::Tensor>;

/// How a trained tensor starts.
struct Initial {
  enum class Kind { Constant, Uniform, Normal, Values };
  Kind kind = Kind::Constant;
  double a = 0;                ///< constant; lower end; mean
  double b = 0;                ///< upper end; standard deviation
  std::vector<double> values;  ///< row-major, for Values
};

/// One trained tensor. Its name is NAME.TENSOR (`t5.table`).
struct ParameterInfo {
  std::string name;
  std::vector<std::int64_t> shape;
  Initial initial;
  bool shared = false;  ///< one tensor for all layers instead of one a layer
  bool decay = false;   ///< weight decay applies by default (positional scalars are exempt, decisions.md 3)
  /// Further shapes that are taken as well as `shape` (rope's log_freq: one row, or one a key head).
  std::vector<std::vector<std::int64_t>> also = {};
};

/// The tokens of one side of a call.
struct Side {
  at::Tensor positions;  ///< (B, T, axes) float64
  at::Tensor documents;  ///< (B, T) int64, -1 = padding; undefined = one document, no padding
  at::Tensor lengths;    ///< (B) int64, tokens that exist in each row; undefined = all. Keys and arriving tokens only
  std::int64_t tokens() const { return positions.size(1); }
};

/// Everything that a question may read. Tensors that were not given are undefined.
///
/// arrive() and moves(Role::Key) are asked about tokens that arrive: `query` and `key` are both their side, and x, k,
/// v, named and state are theirs; q is too where the call brings a query of every one of them, else it is undefined.
/// Every other question is asked about queries: x, q, named and state are those of the queries, and what was said of
/// the keys is read from `kept`. A call without a cache asks both in turn.
struct Question {
  const NamedTensors* parameters = nullptr;  ///< this layer's trained tensors
  std::int64_t layer = 0;
  std::int64_t layers = 1;
  at::Tensor x;        ///< (B, T, C) the block's normalised input
  at::Tensor q, k, v;  ///< (B, H, T, D) after QK-norm, before any move
  Side query, key;     ///< key: every key of the call, cached ones included
  at::Tensor
      offsets;  ///< (B) int64, index of a row's first query among its tokens; undefined = length - Tq. own_tokens.h
  double scale = 1;  ///< the factor on q.k of this call, softmax factor included, before logit_scales()
  bool causal = true;
  const NamedTensors* named =
      nullptr;  ///< per-token inputs that the encoding declared (tags, sentence ids, links), (B, T, ...)
  const NamedTensors* kept = nullptr;  ///< what arrive() answered, for every key of the call
  at::Tensor state;                    ///< (B, Hs, T, 2F) the position state that enters the layer (TAPE)
};

/// What a KV cache must keep so that step == full.
struct CacheContract {
  /// Rotated: the key as moved at arrival, final. Raw: the key before any move, moved again at each read, because its
  /// move depends on tokens that come later (frequencies that depend on the length).
  enum class Key { Rotated, Raw } key = Key::Rotated;
  std::vector<std::string> kept;  ///< names of the tensors that arrive() gives, one value a token
  std::string shift;              ///< "exact" or why not
  std::string evict;              ///< of any tokens, sinks kept before them: "exact" or why not
  std::string evict_oldest = {};  ///< of a row's oldest tokens alone: "exact" or why not; empty = as `evict`
  std::string note;               ///< what the user must know

  /// What there is to say of dropping a row's oldest tokens.
  const std::string& oldest() const { return evict_oldest.empty() ? evict : evict_oldest; }
  /// Whether an answer allows the operation; one that was left out does.
  static bool exact(const std::string& answer) { return answer.empty() || answer == "exact"; }
};

/// What an encoding is and needs, for documentation and checks.
struct Traits {
  bool rotates = false;            ///< answers question 2 with planes
  bool absolute = false;           ///< answers question 1
  bool relative = true;            ///< unchanged when all positions move by the same amount
  bool length_dependent = false;   ///< frequencies depend on the length of the sequence
  bool content = false;            ///< reads q, k, v or x
  bool carries = false;            ///< answers question 5: a position state goes from layer to layer
  bool averages = false;           ///< answers question 5: averages become a part of the attention output
  bool leaks = false;              ///< its per-token inputs tell a token of later ones (a parse of whole sentences)
  bool warm_start = false;         ///< with its first values it answers what without_inputs() answers
  bool monotone = false;           ///< where tokens bring equal inputs, what falls with the distance still does
  std::int64_t axes = 1;           ///< axes that the positions must have
  std::int64_t moved_width = 0;    ///< channels of a head after the moves, where they are others; 0 = head_dim
  std::string whole;               ///< why it cannot be a part of a head mixture; empty = it can
  std::vector<std::string> forms;  ///< bias forms that it lowers to
};

/// Plain float64 values of trained tensors, for the definitions.
using PlainParameters = std::map<std::string, std::vector<double>>;

/// What the tokens of one row bring beside their contents (Question::named) in plain numbers, for the definitions.
struct PlainInputs {
  std::int64_t tokens = 0;
  std::vector<bool> exists;                           ///< (tokens) false = padding, or past the row's length
  std::map<std::string, std::vector<double>> values;  ///< (tokens, ...) each
};

/// One query-key pair in plain numbers, for the definitions.
struct PlainPair {
  const double* q = nullptr;  ///< head_dim values before any move
  const double* k = nullptr;
  const double* pq = nullptr;  ///< axes values
  const double* pk = nullptr;
  std::int64_t head = 0;  ///< query head (inside the encoding's own range)
  std::int64_t layer = 0;
  double length = 0;  ///< T of the document: its largest key position + 1
  double scale = 1;
  bool causal = true;
  const PlainInputs* inputs = nullptr;  ///< of the row; nullptr where the encoding declares none
  std::int64_t query_token = 0;         ///< the query's own token and the key in the row
  std::int64_t key_token = 0;
};

/// One token for define_embedding().
struct PlainToken {
  double position = 0;                  ///< axis 0
  const double* x = nullptr;            ///< width values of its embedding; nullptr where nobody reads it
  const PlainInputs* inputs = nullptr;  ///< of its row, and its place in it
  std::int64_t index = 0;
};

/// A query and the tokens that it sees in plain numbers, for definitions that run over tokens.
struct PlainTokens {
  struct Token {
    const double* x = nullptr;  ///< width values of the block's input
    const double* q = nullptr;  ///< head_dim values before any move; nullptr where the token has no query
    const double* k = nullptr;  ///< of the key head that the query head reads
    const double* v = nullptr;
    double position = 0;  ///< axis 0
  };
  Token own;                ///< the query's own token
  std::vector<Token> seen;  ///< in token order
  std::int64_t value_dim = 0;
  std::int64_t head = 0;  ///< query head (inside the encoding's own range)
  std::int64_t layer = 0;
  double scale = 1;  ///< what define_product() was multiplied with in the logits, the query's factor included
};

/// The turning of a rotary encoding in numbers (docs, `torsor values`, conversions, TAPE's initial state).
struct RotationInfo {
  Layout layout = Layout::Half;
  std::int64_t offset = 0, width = 0, blocks = 1;  ///< as in Planes
  std::vector<std::vector<double>> inv_freq;       ///< [1 or key heads][planes], radians per position
  std::vector<std::int64_t> axis;                  ///< position axis of each plane
  double magnitude = 1;                            ///< multiplies cos and sin of q and of k
};

class Encoding {
 public:
  explicit Encoding(Dimensions dimensions) : dimensions_(dimensions) {}
  virtual ~Encoding() = default;

  const Dimensions& dimensions() const { return dimensions_; }
  /// The canonical expression that make_encoding() was given; empty for the parts of one.
  const std::string& expression() const { return expression_; }
  void set_expression(std::string expression) { expression_ = std::move(expression); }
  std::int64_t group() const { return dimensions_.heads / dimensions_.kv_heads; }
  HeadRange all_heads() const { return {0, dimensions_.heads}; }

  virtual Traits traits() const = 0;
  /// After how many layers a pattern over the layers repeats; 1 = every layer is alike.
  virtual std::int64_t period() const { return 1; }
  /// The encoding of one layer. Questions are asked of the result; only embedding() is asked of the whole.
  /// A null answer means "this one".
  virtual std::shared_ptr<const Encoding> at_layer(std::int64_t /*layer*/) const { return nullptr; }
  /// Trained tensors of a layer. `shared` ones are listed for every layer that reads them.
  virtual std::vector<ParameterInfo> parameters(std::int64_t /*layer*/) const { return {}; }
  /// Names of the per-token inputs that questions read from `named`.
  virtual std::vector<std::string> inputs() const { return {}; }
  /// What is left where no token brings any of the inputs(), with a part of the same trained tensors; null = nothing
  /// is known of it.
  virtual std::shared_ptr<const Encoding> without_inputs() const { return nullptr; }

  /// 1. (B, T, C), added to the token embedding `x` (B, T, C), which may be undefined where nobody reads it; undefined
  /// = nothing. `named` holds the inputs() of the tokens. Throws when a position has no vector.
  virtual at::Tensor embedding(const Side& /*tokens*/, const NamedTensors& /*parameters*/,
                               const NamedTensors& /*named*/ = {}, const at::Tensor& /*x*/ = {}) const {
    return {};
  }

  /// 1b. The same, (B, T, C), added to the residual stream where the first layer's attention joins it, so that this
  /// attention does not read it yet; undefined = nothing. Asked where 1 is.
  virtual at::Tensor behind_attention(const Side& /*tokens*/, const NamedTensors& /*parameters*/,
                                      const NamedTensors& /*named*/ = {}) const {
    return {};
  }

  /// 2. Moves of one side, in order. For Role::Key the answer is for question.key's tokens, for Role::Query for
  /// question.query's. When the cache contract keeps rotated keys, a key's move may read its own token only.
  virtual std::vector<Move> moves(const Question& /*question*/, Role /*role*/) const { return {}; }
  /// 2b. Magnitudes that depend on the distance only, applied tile by tile.
  virtual std::vector<Decay> decays() const { return {}; }

  /// 3. Factor on the default scale 1/sqrt(head_dim); ignored when the caller gives a scale.
  virtual double softmax_factor() const { return 1; }
  /// The same for each query head, where a head mixture gives its heads different ones.
  virtual std::vector<double> softmax_factors() const {
    return std::vector<double>(static_cast<std::size_t>(dimensions_.heads), softmax_factor());
  }
  virtual std::vector<LogitScale> logit_scales(const Question&) const { return {}; }

  /// 4. The sum of these is added to the logit.
  virtual std::vector<BiasForm> biases(const Question&) const { return {}; }

  /// 5. Values that attention averages along, and the state after the layer (run after the MLP).
  virtual std::optional<Carried> carried(const Question&) const { return std::nullopt; }
  /// `averages` (B, Hq, T, Dw) of the carried values, undefined where nothing was carried; `mlp_output` (B, T, C)
  /// before it is added to the residual stream. The question is about all tokens of the call and brings its state,
  /// query. positions and the parameters. Returns the next state; undefined = it stays as it is.
  virtual at::Tensor after_layer(const Question&, const at::Tensor& /*averages*/,
                                 const at::Tensor& /*mlp_output*/) const {
    return {};
  }

  /// What the averages (B, Hq, Tq, Dw) of the carried values add to the attention output (B, Hq, Tq, Dv), before it is
  /// projected; undefined = nothing. Asked about the queries, where traits().averages says so.
  virtual at::Tensor after_attention(const Question&, const at::Tensor& /*averages*/) const { return {}; }

  /// 6. What a cache keeps of a layer, and what it can do.
  virtual CacheContract cache(std::int64_t /*layer*/) const { return {}; }
  /// Per-token tensors, token axis 2 (B, heads, tokens, ...), of the arriving tokens, which later questions read back
  /// under `kept`: moves(Role::Key) for the same tokens, the others for every key of the call. `state` is the
  /// encoding's own running float64 state of each row (running sums), read and advanced here by new tensors, never in
  /// place. Padding (document -1) and tokens past key.lengths are not there: they add nothing to a running sum.
  virtual NamedTensors arrive(const Question&, NamedTensors& /*state*/) const { return {}; }
  /// The running state after the tokens of `tokens` alone (positions, documents, lengths of the cache's rows) had
  /// arrived, made from what was kept of them, (B, heads, T, ...): newer ones were dropped. A name that is missing
  /// cannot be made, and the cache refuses to go back.
  virtual NamedTensors rewind(const Side& /*tokens*/, const NamedTensors& /*kept*/) const { return {}; }
  /// What turns the key of a token that was moved at its position into the one of position + `offsets` (B|1, T, axes)
  /// float64: rotations alone, since the key already carries every magnitude. The question brings the trained tensors
  /// and, as k, the dtype. Asked only where cache() calls a shift exact and keys are kept moved. Empty = moves of keys
  /// read no position.
  virtual std::vector<Move> shift_moves(const Question& /*question*/, const at::Tensor& /*offsets*/) const {
    return {};
  }
  /// What arrive() would have kept had every token stood at its position plus `offsets` (B|1, T) float64, axis 0. Asked
  /// only where cache() calls a shift exact. The default leaves what does not depend on positions.
  virtual NamedTensors shift_kept(const NamedTensors& kept, const at::Tensor& /*offsets*/) const { return kept; }

  // The definition in plain float64: what the encoding means. It shares no table, bucket or cos/sin with the answers
  // above. logit = scale * query_factor * product + bias, then define_path and define_row on the visible logits of a
  // query.

  /// What is added to channel `channel` of the embedding of a token at `position`.
  virtual double define_embedding(double /*position*/, std::int64_t /*channel*/, const PlainParameters&) const {
    return 0;
  }
  /// The same of a token with its inputs.
  virtual double define_token_embedding(const PlainToken& token, std::int64_t channel,
                                        const PlainParameters& parameters) const {
    return define_embedding(token.position, channel, parameters);
  }
  /// The moved product of q and k (Transformer-XL's terms included), without the scale.
  virtual double define_product(const PlainPair& pair, const PlainParameters&) const;
  virtual double define_query_factor(const double* /*pq*/, std::int64_t /*head*/, std::int64_t /*layer*/) const {
    return 1;
  }
  virtual double define_bias(const PlainPair&, const PlainParameters&) const { return 0; }
  /// What is added to channel `channel` of the value of the key.
  virtual double define_value(const PlainPair&, std::int64_t /*channel*/, const PlainParameters&) const { return 0; }
  /// Adds what depends on the tokens between key and query to the `logits` of tokens.seen.
  virtual void define_path(std::vector<double>& /*logits*/, const PlainTokens& /*tokens*/,
                           const PlainParameters&) const {}
  /// `logits` of one query's visible keys, nearest key last; `q` before any move.
  virtual void define_row(std::vector<double>& /*logits*/, const double* /*q*/, std::int64_t /*head*/,
                          std::int64_t /*layer*/, const PlainParameters&) const {}

  // Numbers for people and for `torsor values`.

  /// The rotation for a document of T tokens; nothing when the encoding does not rotate or its frequencies are trained
  /// and not in `parameters`.
  virtual std::optional<RotationInfo> rotation(double /*length*/, const PlainParameters&) const { return std::nullopt; }
  /// Whether anything that the encoding answers for a token differs between documents of two lengths.
  virtual bool frequencies_change(double from, double to) const;
  /// ALiBi-like slopes a head; empty when there are none.
  virtual std::vector<double> slopes() const { return {}; }
  /// The bucket of each distance n = p_q - p_k; empty when there are none.
  virtual std::vector<std::int64_t> buckets(const std::vector<double>& /*distances*/) const { return {}; }

  /// Described contents for `torsor values` ("gates (B, H, T, T)"); empty when nothing depends on content.
  virtual std::vector<std::string> content() const { return {}; }

 protected:
  Dimensions dimensions_;

 private:
  std::string expression_;
};

}  // namespace torsor

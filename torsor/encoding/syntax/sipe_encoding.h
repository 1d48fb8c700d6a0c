// The encoding behind `sipe`. Part of sipe.cpp, for it alone.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "torsor/encoding/syntax/sipe_options.h"
#include "torsor/encoding/syntax/syntax_tokens.h"

namespace torsor {

class Sipe : public Encoding {
 public:
  /// Throws UsageError where the encoding inside moves q and k by more than the planes that a coupling turns again.
  Sipe(const Dimensions& dimensions, std::string prefix, std::shared_ptr<const Encoding> operand,
       const SipeOptions& options, std::vector<std::vector<double>> plane_frequency);

  Traits traits() const override;
  std::vector<ParameterInfo> parameters(std::int64_t layer) const override;
  std::vector<std::string> inputs() const override;
  std::shared_ptr<const Encoding> without_inputs() const override { return operand_; }

  at::Tensor embedding(const Side& tokens, const NamedTensors& parameters, const NamedTensors& named,
                       const at::Tensor& x) const override;
  at::Tensor behind_attention(const Side& tokens, const NamedTensors& parameters,
                              const NamedTensors& named) const override;
  std::vector<Move> moves(const Question& question, Role role) const override;
  std::vector<Decay> decays() const override { return operand_->decays(); }
  double softmax_factor() const override { return operand_->softmax_factor(); }
  std::vector<LogitScale> logit_scales(const Question& question) const override {
    return operand_->logit_scales(question);
  }
  std::vector<BiasForm> biases(const Question& question) const override;
  std::optional<Carried> carried(const Question& question) const override;
  at::Tensor after_attention(const Question& question, const at::Tensor& averages) const override;

  CacheContract cache(std::int64_t layer) const override;
  NamedTensors arrive(const Question& question, NamedTensors& state) const override;
  NamedTensors rewind(const Side& tokens, const NamedTensors& kept) const override;
  std::vector<Move> shift_moves(const Question& question, const at::Tensor& offsets) const override {
    return operand_->shift_moves(question, offsets);
  }
  NamedTensors shift_kept(const NamedTensors& kept, const at::Tensor& offsets) const override {
    return operand_->shift_kept(kept, offsets);
  }

  double define_token_embedding(const PlainToken& token, std::int64_t channel,
                                const PlainParameters& parameters) const override;
  double define_product(const PlainPair& pair, const PlainParameters& parameters) const override;
  double define_query_factor(const double* pq, std::int64_t head, std::int64_t layer) const override {
    return operand_->define_query_factor(pq, head, layer);
  }
  double define_bias(const PlainPair& pair, const PlainParameters& parameters) const override;
  double define_value(const PlainPair& pair, std::int64_t channel, const PlainParameters& parameters) const override;

  std::optional<RotationInfo> rotation(double length, const PlainParameters& parameters) const override {
    return operand_->rotation(length, parameters);
  }
  bool frequencies_change(double from, double to) const override { return operand_->frequencies_change(from, to); }
  std::vector<double> slopes() const override { return operand_->slopes(); }
  std::vector<std::int64_t> buckets(const std::vector<double>& distances) const override {
    return operand_->buckets(distances);
  }
  std::vector<std::string> content() const override;

 private:
  std::string name_of(const char* tensor) const { return str(prefix_, ".", tensor); }
  /// Width d of s.
  std::int64_t width() const { return options_.prior == SipePrior::Fsyn ? kSyntaxVectorWidth : dimensions_.width; }
  bool acts_in(std::int64_t layer) const {
    return options_.mode != SipeMode::None && layer + 1 >= options_.inject_from &&
           (options_.bias || options_.coupling != SipeOptions::Coupling::None);
  }
  bool keeps(std::int64_t layer) const;
  /// Whether its factor is computed on the reference path alone.
  bool has_slow_factor() const;
  bool steps_back(const Question& question) const;
  void find_planes();

  bool reads_tags() const {
    return options_.prior == SipePrior::Hexatags && options_.labels != SipeOptions::Labels::Only;
  }
  SyntaxTokens tokens_of(const Question& question, Role role) const;
  /// s as it meets the token embedding, (B, T, C), zeros without syntax; `valid` (B, T) is where there is some.
  at::Tensor input_vectors(const Side& tokens, const NamedTensors& parameters, const NamedTensors& named,
                           at::Tensor& valid) const;
  /// s of every pair of tags, (18, d), row 0 zeros; nothing with fsyn.
  at::Tensor table(const at::Tensor& tau, const at::Tensor& nu) const;
  at::Tensor table(const Question& question) const;
  /// weight (n, d) times s: of tokens (B, T, n), or of what `features` tells tokens apart by, (18 or 64, n).
  at::Tensor project(const Question& question, const at::Tensor& weight, const SyntaxTokens& tokens) const;
  at::Tensor by_feature(const Question& question, const at::Tensor& weight) const;
  /// (B, 1, T, 18 or 64): one where the tag is, or s itself.
  at::Tensor features(const SyntaxTokens& tokens, at::ScalarType type) const;
  /// (q + v) W_E / sqrt(D) by feature, (B, H, Tq, 18 or 64).
  at::Tensor alignment(const Question& question) const;
  /// factor(z) - 1 for every two pairs of tags, (18, 18).
  at::Tensor pair_table(const Question& question) const;
  at::Tensor shaped(const Question& question, const at::Tensor& z) const;
  at::Tensor beta(const Question& question) const;
  FactorForm factor(const Question& question) const;
  void set_groups(FactorForm& form, const SyntaxTokens& query, const SyntaxTokens& key) const;
  void list_pairs(const Question& question, const SyntaxTokens& query, const SyntaxTokens& key, FactorForm& form) const;
  BiasForm stretch(const Question& question) const;

  // Of the definition (sipe_define.cpp).
  std::vector<double> define_s(const PlainInputs& inputs, std::int64_t token, const PlainParameters& parameters) const;
  double define_alignment(const PlainPair& pair, const PlainParameters& parameters) const;
  double define_factor(const PlainPair& pair, const PlainParameters& parameters) const;
  bool define_near(const PlainPair& pair) const;
  double define_beta(const PlainParameters& parameters) const;

  std::string prefix_;
  std::shared_ptr<const Encoding> operand_;
  SipeOptions options_;
  SyntaxReader reader_;
  std::string v_name_;                                ///< txl's v; empty with other encodings inside
  Planes planes_;                                     ///< where the planes of the encoding inside lie; no tables
  std::vector<std::vector<double>> plane_frequency_;  ///< [1 or key heads][planes] unscaled, for bound=warp
};

/// Hidden units of the mlp couplings: the width of an embedder's s.
inline constexpr std::int64_t kSipeHidden = kSyntaxVectorWidth;
/// Most keys of coupling=pair, whose cost is a number a pair and plane.
inline constexpr std::int64_t kMostPairKeys = 256;
/// Positions that a plane moves by at most with bound=warp, times beta.
inline constexpr double kWarpPositions = 4;
/// Largest beta of factor=bounded.
inline constexpr double kBoundedBeta = 0.9;

}  // namespace torsor

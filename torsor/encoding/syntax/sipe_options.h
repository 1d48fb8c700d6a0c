// The keys of `sipe`, resolved against the encoding inside.
#pragma once

#include <cstdint>
#include <string>

#include "torsor/encoding/syntax/sipe.h"

namespace torsor {

/// What the encoding inside is to sipe: a term of the logit, planes that turn, or neither.
enum class SipeOperand { Term, Rotation, Placeless };

struct SipeOptions {
  enum class Coupling { None, TagAlign, Bilinear, Mlp, Additive, Rotation, Pair, Prerot };
  enum class Factor { Linear, Bounded, Exp, Clamp };
  enum class Fuse { Add, Mix, Concat, Skip };
  enum class Labels { Off, Add, Only };
  enum class Start { Auto, Zero, Random };

  std::string operand;  ///< name of the encoding inside
  SipeOperand kind = SipeOperand::Term;
  SipePrior prior = SipePrior::Hexatags;
  SipeMode mode = SipeMode::Auto;
  SipeSubword subword = SipeSubword::Auto;
  Coupling coupling = Coupling::None;
  std::string coupling_word, inject_word;  ///< as they are used
  bool sparse = false;                     ///< Bilinear or Mlp for near pairs alone
  bool bias = false;                       ///< the Shaw-style bias, alone or beside a coupling
  bool input = false;                      ///< s goes on the token embedding
  Fuse fuse = Fuse::Add;
  Labels labels = Labels::Off;  ///< the embedding of the relation's label, beside the tags or in their place
  Factor factor = Factor::Linear;
  Start start = Start::Auto;
  std::int64_t inject_from = 1;  ///< first layer, counted from 1
  double beta_init = 0;
  bool cross_sentence = false, same_sentence = false;
  std::int64_t hops = 3, rank = 16;
  bool warp = false;

  /// Whether a network or product of both tokens decides, with a trained beta.
  bool of_pairs() const {
    return coupling == Coupling::Bilinear || coupling == Coupling::Mlp || coupling == Coupling::Pair;
  }
  bool has_beta() const { return of_pairs() || coupling == Coupling::Rotation; }
  /// Whether keys' syntax is read when queries ask.
  bool reads_keys() const {
    return bias || of_pairs() || coupling == Coupling::TagAlign || coupling == Coupling::Additive;
  }
  bool needs_sentences() const {
    if (mode == SipeMode::None || sparse) return false;
    return of_pairs() ? !cross_sentence : same_sentence;
  }
  bool needs_links() const { return mode != SipeMode::None && sparse; }
  /// Whether the first values leave the encoding inside as it is.
  bool starts_warm() const;
};

/// Reads the keys of a `sipe` term. Throws UsageError where they have no meaning together or nothing could ever train.
SipeOptions sipe_options(const Term& term, const Settings& settings);

/// The keys in the order of the documentation.
std::vector<KeyInfo> sipe_keys();
/// Names that may stand inside.
std::vector<std::string> sipe_operands();

}  // namespace torsor

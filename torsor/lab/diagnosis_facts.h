// What an encoding does past the training length, in numbers, from its expression and, of a checkpoint, its trained
// tensors. Nothing is run here on text; diagnosis_model.h does that.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "torsor/base/json.h"
#include "torsor/encoding/encoding.h"
#include "torsor/model/decoder.h"

namespace torsor {

/// An angle counts as wrong from this distance to the float64 one on, in radians: a hundredth of one moves a cosine by
/// up to 0.01, as much as rounding the cosine itself to bf16 does.
inline constexpr double kAngleBound = 1e-2;
/// A key whose bias lies so many nats below the largest one's keeps 1/22026 of the weight: it counts as out of sight.
inline constexpr double kFaintNats = 10;

/// What is asked about.
struct FactsRequest {
  std::string encoding;               ///< an expression
  Dimensions dimensions;              ///< train_length is known
  std::vector<std::int64_t> lengths;  ///< ascending, each at least 1
  const Decoder* model = nullptr;     ///< whose trained tensors and windows are read; its encoding is `encoding`
  /// Whether the model was trained under the expression itself. Otherwise a scaling is taken as put onto a model that
  /// was trained with what it scales.
  bool own = false;
};

/// A term of the expression and where it answers.
struct PartName {
  std::string term;
  std::vector<std::int64_t> layers;  ///< of the model, or of one period of the pattern
  std::int64_t first_head = 0, heads = 0;
};

/// What a scaling did to a plane: its frequency is the plain one, that over the largest divisor, or between. Where
/// planes have divisors of their own (longrope), one that was divided is stretched.
enum class Treatment { Kept, Blended, Stretched };
const char* treatment_name(Treatment treatment);

struct RotationAtLength {
  std::int64_t length = 0;
  double reach = 0;                  ///< tokens that a query sees at most: the length, or the window
  std::vector<double> frequency;     ///< of each plane, radians a position, not negative
  std::vector<double> slowed;        ///< plain frequency over it; empty without a scaling
  std::vector<Treatment> treatment;  ///< as `slowed`
  std::vector<std::int64_t> unseen;  ///< planes whose angles go past all that training showed
  double worst = 0;                  ///< largest angle over the largest one seen in training, of these
};

/// Where angles made in a dtype lie by more than kAngleBound from float64: position, frequency and product rounded to
/// it (float32: the frequencies in Hugging Face's order of operations).
struct DtypeFacts {
  std::string dtype;
  std::optional<std::int64_t> position;  ///< the first; nothing up to `searched`
  std::int64_t plane = 0;
  double error = 0;  ///< there, in radians
  std::int64_t searched = 0;
};

struct RotationFacts {
  PartName part;
  std::optional<std::int64_t> key_head;  ///< where key heads have frequencies of their own
  std::vector<std::int64_t> axis;
  std::vector<double> plain;          ///< without the scaling; radians a position, not negative
  std::vector<double> trained_turns;  ///< full turns that training reached, a plane
  std::string scaling;                ///< its name, or empty
  double factor = 1;                  ///< its key, where it has one
  double scaling_length = 0;          ///< positions that it takes as trained; 0 = it has no such key
  bool length_dependent = false;
  double magnitude = 1, softmax_factor = 1;
  bool initial = false;                   ///< trained frequencies whose first values these are
  std::vector<double> decay;              ///< exponent a position, a plane (xpos)
  std::vector<RotationAtLength> lengths;  ///< the training length, then those asked for beyond it
  std::vector<DtypeFacts> dtypes;
};

struct BiasFacts {
  PartName part;
  std::vector<std::string> forms;
  std::vector<std::string> content;  ///< what it reads of the content; then there are no numbers
  bool initial = false;              ///< trained numbers whose first values these are
  /// Of a query at the end of the longest length, by distance; empty where the numbers are not known.
  std::vector<double> distances;
  std::vector<std::vector<double>> per_head;
  std::vector<std::optional<double>> sight;  ///< farthest distance within kFaintNats of the largest; nothing = all
  std::optional<double> merge_from;          ///< from this distance on everything is one row of the table
  std::optional<double> wraps;               ///< distances come back after so many tokens
  struct Rows {
    std::int64_t length = 0;
    std::int64_t seen = 0;             ///< rows that the distances of the length read
    std::vector<std::int64_t> unseen;  ///< those of them that no distance within the training length reads
    std::optional<double> first;       ///< smallest distance that reads one of these
  };
  std::vector<Rows> rows;              ///< of tables, a length each
  std::optional<std::int64_t> counts;  ///< positions are counts that stop here (cope)
};

struct EmbeddingFacts {
  std::string term;
  std::optional<std::int64_t> table;  ///< rows: it refuses longer texts
  std::vector<double> wavelength;     ///< of sinusoids
  std::int64_t unfinished = 0;        ///< sinusoids without a full turn within the training length
};

struct TemperatureFacts {
  std::string term;
  std::vector<double> factor;  ///< on the logits of the last query of each length
};

/// A length that a term takes as the one of training.
struct LengthClaim {
  std::string term, key;
  double length = 0;
  bool agrees = true;
};

struct MemoryFacts {
  std::int64_t length = 0;
  double naive = 0;              ///< bytes of a float32 bias of heads x length x length, one layer
  std::optional<double> stored;  ///< bytes of what Torsor's biases hold instead, one layer; nothing = not known
  double cache_float32 = 0, cache_bf16 = 0;  ///< bytes of keys, values and what else is kept, all layers
};

struct Facts {
  std::string encoding;  ///< canonical
  Dimensions dimensions;
  std::vector<std::int64_t> lengths, windows;  ///< windows: one a layer of the model, 0 = none; empty without a model
  std::vector<RotationFacts> rotations;
  std::vector<BiasFacts> biases;
  std::vector<EmbeddingFacts> embeddings;
  std::vector<TemperatureFacts> temperatures;
  std::vector<LengthClaim> claims;
  std::vector<MemoryFacts> memory;
  std::vector<std::string> unknown;  ///< terms of which no numbers are known, with the reason
  bool twice = false;                ///< positions come both with the embedding and with a rotation
  bool positions = true;             ///< whether any part reads positions or order
};

/// Throws UsageError for an expression that is wrong or does not fit the dimensions, for an unknown training length and
/// for lengths that are no lengths.
Facts facts_of(const FactsRequest& request);

// Parts of facts_of, a file each.

/// A term in the layers in which it means the same, with its trained tensors in plain numbers.
struct Part {
  PartName name;
  Term term;
  std::shared_ptr<const Encoding> encoding;
  PlainParameters parameters;  ///< of a model; else first values that are fixed numbers
  bool trained = false;        ///< it has trained tensors
  bool known = true;           ///< all of them are in `parameters`
  std::int64_t window = 0;     ///< keys that its widest layer sees; 0 = all
};
std::vector<Part> parts_of(const FactsRequest& request, const Expression& expression);
/// The term itself, or what stands inside where it is no rotation but changes one encoding (tape, sipe).
Term core_term(const Term& term);
/// A number among the keys of a term; `fallback` for auto and where the term has no such key.
double key_number(const Term& term, const std::string& key, double fallback);
bool has_key(const Term& term, const std::string& key);
/// Tokens that a query sees at most in a text of `length`.
double reach_of(const Part& part, double length);

/// One a set of frequencies; none for a part that does not rotate or whose frequencies are not known.
std::vector<RotationFacts> rotation_facts(const Part& part, const FactsRequest& request);
std::optional<BiasFacts> bias_facts(const Part& part, const FactsRequest& request);
std::optional<EmbeddingFacts> embedding_facts(const Part& part, const FactsRequest& request);
std::vector<LengthClaim> length_claims(const Part& part, const FactsRequest& request);
std::vector<MemoryFacts> memory_facts(const std::vector<Part>& parts, const FactsRequest& request);

/// First position below `limit` at which angles made in `dtype` are wrong; `rounded` are the frequencies that it starts
/// from, `exact` the true ones.
DtypeFacts dtype_facts(const std::vector<double>& exact, const std::vector<double>& rounded, at::ScalarType dtype,
                       std::int64_t limit);

/// The documented keys (docs/diagnose.md).
Json facts_to_json(const Facts& facts);

}  // namespace torsor

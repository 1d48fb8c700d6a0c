// SyntaxGym suites: sentences cut into regions under several conditions, and predictions about the surprisals of these
// regions (Hu, Gauthier, Qian, Wilcox, Levy, "A systematic assessment of syntactic generalization in neural language
// models", ACL 2020).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "torsor/base/json.h"
#include "torsor/data/formula.h"
#include "torsor/data/tree.h"

namespace torsor {

/// Bytes [begin, end) of a text.
struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool operator==(const ByteRange&) const = default;
};

/// What a region's value is made of its tokens' surprisals.
enum class RegionMetric { Sum, Mean, Median, Range, Max, Min };

/// "sum" and so on, and back. Throws Error naming what is possible.
std::string_view region_metric_name(RegionMetric metric);
RegionMetric region_metric_of(std::string_view name);

/// The value of a region whose tokens have these surprisals; 0 without tokens.
double region_value(RegionMetric metric, std::span<const double> surprisals);

struct SuiteRegion {
  std::int64_t number = 0;
  std::string content;  ///< as stored: it may be empty and may have stray blanks
};

/// The gold tree of a condition's sentence; bytes refer to suite_sentence(). Only suites of this project have it.
struct SuiteTree {
  Tree tree;
  std::vector<ByteRange> words;  ///< rising, not overlapping
};

struct SuiteCondition {
  std::string name;
  std::vector<SuiteRegion> regions;
  std::optional<SuiteTree> tree;
};

struct SuiteItem {
  std::int64_t number = 0;
  std::vector<SuiteCondition> conditions;
};

struct Suite {
  std::string name;
  RegionMetric metric = RegionMetric::Sum;
  std::string comment;
  /// What kind of syntax it is about; empty = told by the name. See circuit_of().
  std::string circuit;
  /// Whether a region that begins with a mark (one of . , ; : ? !) follows without a space, as texts are written.
  bool attach_marks = false;
  std::map<std::int64_t, std::string> region_names;
  std::vector<Formula> predictions;
  std::vector<SuiteItem> items;
};

/// Whether a sentence of a suite brings no tree.
bool any_bare(const std::vector<Suite>& suites);

/// Reads a suite. Of `meta`, keys that are not known are passed over (it is for people); elsewhere they are errors.
/// This project's own keys are meta.circuit, meta.attach_marks and a condition's "tree"; other readers pass them over.
/// The metric "all" of some published files stands for the sum.
///
/// Throws Error "SOURCE: ..." for whatever else is not a suite: no items, a condition or region named twice, a
/// prediction that is no formula or names a condition or region that some item lacks, a sentence without a word, text
/// that is not UTF-8, a tree that is none or whose words lie outside the sentence.
Suite suite_from_json(const Json& json, const std::string& source);
Suite read_suite(const std::string& path);

/// suite_from_json gives the same suite.
Json suite_to_json(const Suite& suite);

/// The suites that `paths` stand for: a file itself, a folder its *.json files sorted by name. Throws Error naming a
/// path that is missing, a folder without suites, a name that two suites share.
std::vector<Suite> load_suites(const std::vector<std::string>& paths);

/// A condition as text. Contents are trimmed, runs of blanks inside them become one space, and what is not empty is
/// joined by one space, which belongs to the region behind it.
struct SuiteSentence {
  std::string text;
  std::vector<ByteRange> regions;  ///< one a region, in their order; together they are all of the text
};

/// With `final_period`, a '.' that belongs to no region ends the text unless a mark ends it already.
SuiteSentence suite_sentence(const Suite& suite, const SuiteCondition& condition, bool final_period = false);

/// The region that each token belongs to: the one that holds its first byte that is no blank, or -1 (special tokens
/// with an empty span, blanks alone, a final period).
std::vector<std::int64_t> regions_of_tokens(const SuiteSentence& sentence, std::span<const ByteRange> tokens);

/// The values of the regions of a sentence whose tokens have these surprisals (bits). Throws Error when the two lists
/// differ in size.
std::vector<double> region_values(RegionMetric metric, const SuiteSentence& sentence, std::span<const ByteRange> tokens,
                                  std::span<const double> surprisals);

/// Values of all regions: values[item][condition][region].
using SuiteValues = std::vector<std::vector<std::vector<double>>>;

/// Which items do as each prediction says: correct[prediction][item]. Throws Error when `values` does not fit the
/// suite.
struct SuiteResult {
  std::string suite;
  std::string circuit;
  bool counted = true;
  std::vector<std::vector<bool>> correct;

  /// The share of items for which a prediction holds.
  double accuracy(std::size_t prediction = 0) const;
};
SuiteResult score_suite(const Suite& suite, const SuiteValues& values);

/// Whether the published mean counts a suite of this name: not fgd-embed3, fgd-embed4, gardenpath..., nn-nv...
bool counted_suite(std::string_view name);

/// The circuit of a suite: the one that it names, else by the beginning of its name: npi, reflexive "Licensing"; fgd,
/// cleft "Long-Distance Dependencies"; number "Agreement"; npz, mvrr "Garden-Path Effects"; subordination "Gross
/// Syntactic State"; center "Center Embedding"; others "Other".
std::string circuit_of(const Suite& suite);

/// The score over several suites, by first predictions (two published suites have two; the published results hold one).
struct SuiteSummary {
  std::size_t suites = 0;  ///< that count
  double mean = 0;         ///< over them; 0 without any
  struct Circuit {
    std::size_t suites = 0;
    double mean = 0;
  };
  std::map<std::string, Circuit> circuits;  ///< counted suites only
};
SuiteSummary summarize_suites(std::span<const SuiteResult> results);

}  // namespace torsor

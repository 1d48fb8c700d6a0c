// What a checkpoint does past its training length on a text, measured: losses by position, and what attention and the
// residual stream look like there.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "torsor/data/corpus.h"
#include "torsor/model/decoder.h"

namespace torsor {

/// Positions [from, to) of windows.
struct BinMeasures {
  std::int64_t from = 0, to = 0;
  std::int64_t targets = 0;
  double loss = 0;        ///< mean nats a target in the long windows
  double inside = 0;      ///< the same targets in windows of the training length, with at least half of it as context
  double difference = 0;  ///< loss - inside
  std::optional<double> error;  ///< standard error of the difference, targets taken as independent; from two on
  double largest_logit = 0;     ///< mean over tokens of their largest output logit
};

/// Of one head, means over queries inside the training length and beyond it.
struct HeadMeasures {
  struct Sides {
    double inside = 0;
    std::optional<double> beyond;
  };
  Sides entropy, relative_entropy, first_token, distance;
};

/// One value a bin each, means over queries and heads.
struct LayerMeasures {
  std::int64_t window = 0;                              ///< keys that a token sees; 0 = all
  std::vector<double> entropy;                          ///< of the attention weights, in nats
  std::vector<std::optional<double>> relative_entropy;  ///< over ln of the visible keys; nothing where only one is seen
  std::vector<double> first_token;                      ///< share of the weight on the text's first token
  std::vector<double> distance;                         ///< mean distance of the keys by weight
  std::vector<double> largest_logit;                    ///< largest finite logit of a head, biases included, in the bin
  std::vector<double> rms;                    ///< root mean square of the residual stream that enters the layer
  std::vector<std::int64_t> largest_channel;  ///< channel of that stream with the largest mean magnitude
  std::vector<double> largest_channel_mean;   ///< that magnitude
  std::vector<HeadMeasures> heads;
};

struct Measures {
  std::string text;          ///< what was read, for people
  std::int64_t length = 0;   ///< tokens of a long window
  std::int64_t windows = 0;  ///< how many of them
  std::int64_t stride = 0;   ///< targets that a window of the training length scores behind its context
  double loss = 0;           ///< mean over all targets
  std::vector<BinMeasures> bins;
  std::vector<LayerMeasures> layers;
  std::vector<double> last_rms;  ///< of the stream that leaves the last layer, a bin each
};

struct MeasureRequest {
  std::int64_t length = 0;        ///< tokens of a long window
  std::int64_t train_length = 0;  ///< where the bins are parted
  std::int64_t windows = 4;       ///< most long windows; 0 = all that the text holds
  std::string text;               ///< Measures::text
  at::ScalarType dtype = at::kFloat;
  std::function<bool()> stop;  ///< asked between blocks of queries; true = Interrupted is thrown
  std::function<void(std::int64_t done, std::int64_t total)> progress;  ///< steps done and in all
};

/// Edges of the bins of a window, parted at the training length: eighths of it (of a shorter window, of that), at most
/// 64 bins, and one more.
std::vector<std::int64_t> bin_edges(std::int64_t length, std::int64_t train_length);

/// Attention is computed on the reference path a block of queries at a time; only sums by bin and head are kept. Throws
/// Error when no document holds length + 1 tokens or the encoding reads per-token inputs, Refusal where it refuses the
/// length, Interrupted when stopped.
Measures measure(const Decoder& model, const Corpus& corpus, const MeasureRequest& request);

}  // namespace torsor

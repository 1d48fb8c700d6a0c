#include "torsor/report/statistics.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/base/random.h"
#include "torsor/report/accuracy.h"
#include "torsor/report/groups.h"

namespace torsor::report {
namespace {

constexpr std::size_t kMostBlocks = 256;

/// What a bootstrap draws for `seeds` seeds of `blocks` blocks: for every replicate and place, which seed stands there
/// and how often each of its blocks was drawn. One plan serves all pairs of the same shape.
struct Plan {
  std::size_t seeds = 0;
  std::size_t blocks = 0;
  std::vector<std::uint32_t> seed_at;  // (replicates, seeds)
  std::vector<std::uint16_t> drawn;    // (replicates, seeds, blocks)
};

Plan make_plan(std::size_t seeds, std::size_t blocks, const BootstrapOptions& options) {
  Plan plan{seeds, blocks, {}, {}};
  plan.seed_at.resize(options.replicates * seeds);
  plan.drawn.resize(options.replicates * seeds * blocks);
  Random random(options.seed, stream_of("paired bootstrap"));
  for (std::size_t place = 0; place < plan.seed_at.size(); ++place) {
    plan.seed_at[place] = static_cast<std::uint32_t>(random.below(seeds));
    std::uint16_t* drawn = plan.drawn.data() + place * blocks;
    for (std::size_t i = 0; i < blocks; ++i) ++drawn[random.below(blocks)];
  }
  return plan;
}

/// Means of at most kMostBlocks blocks of windows, each minus the mean of all of them. A block is a run of neighbours
/// or, for problems, every so many of them, so that each block holds all kinds.
std::vector<double> centred_blocks(const std::vector<double>& windows, Metric metric) {
  const std::size_t count = std::min(windows.size(), kMostBlocks);
  std::vector<double> blocks(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (metric == Metric::accuracy) {
      double sum = 0;
      for (std::size_t j = i; j < windows.size(); j += count) sum += windows[j];
      blocks[i] = sum / static_cast<double>((windows.size() - i + count - 1) / count);
      continue;
    }
    const auto first = windows.begin() + static_cast<std::ptrdiff_t>(i * windows.size() / count);
    const auto last = windows.begin() + static_cast<std::ptrdiff_t>((i + 1) * windows.size() / count);
    blocks[i] = std::accumulate(first, last, 0.0) / static_cast<double>(last - first);
  }
  if (count == 0) return blocks;
  const double mean = mean_of(blocks);
  for (double& block : blocks) block -= mean;
  return blocks;
}

/// The figure after its loss has moved by `change` nats a token.
double moved(Metric metric, const Sample& sample, double change) {
  switch (metric) {
    case Metric::perplexity:
      return sample.value * std::exp(change);
    case Metric::bits_per_byte:
      return sample.loss > 0 ? sample.value + change * sample.value / sample.loss : sample.value;
    case Metric::loss:
    case Metric::accuracy:
      return sample.value + change;
  }
  return sample.value;
}

/// Windows a sample brings to a comparison: 0 when some sample has none.
std::size_t common_windows(const std::vector<Sample>& a, const std::vector<Sample>& b) {
  std::size_t count = 0;
  bool missing = false;
  for (const std::vector<Sample>* side : {&a, &b}) {
    for (const Sample& sample : *side) {
      if (sample.windows.empty()) {
        missing = true;
      } else if (count != 0 && sample.windows.size() != count) {
        throw Error(str("paired bootstrap: expected ", count, " windows in every sample, got ", sample.windows.size()));
      } else {
        count = sample.windows.size();
      }
    }
  }
  return missing ? 0 : count;
}

class Bootstrap {
 public:
  explicit Bootstrap(const BootstrapOptions& options) : options_(options) {}

  /// How much the loss of every drawn sample moves: one value a replicate and place. Empty without windows.
  std::vector<double> changes(Metric metric, const std::vector<Sample>& samples, std::size_t windows) {
    if (windows == 0) return {};
    std::vector<std::vector<double>> blocks;
    for (const Sample& sample : samples) blocks.push_back(centred_blocks(sample.windows, metric));
    const Plan& plan = plan_for(samples.size(), blocks.front().size());
    std::vector<double> moves(plan.seed_at.size());
    for (std::size_t place = 0; place < moves.size(); ++place) {
      const std::vector<double>& own = blocks[plan.seed_at[place]];
      const std::uint16_t* drawn = plan.drawn.data() + place * plan.blocks;
      double sum = 0;
      for (std::size_t i = 0; i < plan.blocks; ++i) sum += drawn[i] * own[i];
      moves[place] = sum / static_cast<double>(plan.blocks);
    }
    return moves;
  }

  /// The interval of mean(a) - mean(b) from the changes of both, which may be empty.
  Interval difference(Metric metric, const std::vector<Sample>& a, const std::vector<Sample>& b, std::size_t windows,
                      const std::vector<double>& changes_a, const std::vector<double>& changes_b) {
    Interval interval;
    for (std::size_t i = 0; i < a.size(); ++i) interval.mean += a[i].value - b[i].value;
    interval.mean /= static_cast<double>(a.size());
    if (options_.replicates == 0 || (a.size() < 2 && windows < 2)) return interval;
    const Plan& plan = plan_for(a.size(), std::min(windows, kMostBlocks));
    std::vector<double> differences(options_.replicates);
    for (std::size_t replicate = 0; replicate < options_.replicates; ++replicate) {
      double sum = 0;
      for (std::size_t slot = 0; slot < a.size(); ++slot) {
        const std::size_t place = replicate * a.size() + slot;
        const std::size_t seed = plan.seed_at[place];
        sum += moved(metric, a[seed], windows == 0 ? 0 : changes_a[place]) -
               moved(metric, b[seed], windows == 0 ? 0 : changes_b[place]);
      }
      differences[replicate] = sum / static_cast<double>(a.size());
    }
    std::sort(differences.begin(), differences.end());
    interval.low = quantile(differences, (1 - options_.confidence) / 2);
    interval.high = quantile(differences, (1 + options_.confidence) / 2);
    return interval;
  }

 private:
  const Plan& plan_for(std::size_t seeds, std::size_t blocks) {
    const auto key = std::make_pair(seeds, blocks);
    const auto place = plans_.find(key);
    return place != plans_.end() ? place->second
                                 : plans_.emplace(key, make_plan(seeds, blocks, options_)).first->second;
  }

  BootstrapOptions options_;
  std::map<std::pair<std::size_t, std::size_t>, Plan> plans_;
};

constexpr Metric kLanguageMetrics[] = {Metric::perplexity, Metric::bits_per_byte, Metric::loss};

std::optional<double> figure(const Eval& eval, Metric metric) {
  switch (metric) {
    case Metric::perplexity:
      return eval.perplexity;
    case Metric::bits_per_byte:
      return eval.bits_per_byte;
    case Metric::loss:
      return eval.loss;
    case Metric::accuracy:
      return eval.accuracy;
  }
  return std::nullopt;
}

/// What a run measured: no value where that is not finite.
struct Measured {
  std::optional<double> value;
  double loss = 0;
  std::vector<double> windows;
  bool leaks = false;
};

/// Reads a figure from a run; empty when the evaluation did not end.
using Reader = std::function<std::optional<Measured>(const Run&)>;

Reader reader_at(const std::string& task, std::int64_t length, Metric metric) {
  return [=](const Run& run) -> std::optional<Measured> {
    const Eval* eval = find_eval(run, task, length);
    if (eval == nullptr || eval->status != Status::ok) return std::nullopt;
    // What leaks has no perplexity that would not be finite: it has none at all.
    if (eval->leaks && metric != Metric::accuracy) return std::nullopt;
    return Measured{figure(*eval, metric), eval->loss.value_or(0), eval->windows, eval->leaks};
  };
}

Reader reader_of_group(const std::string& task, std::int64_t length, const std::string& group) {
  return [=](const Run& run) -> std::optional<Measured> {
    const Eval* eval = find_eval(run, task, length);
    if (eval == nullptr || eval->status != Status::ok) return std::nullopt;
    for (const EvalGroup& one : eval->groups)
      if (one.name == group) return Measured{one.value, 0, {}, eval->leaks};
    return std::nullopt;
  };
}

Reader reader_of(const std::string& task, const Pool& pool) {
  return [=](const Run& run) -> std::optional<Measured> {
    std::optional<PooledAccuracy> pooled = pooled_accuracy(run, task, pool.lengths);
    if (!pooled) return std::nullopt;
    return Measured{pooled->value, 0, std::move(pooled->windows), false};
  };
}

/// One column of figures: what each seed of an encoding measured, in order of the runs.
struct Column {
  std::string encoding;
  std::vector<std::int64_t> seeds;  // of the finite ones
  std::vector<Sample> samples;
  std::int64_t ended = 0;  // finite or not
  std::optional<double> mean;
  bool leaks = false;
};

std::vector<Column> columns_of(const Results& results, const Reader& read) {
  std::vector<Column> columns;
  for (const std::string& encoding : encodings_of(results)) {
    Column column{encoding, {}, {}, 0, std::nullopt, false};
    for (const Run& run : results.runs) {
      if (run.encoding != encoding || run.status != Status::ok) continue;
      std::optional<Measured> measured = read(run);
      if (!measured) continue;
      ++column.ended;
      column.leaks = column.leaks || measured->leaks;
      if (!measured->value) continue;
      column.seeds.push_back(run.seed);
      column.samples.push_back({*measured->value, measured->loss, std::move(measured->windows)});
    }
    if (column.ended == 0) continue;
    if (static_cast<std::int64_t>(column.samples.size()) == column.ended) {
      double sum = 0;
      for (const Sample& sample : column.samples) sum += sample.value;
      column.mean = sum / static_cast<double>(column.ended);
    }
    columns.push_back(std::move(column));
  }
  return columns;
}

/// The differences of one task and length. All metrics move with the same changes of loss, which are drawn once.
class Differences {
 public:
  explicit Differences(Bootstrap& bootstrap) : bootstrap_(bootstrap) {}

  std::optional<Interval> operator()(Metric metric, const Column& column, const Column& best) {
    std::vector<std::int64_t> seeds;
    std::vector<Sample> a, b;
    for (std::size_t i = 0; i < column.seeds.size(); ++i) {
      for (std::size_t j = 0; j < best.seeds.size(); ++j) {
        if (column.seeds[i] != best.seeds[j]) continue;
        seeds.push_back(column.seeds[i]);
        a.push_back(column.samples[i]);
        b.push_back(best.samples[j]);
      }
    }
    if (a.empty()) return std::nullopt;
    const std::size_t windows = common_windows(a, b);
    return bootstrap_.difference(metric, a, b, windows, changes(metric, column, seeds, a, windows),
                                 changes(metric, best, seeds, b, windows));
  }

 private:
  const std::vector<double>& changes(Metric metric, const Column& column, const std::vector<std::int64_t>& seeds,
                                     const std::vector<Sample>& samples, std::size_t windows) {
    const Key key{column.encoding, seeds, windows};
    const auto place = known_.find(key);
    return place != known_.end() ? place->second
                                 : known_.emplace(key, bootstrap_.changes(metric, samples, windows)).first->second;
  }

  using Key = std::tuple<std::string, std::vector<std::int64_t>, std::size_t>;
  Bootstrap& bootstrap_;
  std::map<Key, std::vector<double>> known_;
};

/// Whether figure `a` goes before `b`.
bool better(const std::string& metric, double a, double b) { return higher_is_better(metric) ? a > b : a < b; }

/// The rows of one column of the table. `name` tells the figure, `metric` how it moves with its windows.
void add_rows(Results& results, Differences& differences, const std::string& task, std::int64_t length, Metric metric,
              const std::string& name, const Reader& read) {
  const std::vector<Column> columns = columns_of(results, read);
  const bool measured =
      std::any_of(columns.begin(), columns.end(), [](const Column& column) { return !column.samples.empty(); });
  // A metric that nobody measured (bits per byte of generated tokens) has no rows; perplexity always has.
  if (!measured && metric != Metric::perplexity) return;
  const Column* best = nullptr;
  for (const Column& column : columns) {
    if (column.mean && !column.leaks && (best == nullptr || better(name, *column.mean, *best->mean))) best = &column;
  }
  for (const Column& column : columns) {
    SummaryRow row{column.encoding, task,         length,       name,        column.mean,
                   std::nullopt,    column.ended, std::nullopt, column.leaks};
    if (column.mean) {
      std::vector<double> values;
      for (const Sample& sample : column.samples) values.push_back(sample.value);
      row.sd = sd_of(values);
      if (!column.leaks)
        row.difference_to_best = &column == best ? Interval{0, 0.0, 0.0} : differences(metric, column, *best);
    }
    results.summary.push_back(std::move(row));
  }
}

std::int64_t common_seeds(const Results& results, const std::string& a, const std::string& b, const std::string& task,
                          const std::vector<std::int64_t>& lengths) {
  std::int64_t count = 0;
  const auto has = [&](const std::string& encoding, std::int64_t seed) {
    return std::any_of(results.runs.begin(), results.runs.end(), [&](const Run& run) {
      if (run.encoding != encoding || run.seed != seed || run.status != Status::ok) return false;
      return std::all_of(lengths.begin(), lengths.end(), [&](std::int64_t length) {
        const Eval* eval = find_eval(run, task, length);
        return eval != nullptr && eval->status == Status::ok;
      });
    });
  };
  for (const std::int64_t seed : seeds_of(results)) count += has(a, seed) && has(b, seed) ? 1 : 0;
  return count;
}

}  // namespace

double mean_of(const std::vector<double>& values) {
  if (values.empty()) throw Error("mean_of: expected at least one value, got none");
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

std::optional<double> sd_of(const std::vector<double>& values) {
  if (values.size() < 2) return std::nullopt;
  const double mean = mean_of(values);
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

double quantile(const std::vector<double>& ascending, double p) {
  if (ascending.empty()) throw Error("quantile: expected at least one value, got none");
  if (!(p >= 0 && p <= 1)) throw Error(str("quantile: expected a share in 0..1, got ", p));
  const double place = p * static_cast<double>(ascending.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, ascending.size() - 1);
  return ascending[below] + (place - static_cast<double>(below)) * (ascending[above] - ascending[below]);
}

const char* metric_name(Metric metric) {
  switch (metric) {
    case Metric::perplexity:
      return "perplexity";
    case Metric::bits_per_byte:
      return "bits_per_byte";
    case Metric::loss:
      return "loss";
    case Metric::accuracy:
      return kAccuracy;
  }
  return "perplexity";
}

Interval paired_bootstrap(Metric metric, const std::vector<Sample>& a, const std::vector<Sample>& b,
                          const BootstrapOptions& options) {
  if (a.empty() || a.size() != b.size()) {
    throw Error(str("paired bootstrap: expected as many samples on both sides, at least one, got ", a.size(), " and ",
                    b.size()));
  }
  Bootstrap bootstrap(options);
  const std::size_t windows = common_windows(a, b);
  return bootstrap.difference(metric, a, b, windows, bootstrap.changes(metric, a, windows),
                              bootstrap.changes(metric, b, windows));
}

std::optional<Best> best_of(const Results& results, const std::string& task, std::int64_t length,
                            const std::string& metric) {
  const SummaryRow* best = nullptr;
  const SummaryRow* second = nullptr;
  for (const SummaryRow& row : results.summary) {
    if (row.task != task || row.length != length || row.metric != metric || !row.mean || row.leaks) continue;
    if (best == nullptr || better(metric, *row.mean, *best->mean)) {
      second = best;
      best = &row;
    } else if (second == nullptr || better(metric, *row.mean, *second->mean)) {
      second = &row;
    }
  }
  if (best == nullptr) return std::nullopt;
  Best found{best->encoding, "", std::nullopt, 0, false};
  if (second != nullptr) {
    found.runner_up = second->encoding;
    found.lead = second->difference_to_best;
    found.pairs =
        common_seeds(results, found.encoding, found.runner_up, task, row_lengths(results, task, length, metric));
    const bool clear = found.lead && found.lead->low && found.lead->high &&
                       (higher_is_better(metric) ? *found.lead->high < 0 : *found.lead->low > 0);
    found.shown = found.pairs >= kSeedsToShow && clear;
  }
  return found;
}

void summarize(Results& results, const BootstrapOptions& options) {
  results.summary.clear();
  results.verdict.clear();
  Bootstrap bootstrap(options);
  const std::vector<std::string> tasks = tasks_of(results);
  for (const std::string& task : tasks) {
    const bool accuracy = scored_by_accuracy(results, task);
    for (const std::int64_t length : lengths_of(results, task)) {
      Differences differences(bootstrap);
      if (accuracy) {
        const std::string headline = headline_metric(results, task);
        add_rows(results, differences, task, length, Metric::accuracy, headline,
                 reader_at(task, length, Metric::accuracy));
        for (const EvalGroup& group : groups_of(results, task)) {
          Differences of_group(bootstrap);
          add_rows(results, of_group, task, length, Metric::accuracy, group_metric(headline, group.name),
                   reader_of_group(task, length, group.name));
        }
        continue;
      }
      for (const Metric metric : kLanguageMetrics) {
        add_rows(results, differences, task, length, metric, metric_name(metric), reader_at(task, length, metric));
      }
    }
    for (const Pool& pool : pools_of(results, task)) {
      Differences differences(bootstrap);
      add_rows(results, differences, task, pool.lengths.back(), Metric::accuracy, pool.metric, reader_of(task, pool));
    }
  }
  for (const std::string& task : tasks) {
    for (const std::string& sentence : verdict_sentences(results, task)) {
      results.verdict.push_back(tasks.size() > 1 ? str(task, ": ", sentence) : sentence);
    }
  }
  if (tasks.empty()) results.verdict = verdict_sentences(results, "");
}

}  // namespace torsor::report

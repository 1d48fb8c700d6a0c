// Options that say where the parses of a text come from.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "torsor/cli/common.h"
#include "torsor/lab/parsed_feed.h"

namespace torsor {

struct FeedArguments {
  std::vector<std::string> parsers, parses;
  std::string arcs, cache;
  GateSettings gate;
};

void add_feed_options(Command* command, FeedArguments& arguments);

/// How much the tags' loss weighs in training (RunPlan::tag_loss).
void add_tag_loss(Command* command, double& weight);

ParseSources sources_of(const FeedArguments& arguments);

/// Has the feed checked before anything is done with it (SyntaxFeed::check) and says what the gate closes. `feed` may
/// be null.
void check_feed(const SyntaxFeed* feed, const Encoding& encoding, bool other_texts, const CommonOptions& common,
                bool bare_texts = false);

/// The feed of a single run: none where nothing was given. Parses of long texts are kept in `cache` unless the options
/// name another folder.
std::shared_ptr<const SyntaxFeed> feed_of(const FeedArguments& arguments, bool causal, GoldParses gold,
                                          TextDomains domains, const std::string& cache, const CommonOptions& common);

}  // namespace torsor

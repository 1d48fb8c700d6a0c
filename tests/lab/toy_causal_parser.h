// A left-to-right parser of toy sentences, trained once a program.
#pragma once

#include <string>

#include "tests/base/test_folder.h"
#include "tests/syntax/small_trees.h"
#include "torsor/syntax/native_incremental.h"
#include "torsor/syntax/tokenizer.h"

namespace torsor::testing {

/// Its folder.
inline const std::string& toy_causal_parser() {
  static const TestFolder folder;
  static const std::string path = [] {
    const auto trees = syntax::testing::small_trees(200, 9);
    syntax::IncrementalSizes sizes;
    sizes.words = {.word = 16, .character = 8, .spelling = 16};
    sizes.lstm = 24;
    sizes.hidden = 32;
    syntax::NativeTraining training;
    training.epochs = 8;
    training.batch_words = 150;
    training.learning_rate = 1e-2;
    training.folder = folder / "causal";
    syntax::train_incremental(trees, {}, sizes, training,
                              syntax::Tokenizer(syntax::testing::sentences_of(trees)).to_json());
    return training.folder;
  }();
  return path;
}

}  // namespace torsor::testing

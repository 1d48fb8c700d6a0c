// Parses of long texts, kept in files: one for each text, parser and mode.
#pragma once

#include <optional>
#include <string>

#include "torsor/syntax/parse.h"

namespace torsor {

class ParseStore {
 public:
  /// `folder` is made when the first parse is put; empty = nothing is kept.
  explicit ParseStore(std::string folder) : folder_(std::move(folder)) {}

  /// What put() was given for the text with this SHA-256, by this parser, in this mode. `parser` is everything that
  /// decides its answers. A file that is damaged or of another format is as good as none.
  std::optional<syntax::Parse> find(const std::string& text_sha256, const std::string& parser,
                                    syntax::ParseMode mode) const;
  /// Throws Error when the file cannot be written.
  void put(const syntax::Parse& parse, const std::string& parser) const;

 private:
  std::string path_of(const std::string& text_sha256, const std::string& parser, syntax::ParseMode mode) const;

  std::string folder_;
};

}  // namespace torsor

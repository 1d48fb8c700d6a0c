// A text read from left to right: bytes to words to arcs and tags, none of which depends on what follows.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "torsor/syntax/parse.h"
#include "torsor/syntax/parser.h"
#include "torsor/syntax/tokenizer.h"

namespace torsor::syntax {

/// A word of a text with what became known when it was read.
struct TextStep {
  std::string form;
  ByteSpan bytes;
  std::uint32_t known = 0;    ///< bytes that had to be read for it, see ParseWord::known
  bool starts_token = true;   ///< false for the later words of a multiword token
  bool sentence_end = false;  ///< the next word begins a sentence: the parser says so, or a blank line, or the end
  WordStep step;
};

/// Reads `text` with `tokenizer` and `parser`, which is reset first. Of the steps, sentence_end alone may depend on
/// what follows: where a blank line or the text's end comes; the parser knows of it before the next word. Throws Error
/// for text that is no UTF-8 or of 4 GiB and more.
/// `each`, where given, is called before every word and may throw.
std::vector<TextStep> read_text(std::string_view text, const std::shared_ptr<const Tokenizer>& tokenizer,
                                WordParser& parser, const std::function<void()>& each = {});

/// The parse of mode incremental. `backend` must be prefix safe. Throws Error otherwise.
Parse incremental_parse(std::string_view text, const std::vector<TextStep>& steps, const BackendId& backend,
                        const std::string& doc_id = "");

/// The same as sentences with whole trees: what was still pending at a sentence's end is repaired (repair.h).
std::vector<Sentence> sentences_of(std::string_view text, const std::vector<TextStep>& steps);

}  // namespace torsor::syntax

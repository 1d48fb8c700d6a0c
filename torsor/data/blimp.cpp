#include "torsor/data/blimp.h"

#include <algorithm>

#include "torsor/base/error.h"
#include "torsor/base/file.h"
#include "torsor/base/json.h"
#include "torsor/base/utf8.h"

namespace torsor {

namespace {

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

std::string text_under(const Json& json, const char* key, const std::string& where) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_string()) throw Error(str(where, ": expected text under ", quote(key)));
  return found->get<std::string>();
}

std::string sentence_under(const Json& json, const char* key, const std::string& where) {
  const std::string text = text_under(json, key, where);
  if (is_blank(text)) throw Error(str(where, ": expected a sentence under ", quote(key)));
  return text;
}

}  // namespace

Paradigm paradigm_from_lines(std::string_view text, const std::string& source) {
  Paradigm paradigm;
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (is_blank(line)) continue;
    const std::string where = str(source, ":", number);
    Json json;
    try {
      json = parse_json(line, source, 8);
    } catch (const Error& error) {
      // The parser counts the lines of what it is given.
      const std::string message = error.what(), head = source + ":1:";
      throw Error(message.starts_with(head) ? str(where, ":", message.substr(head.size())) : message);
    }
    if (!json.is_object()) throw Error(str(where, ": expected an object"));
    MinimalPair pair{sentence_under(json, "sentence_good", where), sentence_under(json, "sentence_bad", where),
                     text_under(json, "pairID", where)};
    const std::string uid = text_under(json, "UID", where), field = text_under(json, "field", where),
                      term = text_under(json, "linguistics_term", where);
    if (paradigm.pairs.empty()) {
      paradigm.uid = uid, paradigm.field = field, paradigm.term = term;
    } else if (uid != paradigm.uid || field != paradigm.field || term != paradigm.term) {
      throw Error(str(where, ": expected pairs of ", quote(paradigm.uid), " (", quote(paradigm.field), ", ",
                      quote(paradigm.term), ") alone, found one of ", quote(uid), " (", quote(field), ", ", quote(term),
                      ")"));
    }
    paradigm.pairs.push_back(std::move(pair));
  }
  if (paradigm.pairs.empty()) throw Error(source + ": expected at least one pair");
  return paradigm;
}

std::vector<Paradigm> load_blimp(const std::string& path) {
  const std::vector<std::string> files = list_files(path, {".jsonl"});
  if (files.empty()) throw Error(str("blimp: expected *.jsonl files in the folder '", path, "', found none"));
  std::vector<Paradigm> paradigms;
  std::map<std::string, std::string> seen;
  for (const std::string& file : files) {
    paradigms.push_back(paradigm_from_lines(read_file(file), file));
    const auto [earlier, fresh] = seen.emplace(paradigms.back().uid, file);
    if (!fresh)
      throw Error(str("blimp: ", quote(paradigms.back().uid), " is in two files: ", earlier->second, " and ", file));
  }
  return paradigms;
}

double ParadigmResult::accuracy() const {
  return static_cast<double>(std::count(correct.begin(), correct.end(), true)) / static_cast<double>(correct.size());
}

BlimpSummary summarize_blimp(std::span<const ParadigmResult> results) {
  BlimpSummary summary;
  for (const ParadigmResult& result : results) {
    if (result.correct.empty()) throw Error(str("blimp: no pairs of ", quote(result.uid), " were scored"));
    for (BlimpSummary::Mean* mean : {&summary.all, &summary.terms[result.term], &summary.fields[result.field]}) {
      ++mean->paradigms;
      mean->mean += result.accuracy();
    }
  }
  const auto divide = [](BlimpSummary::Mean& mean) {
    if (mean.paradigms > 0) mean.mean /= static_cast<double>(mean.paradigms);
  };
  divide(summary.all);
  for (auto& [name, mean] : summary.terms) divide(mean);
  for (auto& [name, mean] : summary.fields) divide(mean);
  return summary;
}

}  // namespace torsor

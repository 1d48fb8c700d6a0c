#include "torsor/report/csv.h"

#include <array>
#include <charconv>
#include <optional>

#include "torsor/report/accuracy.h"

namespace torsor::report {
namespace {

/// The shortest text that reads back to the same double.
std::string exact(const std::optional<double>& value) {
  if (!value) return "";
  std::array<char, 64> buffer{};
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), *value);
  return std::string(buffer.data(), error == std::errc{} ? end : buffer.data());
}

void add_row(std::string& text, const Run& run, const Eval* eval) {
  const std::string fields[] = {
      csv_field(run.encoding),
      std::to_string(run.seed),
      status_name(run.status),
      eval == nullptr ? "" : csv_field(eval->task),
      eval == nullptr ? "" : std::to_string(eval->length),
      eval == nullptr ? "" : status_name(eval->status),
      eval == nullptr ? "" : exact(eval->loss),
      eval == nullptr ? "" : exact(eval->perplexity),
      eval == nullptr ? "" : exact(eval->bits_per_byte),
      eval == nullptr ? "" : exact(eval->accuracy),
      eval == nullptr || !eval->accuracy || problems_of(*eval) == 0 ? "" : std::to_string(problems_of(*eval)),
      run.parameters ? std::to_string(*run.parameters) : "",
      exact(run.train.tokens_per_second),
      exact(run.peak_memory_bytes),
      exact(run.decode_tokens_per_second),
      csv_field(eval != nullptr && !eval->reason.empty() ? eval->reason : run.reason),
  };
  bool first = true;
  for (const std::string& field : fields) {
    if (!first) text += ',';
    text += field;
    first = false;
  }
  text += "\r\n";
}

}  // namespace

std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

std::string results_csv(const Results& results) {
  std::string text =
      "encoding,seed,status,task,length,eval_status,loss,perplexity,bits_per_byte,accuracy,problems,parameters,"
      "tokens_per_second,peak_memory_bytes,decode_tokens_per_second,reason\r\n";
  for (const Run& run : results.runs) {
    if (run.eval.empty()) add_row(text, run, nullptr);
    for (const Eval& eval : run.eval) add_row(text, run, &eval);
  }
  return text;
}

}  // namespace torsor::report

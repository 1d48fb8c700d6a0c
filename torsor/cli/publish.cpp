#include "torsor/cli/publish.h"

#include <algorithm>
#include <iostream>
#include <sstream>

#include "torsor/base/file.h"
#include "torsor/report/csv.h"
#include "torsor/report/html.h"
#include "torsor/report/statistics.h"
#include "torsor/report/table.h"

namespace torsor {

report::Results publish(const Json& document, const std::string& folder, bool whole) {
  report::Results results = report::parse_results(document);
  report::summarize(results);
  write_file_atomic(folder + "/results.json", json_text(report::to_json(results), 1) + "\n");
  if (whole) {
    write_file_atomic(folder + "/results.csv", report::results_csv(results));
    write_file_atomic(folder + "/report.html", report::html_report(results));
  }
  return results;
}

void tell_newest_run(const CommonOptions& common, const report::Results& results, std::size_t& told) {
  if (results.runs.size() <= told || common.quiet) return;
  told = results.runs.size();
  const report::Run& run = results.runs.back();
  if (run.status == report::Status::failed) return;  // it was told with its reason
  std::string line = str("  ", run.encoding, " seed ", run.seed, ":");
  for (const report::Eval& eval : run.eval) {
    line += str("  ", eval.length, " ");
    std::ostringstream figure;
    figure.precision(3);
    if (eval.accuracy)
      figure << 100 * *eval.accuracy << " %";
    else if (eval.perplexity)
      figure << *eval.perplexity;
    else
      figure << report::status_name(eval.status);
    line += figure.str();
  }
  say(common, line);
}

int print_results(const CommonOptions& common, const report::Results& results, const std::string& folder) {
  if (common.json) {
    std::cout << json_text(report::to_json(results), 1) << "\n";
  } else {
    std::cout << report::text_table(results) << "\n";
    for (const std::string& sentence : results.verdict) std::cout << sentence << "\n";
    std::cout << "\nreport: " << folder << "/report.html\n";
  }
  const auto has_failed = [](const report::Run& run) { return run.status == report::Status::failed; };
  const auto first = std::find_if(results.runs.begin(), results.runs.end(), has_failed);
  if (first == results.runs.end()) return 0;
  throw Error(str(std::count_if(results.runs.begin(), results.runs.end(), has_failed), " of ", results.runs.size(),
                  " runs failed, first ", first->encoding, " seed ", first->seed, ": ", first->reason));
}

}  // namespace torsor

// torsor encodings, values, laws, record, check
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>

#include "torsor/base/file.h"
#include "torsor/cli/common.h"
#include "torsor/lab/catalogue.h"
#include "torsor/lab/conformance_check.h"
#include "torsor/lab/laws.h"
#include "torsor/lab/values.h"

namespace torsor {
namespace {

std::string short_number(double value) {
  std::ostringstream text;
  text << std::setprecision(3) << value;
  return text.str();
}

// --------------------------------------------------------------------------------------------------------------------
// encodings

void add_encodings(Command& app, CommonOptions& common, Chosen& chosen) {
  auto name = std::make_shared<std::string>();
  Command* command = app.add_subcommand("encodings", "what exists, and everything about one encoding");
  command->footer("Example: torsor encodings yarn");
  command->add_option("name", *name, "one encoding; left out: all");
  command->callback([&common, &chosen, name] {
    chosen = [&common, name] {
      refuse_out(common, "encodings");
      if (common.json)
        std::cout << json_text(name->empty() ? catalogue() : catalogue_entry(*name), 1) << "\n";
      else
        std::cout << (name->empty() ? catalogue_text() : catalogue_text(*name));
      return 0;
    };
  });
}

// --------------------------------------------------------------------------------------------------------------------
// values

void add_values(Command& app, CommonOptions& common, Chosen& chosen) {
  auto request = std::make_shared<ValuesRequest>();
  Command* command = app.add_subcommand("values", "the numbers that an expression stands for");
  command->footer(
      "Every axis of a position takes the same value. A distance is the query's position minus the key's.\n"
      "Example: torsor values 'yarn(rope, factor=4)' --train-length 4096 --head-dim 128");
  command->add_option("expression", request->encoding, "an encoding, such as 'rope + alibi'")->required();
  command->add_option("--head-dim", request->dimensions.head_dim, "channels of a head")
      ->check(whole_number(1, kMostHeads))
      ->capture_default_str();
  CommandOption* heads =
      command
          ->add_option("--heads", request->dimensions.heads, "query heads; left out: 8, or what the expression allows")
          ->check(whole_number(1, kMostHeads));
  command->add_option("--kv-heads", request->dimensions.kv_heads, "key heads; left out: as many as query heads")
      ->check(whole_number(1));
  command->add_option("--length", request->length, "tokens of the document; left out: the largest position + 1")
      ->check(whole_number(1));
  command->add_option("--train-length", request->dimensions.train_length, "the model's training length")
      ->check(whole_number(1));
  command->add_option("--positions", request->positions, "positions, with commas between")->delimiter(',');
  command->add_option("--distances", request->distances, "distances, with commas between")->delimiter(',');
  command->add_option("--layer", request->layer, "layer, for patterns over the layers")->capture_default_str();
  command->callback([&common, &chosen, request, heads] {
    chosen = [&common, request, heads] {
      refuse_out(common, "values");
      if (heads->count() == 0 && request->dimensions.kv_heads == 0)
        request->dimensions.heads = fitting_heads(request->encoding, request->dimensions);
      if (common.json)
        std::cout << json_text(encoding_values(*request)) << "\n";
      else
        std::cout << values_text(*request);
      return 0;
    };
  });
}

// --------------------------------------------------------------------------------------------------------------------
// laws

int run_laws(LawsRequest request, const CommonOptions& common) {
  refuse_out(common, "laws");
  request.seed = common.seed;
  const std::vector<Law> laws = check_laws(request);
  bool broken = false;
  Json list = Json::array();
  for (const Law& law : laws) {
    broken |= law.claimed && !law.holds;
    Json one;
    one["law"] = law.name;
    one["about"] = law.about;
    one["claimed"] = law.claimed;
    one["holds"] = law.worst || law.claimed ? Json(law.holds) : Json(nullptr);
    one["verdict"] = verdict(law);
    one["worst"] = law.worst ? Json(*law.worst) : Json(nullptr);
    one["bound"] = law.bound;
    one["note"] = law.note;
    list.push_back(one);
  }
  const std::string norm = request.qk_norm == QkNorm::Before  ? "before"
                           : request.qk_norm == QkNorm::After ? "after"
                                                              : "none";
  if (common.json) {
    Json json;
    json["encoding"] = print(parse(request.encoding));
    json["qk_norm"] = norm;
    json["laws"] = list;
    std::cout << json_text(json, 1) << "\n";
    return broken ? 1 : 0;
  }
  std::cout << print(parse(request.encoding)) << (norm == "none" ? "" : ", QK-norm " + norm + " the moves")
            << ": worst error over random cases in float64\n";
  for (const Law& law : laws) {
    const std::string worst = law.worst ? short_number(*law.worst) : "-";
    std::cout << "  " << std::left << std::setw(15) << law.name << " " << std::setw(14) << verdict(law) << " "
              << std::setw(9) << worst << " " << law.about << (law.note.empty() ? "" : " (" + law.note + ")") << "\n";
  }
  return broken ? 1 : 0;
}

void add_laws(Command& app, CommonOptions& common, Chosen& chosen) {
  auto request = std::make_shared<LawsRequest>();
  auto norm = std::make_shared<std::string>("none");
  Command* command = app.add_subcommand("laws", "which laws hold, with the worst error found");
  command->footer(
      "Exits with 1 when a law that the encoding claims does not hold.\n"
      "Example: torsor laws 'rope + alibi' --head-dim 32\n"
      "Example: torsor laws rope --qk-norm after");
  command->add_option("expression", request->encoding, "an encoding")->required();
  command->add_option("--head-dim", request->head_dim, "channels of a head")
      ->check(whole_number(1, kMostHeads))
      ->capture_default_str();
  command->add_option("--heads", request->heads, "query heads; left out: what the expression allows")
      ->check(whole_number(1, kMostHeads));
  command->add_option("--kv-heads", request->kv_heads, "key heads")->check(whole_number(1, kMostHeads));
  command->add_option("--train-length", request->train_length, "the model's training length; left out: a short one")
      ->check(whole_number(1));
  command
      ->add_option("--qk-norm", *norm,
                   "normalise q and k a head, with random gains, before or after the encoding moves them")
      ->check(one_of({"none", "before", "after"}))
      ->capture_default_str();
  command->callback([&common, &chosen, request, norm] {
    chosen = [&common, request, norm] {
      request->qk_norm = *norm == "before" ? QkNorm::Before : *norm == "after" ? QkNorm::After : QkNorm::None;
      return run_laws(*request, common);
    };
  });
}

// --------------------------------------------------------------------------------------------------------------------
// check

struct CheckArguments {
  std::vector<std::string> files;
  std::string path = "reference";
  std::string dtype = "float64";
};

const char* status_word(CaseResult::Status status) {
  switch (status) {
    case CaseResult::Status::Passed:
      return "pass";
    case CaseResult::Status::Failed:
      return "FAIL";
    case CaseResult::Status::Skipped:
      return "skip";
    case CaseResult::Status::NotOnThisPath:
      return "not on this path";
  }
  return "";
}

std::string case_line(const CaseResult& result) {
  std::string line = str(status_word(result.status), "  ", result.id, "  ");
  if (result.tensor.empty() || !result.reason.empty()) return line + result.reason;
  return line + str(short_number(result.share), " of the tolerance (", result.tensor, ", error ",
                    short_number(result.error), ")");
}

Json case_to_json(const std::string& file, const ConformanceCase& c, const CaseResult& result) {
  Json json;
  json["file"] = file;
  json["id"] = result.id;
  json["encoding"] = c.encoding;
  json["status"] = result.status == CaseResult::Status::Failed ? "fail" : status_word(result.status);
  json["tensor"] = result.tensor.empty() ? Json(nullptr) : Json(result.tensor);
  json["share"] = result.tensor.empty() ? Json(nullptr) : Json(result.share);  // infinite becomes null
  json["error"] = result.tensor.empty() ? Json(nullptr) : Json(result.error);
  json["reason"] = result.reason;
  return json;
}

int run_check(const CheckArguments& arguments, const CommonOptions& common) {
  refuse_out(common, "check");
  using Status = CaseResult::Status;
  const CheckPath path = check_path_named(arguments.path);
  check_dtype_named(arguments.dtype);
  std::map<Status, std::int64_t> counts;
  std::map<std::string, std::vector<std::string>> apart;  // reason -> cases, of those that were not compared
  Json cases = Json::array();
  for (const std::string& name : arguments.files) {
    const ConformanceFile file = read_conformance(name, Faulty::Kept);
    if (!common.json && !common.quiet && arguments.files.size() > 1) std::cout << "# " << name << "\n";
    for (const ConformanceCase& c : file.cases) {
      if (stop_requested) throw Interrupted("check was stopped");
      const CaseResult result = check_case(c, path, arguments.dtype);
      ++counts[result.status];
      if (result.status == Status::Skipped || result.status == Status::NotOnThisPath)
        apart[str(status_word(result.status), ", ", result.reason)].push_back(result.id);
      if (common.json)
        cases.push_back(case_to_json(name, c, result));
      else if (!common.quiet || result.status == Status::Failed)
        std::cout << case_line(result) << "\n";
    }
  }
  const bool cached = path == CheckPath::Step || path == CheckPath::Chunk;
  if (common.json) {
    Json json;
    json["path"] = arguments.path;
    json["dtype"] = arguments.dtype;
    json["gradients"] = !cached;
    json["passed"] = counts[Status::Passed];
    json["failed"] = counts[Status::Failed];
    json["skipped"] = counts[Status::Skipped];
    json["not_on_this_path"] = counts[Status::NotOnThisPath];
    json["cases"] = std::move(cases);
    std::cout << json_text(json, 1) << "\n";
  } else {
    if (cached) std::cout << "out, lse and carried only: gradients and next states are not compared on this path\n";
    for (const auto& [reason, ids] : apart) {
      std::cout << ids.size() << " " << reason << ": ";
      for (std::size_t i = 0; i < ids.size(); ++i) std::cout << (i == 0 ? "" : ", ") << ids[i];
      std::cout << "\n";
    }
    std::cout << counts[Status::Passed] << " passed, " << counts[Status::Failed] << " failed, "
              << counts[Status::Skipped] << " skipped\n";
  }
  return counts[Status::Failed] == 0 ? 0 : 1;
}

void add_check(Command& app, CommonOptions& common, Chosen& chosen) {
  auto arguments = std::make_shared<CheckArguments>();
  Command* command = app.add_subcommand("check", "recompute the cases of conformance files and compare");
  command->footer(
      "Paths: reference; fused; step and chunk (through the KV cache; out, lse and carried only).\n"
      "Example: torsor check conformance/*.json --dtype float32");
  command->add_option("files", arguments->files, "conformance files")->required();
  command->add_option("--path", arguments->path, "reference, fused, step or chunk")->capture_default_str();
  command->add_option("--dtype", arguments->dtype, "float64, float32 or bf16")->capture_default_str();
  command->callback(
      [&common, &chosen, arguments] { chosen = [&common, arguments] { return run_check(*arguments, common); }; });
}

// --------------------------------------------------------------------------------------------------------------------
// record

int run_record(const std::string& name, const CommonOptions& common) {
  const std::string out = common.out.empty() ? name : common.out;
  if (!common.out.empty() && !common.force && std::filesystem::exists(out))
    throw Error(str("'", out, "' exists; replace it with --force"));
  ConformanceFile file = read_conformance(name);
  const Recorded recorded = record_missing(file);
  if (recorded.cases > 0 || out != name) write_file_atomic(out, conformance_text(file.json));
  if (common.json) {
    Json json;
    json["out"] = out;
    json["filled"] = recorded.cases;
    std::cout << json_text(json, 1) << "\n";
  } else {
    std::cout << recorded.cases << " of " << file.cases.size() << " cases filled in, written to " << out << "\n";
  }
  return 0;
}

void add_record(Command& app, CommonOptions& common, Chosen& chosen) {
  auto file = std::make_shared<std::string>();
  Command* command = app.add_subcommand("record", "fill in what the cases of a conformance file lack");
  command->footer(
      "Outputs are computed in float64 on the reference path; what the file already says stays as it is.\n"
      "Without --out the file itself is completed.\n"
      "Example: torsor record cases.json --out recorded.json");
  command->add_option("file", *file, "a conformance file")->required();
  command->callback([&common, &chosen, file] { chosen = [&common, file] { return run_record(*file, common); }; });
}

}  // namespace

void add_inspect_commands(Command& app, CommonOptions& common, Chosen& chosen) {
  add_encodings(app, common, chosen);
  add_values(app, common, chosen);
  add_laws(app, common, chosen);
  add_record(app, common, chosen);
  add_check(app, common, chosen);
}

}  // namespace torsor

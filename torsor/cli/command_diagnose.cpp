// torsor diagnose
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include "torsor/base/file.h"
#include "torsor/cli/common.h"
#include "torsor/data/grammar.h"
#include "torsor/lab/data.h"
#include "torsor/lab/diagnosis.h"
#include "torsor/lab/diagnosis_words.h"
#include "torsor/lab/values.h"
#include "torsor/model/checkpoint.h"
#include "torsor/report/diagnosis.h"

namespace torsor {
namespace {

namespace fs = std::filesystem;

struct DiagnoseArguments {
  std::string subject;
  std::vector<std::int64_t> lengths;
  std::vector<std::string> text;
  std::string tokens;
  std::int64_t token_bytes = 2, spans = 4, train_length = 0;
  Dimensions dimensions{.heads = 8, .head_dim = 64};
  std::string encoding, precision, base;
  std::vector<std::string> of_expression, of_checkpoint;  ///< options that were given and go with one of them only
};

/// Whether the subject is a checkpoint. A name that is a folder without one and an expression too is the expression.
bool is_checkpoint(const std::string& subject) {
  if (!fs::exists(subject)) return false;
  const fs::path folder(subject);
  if (fs::is_regular_file(folder) || fs::exists(folder / "config.json") || fs::exists(folder / "adapter.json"))
    return true;
  try {
    parse(subject);
    return false;
  } catch (const UsageError&) {
    return true;  // what is missing in the folder is said when it is read
  }
}

/// What was meant by a subject that is neither.
[[noreturn]] void refuse_subject(const std::string& subject, const UsageError& error) {
  const auto ends = [&](const char* end) { return subject.ends_with(end); };
  if (subject.find('/') != std::string::npos || ends(".bin") || ends(".gguf"))
    throw Error(str("'", subject, "': no such file or folder"));
  throw UsageError(str("'", subject, "' is no file or folder, and no expression: ", error.what()));
}

std::int64_t claimed_length(const Expression& expression) {
  // Only where nothing else says at which length the model was trained.
  for (const Term& term : expression.terms)
    for (const Argument& argument : term.arguments)
      if (argument.key == "train_length" || (term.name == "learned" && argument.key == "length"))
        if (const double* value = std::get_if<double>(&argument.value)) return static_cast<std::int64_t>(*value);
  return 0;
}

std::vector<std::int64_t> ascending(std::vector<std::int64_t> lengths) {
  std::sort(lengths.begin(), lengths.end());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  return lengths;
}

/// The training length, twice and four times it, as far as the text goes; `tokens` of its longest document, 0 = any.
std::vector<std::int64_t> usual_lengths(std::int64_t trained, std::int64_t tokens) {
  std::vector<std::int64_t> lengths = {trained, 2 * trained, 4 * trained};
  if (tokens == 0 || tokens > lengths.back()) return lengths;
  const std::int64_t longest = std::max<std::int64_t>(1, tokens - 1);
  std::erase_if(lengths, [&](std::int64_t length) { return length >= longest; });
  lengths.push_back(longest);
  return lengths;
}

struct Text {
  Corpus corpus;
  std::string about;
};

/// What a checkpoint is measured on; nothing, with a reason, where it reads no text.
std::optional<Text> find_text(const DiagnoseArguments& arguments, const LoadedModel& loaded, std::int64_t longest,
                              std::uint64_t seed, std::string& reason) {
  const ModelConfig& config = loaded.model.config();
  if (!loaded.model.encoding().inputs().empty()) {
    reason = str("'", config.encoding, "' reads what a parser makes of a text");
    return std::nullopt;
  }
  if (!arguments.tokens.empty())
    return Text{load_tokens(arguments.tokens, static_cast<std::size_t>(arguments.token_bytes),
                            static_cast<std::uint32_t>(config.vocabulary_size)),
                str("the tokens of ", arguments.tokens)};
  if (!loaded.reader) {
    if (!arguments.text.empty())
      throw Error(str(arguments.subject, ": the model reads '", loaded.tokenizer, "', no text; give --tokens"));
    reason = str("the model reads '", loaded.tokenizer, "', no text; give --tokens");
    return std::nullopt;
  }
  if (!arguments.text.empty()) {
    std::string names;
    for (const std::string& one : arguments.text) names += (names.empty() ? "" : ", ") + one;
    return Text{load_texts(arguments.text, loaded.reader).corpus, names};
  }
  // Documents long enough for a window each, whatever a token is; the fewest bytes a token has is one.
  constexpr std::size_t bytes_of_token = 6;
  Corpus corpus;
  GrammarOptions grammar;
  grammar.seed = seed;
  grammar.target_bytes =
      (static_cast<std::size_t>(longest) + 2) * (loaded.reader->vocabulary_size() > 256 ? bytes_of_token : 1);
  for (std::int64_t n = 0; n < std::max<std::int64_t>(1, arguments.spans); ++n)
    append(corpus,
           text_corpus(generate_document(grammar, static_cast<std::uint64_t>(n)).text, str("generated ", n + 1)));
  return Text{loaded.reader->name() == corpus.tokenizer ? corpus : tokenized(corpus, loaded.reader),
              str("text that torsor generates (seed ", seed, ")")};
}

std::string repeat_command(const DiagnoseArguments& arguments, const std::vector<std::int64_t>& lengths,
                           const CommonOptions& common, bool checkpoint, std::int64_t trained) {
  std::string line = "torsor diagnose " + shell_word(arguments.subject) + " --lengths ";
  for (std::size_t i = 0; i < lengths.size(); ++i) line += str(i ? "," : "", lengths[i]);
  if (!checkpoint || arguments.train_length > 0) line += str(" --train-length ", trained);
  if (!checkpoint) {
    line += str(" --head-dim ", arguments.dimensions.head_dim, " --heads ", arguments.dimensions.heads);
    if (arguments.dimensions.kv_heads > 0) line += str(" --kv-heads ", arguments.dimensions.kv_heads);
    return line;
  }
  for (std::size_t i = 0; i < arguments.text.size(); ++i)
    line += (i ? " " : " --text ") + shell_word(arguments.text[i]);
  if (!arguments.tokens.empty())
    line += str(" --tokens ", shell_word(arguments.tokens), " --token-bytes ", arguments.token_bytes);
  if (!arguments.encoding.empty()) line += " --encoding " + shell_word(arguments.encoding);
  if (!arguments.precision.empty()) line += " --precision " + arguments.precision;
  if (!arguments.base.empty()) line += " --base " + shell_word(arguments.base);
  if (arguments.spans != 4) line += str(" --spans ", arguments.spans);
  if (common.seed != 0) line += str(" --seed ", common.seed);
  return line;
}

Diagnosis diagnose_expression(DiagnoseArguments& arguments, std::vector<std::int64_t>& lengths, bool heads_given) {
  if (!arguments.of_checkpoint.empty())
    throw UsageError(str(arguments.of_checkpoint.front(), " goes with a checkpoint, and '", arguments.subject,
                         "' is an expression"));
  Expression expression;
  try {
    expression = parse(arguments.subject);
  } catch (const UsageError& error) {
    refuse_subject(arguments.subject, error);
  }
  Dimensions& dimensions = arguments.dimensions;
  dimensions.train_length = arguments.train_length > 0 ? arguments.train_length : claimed_length(expression);
  if (!heads_given && dimensions.kv_heads == 0) dimensions.heads = fitting_heads(arguments.subject, dimensions);
  if (dimensions.train_length == 0)
    throw UsageError("diagnose needs the length that the model was trained at: give --train-length");
  if (lengths.empty()) lengths = usual_lengths(dimensions.train_length, 0);
  Diagnosis diagnosis;
  diagnosis.facts = facts_of({arguments.subject, dimensions, lengths, nullptr, false});
  diagnosis.layers = make_encoding(expression, dimensions)->period();
  diagnosis.not_measured = "an expression alone has no weights; give a checkpoint to see what a text tells";
  return diagnosis;
}

Diagnosis diagnose_checkpoint(const DiagnoseArguments& arguments, std::vector<std::int64_t>& lengths,
                              const CommonOptions& common) {
  if (!arguments.of_expression.empty())
    throw UsageError(str(arguments.of_expression.front(), " goes with an expression, and '", arguments.subject,
                         "' is a checkpoint"));
  if (!arguments.text.empty() && !arguments.tokens.empty())
    throw UsageError("give either --text or --tokens, not both");
  check_precision(arguments.precision);
  const LoadedModel loaded =
      load_checkpoint(arguments.subject, arguments.encoding, arguments.precision, arguments.base);
  const ModelConfig& config = loaded.model.config();
  Dimensions dimensions = config.dimensions();
  if (arguments.train_length > 0) dimensions.train_length = arguments.train_length;
  if (dimensions.train_length < 1)
    throw UsageError(str(arguments.subject, " does not say at which length it was trained: give --train-length"));
  Diagnosis diagnosis;
  diagnosis.checkpoint = arguments.subject;
  diagnosis.layers = config.layers;
  const std::vector<std::int64_t> wished = lengths.empty() ? usual_lengths(dimensions.train_length, 0) : lengths;
  const std::optional<Text> text = find_text(arguments, loaded, wished.back(), common.seed, diagnosis.not_measured);
  if (lengths.empty())
    lengths = usual_lengths(dimensions.train_length, text ? static_cast<std::int64_t>(text->corpus.longest()) : 0);
  if (lengths.back() < wished.back())
    say(common,
        str("the longest text has ", text->corpus.longest(), " tokens, so ", lengths.back(), " is the longest length"));
  diagnosis.facts = facts_of({config.encoding, dimensions, lengths, &loaded.model, arguments.encoding.empty()});
  if (!text) return diagnosis;

  std::optional<Progress> progress;  // once it is known how much there is to do
  MeasureRequest request;
  request.train_length = dimensions.train_length;
  request.windows = arguments.spans;
  request.text = text->about;
  request.stop = [] { return stop_requested.load(); };
  request.progress = [&](std::int64_t done, std::int64_t total) {
    if (done == 1) {
      Progress::Options options = progress_options(common, "diagnose");
      options.total = total;
      progress.emplace(std::move(options));
    }
    progress->update(done);
  };
  // A length that the encoding refuses is a finding; the next shorter one is measured.
  for (auto length = lengths.rbegin(); length != lengths.rend(); ++length) {
    request.length = *length;
    try {
      diagnosis.measures = measure(loaded.model, text->corpus, request);
      diagnosis.not_measured.clear();
      break;
    } catch (const Refusal& refusal) {
      diagnosis.not_measured = refusal.what();
    }
  }
  if (progress) progress->finish();
  return diagnosis;
}

int run_diagnose(DiagnoseArguments arguments, const CommonOptions& common, bool heads_given) {
  if (!common.out.empty() && !common.force && fs::exists(common.out))
    throw Error(str("'", common.out, "' exists; replace it with --force"));
  std::vector<std::int64_t> lengths = ascending(arguments.lengths);
  const bool checkpoint = is_checkpoint(arguments.subject);
  Diagnosis diagnosis = checkpoint ? diagnose_checkpoint(arguments, lengths, common)
                                   : diagnose_expression(arguments, lengths, heads_given);
  judge(diagnosis);
  Json json = diagnosis_to_json(diagnosis);
  json["repeat"] = repeat_command(arguments, lengths, common, checkpoint, diagnosis.facts.dimensions.train_length);
  // What is shown is what is written: numbers that are not finite are null in both.
  json = parse_json(json_text(json), "diagnosis");
  if (!common.out.empty()) write_file_atomic(common.out, report::diagnosis_page(json));
  if (common.json)
    std::cout << json_text(json, 1) << "\n";
  else
    std::cout << report::diagnosis_text(json);
  if (!common.out.empty()) say(common, "the page is in " + common.out);
  return 0;
}

}  // namespace

void add_diagnose_command(Command& app, CommonOptions& common, Chosen& chosen) {
  auto arguments = std::make_shared<DiagnoseArguments>();
  Command* command =
      app.add_subcommand("diagnose", "what breaks past the training length of a checkpoint or an expression, and why");
  command->footer(
      "Of an expression, what can be expected; of a checkpoint, also what is measured on a text.\n"
      "--out writes the page with the pictures.\n"
      "Example: torsor diagnose 'yarn(rope, factor=4)' --train-length 512 --lengths 512,2048,4096 --out report.html\n"
      "Example: torsor diagnose run --text other.txt --lengths 128,512");
  command->add_option("subject", arguments->subject, "a checkpoint, an adapter or an expression")->required();
  command
      ->add_option("--lengths", arguments->lengths,
                   "lengths to look at, in tokens; left out: the training length, twice and four times it")
      ->delimiter(',')
      ->check(whole_number(1));
  command
      ->add_option("--train-length", arguments->train_length,
                   "the length that the model was trained at; left out: what the checkpoint or the expression says")
      ->check(whole_number(1));
  const auto group = [&](CommandOption* option, const char* name, std::vector<std::string> DiagnoseArguments::*list) {
    option->each([arguments, name, list](const std::string&) { ((*arguments).*list).push_back(name); });
    return option;
  };
  const auto of_expression = &DiagnoseArguments::of_expression, of_checkpoint = &DiagnoseArguments::of_checkpoint;
  group(command->add_option("--head-dim", arguments->dimensions.head_dim, "channels of a head")
            ->check(whole_number(1, kMostHeads))
            ->capture_default_str(),
        "--head-dim", of_expression);
  CommandOption* heads = group(command
                                   ->add_option("--heads", arguments->dimensions.heads,
                                                "query heads; left out: 8, or what the expression allows")
                                   ->check(whole_number(1, kMostHeads)),
                               "--heads", of_expression);
  group(command->add_option("--kv-heads", arguments->dimensions.kv_heads, "key heads; left out: as many as query heads")
            ->check(whole_number(1, kMostHeads)),
        "--kv-heads", of_expression);
  group(command->add_option("--text", arguments->text,
                            "UTF-8 files or folders to measure a checkpoint on; left out: generated text"),
        "--text", of_checkpoint);
  group(command->add_option("--tokens", arguments->tokens, "a headerless file of token ids instead of text"),
        "--tokens", of_checkpoint);
  command->add_option("--token-bytes", arguments->token_bytes, "bytes of a token id: 2 or 4")
      ->check(one_of({"2", "4"}));
  group(command->add_option("--spans", arguments->spans, "most windows of the largest length that are read; 0 = all")
            ->check(whole_number(0))
            ->capture_default_str(),
        "--spans", of_checkpoint);
  group(command->add_option("--encoding", arguments->encoding, "read the weights under another expression"),
        "--encoding", of_checkpoint);
  group(command->add_option("--precision", arguments->precision, "exact or hf"), "--precision", of_checkpoint);
  group(command->add_option("--base", arguments->base, "where an adapter's base lies, if not where it was recorded"),
        "--base", of_checkpoint);
  command->callback([&common, &chosen, arguments, heads] {
    chosen = [&common, arguments, heads] { return run_diagnose(*arguments, common, heads->count() > 0); };
  });
}

}  // namespace torsor

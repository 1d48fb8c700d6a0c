// torsor generate
#include <iomanip>
#include <iostream>
#include <sstream>

#include "torsor/base/json.h"
#include "torsor/base/utf8.h"
#include "torsor/cli/feed_options.h"
#include "torsor/lab/run.h"
#include "torsor/model/checkpoint.h"
#include "torsor/model/encoder_decoder.h"
#include "torsor/model/generate.h"
#include "torsor/model/structure_embedder.h"
#include "torsor/model/text_output.h"

namespace torsor {
namespace {

struct GenerateArguments {
  std::string checkpoint, base, encoding, precision;
  std::string dtype = "float32", cache_dtype = "float32", weights = "auto";
  std::vector<std::string> prompts;
  std::string prompt_file;
  bool ids = false;
  std::vector<std::string> stops;
  GenerateOptions options;
  bool sinks_given = false;
  FeedArguments feed;
};

std::vector<std::string> prompts_of(const GenerateArguments& arguments) {
  std::vector<std::string> prompts = arguments.prompts;
  if (!arguments.prompt_file.empty()) prompts.push_back(read_input(arguments.prompt_file));
  if (prompts.empty()) throw UsageError("generate needs --prompt or --prompt-file");
  for (const std::string& prompt : prompts)
    if (prompt.empty()) throw UsageError("generate: a prompt must not be empty: the first token needs one before it");
  return prompts;
}

std::vector<std::int64_t> ids_of(const std::string& prompt) {
  try {
    const std::vector<TokenId> ids = read_ids(prompt, "--ids");
    return {ids.begin(), ids.end()};
  } catch (const Error& error) {
    throw UsageError(error.what());  // a prompt is a request
  }
}

/// What one row writes, as bytes that may be shown.
class RowOutput {
 public:
  RowOutput(const Tokenizer* reader, const std::vector<std::string>& stops) : reader_(reader), text_(stops) {}

  /// Bytes to show now.
  std::string add(std::int64_t token) {
    const std::string bytes = reader_ != nullptr ? reader_->text_of(static_cast<TokenId>(token)) : str(" ", token);
    return kept(text_.add(bytes));
  }
  std::string rest() { return kept(text_.rest()); }
  bool ended() const { return text_.ended(); }
  const std::string& all() const { return all_; }

 private:
  std::string kept(std::string bytes) {
    all_ += bytes;
    return bytes;
  }

  const Tokenizer* reader_;
  TextOutput text_;
  std::string all_;
};

void tell_figures(const Generated& made, std::int64_t read, bool stopped_by_text, const CommonOptions& common) {
  std::ostringstream line;
  line << std::fixed << std::setprecision(1) << read << (read == 1 ? " token" : " tokens") << " read";
  if (made.prompt_seconds > 0) line << " at " << static_cast<double>(read) / made.prompt_seconds << " tokens/s";
  std::size_t written = 0;
  for (const auto& row : made.tokens) written += row.size();
  line << ", " << written << " written";
  if (made.decoded > 0 && made.seconds > 0)
    line << " at " << static_cast<double>(made.decoded) / made.seconds << " tokens/s";
  if (made.ended.size() == 1) line << "; ended: " << (stopped_by_text ? "stop string" : ending_name(made.ended[0]));
  say(common, line.str());
}

/// What matrices are kept in while a text is written.
template <class Model>
void keep_weights(Model& model, const std::string& name) {
  model.keep_matrices(name == "auto" ? model.lossless_matrices() : name == "float16" ? at::kHalf : dtype_named(name));
}

/// What a checkpoint writes with.
struct Writer {
  std::string tokenizer, expression;
  std::shared_ptr<const Tokenizer> reader;
  std::vector<std::int64_t> end_tokens;
  bool goes_on = true;  ///< from the prompt; an encoder-decoder model answers it
  std::function<Generated(const std::vector<std::vector<std::int64_t>>& rows, const GenerateOptions& options)> write;
};

Writer decoder_writer(const GenerateArguments& arguments, GenerateOptions& options, const CommonOptions& common) {
  const auto loaded = std::make_shared<LoadedModel>(
      load_checkpoint(arguments.checkpoint, arguments.encoding, arguments.precision, arguments.base));
  keep_weights(loaded->model, arguments.weights);
  if (!loaded->unread.empty() && !arguments.ids)
    throw Error(str("the tokenizer is not read, give prompts as --ids: ", loaded->unread));
  const Encoding& encoding = loaded->model.encoding();
  const auto feed = feed_of(arguments.feed, /*causal=*/true, {}, {}, "", common);
  require_embedder(encoding, loaded->embedder, feed ? feed->embedder() : std::string(), arguments.checkpoint);
  if (!encoding.inputs().empty()) {
    check_feed(feed.get(), encoding, true, common);
    if (!loaded->reader) throw Error(str(arguments.checkpoint, ": the ids are no text that could be parsed"));
    if (!feed) throw UsageError(str("'", encoding.expression(), "' reads the syntax of the text: give --parser"));
    options.inputs = stream_inputs(feed->stream(encoding), loaded->reader);
  }
  return {loaded->tokenizer,
          encoding.expression(),
          loaded->reader,
          loaded->end_tokens,
          true,
          [loaded, feed](const auto& rows, const GenerateOptions& how) { return generate(loaded->model, rows, how); }};
}

Writer encoder_decoder_writer(const GenerateArguments& arguments) {
  for (const auto& [given, name] :
       {std::pair(!arguments.encoding.empty(), "--encoding"), std::pair(!arguments.precision.empty(), "--precision"),
        std::pair(!arguments.base.empty(), "--base"),
        std::pair(!arguments.feed.parsers.empty() || !arguments.feed.parses.empty(), "parsers")})
    if (given) throw UsageError(str(name, ": only a decoder alone takes this"));
  const auto loaded = std::make_shared<LoadedEncoderDecoder>(load_encoder_decoder(arguments.checkpoint));
  keep_weights(loaded->model, arguments.weights);
  const EncoderDecoderConfig& config = loaded->model.config();
  return {loaded->tokenizer,
          config.decoder.encoding,
          loaded->reader,
          config.end_tokens,
          false,
          [loaded](const auto& rows, const GenerateOptions& how) { return loaded->model.generate(rows, how); }};
}

int run_generate(const GenerateArguments& arguments, const CommonOptions& common) {
  refuse_out(common, "generate");
  const std::vector<std::string> prompts = prompts_of(arguments);
  GenerateOptions options = arguments.options;
  options.sampling.seed = common.seed;
  options.sampling.check();
  options.dtype = dtype_named(arguments.dtype);
  options.cache_dtype = dtype_named(arguments.cache_dtype);
  if (arguments.sinks_given && options.window == 0) throw UsageError("--sinks goes with --window");
  TextOutput(arguments.stops);  // says what is wrong with them before a checkpoint is read
  check_precision(arguments.precision);

  const bool two = is_encoder_decoder(arguments.checkpoint);
  const Writer writer = two ? encoder_decoder_writer(arguments) : decoder_writer(arguments, options, common);
  if (!writer.reader && !arguments.ids)
    throw Error(
        str(arguments.checkpoint, ": the model reads '", writer.tokenizer, "', no text; give prompts as --ids"));
  options.end_tokens = writer.end_tokens;
  const Tokenizer* reader = arguments.ids ? nullptr : writer.reader.get();
  std::vector<std::vector<std::int64_t>> rows;
  std::int64_t read = 0;
  for (const std::string& prompt : prompts) {
    if (reader != nullptr) {
      const std::vector<TokenId> ids = reader->encode(prompt);
      rows.emplace_back(ids.begin(), ids.end());
      // A source ends as those did that the model was trained on.
      if (!writer.goes_on && !writer.end_tokens.empty()) rows.back().push_back(writer.end_tokens.front());
    } else {
      rows.push_back(ids_of(prompt));
    }
    read += static_cast<std::int64_t>(rows.back().size());
  }
  const bool live = rows.size() == 1 && !common.json;
  std::vector<RowOutput> outputs(rows.size(), RowOutput(reader, arguments.stops));
  const auto show = [&](const std::string& bytes) {
    std::cout << bytes << std::flush;
    if (!std::cout) throw Error("cannot write to standard output");
  };
  options.stop = [] { return stop_requested.load(); };
  options.on_token = [&](std::int64_t row, std::int64_t token) {
    RowOutput& output = outputs[static_cast<std::size_t>(row)];
    const std::string bytes = output.add(token);
    if (live) show(bytes);
    return output.ended();
  };
  if (live && writer.goes_on) show(prompts.front());
  const Generated made = writer.write(rows, options);
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const std::string rest = outputs[row].ended() ? "" : outputs[row].rest();
    if (live) show(rest + "\n");
  }
  const auto why = [&](std::size_t row) {
    return outputs[row].ended() ? std::string("stop string") : ending_name(made.ended[row]);
  };
  if (common.json) {
    Json json;
    json["checkpoint"] = arguments.checkpoint;
    json["encoding"] = writer.expression;
    json["rows"] = Json::array();
    for (std::size_t row = 0; row < rows.size(); ++row)
      json["rows"].push_back({{"prompt", prompts[row]},
                              {"prompt_tokens", rows[row]},
                              {"text", outputs[row].all()},
                              {"tokens", made.tokens[row]},
                              {"ended", why(row)}});
    json["prompt_seconds"] = made.prompt_seconds;
    json["seconds"] = made.seconds;
    json["tokens_per_second"] =
        made.decoded > 0 && made.seconds > 0 ? Json(static_cast<double>(made.decoded) / made.seconds) : Json(nullptr);
    std::cout << json_text(json, 1) << "\n";
  } else if (!live) {
    for (std::size_t row = 0; row < rows.size(); ++row)
      show(str("--- ", row + 1, ", ended: ", why(row), "\n", prompts[row], writer.goes_on ? "" : " -> ",
               outputs[row].all(), "\n"));
  }
  tell_figures(made, read, outputs.front().ended(), common);
  if (stop_requested) throw Interrupted("stopped; what was written by then was shown");
  return 0;
}

}  // namespace

void add_generate_command(Command& app, CommonOptions& common, Chosen& chosen) {
  auto arguments = std::make_shared<GenerateArguments>();
  GenerateOptions& options = arguments->options;
  options.sampling.temperature = 1;
  Command* command = app.add_subcommand("generate", "text from a checkpoint");
  command->footer(
      "Example: torsor generate run --prompt 'The old king' --temperature 0.8 --top-p 0.95\n"
      "Example: torsor generate run --prompt 'Once' --window 128 --max-tokens 100000");
  command
      ->add_option("checkpoint", arguments->checkpoint,
                   "a checkpoint (a folder, a .gguf, llama2.c's .bin) or an adapter")
      ->required();
  command->add_option("--prompt", arguments->prompts, "texts to go on with, one a row; several are written together")
      ->take_all();
  command->add_option("--prompt-file", arguments->prompt_file, "a file with one more prompt; - = standard input");
  command->add_flag("--ids", arguments->ids,
                    "prompts are token ids with blanks between them, and so is what is written");
  command->add_option("--max-tokens", options.max_tokens, "new tokens a row")
      ->check(whole_number(1))
      ->capture_default_str();
  command->add_option("--temperature", options.sampling.temperature, "0 = the most probable token, always")
      ->check(real_number(true))
      ->capture_default_str();
  command->add_option("--top-k", options.sampling.top_k, "draw from the k most probable tokens; 0 = from all")
      ->check(whole_number(0))
      ->capture_default_str();
  command->add_option("--top-p", options.sampling.top_p, "draw from the most probable ones that reach this share")
      ->check(real_number(false))
      ->capture_default_str();
  command->add_option("--stop", arguments->stops, "end before this text; several: before the first that occurs")
      ->take_all();
  command->add_option("--window", options.window, "most tokens that the cache holds; 0 = all of them")
      ->check(whole_number(0))
      ->capture_default_str();
  CommandOption* sinks =
      command
          ->add_option("--sinks", options.sinks, "with --window: first tokens that stay when it is full and others go")
          ->check(whole_number(0))
          ->capture_default_str();
  command->add_option("--chunk", options.chunk, "most tokens of a prompt that are read at once; 0 = all")
      ->check(whole_number(0))
      ->capture_default_str();
  command->add_option("--encoding", arguments->encoding, "read the weights under another expression");
  command->add_option("--precision", arguments->precision, "exact or hf");
  command->add_option("--base", arguments->base, "where an adapter's base lies, if not where it was recorded");
  command->add_option("--dtype", arguments->dtype, "of the matrix products: float32 or bf16")->capture_default_str();
  command
      ->add_option("--weights", arguments->weights,
                   "what matrices are kept in: float32, float16, bf16, or auto: the smallest that changes no number")
      ->check(one_of({"auto", "float32", "float16", "bf16"}))
      ->capture_default_str();
  command->add_option("--cache-dtype", arguments->cache_dtype, "of keys and values in the cache: float32 or bf16")
      ->capture_default_str();
  add_feed_options(command, arguments->feed);
  command->callback([&common, &chosen, arguments, sinks] {
    arguments->sinks_given = sinks->count() > 0;
    chosen = [&common, arguments] { return run_generate(*arguments, common); };
  });
}

}  // namespace torsor

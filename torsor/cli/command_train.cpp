// torsor train, torsor eval
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <numbers>
#include <optional>

#include "torsor/base/file.h"
#include "torsor/cli/eval_encoder.h"
#include "torsor/cli/feed_options.h"
#include "torsor/cli/syntax_options.h"
#include "torsor/lab/encoder_run.h"
#include "torsor/lab/evaluate.h"
#include "torsor/lab/perplexity.h"
#include "torsor/lab/run.h"
#include "torsor/lab/tasks.h"
#include "torsor/model/checkpoint.h"
#include "torsor/model/encoder_decoder.h"
#include "torsor/model/structure_embedder.h"
#include "torsor/train/state.h"

namespace torsor {
namespace {

struct TrainArguments {
  std::string encoding;
  DataSource data;
  FeedArguments feed;
  RunPlan plan;
  std::string model;
  std::int64_t save_every = 50;
  bool resume = false;
};

void print_trained(const CommonOptions& common, const std::string& encoding, const TrainResult& train,
                   std::int64_t parameters) {
  const double speed = train.seconds > 0 ? static_cast<double>(train.tokens) / train.seconds : 0;
  if (common.json) {
    Json json;
    json["encoding"] = encoding;
    json["out"] = common.out;
    json["steps"] = train.losses.size();
    json["loss"] = train.losses.back();
    json["parameters"] = parameters;
    json["tokens_per_second"] = speed;
    std::cout << json_text(json) << "\n";
  } else {
    std::cout << "final loss " << train.losses.back() << ", " << static_cast<std::int64_t>(speed)
              << " tokens/s, checkpoint in " << common.out << "\n";
  }
}

int run_train(const TrainArguments& arguments, const CommonOptions& common) {
  if (common.out.empty()) throw UsageError("train needs --out, the folder of the run");
  RunPlan plan = arguments.plan;
  plan.encoding = print(parse(arguments.encoding));
  plan.seed = common.seed;
  dtype_named(plan.dtype);
  std::optional<EncoderPlan> encoder;
  if (!arguments.model.empty()) {
    const Json file = read_json(arguments.model);
    if (is_encoder(file)) {
      if (!arguments.data.tokens.empty()) throw UsageError("an encoder is trained on text, not on --tokens");
      if (!arguments.data.tokenizer.empty()) throw UsageError("an encoder reads bytes and takes no --tokenizer");
      encoder.emplace();
      encoder->encoder = encoder_from_json(file, arguments.model);
    } else {
      plan.model = model_from_json(file, arguments.model);
    }
  } else {
    plan.model.complete();
  }
  plan.warmup_steps = std::min(plan.warmup_steps, plan.steps);
  if (!common.force) {
    const auto present = [&](const char* name) { return std::filesystem::exists(common.out + "/" + name); };
    const bool run_there = present("state.safetensors");
    if (run_there && !arguments.resume)
      throw Error(str("'", common.out, "' already holds a run; go on with --resume or replace it with --force"));
    if (!run_there && (present("config.json") || present("model.safetensors")))
      throw Error(str("'", common.out, "' already holds a checkpoint; give another --out or replace it with --force"));
    if (!run_there && !arguments.resume && (present("state.json") || present("log.jsonl")))
      throw Error(
          str("'", common.out,
              "' already holds the log of a run; go on with --resume, give another --out or replace it with --force"));
    if (arguments.resume && !run_there) say(common, str("no saved state in '", common.out, "': from the first step"));
  }
  // Refuse what does not fit before any data is read.
  std::shared_ptr<const Encoding> encoding;
  if (encoder) {
    encoder->run = plan;
    encoding = make_encoder(*encoder).shared_encoding();
  } else {
    encoding = make_model(plan, 2).shared_encoding();
  }
  const LmData data = load_data(arguments.data, plan.length);
  say(common, data.description);
  const auto feed =
      feed_of(arguments.feed, /*causal=*/!encoder, data.gold, data.domains, common.out + "/parses", common);
  check_feed(feed.get(), *encoding, data.other_texts, common);
  RunControl control;
  control.folder = common.out;
  control.save_every = arguments.save_every;
  control.resume = arguments.resume;
  control.stop = &stop_requested;
  const Progress::Options progress = progress_options(common, plan.encoding);
  control.progress = &progress;
  control.on_message = [&](const std::string& line) { say(common, line); };
  if (encoder) {
    const EncoderResult result = train_encoder(*encoder, data, control, feed);
    print_trained(common, plan.encoding, result.train, result.encoder.parameter_count());
  } else {
    const RunResult result = train_run(plan, data, control, feed);
    print_trained(common, plan.encoding, result.train, result.model.parameter_count());
  }
  return 0;
}

struct EvalArguments {
  std::string checkpoint;
  std::vector<std::string> text;
  std::string tokens, source_tokens;
  std::int64_t token_bytes = 2;
  std::vector<std::int64_t> lengths;
  std::string encoding;
  std::string precision;
  std::string base;
  std::string dtype = "float32";
  std::string dump;
  std::int64_t spans = 0;
  std::string task;
  std::int64_t problems = 0;
  std::int64_t stride = 0;
  SyntaxOptions syntax;
  FeedArguments feed;
};

void dump_logits(const LoadedModel& loaded, const Corpus& corpus, std::int64_t length, const EvalArguments& arguments,
                 const SyntaxFeed* feed) {
  // One pass over the first window of `length` tokens (or all there are): every position's logits.
  at::NoGradGuard no_grad;
  TokenBatch batch;
  batch.tokens = first_tokens(corpus, length);
  const std::int64_t count = batch.tokens.size(1);
  batch.named =
      feed_rows(feed, loaded.model.encoding(), {window_row(corpus, {0, 0}, static_cast<std::size_t>(count))}, count);
  const at::ScalarType dtype = dtype_named(arguments.dtype);
  const at::Tensor logits = loaded.model.logits(loaded.model.hidden(batch, nullptr, dtype), dtype).squeeze(0);
  save_tensors(arguments.dump, {{"tokens", batch.tokens.squeeze(0)}, {"logits", logits.to(at::kFloat)}});
}

/// A checkpoint that `compare --task` left, on problems of any length.
int run_task_eval(const EvalArguments& arguments, const CommonOptions& common) {
  if (!arguments.text.empty() || !arguments.tokens.empty() || !arguments.dump.empty() || arguments.spans > 0)
    throw UsageError("--text, --tokens, --dump-logits and --spans do not go with --task, which makes its own problems");
  if (arguments.lengths.empty()) throw UsageError("eval --task needs --lengths");
  const auto task = make_task(arguments.task, *std::max_element(arguments.lengths.begin(), arguments.lengths.end()));
  const LoadedModel loaded = load_checkpoint(arguments.checkpoint, arguments.encoding, arguments.precision);
  if (loaded.tokenizer != task->tokenizer())
    throw Error(str(arguments.checkpoint, ": the model reads '", loaded.tokenizer, "', not '", task->tokenizer(),
                    "'; it was not trained on ", task->name()));
  Json json;
  json["checkpoint"] = arguments.checkpoint;
  json["encoding"] = loaded.model.config().encoding;
  json["eval"] = Json::array();
  if (!common.json) std::cout << loaded.model.config().encoding << " on " << task->name() << "\n";
  const std::size_t each = arguments.problems > 0 ? static_cast<std::size_t>(arguments.problems) : 40;
  for (const std::int64_t length : arguments.lengths) {
    const TaskEvaluation one = evaluate_task(loaded.model, *task, task->test(length, each), length,
                                             dtype_named(arguments.dtype), [] { return stop_requested.load(); });
    json["eval"].push_back(task_evaluation_to_json(one));
    if (common.json) continue;
    std::cout << std::setw(8) << length << "  ";
    if (one.refused)
      std::cout << "refused: " << one.reason << "\n";
    else
      std::cout << std::setprecision(3) << 100 * one.accuracy() << " % of " << one.correct.size() << "\n";
  }
  if (common.json) std::cout << json_text(json, 1) << "\n";
  return 0;
}

/// Sliding windows: the perplexities of tokens and of words, each target scored once.
int print_sliding(const LoadedModel& loaded, const Corpus& corpus, std::int64_t length, const EvalArguments& arguments,
                  const SyntaxFeed* feed, const CommonOptions& common) {
  SlidingOptions options;
  options.length = length;
  options.stride = arguments.stride;
  options.dtype = dtype_named(arguments.dtype);
  options.stop = [] { return stop_requested.load(); };
  options.feed = feed;
  const Json figures = perplexity_to_json(sliding_perplexity(loaded.model, corpus, options));
  if (common.json) {
    Json json = {{"checkpoint", arguments.checkpoint},
                 {"encoding", loaded.model.config().encoding},
                 {"length", length},
                 {"stride", arguments.stride}};
    json.update(figures);
    std::cout << json_text(json, 1) << "\n";
    return 0;
  }
  std::cout << loaded.model.config().encoding << ", windows of " << length << " moved by " << arguments.stride
            << ", ends of text not counted\n";
  for (const auto& [name, value] : figures.items()) std::cout << std::setw(10) << name << "  " << value << "\n";
  return 0;
}

/// A checkpoint that is no decoder alone.
int run_other_eval(const EvalArguments& arguments, bool two, const CommonOptions& common) {
  if (!two && (arguments.tokens.empty() || arguments.dump.empty()))
    throw UsageError(str("'", arguments.checkpoint,
                         "' holds an encoder, which predicts no next token: give --tokens "
                         "and --dump-logits to see what it says of each"));
  for (const auto& [given, name] :
       {std::pair(!arguments.text.empty(), "--text"), std::pair(!arguments.encoding.empty(), "--encoding"),
        std::pair(!arguments.precision.empty(), "--precision"), std::pair(!arguments.base.empty(), "--base"),
        std::pair(!arguments.task.empty(), "--task"), std::pair(arguments.spans > 0, "--spans"),
        std::pair(arguments.stride > 0, "--stride"), std::pair(arguments.lengths.size() > 1, "several --lengths"),
        std::pair(!arguments.feed.parsers.empty() || !arguments.feed.parses.empty(), "parsers")})
    if (given) throw UsageError(str(name, ": only a decoder alone takes this"));
  if (!arguments.dump.empty() && !common.force && std::filesystem::exists(arguments.dump))
    throw Error(str("'", arguments.dump, "' exists; replace it with --force"));
  EncoderEvalArguments own{arguments.checkpoint, arguments.tokens, arguments.source_tokens, arguments.token_bytes};
  if (!arguments.lengths.empty()) own.length = arguments.lengths.front();
  if (own.length < 0) throw UsageError(str("lengths must be at least 1, found ", own.length));
  own.dtype = arguments.dtype;
  own.dump = arguments.dump;
  return two ? run_encoder_decoder_eval(own, common) : run_encoder_eval(own, common);
}

int run_eval(const EvalArguments& arguments, const CommonOptions& common) {
  refuse_out(common, "eval");
  const bool two = is_encoder_decoder(arguments.checkpoint);
  if (two || (is_encoder_checkpoint(arguments.checkpoint) && arguments.task.empty()))
    return run_other_eval(arguments, two, common);
  if (!arguments.source_tokens.empty())
    throw UsageError("--source-tokens goes with a model of an encoder and a decoder");
  if (arguments.task.empty() && arguments.text.empty() == arguments.tokens.empty())
    throw UsageError("eval needs --text or --tokens, or --task");
  check_precision(arguments.precision);
  const bool syntax = arguments.task == "syntax" || arguments.task == "blimp";
  if (const char* given = given_syntax_option(arguments.syntax); given != nullptr && !syntax)
    throw UsageError(str(given, " goes with --task syntax or blimp"));
  if (arguments.stride > 0 && (!arguments.task.empty() || arguments.spans > 0 || arguments.lengths.size() > 1))
    throw UsageError("--stride goes with text or tokens and one length, without --spans and --task");
  if (syntax) {
    if (!arguments.text.empty() || !arguments.tokens.empty() || !arguments.dump.empty() || arguments.spans > 0 ||
        arguments.problems > 0 || !arguments.lengths.empty())
      throw UsageError(str("--text, --tokens, --lengths, --spans, --problems and --dump-logits do not go with --task ",
                           arguments.task));
    return run_syntax_eval({arguments.checkpoint, arguments.base, arguments.encoding, arguments.precision,
                            arguments.dtype, arguments.task == "syntax", arguments.syntax, arguments.feed},
                           common);
  }
  if (!arguments.task.empty()) return run_task_eval(arguments, common);
  if (arguments.problems > 0) throw UsageError("--problems goes with --task");
  if (!arguments.dump.empty() && !common.force && std::filesystem::exists(arguments.dump))
    throw Error(str("'", arguments.dump, "' exists; replace it with --force"));
  const LoadedModel loaded =
      load_checkpoint(arguments.checkpoint, arguments.encoding, arguments.precision, arguments.base);
  const bool text = arguments.tokens.empty();
  const ModelConfig& config = loaded.model.config();
  if (text && !loaded.unread.empty()) throw Error(str("the tokenizer is not read, give --tokens: ", loaded.unread));
  if (text && !loaded.reader)
    throw Error(str(arguments.checkpoint, ": the model reads '", loaded.tokenizer, "', no text; give --tokens"));
  TextData data;
  if (text)
    data = load_texts(arguments.text, loaded.reader);
  else
    data.corpus = load_tokens(arguments.tokens, static_cast<std::size_t>(arguments.token_bytes),
                              static_cast<std::uint32_t>(config.vocabulary_size));
  const Corpus& corpus = data.corpus;
  const auto feed = feed_of(arguments.feed, /*causal=*/true, data.gold, data.domains, "", common);
  require_embedder(loaded.model.encoding(), loaded.embedder, feed ? feed->embedder() : std::string(),
                   arguments.checkpoint);
  check_feed(feed.get(), loaded.model.encoding(), data.other_texts, common);
  std::vector<std::int64_t> lengths = arguments.lengths;
  if (lengths.empty()) lengths = {config.train_length};
  for (const std::int64_t length : lengths)
    if (length < 1) throw UsageError(str("lengths must be at least 1, found ", length));
  std::sort(lengths.begin(), lengths.end());
  if (!arguments.dump.empty()) {
    dump_logits(loaded, corpus, lengths.back(), arguments, feed.get());
    if (corpus.longest() <= static_cast<std::size_t>(lengths.back())) {
      say(common, str("the longest text has ", corpus.longest(), " tokens: its logits are written, and behind ",
                      lengths.back(), " there is none left to predict, so nothing is scored"));
      if (common.json)
        std::cout << json_text({{"checkpoint", arguments.checkpoint},
                                {"encoding", config.encoding},
                                {"tokens", 0},
                                {"eval", Json::array()}},
                               1)
                  << "\n";
      return 0;
    }
  }
  if (arguments.stride > 0) return print_sliding(loaded, corpus, lengths.back(), arguments, feed.get(), common);

  const EvaluationPlan plan = evaluation_windows(corpus, std::vector<std::size_t>(lengths.begin(), lengths.end()),
                                                 static_cast<std::size_t>(arguments.spans));
  Json json;
  json["checkpoint"] = arguments.checkpoint;
  json["encoding"] = config.encoding;
  json["tokens"] = plan.target_count();
  json["eval"] = Json::array();
  if (!common.json)
    std::cout << config.encoding << " on " << plan.target_count() << (corpus.of_bytes() ? " bytes" : " tokens") << "\n";
  for (const std::int64_t length : lengths) {
    const LmEvaluation one = evaluate_lm(
        loaded.model, corpus, plan, length, dtype_named(arguments.dtype), [] { return stop_requested.load(); },
        feed.get());
    json["eval"].push_back(evaluation_to_json(one));
    const Json bits = json["eval"].back().value("bits_per_byte", Json(nullptr));
    if (common.json) continue;
    std::cout << std::setw(8) << length << "  ";
    if (one.refused)
      std::cout << "refused: " << one.reason << "\n";
    else if (one.leaks)
      std::cout << "cond_ppl " << std::setprecision(6) << std::exp(one.loss)
                << (one.joint ? str("  joint_ppl ", std::exp(*one.joint)) : "")
                << "  no perplexity: the tags tell of later words\n";
    else
      std::cout << "loss " << std::setprecision(6) << one.loss << "  perplexity " << std::exp(one.loss)
                << (bits.is_number() ? str("  bits/byte ", bits.get<double>()) : "") << "\n";
  }
  if (feed)
    if (Json account = feed->account(loaded.model.encoding()); !account.is_null()) json["syntax"] = std::move(account);
  if (common.json) std::cout << json_text(json, 1) << "\n";
  return 0;
}

}  // namespace

void add_train_command(Command& app, CommonOptions& common, Chosen& chosen) {
  auto arguments = std::make_shared<TrainArguments>();
  Command* command = app.add_subcommand("train", "train one model under one encoding");
  command->footer("Example: torsor train --encoding 'rope + t5' --text book.txt --steps 500 --out run");
  command->add_option("--encoding", arguments->encoding, "the expression")->required();
  command->add_option("--text", arguments->data.text, "UTF-8 files or folders to train on; left out: generated text");
  command->add_option("--tokens", arguments->data.tokens, "a headerless file of token ids instead of text");
  command->add_option("--tokenizer", arguments->data.tokenizer,
                      "a tokenizer that gives texts back byte for byte, or a folder with it; left out: a token is a "
                      "byte");
  command->add_option("--token-bytes", arguments->data.token_bytes, "bytes of a token id: 2 or 4")
      ->check(one_of({"2", "4"}));
  add_feed_options(command, arguments->feed);
  command->add_option("--length", arguments->plan.length, "tokens of a window")
      ->check(whole_number(1))
      ->capture_default_str();
  command->add_option("--steps", arguments->plan.steps, "training steps")
      ->check(whole_number(1))
      ->capture_default_str();
  command->add_option("--batch", arguments->plan.batch, "windows of a micro-batch")
      ->check(whole_number(1))
      ->capture_default_str();
  command->add_option("--accumulation", arguments->plan.accumulation, "micro-batches a step")->check(whole_number(1));
  command->add_option("--learning-rate", arguments->plan.learning_rate, "peak learning rate")
      ->check(real_number(false))
      ->capture_default_str();
  command->add_option("--warmup", arguments->plan.warmup_steps, "steps of linear warm-up")
      ->check(whole_number(0))
      ->capture_default_str();
  command->add_option("--weight-decay", arguments->plan.weight_decay, "weight decay")
      ->check(real_number(true))
      ->capture_default_str();
  add_tag_loss(command, arguments->plan.tag_loss);
  command->add_option("--model", arguments->model,
                      "JSON file with the model's sizes; \"kind\": \"encoder\" for an encoder");
  command->add_option("--dtype", arguments->plan.dtype, "float32 or bf16")->capture_default_str();
  command->add_option("--save-every", arguments->save_every, "steps between saved states; 0 = only at the end")
      ->check(whole_number(0))
      ->capture_default_str();
  command->add_flag("--resume", arguments->resume, "go on from the folder's saved state");
  command->callback(
      [&common, &chosen, arguments] { chosen = [&common, arguments] { return run_train(*arguments, common); }; });
}

void add_eval_command(Command& app, CommonOptions& common, Chosen& chosen) {
  auto arguments = std::make_shared<EvalArguments>();
  Command* command = app.add_subcommand("eval", "evaluate a checkpoint on text or tokens by length");
  command->footer("Example: torsor eval run --text other.txt --lengths 128,512");
  command
      ->add_option("checkpoint", arguments->checkpoint,
                   "a checkpoint (a folder, a .gguf, llama2.c's .bin) or an adapter")
      ->required();
  command->add_option("--base", arguments->base, "where an adapter's base lies, if not where it was recorded");
  command->add_option("--text", arguments->text, "UTF-8 files or folders");
  command->add_option("--tokens", arguments->tokens, "a headerless file of token ids");
  command->add_option("--source-tokens", arguments->source_tokens,
                      "what an encoder-decoder model reads, beside --tokens, which it is to write");
  command->add_option("--token-bytes", arguments->token_bytes, "bytes of a token id: 2 or 4")
      ->check(one_of({"2", "4"}));
  command
      ->add_option("--lengths", arguments->lengths, "lengths, each dividing the largest; left out: the training length")
      ->delimiter(',');
  command->add_option("--encoding", arguments->encoding, "read the weights under another expression");
  command->add_option("--precision", arguments->precision, "exact or hf");
  command->add_option("--dtype", arguments->dtype, "float32 or bf16")->capture_default_str();
  command->add_option("--spans", arguments->spans, "spans of the largest length to score; 0 = all")
      ->check(whole_number(0));
  command
      ->add_option("--stride", arguments->stride, "score the text in windows of one length that move by so many tokens")
      ->check(whole_number(1));
  command->add_option(
      "--task", arguments->task,
      "instead of text: syntax (suites, and --blimp), blimp, or addition or passkey, the training's task");
  add_syntax_options(command, arguments->syntax);
  add_feed_options(command, arguments->feed);
  command->add_option("--problems", arguments->problems, "test problems a cell of the task; left out: 40")
      ->check(whole_number(1));
  command->add_option("--dump-logits", arguments->dump, "write tokens and logits of the first window as safetensors");
  command->callback(
      [&common, &chosen, arguments] { chosen = [&common, arguments] { return run_eval(*arguments, common); }; });
}

}  // namespace torsor

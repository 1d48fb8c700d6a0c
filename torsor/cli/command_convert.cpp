// torsor convert
#include <iomanip>
#include <iostream>
#include <memory>

#include "torsor/cli/checkpoint_out.h"
#include "torsor/cli/convert_encoder.h"
#include "torsor/model/checkpoint.h"
#include "torsor/model/convert.h"
#include "torsor/model/encoder.h"
#include "torsor/model/encoder_decoder.h"
#include "torsor/model/hugging_face_export.h"

namespace torsor {
namespace {

struct ConvertArguments {
  std::string checkpoint;
  std::string encoding;
  std::string to;
  std::string base;
  std::string dtype;
};

at::ScalarType tensor_type(const std::string& name) {
  return name == "float16" ? at::kHalf : name == "bfloat16" ? at::kBFloat16 : at::kFloat;
}

/// Models that are no decoders alone keep the encoding that they have; whether the checkpoint is one, and then `code`.
bool converted_encoder(const ConvertArguments& arguments, const CommonOptions& common, int& code) {
  const bool encoder = is_encoder_checkpoint(arguments.checkpoint);
  if (!encoder && !is_encoder_decoder(arguments.checkpoint)) return false;
  const char* what = encoder ? "an encoder" : "a model of an encoder and a decoder";
  if (!arguments.encoding.empty())
    throw UsageError(str("--encoding moves decoders, and '", arguments.checkpoint, "' holds ", what,
                         ", which keeps its encoding; leave it out"));
  if (!arguments.base.empty())
    throw UsageError(str("'", arguments.checkpoint, "' holds no adapter that --base could belong to"));
  const EncoderConvertArguments own{arguments.checkpoint, arguments.to == "hf", tensor_type(arguments.dtype)};
  code = encoder ? run_encoder_convert(own, common) : run_encoder_decoder_convert(own, common);
  return true;
}

int run_convert(const ConvertArguments& arguments, const CommonOptions& common) {
  if (common.out.empty()) throw UsageError("convert needs --out, the folder of the converted checkpoint");
  if (arguments.encoding.empty() && arguments.to.empty())
    throw UsageError("convert needs --encoding, --to or both: what is to change?");
  if (!arguments.dtype.empty() && arguments.to != "hf") throw UsageError("--dtype belongs to --to hf");
  const std::string wanted = arguments.encoding.empty() ? "" : print(parse(arguments.encoding));
  check_checkpoint_out(common, arguments.checkpoint);
  if (int code = 0; converted_encoder(arguments, common, code)) return code;
  const LoadedModel loaded = load_checkpoint(arguments.checkpoint, "", "", arguments.base);
  const ModelConfig& before = loaded.model.config();
  const bool foreign = arguments.to == "hf";
  const Converted converted = convert_model(loaded.model,
                                            !wanted.empty() ? wanted
                                            : foreign       ? hugging_face_layout(before.encoding)
                                                            : before.encoding,
                                            common.seed);
  const ModelConfig& after = converted.model.config();
  std::string family;
  if (foreign) {
    const HuggingFaceCompanions companions = hugging_face_companions(arguments.checkpoint);
    const HuggingFaceForm form = hugging_face_form(
        after, {.family = companions.family, .longest = after.encoding == before.encoding ? companions.longest : 0});
    family = form.family;
    save_hugging_face(common.out, converted.model, form, companions, loaded.reader, loaded.end_tokens,
                      tensor_type(arguments.dtype));
  } else {
    save_checkpoint(common.out, converted.model, loaded.tokenizer, loaded.embedder, loaded.reader);
  }
  const LogitsDifference& difference = converted.difference;
  if (common.json) {
    Json json;
    json["checkpoint"] = arguments.checkpoint;
    json["out"] = common.out;
    json["from"] = before.encoding;
    json["encoding"] = after.encoding;
    json["hugging_face"] = foreign || hugging_face_obstacle(after).empty();
    if (foreign) json["family"] = family;
    json["parameters"] = converted.model.parameter_count();
    json["logits"] = {{"rows", difference.rows},
                      {"tokens", difference.tokens},
                      {"worst_difference", difference.worst},
                      {"allowed", logits_rounding(after)}};
    std::cout << json_text(json, 1) << "\n";
  } else {
    std::cout << before.encoding << " -> " << after.encoding << "\nworst difference of the logits on "
              << difference.rows << " x " << difference.tokens << " random tokens: " << std::setprecision(2)
              << difference.worst << " of the largest\n"
              << (foreign ? family + " of Hugging Face" : std::string("checkpoint")) << " in " << common.out << "\n";
  }
  return 0;
}

}  // namespace

void add_convert_command(Command& app, CommonOptions& common, Chosen& chosen) {
  auto arguments = std::make_shared<ConvertArguments>();
  Command* command = app.add_subcommand(
      "convert", "a checkpoint under another encoding that means the same, or in another library's form");
  command->footer(
      "Exact or refused: logits stay equal to rounding, and both decoders are compared before anything is written.\n"
      "Example: torsor convert run --encoding 'grape-m + t5' --out converted\n"
      "         torsor convert run --to hf --out for-transformers\n"
      "Encoders and T5s keep their encoding: torsor convert bert-folder --to torsor --out ours");
  command
      ->add_option("checkpoint", arguments->checkpoint,
                   "a checkpoint (a folder, also of an encoder or a T5, a .gguf, llama2.c's .bin) or an adapter")
      ->required();
  command->add_option("--base", arguments->base, "where an adapter's base lies, if not where it was recorded");
  command->add_option("--encoding", arguments->encoding,
                      "the expression to convert a decoder to; left out: that of the checkpoint");
  command
      ->add_option("--to", arguments->to,
                   "torsor, or hf: a folder of Hugging Face transformers, of the family that has the model")
      ->check(one_of({"torsor", "hf"}));
  command->add_option("--dtype", arguments->dtype, "of the tensors of --to hf; left out: float32")
      ->check(one_of({"float32", "float16", "bfloat16"}));
  command->callback(
      [&common, &chosen, arguments] { chosen = [&common, arguments] { return run_convert(*arguments, common); }; });
}

}  // namespace torsor

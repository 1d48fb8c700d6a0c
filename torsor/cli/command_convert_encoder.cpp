#include <iostream>
#include <vector>

#include "torsor/cli/convert_encoder.h"
#include "torsor/model/hugging_face_export_encoders.h"

namespace torsor {
namespace {

/// What the folder that was read holds and the model does not: written again by --to hf, lost otherwise.
template <class Form>
std::vector<std::string> unread_of(const std::optional<Form>& theirs) {
  return theirs ? unread_tensors(*theirs) : std::vector<std::string>();
}

/// `about` has the expressions and the count of parameters; the rest is said of both kinds alike.
int tell(const EncoderConvertArguments& arguments, const CommonOptions& common, const std::string& family,
         const std::vector<std::string>& unread, const std::string& tokenizer_unread, const Json& about) {
  if (common.json) {
    Json json = {{"checkpoint", arguments.checkpoint}, {"out", common.out}, {"hugging_face", arguments.foreign}};
    if (arguments.foreign) json["family"] = family;
    json.update(about);
    json["unread"] = unread;
    std::cout << json_text(json, 1) << "\n";
    return 0;
  }
  if (about.contains("source_encoding")) std::cout << about.at("source_encoding").get<std::string>() << " -> ";
  std::cout << about.at("from").get<std::string>();
  if (about.at("encoding") == about.at("from"))
    std::cout << ", as it was\n";
  else
    std::cout << " -> " << about.at("encoding").get<std::string>() << ", rows permuted\n";
  for (const std::string& name : unread)
    std::cout << (arguments.foreign ? "not read here, written again: " : "not read here, left out: ") << name << "\n";
  if (!arguments.foreign && !tokenizer_unread.empty())
    std::cout << "its tokenizer is left out: " << tokenizer_unread << "\n";
  std::cout << (arguments.foreign ? family + " of Hugging Face" : std::string("checkpoint")) << " in " << common.out
            << "\n";
  return 0;
}

}  // namespace

int run_encoder_convert(const EncoderConvertArguments& arguments, const CommonOptions& common) {
  const LoadedEncoder loaded = load_encoder(arguments.checkpoint);
  std::optional<Encoder> moved;
  if (arguments.foreign && !loaded.theirs) moved = hugging_face_layout(loaded.encoder);
  const Encoder& encoder = moved ? *moved : loaded.encoder;
  const EncoderConfig& config = encoder.config();
  std::string family;
  if (arguments.foreign) {
    const HuggingFaceEncoderForm form = loaded.theirs ? *loaded.theirs : hugging_face_form(config, loaded.about);
    family = form.model.model_type;
    save_hugging_face(common.out, encoder, form, hugging_face_companions(arguments.checkpoint), loaded.reader,
                      arguments.dtype);
  } else {
    save_encoder(common.out, loaded.encoder, loaded.about, loaded.embedder, loaded.reader);
  }
  return tell(arguments, common, family, unread_of(loaded.theirs), loaded.unread,
              {{"kind", "encoder"},
               {"from", loaded.encoder.config().model.encoding},
               {"encoding", config.model.encoding},
               {"parameters", encoder.parameter_count()}});
}

int run_encoder_decoder_convert(const EncoderConvertArguments& arguments, const CommonOptions& common) {
  const LoadedEncoderDecoder loaded = load_encoder_decoder(arguments.checkpoint);
  const EncoderDecoderConfig& config = loaded.model.config();
  std::string family;
  if (arguments.foreign) {
    const HuggingFaceT5Form form = loaded.theirs ? *loaded.theirs : hugging_face_form(config);
    family = form.model.model_type;
    save_hugging_face(common.out, loaded.model, form, hugging_face_companions(arguments.checkpoint), loaded.reader,
                      arguments.dtype);
  } else {
    save_encoder_decoder(common.out, loaded.model, loaded.tokenizer, loaded.reader);
  }
  return tell(arguments, common, family, unread_of(loaded.theirs), loaded.unread,
              {{"kind", "encoder-decoder"},
               {"from", config.decoder.encoding},
               {"encoding", config.decoder.encoding},
               {"source_encoding", config.encoder.encoding},
               {"parameters", loaded.model.parameter_count()}});
}

}  // namespace torsor

// Encoders and models of two stacks in the form of Hugging Face transformers: folders that were read come out as they
// were, models of this project find the family that has them, and what none has is said.
#include "torsor/model/hugging_face_export_encoders.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/base/test_folder.h"
#include "tests/model/bert_folders.h"
#include "tests/model/t5_folders.h"
#include "torsor/base/file.h"
#include "torsor/data/wordpiece.h"
#include "torsor/train/state.h"

namespace torsor {
namespace {

namespace bert = testing::bert;
namespace t5 = testing::t5;
using testing::contains;
using testing::ForeignWeights;
using testing::message_of;
using testing::TestFolder;
using testing::write_hugging_face;

using Tensors = std::map<std::string, at::Tensor>;

void expect_same(const Tensors& found, const Tensors& wanted, const std::string& what) {
  for (const auto& [name, tensor] : wanted) {
    ASSERT_EQ(found.count(name), 1u) << what << ": " << name;
    EXPECT_EQ(found.at(name).scalar_type(), tensor.scalar_type()) << what << ": " << name;
    EXPECT_TRUE(at::equal(found.at(name), tensor)) << what << ": " << name;
  }
  EXPECT_EQ(found.size(), wanted.size()) << what;
}

Tensors tensors_in(const std::string& folder) { return load_tensors(folder + "/model.safetensors").tensors; }

/// A folder's config.json but for the type of its tensors.
Json config_in(const std::string& folder) {
  Json json = read_json(folder + "/config.json");
  json.erase("dtype");
  return json;
}

/// All that an encoder says of some tokens.
Tensors answers(const Encoder& encoder) {
  const at::NoGradGuard no_grad;
  EncoderBatch batch;
  batch.tokens = testing::some_tokens(12, 0, encoder.config().model.vocabulary_size, 5).view({1, -1});
  if (encoder.config().segments > 1) batch.segments = (at::arange(12) >= 7).to(at::kLong).view({1, -1});
  Tensors all = {{"hidden", encoder.hidden(batch)}};
  if (encoder.config().token_head) all["tokens"] = encoder.token_logits(all["hidden"]);
  if (encoder.config().labels > 0) all["classes"] = encoder.class_logits(all["hidden"]);
  return all;
}

Tensors answers(const EncoderDecoder& model) {
  const at::NoGradGuard no_grad;
  const std::int64_t vocabulary = model.config().decoder.vocabulary_size;
  const at::Tensor source = testing::some_tokens(40, 2, vocabulary, 3).view({1, -1}),
                   target = testing::some_tokens(30, 2, vocabulary, 4).view({1, -1});
  return {{"logits", model.logits(target, model.read(source))}};
}

/// Writes the encoder of a folder again and compares; answers what was passed over.
std::vector<std::string> expect_round(const TestFolder& folder, const Json& config, const Tensors& wanted,
                                      const std::string& what) {
  const std::string out = folder / "out";
  const LoadedEncoder loaded = load_encoder(folder.path());
  EXPECT_TRUE(loaded.theirs) << what;
  if (!loaded.theirs) return {};
  save_hugging_face(out, loaded.encoder, *loaded.theirs, hugging_face_companions(folder.path()), loaded.reader);
  expect_same(tensors_in(out), wanted, what);
  EXPECT_EQ(config_in(out), config) << what;
  EXPECT_EQ(read_json(out + "/config.json").at("dtype"), "float32") << what;
  const LoadedEncoder again = load_encoder(out);
  EXPECT_EQ(encoder_to_json(again.encoder.config()), encoder_to_json(loaded.encoder.config())) << what;
  expect_same(answers(again.encoder), answers(loaded.encoder), what);
  return unread_tensors(*loaded.theirs);
}

TEST(ExportEncoders, EveryFamilyComesOutAsItWas) {
  for (const std::string type : {"bert", "roberta", "xlm-roberta", "camembert", "distilbert", "roformer"}) {
    const std::string kind = type == "xlm-roberta" || type == "camembert" ? "roberta" : type;
    const bool classes = kind == "bert" || kind == "roberta";
    Json config = bert::config_of(kind);
    config["model_type"] = type;
    // Keys that say nothing here stay; the type of tensors has one name.
    config["id2label"] = {{"0", "no"}, {"1", "yes"}};
    config["attention_probs_dropout_prob"] = 0.3;
    for (const bool tokens : {false, true})
      for (const bool labels : {false, true}) {
        if (labels && !classes) continue;
        const std::string what = str(type, tokens ? " tokens" : "", labels ? " labels" : "");
        const TestFolder folder;
        ForeignWeights weights = bert::weights_of(kind, tokens, labels);
        Json old = config;
        old["torch_dtype"] = "float32";
        write_hugging_face(folder, old, weights);
        std::vector<std::string> unread;
        if (kind == "roberta") unread = {"rows 0 to 1 of roberta.embeddings.position_embeddings.weight"};
        if (type == "bert") unread = {"bert.embeddings.position_ids"};
        if (type == "roformer") unread = {"roformer.encoder.embed_positions.weight"};
        EXPECT_EQ(expect_round(folder, config, weights.tensors(), what), unread) << what;
      }
  }
}

TEST(ExportEncoders, FilesOfEveryShapeComeOutAsTheyWere) {
  const auto round = [](const std::string& type, ForeignWeights& weights, const std::string& what) {
    const TestFolder folder;
    write_hugging_face(folder, bert::config_of(type), weights);
    return expect_round(folder, bert::config_of(type), weights.tensors(), what);
  };
  // A pooler that no head reads; the tied matrix once more, and both names of the bias.
  ForeignWeights pooler = bert::weights_of("bert", true, false);
  pooler.linear("bert.pooler.dense", bert::kWidth, bert::kWidth);
  Tensors& tensors = pooler.tensors();
  tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"];
  tensors["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"];
  EXPECT_EQ(
      round("bert", pooler, "pooler"),
      (std::vector<std::string>{"bert.embeddings.position_ids", "bert.pooler.dense.bias", "bert.pooler.dense.weight"}));
  // Where the names of the bias differ, one is read.
  tensors["cls.predictions.bias"] = tensors["cls.predictions.bias"] + 1;
  EXPECT_EQ(round("bert", pooler, "two biases").size(), 4u);
  // One bias under its other name; RoBERTa's second pooler.
  ForeignWeights roberta = bert::weights_of("roberta", true, true);
  roberta.tensors()["lm_head.decoder.bias"] = roberta.tensors()["lm_head.bias"];
  roberta.tensors().erase("lm_head.bias");
  roberta.linear("roberta.pooler.dense", bert::kWidth, bert::kWidth);
  EXPECT_EQ(round("roberta", roberta, "other bias").size(), 3u);
  // Sentence pairs.
  for (const bool tokens : {false, true}) {
    ForeignWeights pairs = bert::weights_of("bert", tokens, true);
    pairs.tensors().erase("classifier.weight"), pairs.tensors().erase("classifier.bias");
    pairs.linear("cls.seq_relationship", 2, bert::kWidth);
    round("bert", pairs, "pairs");
  }
  // The bare models, without their root.
  for (const std::string type : {"bert", "roberta", "distilbert", "roformer"}) {
    ForeignWeights bare = bert::weights_of(type, false, false);
    Tensors renamed;
    for (const auto& [name, tensor] : bare.tensors()) renamed[name.substr(name.find('.') + 1)] = tensor;
    bare.tensors() = renamed;
    round(type, bare, "bare " + type);
  }
  // gamma and beta come out under their names of today, float16 as the float32 that it is.
  ForeignWeights old = bert::weights_of("bert", true, false);
  const Tensors today = old.tensors();
  Tensors renamed, wanted;
  for (const auto& [name, tensor] : today) {
    std::string then = name;
    if (const auto at = then.find("LayerNorm.weight"); at != std::string::npos) then.replace(at + 10, 6, "gamma");
    if (const auto at = then.find("LayerNorm.bias"); at != std::string::npos) then.replace(at + 10, 4, "beta");
    const bool real = tensor.scalar_type() == at::kFloat;
    renamed[then] = real ? tensor.to(at::kHalf) : tensor;
    wanted[name] = real ? tensor.to(at::kHalf).to(at::kFloat) : tensor;
  }
  old.tensors() = renamed;
  const TestFolder folder;
  write_hugging_face(folder, bert::config_of("bert"), old);
  expect_round(folder, bert::config_of("bert"), wanted, "gamma");
}

TEST(ExportEncoders, T5AndItsKinComeOutAsTheyWere) {
  for (const t5::Kind& kind : t5::kKinds)
    for (const bool old : {false, true}) {
      ForeignWeights weights = t5::weights_of(kind.type, kind.gated, kind.own_head);
      Tensors& tensors = weights.tensors();
      if (old) {  // three names of the embedding, a table that nothing reads, a head that is the embedding
        tensors["encoder.embed_tokens.weight"] = tensors["decoder.embed_tokens.weight"] = tensors["shared.weight"];
        weights.add("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight", {8, t5::kHeads});
        if (!kind.own_head) tensors["lm_head.weight"] = tensors["shared.weight"];
      }
      const std::string what = str(kind.type, " ", json_text(kind.more), old ? " old" : "");
      const TestFolder folder;
      const Json config = t5::config_of(kind.type, kind.more);
      write_hugging_face(folder, config, weights);
      const LoadedEncoderDecoder loaded = load_encoder_decoder(folder.path());
      ASSERT_TRUE(loaded.theirs) << what;
      EXPECT_EQ(unread_tensors(*loaded.theirs).size(), old ? 1u : 0u) << what;
      const std::string out = folder / "out";
      save_hugging_face(out, loaded.model, *loaded.theirs, hugging_face_companions(folder.path()), loaded.reader);
      expect_same(tensors_in(out), tensors, what);
      EXPECT_EQ(config_in(out), config) << what;
      expect_same(answers(load_encoder_decoder(out).model), answers(loaded.model), what);

      // Through a folder of this project: the same model in the family that fits.
      save_encoder_decoder(folder / "own", loaded.model, loaded.tokenizer, loaded.reader);
      const LoadedEncoderDecoder own = load_encoder_decoder(folder / "own");
      EXPECT_FALSE(own.theirs);
      const HuggingFaceT5Form form = hugging_face_form(own.model.config());
      EXPECT_EQ(form.model.model_type, kind.type == "umt5" ? "umt5" : "t5") << what;
      save_hugging_face(folder / "back", own.model, form, {}, own.reader);
      const LoadedEncoderDecoder back = load_encoder_decoder(folder / "back");
      expect_same(answers(back.model), answers(loaded.model), what);
      EXPECT_EQ(back.model.config().start_token, loaded.model.config().start_token);
      EXPECT_EQ(back.model.config().end_tokens, loaded.model.config().end_tokens);
      Tensors now = tensors;
      if (old) {
        for (const char* name : {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight",
                                 "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"})
          now.erase(name);
        if (!kind.own_head) now.erase("lm_head.weight");
      }
      expect_same(tensors_in(folder / "back"), now, what);
    }
  // The embedding under one of its other names alone.
  ForeignWeights weights = t5::weights_of("t5", false, false);
  weights.tensors()["decoder.embed_tokens.weight"] = weights.tensors()["shared.weight"];
  weights.tensors().erase("shared.weight");
  const TestFolder folder;
  write_hugging_face(folder, t5::config_of("t5"), weights);
  const LoadedEncoderDecoder loaded = load_encoder_decoder(folder.path());
  expect_same(hugging_face_tensors(loaded.model, *loaded.theirs), weights.tensors(), "one name");
}

TEST(ExportEncoders, TokenizersAreKept) {
  const TestFolder folder;
  ForeignWeights weights = bert::weights_of("bert", true, true);
  write_hugging_face(folder, bert::config_of("bert"), weights);
  const std::string vocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nlow\n##er\nnew\n";
  for (const auto& [name, text] : {std::pair("vocab.txt", vocabulary),
                                   {"special_tokens_map.json", "{}"},
                                   {"spiece.model", "anything"},
                                   {"sentencepiece.bpe.model", "another"},
                                   {"tokenizer_config.json", "{\"do_lower_case\": true}"}})
    folder.put(name, text);
  const LoadedEncoder loaded = load_encoder(folder.path());
  ASSERT_FALSE(loaded.reader) << "spiece.model stands before vocab.txt, and is none";
  EXPECT_TRUE(contains(loaded.unread, "spiece.model")) << loaded.unread;
  save_hugging_face(folder / "out", loaded.encoder, *loaded.theirs, hugging_face_companions(folder.path()),
                    loaded.reader);
  for (const char* name :
       {"vocab.txt", "special_tokens_map.json", "spiece.model", "sentencepiece.bpe.model", "tokenizer_config.json"})
    EXPECT_EQ(testing::slurp(folder / "out/" + name), testing::slurp(folder / name)) << name;

  // In a checkpoint of this project the tokenizer is the model's, and goes along from there.
  std::filesystem::remove(folder / "spiece.model");
  const LoadedEncoder words = load_encoder(folder.path());
  ASSERT_TRUE(words.reader) << words.unread;
  save_encoder(folder / "own", words.encoder, words.about, "", words.reader);
  const LoadedEncoder own = load_encoder(folder / "own");
  ASSERT_TRUE(own.reader);
  EXPECT_EQ(own.reader->name(), words.reader->name());
  EXPECT_FALSE(own.theirs);
  expect_same(answers(own.encoder), answers(words.encoder), "own");
  save_hugging_face(folder / "back", own.encoder, hugging_face_form(own.encoder.config()), {}, own.reader);
  const LoadedEncoder back = load_encoder(folder / "back");
  ASSERT_TRUE(back.reader);
  EXPECT_EQ(back.reader->encode("lower new"), words.reader->encode("lower new"));
  // Another one there is not the model's.
  write_file_atomic(folder / "own/tokenizer.json",
                    testing::slurp(folder / "own/tokenizer.json")
                        .replace(testing::slurp(folder / "own/tokenizer.json").find("new"), 3, "old"));
  EXPECT_TRUE(contains(message_of<Error>([&] { load_encoder(folder / "own"); }), "not the tokenizer of this model"));
}

EncoderConfig own_encoder(const std::string& encoding, const Json& more = nullptr, std::int64_t labels = 0) {
  Json json = {{"kind", "encoder"}, {"width", 32}, {"layers", 2}, {"heads", 4}};
  if (!more.is_null()) json.update(more);
  EncoderConfig config = encoder_from_json(json, "model");
  config.model.encoding = print(parse(encoding));
  config.model.train_length = 16;
  config.labels = labels;
  config.complete();
  return config;
}

TEST(ExportEncoders, OwnEncodersFindTheirFamily) {
  const Json biases = {{"qkv_bias", true}, {"output_bias", true}};
  for (const auto& [family, config] :
       {std::pair("bert", own_encoder("learned")),
        {"bert", own_encoder("learned(length=40)", biases, 3)},
        {"bert", own_encoder("learned", {{"activation", "relu"}, {"segments", 1}, {"norm_eps", 1e-12}}, 2)},
        {"bert", own_encoder("learned", {{"activation", "gelu_tanh"}, {"token_head", false}, {"mlp_width", 48}})},
        {"roformer", own_encoder("rope(layout=interleaved)", {{"dropout", 0.2}})},
        {"roformer", own_encoder("rope(layout=interleaved)", biases)}}) {
    const Encoder encoder(config, 7);
    for (const ModelParameter& parameter : encoder.parameters())
      if (parameter.tensor.dim() == 1) parameter.tensor.normal_(1, 0.3);  // biases and gains that matter
    const HuggingFaceEncoderForm form = hugging_face_form(config, {{"labels", {"no", "maybe", "yes"}}});
    EXPECT_EQ(form.model.model_type, family);
    const TestFolder folder;
    save_hugging_face(folder.path(), encoder, form, {}, nullptr);
    const LoadedEncoder again = load_encoder(folder.path());
    expect_same(answers(again.encoder), answers(encoder), family + (" " + config.model.encoding));
    EXPECT_EQ(again.encoder.config().dropout, config.dropout);
    EXPECT_EQ(again.encoder.config().labels, config.labels);
    const Json json = config_in(folder.path());
    const std::string type = family == std::string("bert") ? "Bert" : "RoFormer";
    EXPECT_EQ(json.at("architectures")[0], type + (config.labels > 0   ? "ForSequenceClassification"
                                                   : config.token_head ? "ForMaskedLM"
                                                                       : "Model"));
    EXPECT_EQ(json.at("pad_token_id"), EncoderTokens::kPadding);
    if (config.labels == 3) {
      EXPECT_EQ(json.at("id2label"), (Json{{"0", "no"}, {"1", "maybe"}, {"2", "yes"}}));
      EXPECT_EQ(json.at("label2id").at("yes"), 2);
    }
    if (config.labels == 2) {
      EXPECT_EQ(json.at("id2label"), (Json{{"0", "LABEL_0"}, {"1", "LABEL_1"}}));
    }
    // Bytes and the four ids behind them.
    const Json tokenizer = read_json(folder / "tokenizer.json");
    EXPECT_EQ(tokenizer.at("model").at("vocab").size(), 256u);
    EXPECT_EQ(tokenizer.at("model").at("vocab").at("A"), 65);
    EXPECT_EQ(tokenizer.at("added_tokens").size(), 4u);
    EXPECT_EQ(tokenizer.at("added_tokens")[2].at("content"), "[MASK]");
    EXPECT_EQ(tokenizer.at("added_tokens")[2].at("id"), EncoderTokens::kMask);
    EXPECT_EQ(tokenizer.at("post_processor").at("pair").size(), 5u);
    EXPECT_EQ(tokenizer.at("post_processor").at("special_tokens").at("[SEP]").at("ids")[0], EncoderTokens::kSeparator);
  }
}

TEST(ExportEncoders, HalvesThatTurnTogetherBecomeNeighbours) {
  for (const Json& more : {Json(), Json{{"qkv_bias", true}, {"kv_heads", 2}, {"qk_norm", "before"}}}) {
    const Encoder encoder(own_encoder("rope", more), 7);
    for (const ModelParameter& parameter : encoder.parameters())
      if (parameter.tensor.dim() == 1) parameter.tensor.normal_(1, 0.3);
    const std::optional<Encoder> moved = hugging_face_layout(encoder);
    ASSERT_TRUE(moved);
    EXPECT_EQ(moved->config().model.encoding, "rope(layout=interleaved)");
    const Tensors before = answers(encoder), after = answers(*moved);
    for (const auto& [name, tensor] : before)
      EXPECT_LE(testing::largest_difference(after.at(name), tensor), 1e-5) << name;
    // A row of a head of 8 goes from 1 to 2 and from 5 to 3; values stay.
    const auto weight = [](const Encoder& one, const std::string& part) {
      for (const ModelParameter& parameter : one.parameters())
        if (parameter.name == "model.layers.1.self_attn." + part + ".weight") return parameter.tensor;
      return at::Tensor();
    };
    EXPECT_TRUE(at::equal(weight(*moved, "k_proj")[8 + 2], weight(encoder, "k_proj")[8 + 1]));
    EXPECT_TRUE(at::equal(weight(*moved, "q_proj")[8 + 3], weight(encoder, "q_proj")[8 + 5]));
    EXPECT_TRUE(at::equal(weight(*moved, "v_proj"), weight(encoder, "v_proj")));
  }
  EXPECT_EQ(hugging_face_form(hugging_face_layout(Encoder(own_encoder("rope"), 1))->config()).model.model_type,
            "roformer");
  for (const char* other : {"learned", "rope(layout=interleaved)", "rope(base=500)", "rope + alibi"})
    EXPECT_FALSE(hugging_face_layout(Encoder(own_encoder(other), 1))) << other;
}

TEST(ExportEncoders, WhatNoFamilyHasIsSaid) {
  const auto refused = [](const EncoderConfig& config, const std::vector<std::string>& parts) {
    const std::string message = message_of<Refusal>([&] { hugging_face_form(config); });
    for (const std::string& part : parts) EXPECT_TRUE(contains(message, part)) << part << ": " << message;
  };
  refused(own_encoder("rope"), {"nearest, roformer", "'rope'"});
  refused(own_encoder("rope(layout=interleaved, base=500)"), {"nearest, roformer", "base=500"});
  refused(own_encoder("alibi"), {"nearest, bert", "'alibi'"});
  refused(own_encoder("learned + alibi"), {"'learned + alibi'"});
  refused(own_encoder("learned", {{"norm", "pre"}}), {"nearest, bert", "norm=\"post\", not \"pre\""});
  refused(own_encoder("learned", {{"tag_heads", true}}), {"tag_heads=false, not true"});
  refused(own_encoder("learned", {{"kv_heads", 2}}), {"kv_heads=4, not 2"});
  refused(own_encoder("learned", {{"head_dim", 4}}), {"head_dim=8, not 4"});
  refused(own_encoder("learned", {{"qk_norm", "before"}}), {"qk_norm=\"none\", not \"before\""});
  refused(own_encoder("rope(layout=interleaved)", nullptr, 2), {"nearest, roformer", "labels=0, not 2"});

  const auto two_refused = [](const std::function<void(EncoderDecoderConfig&)>& change, const std::string& part) {
    EncoderDecoderConfig config = read_hugging_face_t5(t5::config_of("t5"), "x").config;
    EXPECT_NO_THROW(hugging_face_form(config));
    change(config);
    config.complete();
    const std::string message = message_of<Refusal>([&] { hugging_face_form(config); });
    EXPECT_TRUE(contains(message, part)) << message;
  };
  two_refused([](auto& c) { c.encoder.encoding = "rope"; }, "encoder: encoding 't5(");
  two_refused([](auto& c) { c.decoder.encoding = "alibi"; }, "not 'alibi'");
  two_refused([](auto& c) { c.decoder.block.attention_scale = 0; }, "decoder: attention_scale=1.0, not 0.0");
  two_refused([](auto& c) { c.encoder.norm_eps = 1e-3; }, "encoder: norm_eps");
  two_refused([](auto& c) { c.encoder.mlp_width = 8; }, "encoder: mlp_width=36, not 8");
  two_refused([](auto& c) { c.decoder.block.mlp = c.encoder.block.mlp = MlpKind::GeGlu; }, "geglu");
  two_refused([](auto& c) { c.decoder.block.head_scale = 0.5; }, "head_scale");
  two_refused([](auto& c) { c.decoder.window = {4}; }, "window");
}

TEST(ExportEncoders, NarrowTypesRoundOrRefuse) {
  const TestFolder folder;
  ForeignWeights weights = bert::weights_of("bert", true, false);
  weights.linear("bert.pooler.dense", bert::kWidth, bert::kWidth);
  write_hugging_face(folder, bert::config_of("bert"), weights);
  const LoadedEncoder loaded = load_encoder(folder.path());
  const auto save = [&](const std::string& out, at::ScalarType dtype) {
    save_hugging_face(folder / out, loaded.encoder, *loaded.theirs, {}, nullptr, dtype);
  };
  save("half", at::kBFloat16);
  EXPECT_EQ(read_json(folder / "half/config.json").at("dtype"), "bfloat16");
  Tensors wanted = weights.tensors();
  for (auto& [name, tensor] : wanted)
    if (at::isFloatingType(tensor.scalar_type())) tensor = tensor.to(at::kBFloat16);  // counts stay counts
  expect_same(tensors_in(folder / "half"), wanted, "bfloat16");
  // What is passed over is held to the same.
  weights.tensors()["bert.pooler.dense.bias"][3] = 70000;
  write_hugging_face(folder, bert::config_of("bert"), weights);
  const LoadedEncoder large = load_encoder(folder.path());
  const std::string message = message_of<Refusal>(
      [&] { save_hugging_face(folder / "new", large.encoder, *large.theirs, {}, nullptr, at::kHalf); });
  EXPECT_TRUE(contains(message, "bert.pooler.dense.bias") && contains(message, "float16")) << message;
  EXPECT_FALSE(std::filesystem::exists(folder / "new"));
  // A tensor that the family has no place for.
  EncoderConfig tagged = loaded.encoder.config();
  tagged.tag_heads = true;
  const Encoder other(tagged, 1);
  EXPECT_TRUE(contains(message_of<Refusal>([&] { hugging_face_tensors(other, *loaded.theirs); }), "head.nu"));
}

}  // namespace
}  // namespace torsor

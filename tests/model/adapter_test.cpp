// Adapters: what is trained and counted, where an encoding's tensors come from, the folder and its enemies.
#include "torsor/model/adapter.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "tests/base/test_folder.h"
#include "tests/model/tokens.h"
#include "torsor/base/file.h"
#include "torsor/base/hash.h"
#include "torsor/model/convert.h"
#include "torsor/train/state.h"

namespace torsor {
namespace {

using testing::contains;
using testing::message_of;
using testing::shared_path;
using testing::slurp;
using testing::TestFolder;

ModelConfig small_config(const std::string& encoding) {
  ModelConfig config;
  config.width = 16;
  config.layers = 2;
  config.heads = 4;
  config.kv_heads = 2;
  config.vocabulary_size = 50;
  config.train_length = 16;
  config.encoding = encoding;
  config.complete();
  return config;
}

AdapterPlan plan_of(const std::string& train, const std::string& encoding = "", std::vector<std::string> with = {}) {
  AdapterPlan plan;
  plan.train = train;
  plan.encoding = encoding;
  plan.with = std::move(with);
  return plan;
}

std::map<std::string, at::Tensor> tensors_of(const Decoder& model) {
  std::map<std::string, at::Tensor> tensors;
  for (const ModelParameter& parameter : model.parameters()) tensors[parameter.name] = parameter.tensor.detach();
  return tensors;
}

/// Moves everything trained a little, as training does.
void disturb(TunedModel& tuned) {
  const at::NoGradGuard no_gradient;
  at::manual_seed(11);
  for (ModelParameter& parameter : tuned.trained) parameter.tensor += at::randn_like(parameter.tensor) * 0.1;
}

at::Tensor logits_of(const Decoder& model) {
  const at::NoGradGuard no_gradient;
  return model.logits(model.hidden(batch_of(random_tokens(2, 16))));
}

bool has_tape() { return find_name("tape") != nullptr; }

// --------------------------------------------------------------------------------------------------------------------
// Counts

ModelConfig sized(std::int64_t width, std::int64_t heads, std::int64_t layers, std::int64_t vocabulary) {
  ModelConfig config;
  config.width = width;
  config.heads = heads;
  config.layers = layers;
  config.vocabulary_size = vocabulary;
  config.train_length = 1024;
  config.encoding = "rope";
  return config;
}

TEST(Adapter, CountsWithoutAModel) {
  // The Llama 2 7B recipe of TAPE's authors: rank 8 on q, k, v, o; 32001 embeddings; 65 gains.
  const ModelConfig llama = sized(4096, 32, 32, 32001);
  EXPECT_EQ(trained_count(llama, plan_of("lora")), 8'388'608);
  EXPECT_EQ(trained_count(llama, plan_of("lora", "", {"embeddings"})), 8'388'608 + 131'076'096);
  EXPECT_EQ(trained_count(llama, plan_of("lora", "", {"norms"})), 8'388'608 + 266'240);
  AdapterPlan narrow = plan_of("lora");
  narrow.lora = {4, 16, {"q", "v"}};
  EXPECT_EQ(trained_count(llama, narrow), 8'388'608 / 4);
}

TEST(Adapter, CountsTapeAsPublished) {
  if (!has_tape()) GTEST_SKIP() << "this build has no tape(...)";
  // 2 H I + C I + H^2 a layer with I = 4 H.
  const auto formula = [](const ModelConfig& c) {
    const std::int64_t inner = 4 * c.heads;
    return c.layers * (2 * c.heads * inner + c.width * inner + c.heads * c.heads);
  };
  const ModelConfig c4 = sized(768, 12, 12, 32000), llama = sized(4096, 32, 32, 32001);
  EXPECT_EQ(trained_count(c4, plan_of("tape")), formula(c4));
  EXPECT_EQ(trained_count(c4, plan_of("tape")), 457'920);
  EXPECT_EQ(trained_count(llama, plan_of("tape")), formula(llama));
  EXPECT_EQ(trained_count(llama, plan_of("tape")), 17'072'128);
}

TEST(Adapter, CountsWhatItTrains) {
  for (const char* norm : {"none", "before"})
    for (const AdapterPlan& plan :
         {plan_of("lora"), plan_of("lora", "fox", {"positions"}), plan_of("positions", "t5(shared=true) + kerple"),
          plan_of("positions", "learned", {"embeddings", "norms"}), plan_of("lora", "rope", {"norms"}),
          plan_of("positions", "layers(rope, alibi(learn=true))")}) {
      ModelConfig config = small_config("rope");
      config.qk_norm = norm == std::string("none") ? QkNorm::None : QkNorm::Before;
      const Decoder base(config, 1);
      const TunedModel tuned = make_tuned(base, plan, 0);
      EXPECT_EQ(tuned.trained_count(), trained_count(config, plan)) << plan.train << " " << plan.encoding;
      std::set<std::string> trained;
      for (const ModelParameter& parameter : tuned.trained) trained.insert(parameter.name);
      std::int64_t rest = 0;
      for (const ModelParameter& parameter : tuned.model.parameters()) {
        EXPECT_EQ(parameter.tensor.requires_grad(), trained.count(parameter.name) > 0) << parameter.name;
        if (!trained.count(parameter.name)) rest += parameter.tensor.numel();
      }
      EXPECT_EQ(tuned.frozen_count(), rest);
    }
}

// --------------------------------------------------------------------------------------------------------------------
// Where tensors come from

TEST(Adapter, SharesWhatIsFrozenAndCopiesWhatIsTrained) {
  const Decoder base(small_config("rope + t5"), 1);
  TunedModel tuned = make_tuned(base, plan_of("positions", "", {"norms"}), 0);
  EXPECT_TRUE(tuned.fresh.empty());
  EXPECT_TRUE(at::equal(logits_of(tuned.model), logits_of(base)));
  const auto before = tensors_of(base);
  std::map<std::string, at::Tensor> copies;
  for (const auto& [name, tensor] : before) copies[name] = tensor.clone();
  disturb(tuned);
  for (const auto& [name, tensor] : tensors_of(tuned.model)) {
    const bool trained = contains(name, "t5.table") || contains(name, "norm.weight");
    EXPECT_EQ(tensor.data_ptr() == before.at(name).data_ptr(), !trained) << name;
    EXPECT_EQ(at::equal(tensor, copies.at(name)), !trained) << name;
    EXPECT_TRUE(at::equal(before.at(name), copies.at(name))) << name;
  }
}

TEST(Adapter, TermsWrittenAlikeGoOnFromTheBase) {
  const Decoder base(small_config("grape-m + t5"), 1);
  const auto before = tensors_of(base);
  {  // The rotation is another: its frequencies start anew; the table is the same term.
    const TunedModel tuned = make_tuned(base, plan_of("lora", "grape-m(base=500) + t5"), 7);
    const auto after = tensors_of(tuned.model);
    const std::string table = "model.layers.1.self_attn.position.t5.table";
    const std::string rates = "model.layers.1.self_attn.position.grape-m.log_freq";
    EXPECT_TRUE(at::equal(after.at(table), before.at(table)));
    EXPECT_FALSE(at::equal(after.at(rates), before.at(rates)));
    EXPECT_EQ(tuned.fresh, (std::vector<std::string>{"model.layers.0.self_attn.position.grape-m.log_freq", rates}));
    // Neither in the base nor trained: they must travel with the adapter.
    ASSERT_EQ(tuned.drawn.size(), 2u);
    EXPECT_EQ(tuned.drawn[1].name, rates);
    // The same start as a model that was drawn under this encoding.
    EXPECT_TRUE(at::equal(after.at(rates), tensors_of(Decoder(tuned.model.config(), 7)).at(rates)));
  }
  {  // Inside a wrapper the term is written alike.
    ModelConfig config = small_config("rope(learn=true)");
    const Decoder learned(config, 1);
    TunedModel moved = make_tuned(learned, plan_of("positions"), 0);
    disturb(moved);
    const Decoder trained = moved.merged();
    const TunedModel scaled = make_tuned(trained, plan_of("lora", "linear(rope(learn=true), factor=2)"), 0);
    EXPECT_TRUE(scaled.fresh.empty());
    for (const auto& [name, tensor] : tensors_of(scaled.model))
      EXPECT_TRUE(at::equal(tensor, tensors_of(trained).at(name))) << name;
  }
  {  // Theta scaling has no tensors at all.
    const TunedModel theta = make_tuned(Decoder(small_config("rope"), 1), plan_of("lora", "rope(base=1000000)"), 0);
    EXPECT_TRUE(theta.fresh.empty());
    EXPECT_EQ(theta.model.config().encoding, "rope(base=1000000)");
  }
}

TEST(Adapter, ChecksAPlanInOneLine) {
  const auto message = [](const AdapterPlan& plan, const std::string& encoding = "rope") {
    return message_of<UsageError>([&] { complete_plan(plan, small_config(encoding)); });
  };
  EXPECT_TRUE(contains(message(plan_of("all")), "lora, positions or tape, found 'all'"));
  EXPECT_TRUE(contains(message(plan_of("lora", "", {"head"})), "found 'head'"));
  EXPECT_TRUE(contains(message(plan_of("lora", "", {"norms", "norms"})), "norms twice"));
  EXPECT_TRUE(contains(message(plan_of("positions", "fox", {"positions"})), "trains already"));
  EXPECT_TRUE(contains(message(plan_of("positions")), "'rope' has no trained tensors"));
  EXPECT_TRUE(contains(message(plan_of("lora", "", {"positions"})), "'rope' has no trained tensors"));
  EXPECT_TRUE(contains(message(plan_of("lora", "roap")), "roap"));
  EXPECT_TRUE(contains(message(plan_of("tape"), "alibi"), "needs one rotation"));
  EXPECT_TRUE(contains(message(plan_of("tape"), "rope + t5"), "'rope + t5'"));
  EXPECT_TRUE(contains(message(plan_of("tape", "rope")), "needs an encoding tape(...), found 'rope'"));
}

TEST(Adapter, WrapsARotationInTape) {
  if (!has_tape()) GTEST_SKIP() << "this build has no tape(...)";
  EXPECT_EQ(complete_plan(plan_of("tape"), small_config("rope")).encoding, "tape(rope)");
  EXPECT_EQ(complete_plan(plan_of("tape"), small_config("linear(rope, factor=2)")).encoding,
            "tape(linear(rope, factor=2))");
  EXPECT_EQ(complete_plan(plan_of("tape"), small_config("tape(rope)")).encoding, "tape(rope)");
  ModelConfig config = small_config("rope");
  config.kv_heads = config.heads;
  const Decoder base(config, 1);
  const TunedModel tuned = make_tuned(base, plan_of("tape"), 0);
  // Zero maps: the same logits to float32 rounding.
  const at::Tensor before = logits_of(base);
  EXPECT_LT(largest_difference(logits_of(tuned.model), before),
            logits_rounding(config) * before.abs().max().item<double>());
  EXPECT_EQ(tuned.trained_count(), trained_count(config, plan_of("tape")));
}

// --------------------------------------------------------------------------------------------------------------------
// The folder

class AdapterFolder : public ::testing::Test {
 protected:
  AdapterFolder() {
    save_checkpoint(folder_ / "base", Decoder(small_config("rope + t5"), 1), "bytes");
    save("tuned", plan_of("lora", "rope(base=500) + fox", {"norms"}));
  }

  TunedModel save(const std::string& name, const AdapterPlan& plan) const {
    const LoadedModel base = load_checkpoint(folder_ / "base");
    TunedModel tuned = make_tuned(base.model, plan, 3);
    disturb(tuned);
    save_adapter(folder_ / name, tuned,
                 {folder_ / "base", weights_sha256(folder_ / "base"), base.tokenizer, base.model.config()},
                 {{"steps", 5}});
    return tuned;
  }

  std::string failure() const {
    return message_of<Error>([&] { load_checkpoint(folder_ / "tuned"); });
  }

  const TestFolder folder_;
};

TEST_F(AdapterFolder, ReadsBackToTheBitMergedOrNot) {
  for (const AdapterPlan& plan :
       {plan_of("lora"), plan_of("positions"), plan_of("lora", "rope(base=500) + fox", {"norms"}),
        plan_of("positions", "alibi(learn=true)", {"embeddings"}), plan_of("lora", "fox + t5", {"positions"})}) {
    const TunedModel tuned = save("one", plan);
    const LoadedAdapter loaded = load_adapter(folder_ / "one");
    EXPECT_EQ(loaded.run.at("steps"), 5);
    EXPECT_EQ(loaded.tuned.plan.encoding, tuned.plan.encoding);
    EXPECT_TRUE(at::equal(logits_of(loaded.tuned.model), logits_of(tuned.model))) << plan.encoding;
    const LoadedModel merged = load_checkpoint(folder_ / "one");
    EXPECT_EQ(merged.tokenizer, "bytes");
    const auto ours = tensors_of(merged.model), theirs = tensors_of(tuned.merged());
    ASSERT_EQ(ours.size(), theirs.size());
    for (const auto& [name, tensor] : ours) EXPECT_TRUE(at::equal(tensor, theirs.at(name))) << name;

    // A checkpoint of its own, without the base: bit for bit the same, and what was not touched is the base's.
    save_checkpoint(folder_ / "merged", merged.model, merged.tokenizer);
    const auto alone = tensors_of(load_checkpoint(folder_ / "merged").model);
    const auto base = tensors_of(load_checkpoint(folder_ / "base").model);
    std::set<std::string> touched;
    for (const auto* list : {&tuned.trained, &tuned.drawn})
      for (const ModelParameter& parameter : *list) touched.insert(parameter.name);
    if (plan.trains("lora"))
      for (const LoraPlace& place : lora_places(tuned.model.config(), tuned.plan.lora))
        touched.insert(place.weight_name());
    std::size_t untouched = 0;
    for (const auto& [name, tensor] : alone) {
      EXPECT_TRUE(at::equal(tensor, ours.at(name))) << name;
      if (touched.count(name) == 0) {
        EXPECT_TRUE(at::equal(tensor, base.at(name))) << name;
        ++untouched;
      } else if (base.count(name) != 0) {
        EXPECT_FALSE(at::equal(tensor, base.at(name))) << name;
      }
    }
    EXPECT_GE(untouched, 6u);  // the MLPs at least
    const at::Tensor before = logits_of(tuned.model);
    EXPECT_LT(largest_difference(logits_of(merged.model), before),
              logits_rounding(tuned.model.config()) * before.abs().max().item<double>());
  }
}

TEST_F(AdapterFolder, StandsOnCheckpointsOfOtherProgramsToo) {
  const std::string stories = shared_path("data/models/stories260K");
  if (stories.empty()) GTEST_SKIP() << "the shared data are not here";
  // The same tensors in two files, which the index names.
  const TensorFile whole = load_tensors(stories + "/hf/model.safetensors");
  std::map<std::string, at::Tensor> halves[2];
  Json index;
  for (const auto& [name, tensor] : whole.tensors) {
    const int half = name.find("mlp") == std::string::npos ? 0 : 1;
    halves[half].emplace(name, tensor);
    index["weight_map"][name] = str("part-", half, ".safetensors");
  }
  std::filesystem::create_directories(folder_ / "shards");
  for (const int half : {0, 1}) save_tensors(folder_ / str("shards/part-", half, ".safetensors"), halves[half]);
  write_file_atomic(folder_ / "shards/model.safetensors.index.json", json_text(index));
  std::filesystem::copy(stories + "/hf/config.json", folder_ / "shards/config.json");
  std::set<std::string> hashes;
  for (const std::string& where :
       {stories + "/stories260K.bin", stories + "/stories260K.gguf", stories + "/hf", folder_ / "shards"}) {
    const LoadedModel base = load_checkpoint(where);
    TunedModel tuned = make_tuned(base.model, plan_of("lora"), 3);
    disturb(tuned);
    save_adapter(folder_ / "one", tuned,
                 {where, weights_sha256(where), base.tokenizer, base.model.config(), "", base.reader}, {{"steps", 5}});
    hashes.insert(weights_sha256(where));
    const LoadedModel merged = load_checkpoint(folder_ / "one");
    EXPECT_EQ(merged.tokenizer, base.tokenizer) << where;
    EXPECT_TRUE(at::equal(logits_of(merged.model), logits_of(tuned.merged()))) << where;
  }
  EXPECT_EQ(hashes.size(), 4u);
  // Other numbers in one of the two files are another base.
  halves[1].begin()->second.add_(1);
  save_tensors(folder_ / "shards/part-1.safetensors", halves[1]);
  EXPECT_TRUE(contains(message_of<Error>([&] { load_checkpoint(folder_ / "one"); }), "another base checkpoint"));
  std::filesystem::remove(folder_ / "shards/part-0.safetensors");
  EXPECT_TRUE(contains(message_of<Error>([&] { load_checkpoint(folder_ / "one"); }), "no base checkpoint"));
}

TEST_F(AdapterFolder, HoldsOnlyWhatWasTrained) {
  const TunedModel tuned = save("one", plan_of("lora", "", {"norms"}));
  std::int64_t count = 0;
  for (const auto& [name, tensor] : load_tensors(folder_ / "one/adapter.safetensors").tensors) count += tensor.numel();
  EXPECT_EQ(count, tuned.trained_count());
  const Json json = read_json(folder_ / "one/adapter.json");
  EXPECT_EQ(json.at("format"), "torsor-adapter-1");
  EXPECT_EQ(json.at("base").at("path"), "../base");
  EXPECT_EQ(json.at("base").at("weights_sha256"), sha256_hex(slurp(folder_ / "base/model.safetensors")));
  EXPECT_EQ(json.at("rank"), 8);
  EXPECT_EQ(json.at("with"), Json::array({"norms"}));
  EXPECT_EQ(json.at("trained_parameters"), count);
}

TEST_F(AdapterFolder, FindsItsBaseOrSaysWhichOneIsMissing) {
  const auto over = std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing;
  const at::Tensor expected = logits_of(load_checkpoint(folder_ / "tuned").model);
  std::filesystem::rename(folder_ / "base", folder_ / "elsewhere");
  EXPECT_TRUE(contains(failure(), "say where it is with --base"));
  EXPECT_TRUE(at::equal(logits_of(load_checkpoint(folder_ / "tuned", "", "", folder_ / "elsewhere").model), expected));

  save_checkpoint(folder_ / "base", Decoder(small_config("rope + t5"), 2), "bytes");
  EXPECT_TRUE(contains(failure(), "another base checkpoint"));
  // The same weights under another reading.
  std::filesystem::copy(folder_ / "elsewhere", folder_ / "base", over);
  Json config = read_json(folder_ / "base/config.json");
  config["encoding"] = "rope(base=100) + t5";
  folder_.put("base/config.json", json_text(config));
  EXPECT_TRUE(contains(failure(), "encoding is \"rope(base=100) + t5\" there and \"rope + t5\" here")) << failure();
  std::filesystem::copy(folder_ / "tuned", folder_ / "base", over);
  EXPECT_TRUE(contains(failure(), "is an adapter itself"));
  EXPECT_TRUE(contains(
      message_of<UsageError>([&] { load_checkpoint(folder_ / "elsewhere", "", "", folder_ / "base"); }), "no adapter"));
  EXPECT_TRUE(contains(message_of<Error>([&] { load_checkpoint(folder_ / "base"); }), "a checkpoint and an adapter"));
}

TEST_F(AdapterFolder, RefusesEveryDamageInOneLine) {
  const Json whole = read_json(folder_ / "tuned/adapter.json");
  const std::string tensors = slurp(folder_ / "tuned/adapter.safetensors");
  const std::vector<std::pair<std::string, std::function<void(Json&)>>> damages = {
      {"format must be torsor-adapter-1", [](Json& json) { json["format"] = "torsor-adapter-2"; }},
      {"base", [](Json& json) { json.erase("base"); }},
      {"base", [](Json& json) { json["base"] = 3; }},
      {"path", [](Json& json) { json["base"].erase("path"); }},
      {"extra", [](Json& json) { json["extra"] = 1; }},
      {"found 'everything'", [](Json& json) { json["train"] = "everything"; }},
      {"rank must be from 1 to", [](Json& json) { json["rank"] = 0; }},
      {"rank must be from 1 to", [](Json& json) { json["rank"] = std::int64_t{1} << 60; }},
      {"trained_parameters says", [](Json& json) { json["rank"] = 65536; }},
      {"trained_parameters says", [](Json& json) { json["rank"] = 4; }},
      {"alpha", [](Json& json) { json["alpha"] = -1; }},
      {"alpha", [](Json& json) { json["alpha"] = "much"; }},
      {"not what", [](Json& json) { json["alpha"] = 15; }},
      {"not what", [](Json& json) { json["encoding"] = "rope(base=100) + t5"; }},
      {"found 'z'", [](Json& json) { json["modules"] = {"z"}; }},
      {"modules", [](Json& json) { json["modules"] = Json::array(); }},
      {"with",
       [](Json& json) {
         json["with"] = {"norms", "norms"};
       }},
      {"with", [](Json& json) { json["with"] = "norms"; }},
      {"ropes", [](Json& json) { json["encoding"] = "ropes"; }},
      {"encoding", [](Json& json) { json["encoding"] = ""; }},
      {"trained_parameters says", [](Json& json) { json["trained_parameters"] = 1; }},
      {"another base", [](Json& json) { json["base"]["weights_sha256"] = std::string(64, '0'); }},
      {"another base", [](Json& json) { json["base"]["weights_sha256"] = ""; }},
      {"configuration of the base", [](Json& json) { json["base"]["train_length"] = 17; }},
      {"holds too little", [](Json& json) { json["encoding"] = "learned(length=16777216)"; }},
      {"SHA-256", [](Json& json) { json["tensors_sha256"] = "x"; }},
      {"no base checkpoint", [](Json& json) { json["base"]["path"] = "/nowhere/at/all"; }},
      {"an adapter itself", [](Json& json) { json["base"]["path"] = ""; }},
  };
  for (const auto& [part, damage] : damages) {
    Json json = whole;
    damage(json);
    folder_.put("tuned/adapter.json", json_text(json));
    const std::string message = failure();
    EXPECT_TRUE(contains(message, part)) << part << ": " << message;
    EXPECT_TRUE(contains(message, "adapter.")) << message;
  }
  for (const char* text : {"", "{", "[]", "{\"format\": 1}"}) {
    folder_.put("tuned/adapter.json", text);
    EXPECT_TRUE(contains(failure(), "adapter.json")) << text;
  }

  // Tensors, with the hash brought up to date.
  const auto put_tensors = [&](const std::string& bytes) {
    folder_.put("tuned/adapter.safetensors", bytes);
    Json json = whole;
    json["tensors_sha256"] = sha256_hex(bytes);
    folder_.put("tuned/adapter.json", json_text(json));
  };
  put_tensors(tensors.substr(0, tensors.size() - 8));
  EXPECT_TRUE(contains(failure(), "adapter.safetensors"));
  put_tensors("");
  EXPECT_TRUE(contains(failure(), "adapter.safetensors"));
  put_tensors(tensors);
  const TensorFile sound = load_tensors(folder_ / "tuned/adapter.safetensors");
  const std::string one = "model.layers.0.self_attn.q_proj.lora_A.weight";
  const std::vector<std::pair<std::string, std::function<void(std::map<std::string, at::Tensor>&)>>> changes = {
      {"is missing", [&](auto& map) { map.erase(one); }},
      {"must be", [&](auto& map) { map[one] = map[one].t().contiguous(); }},
      {"must be", [&](auto& map) { map[one] = map[one].to(at::kDouble); }},
      {"not finite", [&](auto& map) { map[one] = at::full_like(map[one], NAN); }},
      {"has no place", [&](auto& map) { map["model.norm.bias"] = at::zeros({1}); }},
  };
  for (const auto& [part, change] : changes) {
    std::map<std::string, at::Tensor> map = sound.tensors;
    change(map);
    save_tensors(folder_ / "made.safetensors", map, sound.metadata);
    put_tensors(slurp(folder_ / "made.safetensors"));
    const std::string message = failure();
    EXPECT_TRUE(contains(message, part)) << part << ": " << message;
  }
  save_tensors(folder_ / "made.safetensors", sound.tensors);
  put_tensors(slurp(folder_ / "made.safetensors"));
  EXPECT_TRUE(contains(failure(), "does not say what it was trained as"));
  put_tensors(tensors);
  load_checkpoint(folder_ / "tuned");  // sound again
  std::filesystem::remove(folder_ / "tuned/adapter.safetensors");
  EXPECT_TRUE(contains(failure(), "adapter.safetensors"));
}

}  // namespace
}  // namespace torsor

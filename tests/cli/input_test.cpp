// Bad input of every kind ends with the right code and one clear line.
#include <gtest/gtest.h>

#include "tests/cli/program.h"

namespace torsor::testing {
namespace {

std::vector<std::string> tiny_compare(const TestFolder& folder, const std::string& out,
                                      const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {"compare",
                                        "--encodings",
                                        "none; rope",
                                        "--model",
                                        put_tiny_model(folder),
                                        "--length",
                                        "16",
                                        "--eval-lengths",
                                        "16,32",
                                        "--seeds",
                                        "0",
                                        "--steps",
                                        "2",
                                        "--batch",
                                        "2",
                                        "--threads",
                                        "1",
                                        "--quiet",
                                        "--out",
                                        folder / out};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(CliInput, TextsThatCannotBeTrainedOn) {
  const TestFolder folder;
  const std::string short_text = folder.put("short.txt", "too short"), empty = folder.put("empty.txt", "");
  const auto compare = [&](const std::string& text) { return run(tiny_compare(folder, "o", {"--text", text})); };
  expect_refusal(compare(folder / "missing.txt"), 1, {"missing.txt"});
  expect_refusal(compare(empty), 1, {"empty"});
  expect_refusal(compare(short_text), 1, {"tokens"});
  const std::vector<std::string> train = {"train", "--encoding", "rope", "--quiet", "--out", folder / "o", "--text"};
  for (const auto& [text, part] : {std::pair<std::string, std::string>{folder / "missing.txt", "missing.txt"},
                                   {empty, "empty"},
                                   {short_text, "129"}}) {
    std::vector<std::string> arguments = train;
    arguments.push_back(text);
    expect_refusal(run(arguments), 1, {part});
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "o"));
}

TEST(CliInput, ExpressionsAndOptionsThatMeanNothing) {
  const TestFolder folder;
  const std::string text = folder.put("book.txt", tiny_text(4000));
  struct Case {
    std::vector<std::string> arguments;
    std::vector<std::string> parts;
  };
  const std::string odd = folder.put("odd.json", R"({"width": 10, "heads": 4})"),
                    unknown = folder.put("unknown.json", R"({"widht": 16})");
  for (const Case& one : {
           Case{{"extnd", "x"}, {"unknown command 'extnd'", "extend"}},
           Case{{"syntax", "chek"}, {"unknown command 'chek' of torsor syntax", "check"}},
           Case{{"--foo", "encodings"}, {"unknown option '--foo' of torsor encodings"}},
           Case{{"generate", "x", "--prompt", "a", "--tokens", "20"},
                {"unknown option '--tokens' of torsor generate", "see torsor generate --help"}},
           Case{{"syntax", "gate", "--parser", "x", "trees.conllu", "--tokens=3"},
                {"unknown option '--tokens' of torsor syntax gate"}},
           Case{{"generate", "x", "--max-tokens", "0"}, {"--max-tokens", "of at least 1, found 0"}},
           Case{{"generate", "x", "--max-tokens", "99999999999999"}, {"from 1 to 1099511627776, found 99999999999999"}},
           Case{{"generate", "x", "--max-tokens", "99999999999999999999"}, {"from 1 to 1099511627776"}},
           Case{{"convert", "a", "b"}, {"unexpected argument 'b' of torsor convert"}},
           Case{{"compare", "--encodings", "roep", "--text", text, "--out", folder / "o"}, {"roep", "rope"}},
           Case{{"compare", "--encodings", " ; ", "--text", text, "--out", folder / "o"}, {"no encoding"}},
           Case{{"compare", "--encodings", "yarn(rope, factr=4)", "--text", text, "--out", folder / "o"},
                {"factr", "factor"}},
           Case{{"compare", "--text", text, "--model", odd, "--out", folder / "o"}, {"width 10", "heads 4"}},
           Case{{"compare", "--text", text, "--model", unknown, "--out", folder / "o"}, {"unknown.json", "widht"}},
           Case{{"compare", "--text", text, "--profile", "fast", "--out", folder / "o"}, {"fast", "quick"}},
           Case{{"compare", "--text", text, "--dtype", "fp8", "--out", folder / "o"}, {"fp8", "bf16"}},
           Case{{"compare", "--text", text, "--seeds", "1,1", "--out", folder / "o"}, {"seed 1", "twice"}},
           Case{{"compare", "--text", text, "--eval-lengths", "32,48", "--out", folder / "o"}, {"32", "48"}},
           Case{{"compare", "--text", text, "--steps", "0", "--out", folder / "o"}, {"--steps"}},
           Case{{"compare", "--text", text, "--steps", "many", "--out", folder / "o"}, {"--steps", "many"}},
           Case{{"compare", "--text", text, "--task", "sorting", "--out", folder / "o"}, {"sorting"}},
           Case{{"train", "--encoding", "rope", "--text", text}, {"--out"}},
           Case{{"train", "--text", text, "--out", folder / "o"}, {"--encoding"}},
           Case{{"train", "--encoding", "rope(", "--text", text, "--out", folder / "o"}, {"rope("}},
           Case{{"eval", folder / "none"}, {"--text", "--tokens"}},
           Case{{"values"}, {"expression"}},
           Case{{"values", "rope(base=0)"}, {"base"}},
           Case{{"values", "rope", "--head-dim", "7"}, {"7"}},
           Case{{"laws", "roep"}, {"roep"}},
           Case{{"laws", "rope", "--qk-norm", "beside"}, {"--qk-norm", "beside", "before"}},
           Case{{"values", "rope", "--out", folder / "o"}, {"values", "--out"}},
           Case{{"laws", "rope", "--out", folder / "o"}, {"laws", "--out"}},
           Case{{"encodings", "--out", folder / "o"}, {"encodings", "--out"}},
           Case{{"values", "grape-m(basis=householder, reflectors=1000000000)"}, {"reflectors", "4096"}},
           Case{{"encodings", "roep"}, {"roep"}},
           Case{{"bench", "--repeat", "0"}, {"--repeat", "0"}},
           Case{{"bench", "--repeat", "often"}, {"--repeat", "often"}},
           Case{{"bench", "--filter", "cubic"}, {"cubic", "decode"}},
           Case{{"no-such-command"}, {"no-such-command"}},
           Case{{"compare", "--no-such-option"}, {"--no-such-option"}},
           Case{{}, {"subcommand"}},
       }) {
    SCOPED_TRACE(one.arguments.empty() ? "no arguments" : one.arguments[0] + " " + one.arguments.back());
    expect_refusal(run(one.arguments), 2, one.parts);
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "o"));
}

TEST(CliInput, FilesThatAreNotWhatTheyShouldBe) {
  const TestFolder folder;
  const std::string text = folder.put("book.txt", tiny_text(4000)), broken = folder.put("broken.json", "{");
  expect_refusal(run({"compare", "--text", text, "--model", broken, "--out", folder / "o"}), 1, {"broken.json"});
  expect_refusal(run({"compare", "--from", broken, "--out", folder / "o"}), 1, {"broken.json"});
  expect_refusal(run({"compare", "--from", folder.put("list.json", "[1]"), "--out", folder / "o"}), 1,
                 {"list.json", "config"});
  expect_refusal(run({"compare", "--from", folder.put("part.json", R"({"config": {"encodings": ["rope"]}})"), "--out",
                      folder / "o"}),
                 1, {"part.json", "task"});
  expect_refusal(run({"check", broken}), 1, {"broken.json"});
  expect_refusal(run({"check", folder / "missing.json"}), 1, {"missing.json"});
  expect_refusal(run({"record", folder.put("other.json", R"({"format": "other"})")}), 1,
                 {"other.json", "torsor-conformance-1"});
  expect_refusal(
      run({"train", "--encoding", "rope", "--tokens", folder.put("odd.bin", "abc"), "--quiet", "--out", folder / "o"}),
      1, {"odd.bin"});
  EXPECT_FALSE(std::filesystem::exists(folder / "o"));
}

TEST(CliInput, CheckpointsThatAreDamaged) {
  const TestFolder folder;
  const std::string text = folder.put("other.txt", tiny_text(200));
  ASSERT_EQ(run(tiny_train(folder, "run", {"--steps", "1"})).code, 0);
  const std::string config = slurp(folder / "run/config.json"), weights = slurp(folder / "run/model.safetensors");
  const auto eval = [&](const std::string& folder_name) { return run({"eval", folder_name, "--text", text}); };
  const Ran sound = eval(folder / "run");
  ASSERT_EQ(sound.code, 0) << sound;

  const auto damaged = [&](const std::string& new_config, const std::string& new_weights,
                           const std::vector<std::string>& parts) {
    SCOPED_TRACE(parts.back());
    std::filesystem::create_directories(folder / "damaged");
    folder.put("damaged/config.json", new_config);
    folder.put("damaged/model.safetensors", new_weights);
    expect_refusal(eval(folder / "damaged"), 1, parts);
  };
  const auto changed = [&](const char* pointer, const Json& value) {
    Json json = parse_json(config, "config");
    json[Json::json_pointer(pointer)] = value;
    return json_text(json);
  };
  damaged("{", weights, {"config.json:1"});
  damaged("{}", weights, {"config.json", "format"});
  damaged(changed("/format", "other"), weights, {"config.json", "torsor-checkpoint-1", "other"});
  damaged(changed("/model/surplus", 1), weights, {"config.json", "surplus"});
  damaged(changed("/model/width", "wide"), weights, {"config.json", "width"});
  damaged(changed("/model/width", 0), weights, {"width must be at least 1"});
  damaged(changed("/model/layers", 1000000000), weights, {"layers must be at most"});
  damaged(changed("/model/layers", 2), weights, {"model.safetensors", "model.layers.1", "missing"});
  damaged(changed("/encoding", "roep"), weights, {"config.json", "roep"});
  damaged(changed("/encoding", "rope"), weights, {"model.safetensors", "t5.table"});
  damaged(changed("/vocabulary_size", 300), weights, {"embed_tokens", "300"});
  damaged(config, "", {"model.safetensors"});
  damaged(config, weights.substr(0, weights.size() / 2), {"model.safetensors"});
  damaged(config, weights.substr(0, 7), {"model.safetensors"});
  damaged(config, std::string(64, '\xff'), {"model.safetensors"});
  damaged(config, weights + "x", {"model.safetensors"});

  // The header is padded with spaces, so that tensors can be renamed and reshaped in place.
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string bytes = weights;
    const std::size_t at = bytes.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    EXPECT_EQ(from.size(), to.size());
    if (at != std::string::npos) bytes.replace(at, from.size(), to);
    return bytes;
  };
  damaged(config, replaced("model.norm.weight", "model.norm.wright"),
          {"model.safetensors", "model.norm.weight", "missing"});
  damaged(config, replaced("[256,16]", "[16,256]"),
          {"model.safetensors", "model.embed_tokens.weight", "[256, 16]", "[16, 256]"});
  damaged(config, replaced("\"F32\"", "\"I32\""), {"model.safetensors", "real numbers"});

  expect_refusal(eval(folder / "nowhere"), 1, {"nowhere/config.json"});
  expect_refusal(eval(text), 1, {"other.txt", "a .gguf file"});
  expect_refusal(run({"eval", folder / "run", "--text", text, "--lengths", "512"}), 1, {"513"});
  expect_refusal(run({"eval", folder / "run", "--text", text, "--encoding", "alibi"}), 1, {"t5.table"});

  // A state to resume from that is cut, or of another run.
  const std::string state = slurp(folder / "run/state.safetensors");
  folder.put("run/state.safetensors", state.substr(0, state.size() - 9));
  expect_refusal(run(tiny_train(folder, "run", {"--steps", "1", "--resume"})), 1, {"state.safetensors"});
  folder.put("run/state.safetensors", state);
  expect_refusal(run(tiny_train(folder, "run", {"--steps", "2", "--resume"})), 1,
                 {"state.safetensors", "steps is 1 there and 2 here"});
}

TEST(CliInput, WhatExistsIsNotOverwrittenUnasked) {
  const TestFolder folder;
  ASSERT_EQ(run(tiny_train(folder, "run", {"--steps", "1"})).code, 0);
  const std::string weights = slurp(folder / "run/model.safetensors"), log = slurp(folder / "run/log.jsonl");
  expect_refusal(run(tiny_train(folder, "run", {"--steps", "2"})), 1, {"run", "--resume", "--force"});
  EXPECT_EQ(slurp(folder / "run/model.safetensors"), weights);
  EXPECT_EQ(slurp(folder / "run/log.jsonl"), log);
  // A checkpoint without a state is somebody's too, and there is nothing to go on from.
  std::filesystem::remove(folder / "run/state.safetensors");
  expect_refusal(run(tiny_train(folder, "run", {"--steps", "2"})), 1, {"run", "checkpoint", "--force"});
  expect_refusal(run(tiny_train(folder, "run", {"--steps", "2", "--resume"})), 1, {"run", "checkpoint", "--force"});
  EXPECT_EQ(slurp(folder / "run/model.safetensors"), weights);
  EXPECT_EQ(run(tiny_train(folder, "run", {"--steps", "2", "--force"})).code, 0);
  EXPECT_NE(slurp(folder / "run/model.safetensors"), weights);

  const std::string logits = folder.put("logits.safetensors", "mine");
  expect_refusal(run({"eval", folder / "run", "--text", folder / "book.txt", "--dump-logits", logits}), 1,
                 {"logits.safetensors", "--force"});
  EXPECT_EQ(slurp(logits), "mine");
}

TEST(CliInput, ForceAndOutTouchOnlyWhatTheProgramMade) {
  const TestFolder folder;
  const std::string text = folder.put("book.txt", tiny_text(4000));
  std::filesystem::create_directories(folder / "out/runs/mine");
  folder.put("out/runs/mine/notes.txt", "mine");
  ASSERT_EQ(run(tiny_compare(folder, "out", {"--text", text})).code, 0);
  ASSERT_EQ(run(tiny_compare(folder, "out", {"--text", text, "--force"})).code, 0);
  EXPECT_EQ(slurp(folder / "out/runs/mine/notes.txt"), "mine");
  std::filesystem::create_directories(folder / "other");
  const std::string report = folder.put("other/report.html", "mine");
  expect_refusal(run(tiny_compare(folder, "other", {"--text", text})), 1, {"other", "--force"});
  EXPECT_EQ(slurp(report), "mine");
  std::filesystem::create_directories(folder / "third");
  const std::string state = folder.put("third/state.json", "mine");
  expect_refusal(run(tiny_train(folder, "third", {"--steps", "1"})), 1, {"third", "--resume", "--force"});
  EXPECT_EQ(slurp(state), "mine");
}

TEST(CliInput, NumbersThatAreNoneOrTooLarge) {
  const TestFolder folder;
  const std::string text = folder.put("book.txt", tiny_text(4000));
  for (const std::vector<std::string>& extra : {std::vector<std::string>{"--learning-rate", "nan"},
                                                {"--learning-rate", "-1"},
                                                {"--steps", "0"},
                                                {"--seed", "-1"},
                                                {"--seed", "99999999999999999999"},
                                                {"--threads", "100000"},
                                                {"--steps", "1e3"}}) {
    expect_refusal(run(tiny_train(folder, "run", extra)), 2, {extra[0], extra[1]});
    expect_refusal(run(tiny_compare(folder, "out", extra)), 2, {extra[0], extra[1]});
  }
  for (const char* option : {"--head-dim", "--heads"}) {
    expect_refusal(run({"values", "rope", option, "20000000"}), 2, {option, "20000000"});
    expect_refusal(run({"laws", "rope", option, "20000000"}), 2, {option, "20000000"});
  }
  // A run that fails says so, also when asked to be quiet.
  const Ran failed = run(tiny_compare(folder, "fails", {"--text", text, "--learning-rate", "1e30", "--quiet"}));
  expect_refusal(failed, 1, {"failed"});
}

TEST(CliInput, WeightsThatAreNotNumbers) {
  const TestFolder folder;
  ASSERT_EQ(run(tiny_train(folder, "run", {"--steps", "1"})).code, 0);
  std::string weights = slurp(folder / "run/model.safetensors");
  for (std::size_t n = weights.size() - 8; n < weights.size(); ++n) weights[n] = static_cast<char>(0xff);
  folder.put("run/model.safetensors", weights);
  expect_refusal(run({"eval", folder / "run", "--text", folder / "book.txt", "--lengths", "16"}), 1,
                 {"model.safetensors", "not finite"});
}

TEST(CliInput, DisksThatAreFullAndFoldersThatCannotBe) {
  const TestFolder folder;
  const std::string text = folder.put("book.txt", tiny_text(4000));
  folder.put("file", "in the way");
  expect_refusal(run(tiny_train(folder, "file/run", {"--steps", "1"})), 1, {"file/run"});
  expect_refusal(run(tiny_train(folder, "file", {"--steps", "1"})), 1, {"file"});
  expect_refusal(run(tiny_compare(folder, "file/out", {"--text", text})), 1, {"file/out"});

  Surroundings full;
  full.file_limit = 8000;  // less than the weights
  expect_refusal(run(tiny_train(folder, "full", {"--steps", "1"}), full), 1,
                 {"full/state.safetensors", "File too large"});
  for (const auto& entry : std::filesystem::directory_iterator(folder / "full"))
    EXPECT_FALSE(contains(entry.path().filename(), "tmp")) << entry.path();
  EXPECT_FALSE(std::filesystem::exists(folder / "full/config.json"));
  const Ran compared = run(tiny_compare(folder, "full-compare", {"--text", text}), full);
  EXPECT_EQ(compared.code, 1) << compared;
  EXPECT_TRUE(contains(compared.err + compared.out, "File too large")) << compared;

  Surroundings nowhere;
  nowhere.out = "/dev/full";
  if (std::filesystem::exists("/dev/full")) expect_refusal(run({"values", "rope"}, nowhere), 1, {"standard output"});
}

}  // namespace
}  // namespace torsor::testing

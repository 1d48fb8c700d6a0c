// A parser for tests of the process backend: speaks its protocol, and misbehaves as its arguments say.
//
//     fake_parser [FAULT]...
//
// no-hello, bad-hello, other-hello-after:FILE (another name once FILE exists, which is made), ignore-end;
// reverse:N (answers N requests at a time, the last first), silent-on:WORD, die-on:WORD, die-after:N, hang-after:N,
// error-on:WORD, junk (lines that are no replies before each reply), partial-on:WORD (half a line, then the end),
// long-on:WORD (a line without end), other-text-on:WORD, bad-conllu-on:WORD, two-answers, flood-on:WORD (junk for
// ever), prefix (prefix-safe), late-arc (an arc that could have been known before).
//
// Its trees are chains: every word hangs from the one before it. A full stop ends a sentence.
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

namespace {

using Json = nlohmann::json;

std::vector<std::string> faults;

bool has(const std::string& name) { return std::find(faults.begin(), faults.end(), name) != faults.end(); }

/// What stands behind "NAME:", or nothing.
std::string value_of(const std::string& name) {
  for (const std::string& fault : faults)
    if (fault.rfind(name + ":", 0) == 0) return fault.substr(name.size() + 1);
  return "";
}

long number_of(const std::string& name) {
  const std::string value = value_of(name);
  return value.empty() ? 0 : std::stol(value);
}

void say(const std::string& line) { std::cout << line << std::endl; }

void wait_for_ever() {
  while (true) std::this_thread::sleep_for(std::chrono::seconds(1));
}

std::string conllu_of(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i)
    text += std::to_string(i + 1) + "\t" + words[i] + "\t_\tX\t_\t_\t" + std::to_string(i) + "\t" +
            (i == 0 ? "root" : "dep") + "\t_\t_\n";
  return text + "\n";
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream in(text);
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

std::string answer(const Json& request) {
  std::vector<std::vector<std::string>> sentences;
  std::string all;
  if (request.at("op") == "parse") {
    all = request.at("text");
    std::vector<std::string> present;
    for (const std::string& word : split(all)) {
      present.push_back(word);
      if (word == ".") sentences.push_back(std::exchange(present, {}));
    }
    if (!present.empty()) sentences.push_back(present);
  } else {
    for (const Json& sentence : request.at("sentences")) sentences.push_back(sentence.get<std::vector<std::string>>());
    for (const auto& sentence : sentences)
      for (const std::string& word : sentence) all += word + " ";
  }
  const auto meets = [&](const std::string& fault) {
    const std::string word = value_of(fault);
    return !word.empty() && (" " + all + " ").find(" " + word + " ") != std::string::npos;
  };
  const Json id = request.at("id");
  if (meets("silent-on")) return "";
  if (meets("die-on")) std::_Exit(7);
  if (meets("error-on")) return Json({{"id", id}, {"error", "no\nparse"}}).dump();
  if (meets("partial-on")) {
    std::cout << "{\"id\":" << id << ",\"conl" << std::flush;
    std::_Exit(0);
  }
  if (meets("long-on"))
    while (std::cout << std::string(4096, 'x') << std::flush) continue;
  if (meets("flood-on"))
    while (std::cout << "{\"id\":-1,\"error\":\"flood\"}\n" << std::flush)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (meets("other-text-on")) sentences.front().front() += "x";
  std::string conllu;
  for (const auto& sentence : sentences) conllu += conllu_of(sentence);
  if (meets("bad-conllu-on")) conllu = "1\tonly\tthree\n\n";
  return Json({{"id", id}, {"conllu", conllu}}).dump();
}

}  // namespace

int main(int argc, char** argv) {
  faults.assign(argv + 1, argv + argc);
  std::cerr << "fake parser started\n";
  if (has("no-hello")) wait_for_ever();
  std::string name = "fake";
  if (const std::string mark = value_of("other-hello-after"); !mark.empty()) {
    if (std::ifstream(mark)) name = "another";
    std::ofstream(mark) << "seen\n";
  }
  say(has("bad-hello") ? "{\"sipe\":2,\"name\":\"fake\",\"scheme\":\"ud\"}"
                       : Json({{"sipe", 1},
                               {"name", name},
                               {"version", "1"},
                               {"model", "chain"},
                               {"scheme", "ud"},
                               {"prefix_safe", has("prefix")},
                               {"langs", {"en"}}})
                             .dump());
  std::vector<std::string> held;
  long requests = 0;
  int words = 0;
  for (std::string line; std::getline(std::cin, line);) {
    const Json request = Json::parse(line);
    if (request.at("op") == "reset") {
      words = 0;
      continue;
    }
    ++requests;
    if (number_of("die-after") > 0 && requests > number_of("die-after")) return 7;
    if (number_of("hang-after") > 0 && requests > number_of("hang-after")) wait_for_ever();
    if (request.at("op") == "word") {
      ++words;
      Json arcs = Json::array();
      if (words > 1) arcs.push_back({words, words - 1, "dep"});
      if (has("late-arc") && words == 3) arcs = {{2, 1, "dep"}};
      const bool end = request.at("form") == ".";
      say(Json({{"arcs", arcs}, {"sent_end", end}}).dump());
      if (end) words = 0;
      continue;
    }
    if (has("junk")) {
      say("Loading the model ...");
      say("{\"id\":\"seven\"}");
      say("{\"id\":123456,\"error\":\"nobody asked\"}");
    }
    held.push_back(answer(request));
    if (has("two-answers")) held.push_back(held.back());
    if (static_cast<long>(held.size()) < number_of("reverse")) continue;
    std::reverse(held.begin(), held.end());
    for (const std::string& reply : held)
      if (!reply.empty()) say(reply);
    held.clear();
  }
  if (has("ignore-end")) wait_for_ever();
  return 0;
}

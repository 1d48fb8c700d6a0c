#include "torsor/data/passkey.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <sstream>

#include "torsor/base/error.h"
#include "torsor/base/random.h"

namespace torsor {
namespace {

constexpr std::uint64_t kPasskeySeed = 20250302;
constexpr std::uint64_t kCodes = 100000;
constexpr std::uint64_t kPasskeyParts = 10;  // one code in ten is set apart
constexpr std::int64_t kMostLength = std::int64_t{1} << 24;
constexpr std::size_t kMostPasskeys = 10000;

// Digits stand for themselves; '#' is where the code stands.
constexpr const char* kTask = "somewhere below hides a secret code . find it and keep it in mind .";
constexpr const char* kStatement = "the secret code is # . keep in mind that the secret code is # .";
constexpr const char* kQuestion = "which code was hidden above ? the secret code is";

constexpr const char* kAdjectives =
    "old young quiet loud small great green grey brown pale warm cold early late slow quick tired brave plain round "
    "narrow heavy gentle proud";
constexpr const char* kNouns =
    "river garden teacher baker window ladder forest horse lantern village carpenter table bridge cloud sailor kettle "
    "meadow doctor wagon candle orchard fisher chimney rabbit painter valley basket stable miller harbour sparrow "
    "cellar";
constexpr const char* kVerbs =
    "waited rested stood slept lingered sang worked wandered stayed laughed paused walked turned danced leaned sat "
    "hurried listened dreamed smiled talked swayed hid grew";
constexpr const char* kPrepositions = "near behind beside under beyond before against above";

std::vector<std::string> words_in(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

/// All words with their ids: padding, newline, the digits, then the words in the order of the texts above.
class Vocabulary {
 public:
  Vocabulary() {
    add("_");
    add("\n");
    for (char digit = '0'; digit <= '9'; ++digit) add(std::string(1, digit));
    task = ids_of(kTask);
    statement = ids_of(kStatement);
    question = ids_of(kQuestion);
    the = ids_of("the").front();
    stop = ids_of(".").front();
    adjectives = ids_of(kAdjectives);
    nouns = ids_of(kNouns);
    verbs = ids_of(kVerbs);
    prepositions = ids_of(kPrepositions);
  }

  using Ids = std::vector<std::int64_t>;
  static constexpr std::int64_t kCode = -1;  // in a text: the digits of the code go here
  Ids task, statement, question, adjectives, nouns, verbs, prepositions;
  std::int64_t the = 0, stop = 0;
  std::vector<std::string> words;

 private:
  std::int64_t add(const std::string& word) {
    const auto [place, fresh] = ids_.emplace(word, static_cast<std::int64_t>(words.size()));
    if (fresh) words.push_back(word);
    return place->second;
  }
  Ids ids_of(const std::string& text) {
    Ids ids;
    for (const std::string& word : words_in(text)) ids.push_back(word == "#" ? kCode : add(word));
    return ids;
  }
  std::map<std::string, std::int64_t> ids_;
};

const Vocabulary& vocabulary() {
  static const Vocabulary all;
  return all;
}

/// Tokens of a problem without filler, the answer included.
std::size_t frame_size() {
  const Vocabulary& v = vocabulary();
  const std::size_t codes = static_cast<std::size_t>(std::count(v.statement.begin(), v.statement.end(), v.kCode));
  const std::size_t newlines = 4;
  return v.task.size() + v.statement.size() - codes + codes * PasskeyTask::kDigits + v.question.size() + newlines +
         PasskeyTask::kDigits;
}

void add_filler(std::vector<std::int64_t>& tokens, std::size_t count, Random& random) {
  const Vocabulary& v = vocabulary();
  const auto one = [&](const std::vector<std::int64_t>& of) { return of[random.below(of.size())]; };
  const std::size_t end = tokens.size() + count;
  while (tokens.size() < end) {
    const std::array<std::int64_t, 9> sentence = {
        v.the, one(v.adjectives), one(v.nouns), one(v.verbs), one(v.prepositions),
        v.the, one(v.adjectives), one(v.nouns), v.stop};
    const std::size_t fits = std::min(sentence.size(), end - tokens.size());
    tokens.insert(tokens.end(), sentence.begin(), sentence.begin() + static_cast<std::ptrdiff_t>(fits));
  }
}

/// `before` of the filler's tokens stand before the statement.
TaskProblem problem_of(std::int64_t length, std::size_t before, std::uint64_t code, Random& random) {
  const Vocabulary& v = vocabulary();
  const std::size_t filler = static_cast<std::size_t>(length) + 1 - frame_size();
  std::array<std::int64_t, PasskeyTask::kDigits> digits{};
  for (std::size_t n = digits.size(); n-- > 0; code /= 10)
    digits[n] = PasskeyTask::kZero + static_cast<std::int64_t>(code % 10);

  TaskProblem problem;
  std::vector<std::int64_t>& tokens = problem.tokens;
  tokens.reserve(static_cast<std::size_t>(length) + 1);
  tokens = v.task;
  tokens.push_back(PasskeyTask::kNewline);
  add_filler(tokens, before, random);
  tokens.push_back(PasskeyTask::kNewline);
  for (const std::int64_t token : v.statement) {
    if (token == v.kCode)
      tokens.insert(tokens.end(), digits.begin(), digits.end());
    else
      tokens.push_back(token);
  }
  tokens.push_back(PasskeyTask::kNewline);
  add_filler(tokens, filler - before, random);
  tokens.push_back(PasskeyTask::kNewline);
  tokens.insert(tokens.end(), v.question.begin(), v.question.end());
  problem.answer = tokens.size();
  tokens.insert(tokens.end(), digits.begin(), digits.end());
  problem.x = length;
  return problem;
}

std::uint64_t draw_code(Random& random, bool tested) {
  std::uint64_t code = 0;
  do {
    code = random.below(kCodes);
  } while (PasskeyTask::tested(code) != tested);
  return code;
}

}  // namespace

PasskeyTask::PasskeyTask(std::int64_t length) : length_(length) {
  if (length < shortest_length() || length > kMostLength)
    throw UsageError(
        str("passkey: expected a length from ", shortest_length(), " to ", kMostLength, " tokens, found ", length));
}

bool PasskeyTask::tested(std::uint64_t code) {
  return random_at(kPasskeySeed, stream_of("task/passkey/codes"), code) % kPasskeyParts == 0;
}

std::uint32_t PasskeyTask::vocabulary_size() const { return static_cast<std::uint32_t>(vocabulary().words.size()); }

std::int64_t PasskeyTask::shortest_length() const { return static_cast<std::int64_t>(frame_size()) - 1; }

double PasskeyTask::context_weight() const { return 0.1; }

std::vector<TaskProblem> PasskeyTask::training(std::uint64_t seed, std::uint64_t step, std::size_t batch) const {
  Random random(seed, stream_of("task/passkey") + step);
  const std::int64_t least = std::max(shortest_length(), length_ / 4);
  // One length a step: no padding, and shorter problems, which teach the same, come in larger numbers.
  const std::int64_t length =
      least + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(length_ - least + 1)));
  const std::size_t rows =
      std::max<std::size_t>(1, batch * static_cast<std::size_t>(length_) / static_cast<std::size_t>(length));
  const std::size_t filler = static_cast<std::size_t>(length) + 1 - frame_size();
  std::vector<TaskProblem> problems;
  problems.reserve(rows);
  for (std::size_t row = 0; row < rows; ++row) {
    const std::uint64_t code = draw_code(random, false);
    const std::size_t before = static_cast<std::size_t>(random.below(filler + 1));
    problems.push_back(problem_of(length, before, code, random));
    problems.back().y = filler > 0 ? static_cast<std::int64_t>(100 * before / filler) : 0;
  }
  return problems;
}

std::vector<TaskProblem> PasskeyTask::test(std::int64_t length, std::size_t each) const {
  if (length < shortest_length() || length > kMostLength)
    throw UsageError(str("passkey: expected a test length from ", shortest_length(), " to ", kMostLength,
                         " tokens, found ", length));
  if (each < 1 || each > kMostPasskeys)
    throw UsageError(str("passkey: expected from 1 to ", kMostPasskeys, " problems a cell, found ", each));
  const std::size_t filler = static_cast<std::size_t>(length) + 1 - frame_size();
  std::vector<TaskProblem> problems;
  for (const std::int64_t depth : kDepths) {
    Random random(kPasskeySeed, stream_of(str("task/passkey/test/", length, "/", depth)));
    const std::size_t before = (filler * static_cast<std::size_t>(depth) + 50) / 100;
    for (std::size_t n = 0; n < each; ++n) {
      const std::uint64_t code = draw_code(random, true);
      problems.push_back(problem_of(length, before, code, random));
      problems.back().y = depth;
    }
  }
  return problems;
}

std::string PasskeyTask::text(std::span<const std::int64_t> tokens) const {
  const std::vector<std::string>& words = vocabulary().words;
  std::string text;
  for (const std::int64_t token : tokens) {
    if (token < 0 || token >= static_cast<std::int64_t>(words.size()))
      throw Error(str("passkey: expected a token from 0 to ", words.size() - 1, ", got ", token));
    const std::string& word = words[static_cast<std::size_t>(token)];
    if (!text.empty() && text.back() != '\n' && word != "\n") text += ' ';
    text += word;
  }
  return text;
}

}  // namespace torsor

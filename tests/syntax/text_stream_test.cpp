// A text read token by token shows what the whole text shows, at every prefix.
#include "torsor/syntax/text_stream.h"

#include <gtest/gtest.h>

#include <utility>

#include "tests/syntax/toy_parser.h"
#include "tests/syntax/treebanks.h"
#include "torsor/base/error.h"
#include "torsor/syntax/incremental_text.h"
#include "torsor/syntax/relations.h"

namespace torsor::syntax {
namespace {

using namespace testing;

/// Arcs, tags and sentence ends are functions of the words read so far; what it finds is nonsense.
class ToyWords final : public WordParser {
 public:
  void reset() override {
    history_.clear();
    words_ = 0;
    state_.reset();
  }
  WordStep read(const std::string& form) override {
    history_ += form + "\n";
    ++words_;
    Random random(2, stream_of(history_));
    state_.read();
    while (state_.waiting()) {
      const auto action = static_cast<Action>(random.below(kActions));
      if (state_.allows(action)) state_.take(action, static_cast<int>(random.below(38)));
    }
    WordStep step;
    for (const MadeArc& arc : made_arcs(state_))
      step.arcs.push_back({arc.dependent, arc.head, std::string(relation_name(arc.relation))});
    step.tag = state_.tag();
    step.sentence_end = random.below(12) == 0;
    if (step.sentence_end) state_.reset();
    return step;
  }
  void end_sentence() override {
    history_ += "|\n";
    state_.reset();
  }
  std::size_t words() const override { return words_; }
  void roll_back(std::size_t) override { throw Error("not here"); }
  std::unique_ptr<WordParser> fork() const override { return std::make_unique<ToyWords>(*this); }

 private:
  std::string history_;
  std::size_t words_ = 0;
  ArcEager state_;
};

const BackendId kBackend = {.name = "toy", .prefix_safe = true};

/// What a token shows, in one list.
std::vector<std::int64_t> numbers(const FeatureStream::Token& token) {
  std::vector<std::int64_t> all = {token.shown.tag.tau, token.shown.tag.nu, token.sentence};
  for (const std::uint8_t column : token.shown.arc.columns()) all.push_back(column);
  for (const Link& link : token.links) all.insert(all.end(), {link.one, link.other});
  return all;
}

std::vector<std::int64_t> numbers(const SyntaxFeatures& features, std::size_t t) {
  std::vector<std::int64_t> all = {features.tags[t][0], features.tags[t][1], features.sentences[t]};
  for (const std::uint8_t column : features.arcs[t].columns()) all.push_back(column);
  for (std::uint32_t at = features.link_begin[t]; at < features.link_begin[t + 1]; ++at)
    all.insert(all.end(), {features.links[at].one, features.links[at].other});
  return all;
}

SyntaxFeatures whole(const std::string& text, const std::vector<ByteSpan>& tokens,
                     const std::shared_ptr<const Tokenizer>& tokenizer, const FeatureOptions& options) {
  ToyWords words;
  return syntax_features(incremental_parse(text, read_text(text, tokenizer, words), kBackend), text, tokens, options);
}

struct Found {
  std::size_t tokens = 0, tagged = 0, linked = 0, sentences = 0, inside = 0;  // inside: cuts inside of a character
};

/// Streams `text` and compares with the whole of it, and with the whole of the prefixes that end a character where
/// `prefixes`.
void compare(const std::string& text, std::size_t most, const std::shared_ptr<const Tokenizer>& tokenizer,
             bool prefixes, Found& found) {
  const std::vector<ByteSpan> tokens = pieces(text, most);
  for (const bool repeat : {false, true}) {
    const FeatureOptions options{SubwordRule::kDelayed, repeat};
    TextStream stream(tokenizer, std::make_unique<ToyWords>(), kBackend, options);
    std::vector<std::vector<std::int64_t>> streamed;
    for (const ByteSpan& token : tokens)
      streamed.push_back(numbers(stream.read(std::string_view(text).substr(token.begin, token.end - token.begin))));
    const SyntaxFeatures all = whole(text, tokens, tokenizer, options);
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      ASSERT_EQ(streamed[t], numbers(all, t)) << "token " << t << " of " << text.substr(0, 200);
      found.tagged += all.tags[t][0] != 0 ? 1 : 0;
      found.inside += tokens[t].end < text.size() && (text[tokens[t].end] & 0xC0) == 0x80 ? 1 : 0;
    }
    found.tokens += tokens.size();
    found.linked += all.links.size();
    found.sentences += stream.parse().sentences.size();
    if (!prefixes) continue;
    for (std::size_t count = 0; count < tokens.size(); ++count) {
      const std::size_t end = count == 0 ? 0 : tokens[count - 1].end;
      if (end < text.size() && (text[end] & 0xC0) == 0x80) continue;  // a whole text is UTF-8; see above for the rest
      const std::vector<ByteSpan> some(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count));
      const SyntaxFeatures prefix = whole(text.substr(0, end), some, tokenizer, options);
      for (std::size_t t = 0; t < count; ++t) ASSERT_EQ(streamed[t], numbers(prefix, t)) << t << " of " << count;
    }
  }
}

/// Words with accents, quotes, dashes and white space of several bytes, glued in every way.
std::string odd_text(std::size_t words, std::uint64_t seed) {
  const char* kWords[] = {"a",   "dog", "d\u00e9j\u00e0", "\u00c9t\u00e9", "\u201cwell\u201d", "\u2014",   "don't",
                          ".",   "...", "\u4f60\u597d",   "\U0001F600",    "\u201c",           "x\u00a0y", "1,5",
                          "it's"};
  const char* kSpaces[] = {"", " ", " ", " ", "\u00a0", "\u3000", "\n", "\n\n", " \u2003 ", ""};
  Random random(seed, stream_of("odd text"));
  std::string text;
  for (std::size_t i = 0; i < words; ++i) {
    text += kSpaces[random.below(std::size(kSpaces))];
    text += kWords[random.below(std::size(kWords))];
  }
  return text;
}

std::shared_ptr<const Tokenizer> learned(const std::vector<Sentence>& treebank) {
  return std::make_shared<const Tokenizer>(treebank);
}

TEST(TextStream, ShowsWhatTheWholeTextShowsAtEveryPrefix) {
  Found found;
  for (std::uint64_t seed = 0; seed < 12; ++seed)
    for (const std::size_t most : {1, 3, 8}) compare(odd_text(14, seed), most, learned({}), true, found);
  for (std::uint64_t seed = 0; seed < 300; ++seed)
    compare(odd_text(60, seed + 100), 1 + seed % 4, learned({}), false, found);
  EXPECT_GT(found.tokens, 50000u);
  EXPECT_GT(found.tagged, 10000u);
  EXPECT_GT(found.linked, 5000u);
  EXPECT_GT(found.sentences, 1000u);
  EXPECT_GT(found.inside, 5000u);
}

TEST(TextStream, ReadsRealText) {
  const std::string path = shared_path("data/ud-english-ewt/en_ewt-ud-dev.conllu");
  const std::string chinese = shared_path("data/ud-chinese-gsdsimp/zh_gsdsimp-ud-dev.conllu");
  if (path.empty()) GTEST_SKIP() << "no treebanks; set TORSOR_SHARED";
  const Document treebank = read_conllu_file(path);
  const auto tokenizer = learned(treebank.sentences);
  Found found;
  std::size_t documents = 0;
  for (const TreebankText& document : treebank_texts(treebank, path)) {
    compare(document.text, 1, tokenizer, documents < 2 && document.text.size() < 600, found);
    if (++documents == 60) break;
  }
  EXPECT_GT(found.tagged, 4000u);
  EXPECT_GT(found.sentences, 300u);
  if (chinese.empty()) return;
  const std::string text = treebank_texts(read_conllu_file(chinese), chinese).front().text.substr(0, 30000);
  const std::size_t before = found.inside;
  compare(text.substr(0, text.rfind("\u3002") + 3), 1, tokenizer, false, found);
  EXPECT_GT(found.inside, before + 5000);
}

TEST(TextStream, TagsStandWhereTheFirstCharacterIsWhole) {
  // A byte E3 may begin a letter or the white space U+3000: only with the third byte is it known that a word begins.
  const std::string text = "a \u4f60 b";
  TextStream stream(learned({}), std::make_unique<ToyWords>(), kBackend, {SubwordRule::kDelayed});
  std::string shown;
  for (const char byte : text) shown += stream.read(std::string(1, byte)).shown.tag.tau != 0 ? 'x' : '-';
  EXPECT_EQ(shown, "x---x-x");
}

TEST(TextStream, ReadsOnThroughBytesThatAreNoText) {
  TextStream stream(learned({}), std::make_unique<ToyWords>(), kBackend, {SubwordRule::kDelayed, true});
  Random random(5, 0);
  std::size_t tagged = 0;
  for (std::size_t t = 0; t < 4000; ++t) {
    const auto byte = static_cast<char>(random.below(5) == 0 ? ' ' : static_cast<char>(random.below(256)));
    tagged += stream.read(std::string(1, byte)).shown.tag.tau != 0 ? 1 : 0;
  }
  EXPECT_EQ(stream.size(), 4000u);
  EXPECT_GT(tagged, 1000u);
  // A special token adds nothing to the text and shows nothing.
  EXPECT_EQ(numbers(stream.read("")), numbers(FeatureStream::Token{}));
}

TEST(TextStream, RefusesRulesThatTellOfWhatComes) {
  for (const SubwordRule rule : {SubwordRule::kFirst, SubwordRule::kAll, SubwordRule::kLast})
    EXPECT_THROW(TextStream(learned({}), std::make_unique<ToyWords>(), kBackend, {rule, false, true}), UsageError);
  EXPECT_THROW(TextStream(learned({}), std::make_unique<ToyWords>(), {.name = "unsafe"}, {SubwordRule::kDelayed}),
               Error);
}

}  // namespace
}  // namespace torsor::syntax

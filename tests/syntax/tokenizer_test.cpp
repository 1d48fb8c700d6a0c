// Cutting raw text as a treebank does.
#include "torsor/syntax/tokenizer.h"

#include <gtest/gtest.h>

#include <iostream>
#include <memory>
#include <set>
#include <sstream>

#include "tests/base/test_folder.h"
#include "torsor/base/error.h"
#include "torsor/syntax/letters.h"
#include "torsor/syntax/parser.h"

namespace torsor::syntax {
namespace {

using testing::shared_path;

/// A sentence from tokens "a|b_|c": "_" behind a token = no space after it; "do+n't" = a multiword token.
Sentence made(const std::string& line) {
  std::string conllu;
  int number = 0;
  std::istringstream in(line);
  for (std::string token; std::getline(in, token, '|');) {
    const bool glued = token.size() > 1 && token.back() == '_';
    if (glued) token.pop_back();
    const std::string misc = glued ? "SpaceAfter=No" : "_";
    const auto row = [&](const std::string& form, const std::string& note) {
      conllu += str(number + 1, "\t", form, "\t_\t_\t_\t_\t", number, "\t", number == 0 ? "root" : "dep", "\t_\t", note,
                    "\n");
      ++number;
    };
    const std::size_t plus = token.find('+');
    if (plus == std::string::npos) {
      row(token, misc);
      continue;
    }
    conllu += str(number + 1, "-", number + 2, "\t", token.substr(0, plus), token.substr(plus + 1),
                  "\t_\t_\t_\t_\t_\t_\t_\t", misc, "\n");
    row(token.substr(0, plus), "_");
    row(token.substr(plus + 1), "_");
  }
  return read_conllu(conllu + "\n", "made").sentences.front();
}

std::string shown(const Sentence& sentence) {
  std::string text;
  for (const Word& word : sentence.words) text += (text.empty() ? "" : "|") + word.form;
  return text;
}

std::vector<std::string> cut(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<std::string> result;
  for (const Sentence& sentence : tokenizer.sentences(text)) result.push_back(shown(sentence));
  return result;
}

std::vector<std::string> words_of(const std::vector<ReadToken>& tokens) {
  std::vector<std::string> words;
  for (const ReadToken& token : tokens) words.insert(words.end(), token.words.begin(), token.words.end());
  return words;
}

std::vector<std::string> stream(const Tokenizer& tokenizer, const std::string& text) {
  WordReader reader(std::make_shared<Tokenizer>(tokenizer));
  std::vector<std::string> words = words_of(reader.read(text));
  for (std::string& word : words_of(reader.finish())) words.push_back(word);
  return words;
}

const std::vector<Sentence>& small_treebank() {
  static const std::vector<Sentence> sentences = [] {
    std::vector<Sentence> result;
    for (int copy = 0; copy < 5; ++copy)
      for (const char* line : {"He|left_|.", "Mr.|Smith|do+n't|go_|,|he|said_|.", "The|U.S.|is|big_|.", "Why_|?",
                               "It|costs|$_|5_|!", "She|is+n't|here_|.", "I|was+n't|there_|.", "Call|Mr.|Jones_|."})
        result.push_back(made(line));
    return result;
  }();
  return sentences;
}

TEST(Tokenizer, FollowsTheTreebank) {
  const Tokenizer tokenizer(small_treebank());
  EXPECT_EQ(cut(tokenizer, "Mr. Brown left. The U.S. is here."),
            (std::vector<std::string>{"Mr.|Brown|left|.", "The|U.S.|is|here|."}));
  EXPECT_EQ(cut(tokenizer, "It costs $9! Why?"), (std::vector<std::string>{"It|costs|$|9|!", "Why|?"}));
  // The ending n't opens words that were never seen; a blank line ends a sentence.
  EXPECT_EQ(cut(tokenizer, "He couldn't\n\ngo."), (std::vector<std::string>{"He|could|n't", "go|."}));
  EXPECT_EQ(cut(tokenizer, "DON'T"), std::vector<std::string>{"DO|N'T"});
  EXPECT_TRUE(tokenizer.sentences(" \n\n ").empty());
}

TEST(Tokenizer, SentencesSpellTheText) {
  const Tokenizer tokenizer(small_treebank());
  const std::string text =
      "Mr. Brown couldn't go.  \u201CWhy?\u201D he\u00A0said!!! caf\u00E9...\tno\n\nx$y \xF0\x9F\x98\x80 end";
  const std::vector<Sentence> sentences = tokenizer.sentences(text);
  EXPECT_EQ(spelled_without_space(sentences), without_spaces(text));
  for (const Sentence& sentence : sentences) {
    EXPECT_EQ(spelled_text(sentence), sentence.comment("text"));
    EXPECT_FALSE(sentence.words.empty());
  }
}

TEST(Tokenizer, RawTextHasBlankLinesBeforeParagraphs) {
  std::vector<Sentence> sentences = {made("He|left_|."), made("So_"), made("Why_|?")};
  sentences[2].comments.push_back("# newpar");
  EXPECT_EQ(raw_text(sentences), "He left. So\n\nWhy?\n");
  EXPECT_EQ(raw_text({}), "");
}

TEST(Tokenizer, SurvivesJson) {
  const Tokenizer tokenizer(small_treebank());
  const Tokenizer again = Tokenizer::from_json(tokenizer.to_json(), "model");
  EXPECT_EQ(again.to_json(), tokenizer.to_json());
  EXPECT_EQ(cut(again, "Mr. X doesn't go."), cut(tokenizer, "Mr. X doesn't go."));
  EXPECT_THROW(Tokenizer::from_json(Json::object(), "model"), Error);
}

TEST(WordReader, GivesWordsWhenTheirEndHasBeenRead) {
  WordReader reader(std::make_shared<Tokenizer>(small_treebank()));
  const std::vector<ReadToken> first = reader.read("The U.S");
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].form, "The");
  EXPECT_EQ(first[0].begin, 0u);
  EXPECT_EQ(first[0].end, 3u);
  EXPECT_EQ(first[0].known, 4u);  // the blank told
  EXPECT_TRUE(reader.read(".").empty());
  EXPECT_EQ(words_of(reader.read(" ")), std::vector<std::string>{"U.S."});
  EXPECT_TRUE(reader.read("isn't").empty());
  const std::vector<ReadToken> opened = reader.read(" left");
  EXPECT_EQ(words_of(opened), (std::vector<std::string>{"is", "n't"}));
  EXPECT_EQ(opened[0].form, "isn't");
  EXPECT_EQ(words_of(reader.read(".")), std::vector<std::string>{"left"});
  const std::vector<ReadToken> last = reader.finish();
  EXPECT_EQ(words_of(last), std::vector<std::string>{"."});
  EXPECT_EQ(last[0].end, 20u);
  EXPECT_EQ(last[0].known, 21u);  // one more than there are: the end told
  EXPECT_TRUE(reader.finish().empty());
}

TEST(WordReader, NoticesBlankLines) {
  WordReader reader(std::make_shared<Tokenizer>(small_treebank()));
  std::vector<ReadToken> tokens = reader.read("a b\nc \n\t\nd\r\n\r\ne ");
  ASSERT_EQ(tokens.size(), 5u);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(tokens[i].after_blank_line, i >= 3) << i;
}

// However the bytes are cut, and whatever follows, the words are the same.
TEST(WordReader, DependsOnNoLaterByteAndOnNoCut) {
  const Tokenizer tokenizer(small_treebank());
  const auto shared = std::make_shared<Tokenizer>(tokenizer);
  const std::string text = "Mr. Brown\u2019s caf\u00E9 isn't (big), $5... U.S.! \xF0\x9F\x98\x80\xFF.";
  const std::vector<std::string> whole = stream(tokenizer, text);
  EXPECT_GE(whole.size(), 12u);
  for (std::size_t at = 0; at <= text.size(); ++at) {
    WordReader first(shared);
    std::vector<std::string> words = words_of(first.read(text.substr(0, at)));
    ASSERT_LE(words.size(), whole.size());
    EXPECT_TRUE(std::equal(words.begin(), words.end(), whole.begin())) << at;
    for (std::string& word : words_of(first.read(text.substr(at)))) words.push_back(word);
    for (std::string& word : words_of(first.finish())) words.push_back(word);
    EXPECT_EQ(words, whole) << at;
  }
}

TEST(Tokenizer, CutsUnseenTextNearlyAsTheTreebank) {
  const std::string train = shared_path("data/ud-english-ewt/en_ewt-ud-train.conllu");
  const std::string dev = shared_path("data/ud-english-ewt/en_ewt-ud-dev.conllu");
  if (train.empty() || dev.empty()) GTEST_SKIP() << "needs ../shared/data/ud-english-ewt";
  const Tokenizer tokenizer(read_conllu_file(train).sentences);
  const std::vector<Sentence> gold = read_conllu_file(dev).sentences;
  const std::string text = raw_text(gold);
  const std::vector<Sentence> found = tokenizer.sentences(text);
  ASSERT_EQ(spelled_without_space(found), without_spaces(text));
  // Spans in the text without white space, of words by their number inside their token.
  const auto spans = [](const std::vector<Sentence>& sentences, bool whole) {
    std::set<std::pair<std::size_t, std::size_t>> result;
    std::size_t at = 0;
    for (const Sentence& sentence : sentences) {
      const std::size_t begin = at;
      for (const SurfaceToken& token : surface_tokens(sentence)) {
        const std::size_t size = without_spaces(token.form).size();
        if (!whole) result.emplace(at, at + size);
        at += size;
      }
      if (whole) result.emplace(begin, at);
    }
    return result;
  };
  for (const bool whole : {false, true}) {
    const auto want = spans(gold, whole), have = spans(found, whole);
    std::size_t same = 0;
    for (const auto& span : have) same += want.count(span);
    const double f1 = 2.0 * static_cast<double>(same) / static_cast<double>(want.size() + have.size());
    RecordProperty(whole ? "sentences_f1" : "tokens_f1", std::to_string(f1));
    std::cout << (whole ? "sentences" : "tokens") << " F1 " << 100 * f1 << "\n";
    // Measured 99.1 and 86.9; the bounds leave room for a treebank of another release.
    EXPECT_GT(f1, whole ? 0.80 : 0.98);
  }
  const std::vector<std::string> words = stream(tokenizer, text);
  std::size_t count = 0;
  for (const Sentence& sentence : gold) count += sentence.size();
  EXPECT_NEAR(static_cast<double>(words.size()), static_cast<double>(count), 0.01 * static_cast<double>(count));
}

}  // namespace
}  // namespace torsor::syntax

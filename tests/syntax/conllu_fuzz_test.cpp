// Mutated CoNLL-U files: each is refused in one line that names a line, or read in such a way that everything built on
// it holds.
#include <gtest/gtest.h>

#include "tests/fuzz/fuzz.h"
#include "tests/syntax/treebanks.h"
#include "torsor/base/error.h"
#include "torsor/syntax/align.h"
#include "torsor/syntax/features.h"
#include "torsor/syntax/hexatags.h"
#include "torsor/syntax/khop.h"
#include "torsor/syntax/repair.h"
#include "torsor/syntax/score.h"

namespace torsor::syntax {
namespace {

using namespace testing;

fuzz::Material material() {
  fuzz::Material material;
  material.seeds = {
      rows({"# sent_id = a", "# text = I run.", "1 I I PRON PRP Case=Nom 2 nsubj 2:nsubj _",
            "2 run run VERB _ _ 0 root 0:root SpaceAfter=No", "3 . . PUNCT . _ 2 punct _ _"}),
      rows({"# text = Il va au lac", "1 Il il _ _ _ 2 nsubj _ _", "2 va aller _ _ _ 0 root _ _",
            "3-4 au _ _ _ Typo=Yes _ _ _ _", "3 à à _ _ _ 5 case _ _", "4 le le _ _ _ 5 det _ _",
            "5 lac lac _ _ _ 2 obl:arg _ SpacesAfter=\\n"}),
      rows({"# newdoc id = d", "0.1 E _ _ _ _ _ _ 1:x CopyOf=1", "1 a _ _ _ _ 0 root _ _", "1.1 F _ _ _ _ _ _ _ _"}),
      rows({"1-2 DON'T _ _ _ _ _ _ _ SpaceAfter=No", "1 Do do AUX _ _ 3 aux _ _", "2 n't not PART _ _ 3 advmod _ _",
            "3 go go VERB _ _ 0 root _ _"}),
      rows({"# text = 我 喜欢", "1 我 我 PRON _ _ 2 nsubj _ SpacesBefore=\\s", "2 喜欢 喜欢 VERB _ _ 0 root _ _"}),
      rows({"1 w _ _ _ _ 0 root _ _", "2 x _ _ _ _ 4 dep _ _", "3 y _ _ _ _ 1 dep _ _", "4 z _ _ _ _ 1 dep _ _"}),
  };
  material.pieces = fuzz::hostile_pieces();
  for (const char* piece : {"1",
                            "2",
                            "3",
                            "0",
                            "_",
                            "-",
                            ".",
                            "1-2",
                            "2-3",
                            "1.1",
                            "0.1",
                            "#",
                            "# text = ",
                            "# newdoc",
                            "# newpar\n",
                            "\n\n",
                            "\t_",
                            "_\t_\t_",
                            "|",
                            "=",
                            "SpaceAfter=No",
                            "SpacesAfter=\\s\\u00A0",
                            "SpacesInToken=a\\sb",
                            "root",
                            "dep",
                            ":",
                            "\r"})
    material.pieces.emplace_back(piece);
  material.pieces.push_back(rows({"1 a _ _ _ _ 0 root _ _"}));
  return material;
}

/// Trees, tags and parses of what was read without a defect.
void check_sound(const std::vector<Sentence>& sentences) {
  for (const Sentence& sentence : sentences) {
    const std::vector<int> lifted = projectivise(sentence.heads());
    ASSERT_EQ(heads_of(hexatags_of(lifted)), lifted);
    ASSERT_EQ(oracle_tags(lifted).size(), lifted.size());
    ASSERT_EQ(static_cast<std::int64_t>(pairs_within(sentence.heads(), 3).size()), count_pairs(sentence.heads())[2]);
  }
  const Score own = score(sentences, sentences);
  ASSERT_EQ(own.las.correct, own.las.gold);
  for (const TreebankText& document : treebank_texts({sentences, {}}, "fuzz")) {
    try {
      const Parse parse = make_parse(document.sentences, document.text);
      for (const ParseSentence& sentence : parse.sentences) {
        std::vector<int> heads;
        for (const ParseWord& word : sentence.words) heads.push_back(word.head);
        ASSERT_FALSE(sentence.parsed && find_defect(heads));
      }
      std::vector<ByteSpan> tokens;
      for (std::uint32_t at = 0; at < document.text.size(); ++at) tokens.push_back({at, at + 1});
      syntax_features(parse, document.text, tokens, {SubwordRule::kAll});
    } catch (const Error&) {  // the text is another than the tokens'
    }
  }
}

TEST(ConlluFuzz, MutatedFiles) {
  fuzz::Run run("conllu", material());
  while (run.next()) {
    bool sound = false;
    try {
      const Document document = read_conllu(run.input(), "fuzz");
      sound = true;
      EXPECT_EQ(conllu_text(document.sentences), run.input());
      if (run.every(5)) check_sound(document.sentences);
    } catch (const Error& error) {
      EXPECT_FALSE(sound) << error.what();  // whatever is built on a sound file must hold
      const std::string message = error.what();
      EXPECT_EQ(message.rfind("fuzz:", 0), 0u) << message;
      EXPECT_TRUE(message.size() > 5 && message[5] >= '1' && message[5] <= '9') << message;
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    }
    run.count(sound);
    const Document lenient = read_conllu(run.input(), "fuzz", {.lenient = true});
    EXPECT_EQ(lenient.skipped.empty(), sound);
    if (run.every(5)) {
      const std::string text = conllu_text(lenient.sentences);
      EXPECT_EQ(conllu_text(read_conllu(text, "again").sentences), text);
      Document loose = read_conllu(run.input(), "fuzz", {.lenient = true, .check_trees = false});
      repair(loose);
      for (const Sentence& sentence : loose.sentences) EXPECT_FALSE(find_defect(sentence.heads()));
    }
  }
  run.report(0.2);
}

}  // namespace
}  // namespace torsor::syntax

// Mutated lines of a parser process: each is refused in one line, or read into something that keeps its promises.
#include <gtest/gtest.h>

#include "tests/fuzz/fuzz.h"
#include "torsor/base/error.h"
#include "torsor/syntax/letters.h"
#include "torsor/syntax/process_protocol.h"
#include "torsor/syntax/repair.h"

namespace torsor::syntax {
namespace {

const char* kText = "Don't go.";
const std::vector<std::string> kTokens = {"Don't", "go", "."};

fuzz::Material material() {
  fuzz::Material material;
  material.seeds = {
      R"({"sipe":1,"name":"x","version":"1","model":"m","scheme":"ud","prefix_safe":true,"langs":["en"]})",
      R"({"sipe":1,"name":"y","scheme":"clear"})",
      R"({"id":7,"conllu":"1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_\n1\tDo\t_\t_\t_\t_\t3\taux\t_\t_\n2\tn't\t_\t_\t_\t_\t3\tadvmod\t_\t_\n3\tgo\t_\t_\t_\t_\t0\troot\t_\tSpaceAfter=No\n4\t.\t_\t_\t_\t_\t3\tpunct\t_\t_\n\n"})",
      R"({"id":8,"conllu":"1\tDon't\t_\t_\t_\t_\t2\taux\t_\t_\n2\tgo\t_\t_\t_\t_\t0\troot\t_\t_\n3\t.\t_\t_\t_\t_\t2\tpunct\t_\t_\n\n"})",
      R"({"id":9,"error":"no parse"})",
      R"({"arcs":[[1,3,"nsubj"],[3,2,"obj"]],"sent_end":false})",
      R"({"arcs":[[3,0,"root"]],"sent_end":true})",
      R"({"arcs":[]})",
  };
  material.pieces = fuzz::hostile_pieces();
  material.most_changes = 2;  // a line is short: more of them leave little that is sound
  for (const char* piece : {"{",
                            "}",
                            "[",
                            "]",
                            ",",
                            ":",
                            "null",
                            "true",
                            "1",
                            "2",
                            "3",
                            "1.5",
                            "\"id\"",
                            "\"conllu\"",
                            "\"error\"",
                            "\"arcs\"",
                            "\"root\"",
                            "\\n",
                            "\\t",
                            "\\n\\n",
                            "\\u0000",
                            "\\ud800",
                            "\\u00e9",
                            "[1,3,\"a\"]",
                            "Don't",
                            "go",
                            "0",
                            "_",
                            "\"sent_end\":1",
                            "\"more\":{}"})
    material.pieces.push_back(piece);
  return material;
}

/// Calls `read`; whether it gave an answer. What it throws must be one line.
template <class Read>
bool accepted(const Read& read) {
  try {
    read();
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return false;
  }
}

TEST(ProcessFuzz, LinesAreReadOrRefused) {
  fuzz::Run run("process", material());
  while (run.next()) {
    const std::string& line = run.input();
    bool past = accepted([&] {
      const Hello hello = read_hello(line);
      EXPECT_FALSE(hello.info.name.empty());
    });
    past = accepted([&] {
             for (const WordArc& arc : read_word_reply(line, 3).arcs) {
               EXPECT_EQ(std::max(arc.dependent, arc.head), 3);
               EXPECT_NE(arc.dependent, arc.head);
               EXPECT_GE(arc.head, 0);
               EXPECT_GE(arc.dependent, 1);
             }
           }) ||
           past;
    Reply reply;
    if (accepted([&] { reply = read_reply(line); })) {
      past = true;
      EXPECT_TRUE(reply.conllu.empty() || reply.error.empty());
      accepted([&] {
        Document document;
        document.sentences = sentences_of(reply, kText);
        EXPECT_EQ(spelled_without_space(document.sentences), without_spaces(kText));
        repair(document);
        for (const Sentence& sentence : document.sentences) EXPECT_FALSE(find_defect(sentence.heads()));
      });
      accepted([&] { EXPECT_EQ(surface_tokens(sentence_of(reply, kTokens)).size(), kTokens.size()); });
    }
    run.count(past);
  }
  run.report(0.2);
}

}  // namespace
}  // namespace torsor::syntax

// The lines of the process protocol: what is taken, what is refused.
#include "torsor/syntax/process_protocol.h"

#include <gtest/gtest.h>

#include "tests/base/test_folder.h"
#include "torsor/base/error.h"

namespace torsor::syntax {
namespace {

using testing::contains;
using testing::message_of;

TEST(ProcessProtocol, Hello) {
  const Hello hello = read_hello(
      R"({"sipe":1,"name":"stanza","version":"1.10","model":"en","scheme":"ud","prefix_safe":false,"langs":["en","fr"]})");
  EXPECT_EQ(hello.info.name, "stanza");
  EXPECT_EQ(hello.info.version, "1.10");
  EXPECT_EQ(hello.info.model, "en");
  EXPECT_EQ(hello.info.scheme, "ud");
  EXPECT_EQ(hello.languages, (std::vector<std::string>{"en", "fr"}));
  EXPECT_FALSE(read_hello(R"({"sipe":1,"name":"x","scheme":"clear"})").info.prefix_safe);
  for (const char* bad :
       {"", "hello", "[]", R"({"sipe":1})", R"({"sipe":2,"name":"x","scheme":"ud"})",
        R"({"sipe":1,"name":"","scheme":"ud"})", R"({"sipe":1,"name":"x","scheme":"sd"})",
        R"({"sipe":1,"name":"x","scheme":"ud","prefix_safe":1})", R"({"sipe":1,"name":"x","scheme":"ud","langs":"en"})",
        R"({"sipe":1,"name":"x","scheme":"ud","more":1})", R"({"sipe":1,"name":"x","name":"y","scheme":"ud"})"})
    EXPECT_THROW(read_hello(bad), Error) << bad;
}

TEST(ProcessProtocol, Replies) {
  EXPECT_EQ(read_reply(R"({"id":7,"conllu":"x"})").conllu, "x");
  EXPECT_EQ(read_reply(R"({"id":7,"error":"","note":[1]})").error, "the parser gave no reason");
  for (const char* bad : {R"({"id":7})", R"({"id":7,"conllu":"x","error":"y"})", R"({"conllu":"x"})",
                          R"({"id":"7","conllu":"x"})", R"({"id":7.5,"conllu":"x"})", R"({"id":7,"conllu":1})",
                          R"({"id":7,"conllu":"x"} {)", R"({"id":99999999999999999999,"conllu":"x"})"})
    EXPECT_THROW(read_reply(bad), Error) << bad;
}

TEST(ProcessProtocol, WordReplies) {
  EXPECT_EQ(read_word_reply(R"({"arcs":[[1,3,"nsubj"],[3,2,"obj"]],"sent_end":true})", 3),
            (WordStep{{{1, 3, "nsubj"}, {3, 2, "obj"}}, true}));
  EXPECT_EQ(read_word_reply(R"({"arcs":[[3,0,"root"]]})", 3), (WordStep{{{3, 0, "root"}}, false}));
  for (const char* bad :
       {R"({"sent_end":true})", R"({"arcs":{}})", R"({"arcs":[[1,3]]})", R"({"arcs":[[1,3,4]]})",
        R"({"arcs":[[0,3,"a"]]})", R"({"arcs":[[3,0,"a"]]})", R"({"arcs":[[4,3,"a"]]})", R"({"arcs":[[3,3,"a"]]})",
        R"({"arcs":[[1,2,"a"]]})", R"({"arcs":[[1,3,"a"],[1,3,"b"]]})", R"({"arcs":[[3,1,"root"]]})",
        R"({"arcs":[[3,1,""]]})", R"({"arcs":[[1.5,3,"a"]]})", R"({"error":"no"})"})
    EXPECT_THROW(read_word_reply(bad, 3), Error) << bad;
}

TEST(ProcessProtocol, RequestsAreLinesOfJson) {
  EXPECT_EQ(text_request(7, "en", "a\n\"b\""), R"({"id":7,"op":"parse","lang":"en","text":"a\n\"b\""})");
  EXPECT_EQ(tokens_request(8, "en", {"He", "left"}),
            R"({"id":8,"op":"parse_tokens","lang":"en","sentences":[["He","left"]]})");
  EXPECT_EQ(reset_request(), R"({"op":"reset"})");
  EXPECT_EQ(word_request("He"), R"({"op":"word","form":"He"})");
}

const char* kConllu =
    "1-2\tdon't\t_\t_\t_\t_\t_\t_\t_\t_\n1\tdo\t_\tAUX\t_\t_\t3\taux\t_\t_\n2\tn't\t_\tPART\t_\t_\t3\tadvmod\t_\t_\n"
    "3\tgo\t_\tVERB\t_\t_\t0\troot\t_\t_\n\n";

TEST(ProcessProtocol, RepliesMustSpellWhatWasAsked) {
  const Reply reply{7, kConllu, ""};
  EXPECT_EQ(sentences_of(reply, " don't\u00A0 go\n").size(), 1u);
  EXPECT_EQ(sentence_of(reply, {"don't", "go"}).size(), 3u);
  EXPECT_TRUE(contains(message_of<Error>([&] { sentences_of(reply, "don't gone"); }), "expected 'ne' at byte 7"));
  EXPECT_TRUE(contains(message_of<Error>([&] { sentences_of(reply, "don't"); }), "expected the end at byte 5"));
  EXPECT_THROW(sentence_of(reply, {"do", "n't", "go"}), Error);
  EXPECT_THROW(sentence_of(reply, {"don't", "Go"}), Error);
  EXPECT_THROW(sentence_of({7, std::string(kConllu) + kConllu, ""}, {"don't", "go"}), Error);
  EXPECT_THROW(sentence_of({7, "", ""}, {"don't"}), Error);
}

// Heads are the consumer's business: a parser may leave some out.
TEST(ProcessProtocol, HeadsMayBeMissing) {
  EXPECT_EQ(sentence_of({7, "1\tgo\t_\t_\t_\t_\t_\t_\t_\t_\n\n", ""}, {"go"}).words[0].head, kNoHead);
}

}  // namespace
}  // namespace torsor::syntax

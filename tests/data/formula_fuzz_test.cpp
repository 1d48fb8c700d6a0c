// Mutated formulas: whatever comes, the parser answers with one line or with a formula that prints, reads back and can
// be evaluated.
#include <gtest/gtest.h>

#include "tests/fuzz/fuzz.h"
#include "torsor/base/error.h"
#include "torsor/data/formula.h"

namespace torsor {
namespace {

fuzz::Material material() {
  fuzz::Material material;
  material.seeds = {
      "(5;%nn_ambig%)>(5;%nn_unambig%)",
      "[(7;%match_sing%) < (7;%mismatch_sing%)] & [(7;%match_plural%) < (7;%mismatch_plural%)]",
      "[ (8;%neg_pos%) < (8;%pos_pos%) ] & [ (8;%neg_neg%) < (8;%pos_neg%) ] | [ (8;%neg_pos%) < (8;%pos_neg%) ]",
      "[(7;%np%)-(7;%nq%)]+[[(6;%vp%)+(7;%vp%)]-[(6;%vq%)+(7;%vq%)]]>0",
      "[(6;%a%) > (6;%b%)] & [[(6;%a%) - (6;%b%)] > [(6;%c%) - (6;%d%)]]",
      "[(9;%what_nogap%) =  (9;%that_nogap%)]& [(6;%what_gap%) =  (6;%that_gap%)] ",
      "((*;%no-obj_comma%) > 1.5e0 | ((2;%x%) = .25))"};
  material.pieces = fuzz::hostile_pieces();
  for (const char* piece :
       {"[", "]",  "(",   ")", "%", ";",       "*",     "&",          "|",    "<",     ">",  "=",  "+",         "-",
        "1", ".5", "1e9", "a", "_", "(1;%a%)", "[1<2]", " + (2;%b%)", " - 1", "& 1<2", "[[", "((", " | [1 = 1]"})
    material.pieces.emplace_back(piece);
  // A formula is short and most changes break it: one or two leave enough that are formulas.
  material.most_changes = 2;
  return material;
}

TEST(FormulaFuzz, MutatedFormulas) {
  fuzz::Run run("formulas", material());
  std::vector<double> values;
  while (run.next()) {
    bool read = false;
    try {
      const Formula formula = Formula::parse(run.input(), "fuzz");
      read = true;
      values.assign(formula.references().size(), 0);
      for (std::size_t r = 0; r < values.size(); ++r) values[r] = static_cast<double>(r % 5);
      const Formula again = Formula::parse(formula.text(), "again");
      EXPECT_TRUE(again == formula) << "became " << formula.text();
      EXPECT_EQ(again.holds(values), formula.holds(values));
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_TRUE(message.starts_with("fuzz: ")) << message;
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    }
    run.count(read);
  }
  run.report(0.2);
}

}  // namespace
}  // namespace torsor

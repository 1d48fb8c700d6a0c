// Mutated formulas: whatever comes, the parser answers with an Error or with a formula that prints, reads back and can
// be evaluated. Under the sanitizers this is what shows that no input reaches memory that it should not.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "torsor/base/error.h"
#include "torsor/base/random.h"
#include "torsor/data/formula.h"

namespace torsor {
namespace {

const std::vector<std::string>& seeds() {
  static const std::vector<std::string> all = {
      "(5;%nn_ambig%)>(5;%nn_unambig%)",
      "[(7;%match_sing%) < (7;%mismatch_sing%)] & [(7;%match_plural%) < (7;%mismatch_plural%)]",
      "[ (8;%neg_pos%) < (8;%pos_pos%) ] & [ (8;%neg_neg%) < (8;%pos_neg%) ] & [ (8;%neg_pos%) < (8;%pos_neg%) ]",
      "[(7;%np_mismatch%)-(7;%np_match%)]+[[(6;%vp_mismatch%)+(7;%vp_mismatch%)]-[(6;%vp_match%)+(7;%vp_match%)]]>0",
      "[(6;%a%) > (6;%b%)] & [[(6;%a%) - (6;%b%)] > [(6;%c%) - (6;%d%)]]",
      "[(9;%what_nogap%) =  (9;%that_nogap%)]& [(6;%what_subjgap%) =  (6;%that_subjgap%)] ",
      "((*;%no-obj_comma%) > 1.5e0 | ((2;%x%) = .25))"};
  return all;
}

const std::vector<std::string>& pieces() {
  static const std::vector<std::string> all = {"[",
                                               "]",
                                               "(",
                                               ")",
                                               "%",
                                               ";",
                                               "*",
                                               "&",
                                               "|",
                                               "<",
                                               ">",
                                               "=",
                                               "+",
                                               "-",
                                               " ",
                                               "1",
                                               "0",
                                               "9999999999",
                                               "1e9",
                                               ".",
                                               "(1;%a%)",
                                               "[1<2]",
                                               "a",
                                               "_",
                                               "\t",
                                               "\n",
                                               "\xC3\xA9",
                                               "\xFF",
                                               std::string(1, '\0'),
                                               "[[[[[[[["};
  return all;
}

std::string mutated(Random& random) {
  std::string text = seeds()[random.below(seeds().size())];
  // Mostly one change, so that a good part stays valid.
  for (std::uint64_t change = random.below(3) > 0 ? 1 : 2 + random.below(3); change > 0; --change) {
    const std::size_t at = random.below(text.size() + 1);
    const std::string& piece = pieces()[random.below(pieces().size())];
    switch (random.below(6)) {
      case 0:
        text.insert(at, piece);
        break;
      case 1:
        if (at < text.size()) text.replace(at, 1, piece);
        break;
      case 2:
        text.erase(at, 1 + random.below(3));
        break;
      case 3:  // a part of another seed
        text.insert(at, seeds()[random.below(seeds().size())].substr(random.below(20), random.below(30)));
        break;
      case 4:  // the same part twice
        text.insert(at, text.substr(at, random.below(24)));
        break;
      default:  // joined with another seed, or put in brackets
        text = random.below(2) == 0 ? "[" + text + "] & " + seeds()[random.below(seeds().size())] : "[" + text + "]";
    }
  }
  return text;
}

TEST(FormulaFuzz, MutatedFormulas) {
  const char* asked = std::getenv("TORSOR_FUZZ");  // make fuzz asks for more
  const std::uint64_t count = asked != nullptr ? std::strtoull(asked, nullptr, 10) : 100'000;
  Random random(20251130, stream_of("tests/formula-fuzz"));
  std::uint64_t read = 0;
  for (std::uint64_t n = 0; n < count; ++n) {
    const std::string text = mutated(random);
    try {
      const Formula formula = Formula::parse(text, "fuzz");
      ++read;
      std::vector<double> values;
      for (std::size_t r = 0; r < formula.references().size(); ++r) values.push_back(random.uniform());
      const Formula again = Formula::parse(formula.text(), "again");
      ASSERT_TRUE(again == formula) << text << " became " << formula.text();
      ASSERT_EQ(again.holds(values), formula.holds(values)) << text;
    } catch (const Error& error) {
      const std::string message = error.what();
      ASSERT_TRUE(message.starts_with("fuzz: ")) << message;
      ASSERT_EQ(message.find('\n'), std::string::npos) << message;
    }
  }
  const double share = static_cast<double>(read) / static_cast<double>(count);
  std::cout << count << " mutated formulas, " << 100 * share << " % of them were formulas\n";
  EXPECT_GE(share, 0.2);
  EXPECT_LE(share, 0.9);  // else the mutations change nothing
}

}  // namespace
}  // namespace torsor

// The case table covers the registry and says of each encoding what the encoding says of itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "tests/attention/call.h"

namespace torsor::attention_test {
namespace {

void collect(const Expression& expression, std::set<std::string>& names) {
  for (const Term& term : expression.terms) {
    names.insert(term.name);
    for (const Item& item : term.operands) collect(item.expression, names);
  }
}

TEST(CaseTable, EveryNameOfTheRegistryHasARow) {
  std::set<std::string> names;
  for (const EncodingCase& row : case_table()) collect(parse(row.expression), names);
  for (const NameInfo& info : registry()) EXPECT_TRUE(names.contains(info.name)) << "no row uses " << info.name;
}

TEST(CaseTable, ExpressionsAreCanonicalAndDifferent) {
  std::set<std::string> seen;
  for (const EncodingCase& row : case_table()) {
    EXPECT_EQ(print(parse(row.expression)), row.expression);
    EXPECT_TRUE(seen.insert(row.expression).second) << row.expression;
  }
}

TEST(CaseTable, RowsSayWhatTheEncodingsSay) {
  for (const EncodingCase& row : case_table()) {
    SCOPED_TRACE(row.expression);
    ASSERT_FALSE(row.heads.empty());
    const Subject subject(row, {.heads = row.heads.front()});
    const Traits traits = subject.encoding()->traits();
    EXPECT_EQ(traits.axes, row.axes);
    EXPECT_EQ(traits.relative, row.relative);
    EXPECT_EQ(traits.absolute, row.absolute);
    EXPECT_EQ(traits.length_dependent, row.length_dependent);
    // Who reads x says so, and nobody else does.
    bool hidden = false;
    for (std::int64_t layer = 0; layer < subject.encoding()->period(); ++layer) {
      const Subject of_layer(row, {.heads = row.heads.front(), .layer = layer});
      const Placed placed = of_layer.place(of_layer.draw(1, 3), of_layer.run_of_positions(1, 3));
      AttendOptions options = of_layer.options(placed);
      options.x = at::Tensor();
      try {
        attend(placed.tokens.q, placed.tokens.k, placed.tokens.v, *of_layer.encoding(), options);
      } catch (const Error& error) {
        hidden = true;
        EXPECT_NE(std::string(error.what()).find("x must be given"), std::string::npos) << error.what();
      }
    }
    EXPECT_EQ(hidden, row.hidden);
    bool trained = false;
    for (std::int64_t layer = 0; layer < subject.encoding()->period(); ++layer)
      trained |= !subject.encoding()->parameters(layer).empty();
    EXPECT_EQ(trained, row.trained);
    EXPECT_EQ(traits.carries, row.carries);
    EXPECT_EQ(subject.encoding()->cache(0).key == CacheContract::Key::Raw, row.length_dependent || row.raw_keys);
  }
}

TEST(CaseTable, RowsPrintThemselves) {
  EncodingCase row;
  row.expression = "rope";
  row.trained = true;
  row.heads = {{4, 2}};
  std::ostringstream out;
  out << row;
  EXPECT_EQ(out.str(), "rope, head_dim 8, axes 1, trained, relative, positions to 2e+06, heads 4:2");
}

}  // namespace
}  // namespace torsor::attention_test

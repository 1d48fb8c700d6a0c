#include "torsor/lab/cells.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/base/test_folder.h"
#include "torsor/base/error.h"
#include "torsor/encoding/registry.h"
#include "torsor/encoding/syntax/sipe.h"
#include "torsor/lab/compare.h"
#include "torsor/lab/perplexity_watch.h"

namespace torsor {
namespace {

using testing::contains;
using testing::message_of;

TEST(Cells, EveryCellIsAnEncoding) {
  std::set<std::string> all;
  for (const std::string& name : grid_names()) {
    const CellGrid grid = cell_grid(name, 4);
    EXPECT_EQ(grid.name, name);
    std::set<std::pair<std::string, std::string>> places;
    for (const Cell& cell : grid.cells) {
      EXPECT_TRUE(places.insert({cell.row, cell.column}).second) << name << " " << cell.row << " " << cell.column;
      const auto [expression, control] = split_control(cell.encoding);
      const auto made = make_encoding(expression, {.heads = 4, .head_dim = 32, .train_length = 128, .layers = 4});
      EXPECT_EQ(made->inputs().empty(), cell.row == "none") << cell.encoding;
      // Every cell's base is compared, and before it.
      const std::vector<std::string> encodings = grid_encodings(grid);
      const auto base = std::find(encodings.begin(), encodings.end(), without_syntax(expression));
      EXPECT_LT(base, std::find(encodings.begin(), encodings.end(), cell.encoding) + (cell.row == "none" ? 1 : 0))
          << cell.encoding;
      // The column says whether the tags tell of later words; encoders read both ways anyway.
      if (!grid.encoder) {
        EXPECT_EQ(contains(cell.column, "oracle*"), made->traits().leaks) << cell.encoding;
      }
      all.insert(cell.encoding);
    }
    EXPECT_TRUE(contains(grid_text(grid), grid.cells.back().encoding));
  }
  EXPECT_GT(all.size(), 70u);
  EXPECT_TRUE(contains(message_of<UsageError>([] { cell_grid("widths", 4); }), "fusion"));
}

TEST(Cells, AreThoseOfTheSpecification) {
  // {input, relpe x, relpe +, bias, joint} by {incremental, oracle} and none, on four; rope has no sum.
  EXPECT_EQ(grid_encodings(cell_grid("decoder", 4)).size(), 4 * 11u - 2);
  EXPECT_EQ(cell_grid("decoder", 4).unsaid.size(), 1u);
  EXPECT_EQ(grid_encodings(cell_grid("depth", 16)),
            (std::vector<std::string>{
                "txl", "sipe(txl, mode=incremental)", "sipe(txl, mode=incremental, inject_from=4)",
                "sipe(txl, mode=incremental, inject_from=8)", "sipe(txl, mode=incremental, inject_from=12)"}));
  EXPECT_EQ(grid_encodings(cell_grid("depth", 1)).size(), 2u);
  EXPECT_EQ(grid_encodings(cell_grid("coupling", 4)).size(), 3 * 8u);
  EXPECT_EQ(grid_encodings(cell_grid("controls", 4)).size(), 9u);
  EXPECT_EQ(grid_encodings(cell_grid("encoder", 4)).size(), 12u);
  EXPECT_TRUE(cell_grid("fusion", 4).encoder);
  const Json json = grid_to_json(cell_grid("labels", 4));
  EXPECT_EQ(json.at("cells").size(), 4u);  // none, {off, with labels, labels alone}
  EXPECT_EQ(json.at("unsaid").size(), 0u);
  EXPECT_EQ(grid_encodings(cell_grid("fusion", 4)).size(), 5u);  // none, {add, concat-project, mix, skip}
}

}  // namespace
}  // namespace torsor

#include "torsor/lab/cells.h"

#include <algorithm>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/lab/compare.h"

namespace torsor {
namespace {

void add(CellGrid& grid, const std::string& row, const std::string& column, const std::string& encoding) {
  grid.cells.push_back({row, column, split_encodings({encoding}).front()});
}

/// sipe(E, keys); without keys of its own as short as it goes.
std::string sipe(const std::string& inner, const std::string& keys, const std::string& mode) {
  return str("sipe(", inner, keys.empty() ? "" : ", " + keys, mode.empty() ? "" : ", mode=" + mode, ")");
}

CellGrid decoder() {
  CellGrid grid{"decoder", "where syntax enters a decoder"};
  const std::pair<const char*, const char*> places[] = {{"input", "inject=input"},
                                                        {"times", ""},
                                                        {"plus", "coupling=additive"},
                                                        {"bias", "coupling=bias"},
                                                        {"joint", "inject=joint"}};
  for (const char* inner : {"txl", "t5", "alibi", "rope"}) {
    add(grid, "none", inner, inner);
    for (const auto& [row, keys] : places)
      for (const char* mode : {"incremental", "oracle"})
        if (inner != std::string("rope") || row != std::string("plus"))
          add(grid, row, str(inner, mode == std::string("oracle") ? " oracle*" : ""), sipe(inner, keys, mode));
  }
  grid.unsaid.push_back(
      "plus on rope: a rotation adds nothing to a logit that a second number could stand beside; bias is the nearest");
  return grid;
}

CellGrid depth(std::int64_t layers) {
  CellGrid grid{"depth", "the first layer whose attention knows syntax"};
  add(grid, "none", "txl", "txl");
  std::vector<std::int64_t> tried;
  for (const std::int64_t from : {std::int64_t{1}, layers / 4, layers / 2, 3 * layers / 4}) {
    if (from < 1 || std::find(tried.begin(), tried.end(), from) != tried.end()) continue;
    tried.push_back(from);
    add(grid, str("from layer ", from), "txl", sipe("txl", str("inject_from=", from), "incremental"));
  }
  return grid;
}

CellGrid coupling() {
  CellGrid grid{"coupling", "how two words' syntax changes what E adds"};
  for (const char* inner : {"txl", "t5", "alibi"}) {
    add(grid, "none", inner, inner);
    add(grid, "tag_align", inner, sipe(inner, "coupling=tag_align", "incremental"));
    for (const char* kind : {"mlp", "bilinear", "sparse"})
      for (const char* beta : {"0", "0.1"})
        add(grid, str(kind, ", beta_init ", beta), inner,
            sipe(inner, str("coupling=", kind, ", beta_init=", beta), "incremental"));
  }
  return grid;
}

CellGrid controls() {
  CellGrid grid{"controls", "whether a gain is due to syntax"};
  add(grid, "none", "alibi", "alibi");
  for (const char* mode : {"incremental", "oracle"}) {
    const std::string encoding = sipe("alibi", "", mode), column = str("alibi", mode[0] == 'o' ? " oracle*" : "");
    add(grid, "parser's trees", column, encoding);
    for (const char* control : {"shuffled", "random_tree", "right_chain"})
      add(grid, control, column, str(encoding, " @ ", control));
  }
  grid.unsaid.push_back(
      "gold against predicted trees: two comparisons, with --parser gold and with a parser of whole sentences");
  return grid;
}

CellGrid encoder() {
  CellGrid grid{"encoder", "where syntax enters an encoder", true};
  const std::pair<const char*, const char*> places[] = {
      {"input", "inject=input"}, {"attention", ""}, {"joint", "inject=joint"}};
  for (const char* inner : {"learned", "t5(bidirectional=true)", "rope"}) {
    const std::string column = inner[0] == 'l' ? "absolute" : inner[0] == 't' ? "relative" : "rope";
    add(grid, "none", column, inner);
    for (const auto& [row, keys] : places) {
      // Of a learned table attention knows syntax by the bias of pairs: there is no term to multiply.
      const std::string own =
          column == "absolute" && row != std::string("input")
              ? (row == std::string("joint") ? "coupling=bias, inject=joint" : "coupling=bias, inject=attention")
              : keys;
      add(grid, row, column, sipe(inner, own, ""));
    }
  }
  return grid;
}

CellGrid fusion() {
  CellGrid grid{"fusion", "how s meets the token embedding of an encoder with absolute positions", true};
  add(grid, "none", "learned", "learned");
  for (const auto& [row, key] : {std::pair("add", "add"), std::pair("concat and project", "concat"),
                                 std::pair("alpha-mix", "mix"), std::pair("skip", "skip")})
    add(grid, row, "learned", sipe("learned", str("inject=input, fuse=", key), ""));
  return grid;
}

CellGrid labels() {
  CellGrid grid{"labels", "whether relations' labels help beside the tags", true};
  add(grid, "none", "learned", "learned");
  add(grid, "off: tags alone", "learned", sipe("learned", "inject=input", ""));
  add(grid, "tags and labels", "learned", sipe("learned", "inject=input, labels=add", ""));
  add(grid, "labels alone", "learned", sipe("learned", "inject=input, labels=only", ""));
  return grid;
}

}  // namespace

const std::vector<std::string>& grid_names() {
  static const std::vector<std::string> names = {"decoder", "depth",  "coupling", "controls",
                                                 "encoder", "fusion", "labels"};
  return names;
}

CellGrid cell_grid(const std::string& name, std::int64_t layers) {
  if (name == "decoder") return decoder();
  if (name == "depth") return depth(layers);
  if (name == "coupling") return coupling();
  if (name == "controls") return controls();
  if (name == "encoder") return encoder();
  if (name == "fusion") return fusion();
  if (name == "labels") return labels();
  std::string known;
  for (const std::string& one : grid_names())
    known += (known.empty() ? "" : one == grid_names().back() ? " or " : ", ") + one;
  throw UsageError(str("a grid is ", known, ", found ", name));
}

std::vector<std::string> grid_encodings(const CellGrid& grid) {
  std::vector<std::string> encodings;
  for (const Cell& cell : grid.cells)
    if (std::find(encodings.begin(), encodings.end(), cell.encoding) == encodings.end())
      encodings.push_back(cell.encoding);
  return encodings;
}

Json grid_to_json(const CellGrid& grid) {
  Json json = {{"name", grid.name}, {"title", grid.title}, {"cells", Json::array()}, {"unsaid", grid.unsaid}};
  for (const Cell& cell : grid.cells)
    json["cells"].push_back({{"row", cell.row}, {"column", cell.column}, {"encoding", cell.encoding}});
  return json;
}

std::string grid_text(const CellGrid& grid) {
  std::size_t rows = 0, columns = 0;
  for (const Cell& cell : grid.cells) {
    rows = std::max(rows, cell.row.size());
    columns = std::max(columns, cell.column.size());
  }
  std::string text = str(grid.name, ": ", grid.title, ", ", grid_encodings(grid).size(), " encodings",
                         grid.encoder ? " of encoders (--task glue)" : "", "\n");
  for (const Cell& cell : grid.cells)
    text += str("  ", cell.row, std::string(rows - cell.row.size() + 2, ' '), cell.column,
                std::string(columns - cell.column.size() + 2, ' '), cell.encoding, "\n");
  for (const std::string& one : grid.unsaid) text += str("not sayable: ", one, "\n");
  return text;
}

}  // namespace torsor

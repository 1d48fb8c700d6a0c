// torsor syntax cells
#include <iostream>
#include <memory>
#include <string>

#include "torsor/base/json.h"
#include "torsor/cli/command_syntax.h"
#include "torsor/lab/cells.h"

namespace torsor {

void print_grid(const std::string& name, std::int64_t layers, const CommonOptions& common) {
  const CellGrid grid = cell_grid(name, layers);
  if (common.json)
    std::cout << json_text(grid_to_json(grid), 1) << "\n";
  else
    std::cout << grid_text(grid);
}

void add_syntax_cells(Command& syntax, CommonOptions& common, Chosen& chosen) {
  struct Arguments {
    std::string name;
    std::int64_t layers = 4;
  };
  auto arguments = std::make_shared<Arguments>();
  Command* command = syntax.add_subcommand("cells", "the encodings of an ablation, which compare --grid runs");
  command->footer("Example: torsor syntax cells decoder");
  command->add_option("name", arguments->name, "decoder, depth, coupling, controls, encoder, fusion or labels")
      ->required();
  command->add_option("--layers", arguments->layers, "layers of the model, for depth")
      ->check(whole_number(1, 1024))
      ->capture_default_str();
  command->callback([&common, &chosen, arguments] {
    chosen = [&common, arguments] {
      refuse_out(common, "syntax cells");
      print_grid(arguments->name, arguments->layers, common);
      return 0;
    };
  });
}

}  // namespace torsor

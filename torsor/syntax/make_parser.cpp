#include "torsor/syntax/make_parser.h"

#include <filesystem>

#include "torsor/base/error.h"
#include "torsor/base/utf8.h"
#include "torsor/syntax/parser_conllu.h"
#include "torsor/syntax/parser_native.h"
#include "torsor/syntax/parser_process.h"
#include "torsor/syntax/parser_udpipe.h"

namespace torsor::syntax {

std::unique_ptr<Parser> make_parser(const std::string& spec, const ParserChoice& choice) {
  const std::size_t colon = spec.find(':');
  const std::string kind = colon == std::string::npos ? "" : spec.substr(0, colon);
  const std::string rest = colon == std::string::npos ? spec : spec.substr(colon + 1);
  if (kind == "conllu") return std::make_unique<ConlluParser>(rest);
  if (kind == "udpipe") return make_udpipe_parser(rest);
  if (kind == "process") {
    ProcessOptions options;
    options.arguments = split_command(rest);
    options.language = choice.language;
    options.log = choice.log;
    options.stop = choice.stop;
    return std::make_unique<ProcessParser>(std::move(options));
  }
  if (std::filesystem::is_directory(spec)) return std::make_unique<NativeParser>(spec);
  throw UsageError(str("a parser is the folder of a native model, conllu:FILE, process:COMMAND or udpipe:MODEL, found ",
                       quote(spec)));
}

}  // namespace torsor::syntax

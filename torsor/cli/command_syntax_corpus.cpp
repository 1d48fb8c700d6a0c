// torsor syntax corpus
#include <filesystem>
#include <iostream>
#include <memory>

#include "torsor/base/file.h"
#include "torsor/cli/command_syntax.h"
#include "torsor/syntax/suites.h"

namespace torsor {
namespace {

int run_corpus(std::int64_t bytes, const CommonOptions& common) {
  if (common.out.empty()) throw UsageError("syntax corpus needs --out, the CoNLL-U file that is written");
  if (!common.force && std::filesystem::exists(common.out))
    throw Error(str("'", common.out, "' exists; replace it with --force"));
  std::string content;
  std::size_t documents = 0, sentences = 0, words = 0;
  for (const GeneratedDocument& document : generate_documents(static_cast<std::size_t>(bytes), common.seed)) {
    for (const syntax::Sentence& sentence :
         syntax::document_sentences(document, str("generated-", common.seed, "-", ++documents))) {
      content += syntax::conllu_text(sentence);
      words += sentence.size();
      ++sentences;
    }
  }
  write_file_atomic(common.out, content);
  if (common.json)
    std::cout << json_text({{"out", common.out}, {"documents", documents}, {"sentences", sentences}, {"words", words}})
              << "\n";
  else
    std::cout << documents << " documents, " << sentences << " sentences, " << words << " words in " << common.out
              << "\n";
  return 0;
}

}  // namespace

void add_syntax_corpus(Command& syntax, CommonOptions& common, Chosen& chosen) {
  auto bytes = std::make_shared<std::int64_t>(1'000'000);
  Command* command = syntax.add_subcommand("corpus", "write generated text as a treebank, to train parsers on");
  command->footer("Example: torsor syntax corpus --bytes 1000000 --seed 1 --out generated.conllu");
  command->add_option("--bytes", *bytes, "size of the text, about")
      ->check(whole_number(1, std::int64_t{1} << 30))
      ->capture_default_str();
  command->callback([&common, &chosen, bytes] { chosen = [&common, bytes] { return run_corpus(*bytes, common); }; });
}

}  // namespace torsor

// torsor syntax parse
#include <iostream>
#include <sstream>

#include "torsor/base/file.h"
#include "torsor/base/json.h"
#include "torsor/base/utf8.h"
#include "torsor/cli/command_syntax.h"
#include "torsor/syntax/child_process.h"
#include "torsor/syntax/make_parser.h"

namespace torsor {
namespace {

struct SyntaxParseArguments {
  std::string parser;
  std::string file;
  bool tokenized = false;
  syntax::ParserChoice choice;
};

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

/// The words of a CoNLL-U file, or of lines with words between blanks.
std::vector<std::vector<std::string>> given_tokens(const std::string& path, bool conllu) {
  std::vector<std::vector<std::string>> sentences;
  if (conllu || ends_with(path, ".conllu")) {
    for (const syntax::Sentence& sentence :
         syntax::read_conllu_file(path, {.lenient = false, .check_trees = false}).sentences) {
      sentences.emplace_back();
      for (const syntax::Word& word : sentence.words) sentences.back().push_back(word.form);
    }
    return sentences;
  }
  std::istringstream lines(read_file(path));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::vector<std::string> forms;
    for (std::string word; words >> word;) forms.push_back(word);
    if (!forms.empty()) sentences.push_back(std::move(forms));
  }
  return sentences;
}

int run_syntax_parse(SyntaxParseArguments arguments, const CommonOptions& common) {
  refuse_out(common, "syntax parse");
  if (arguments.parser == "conllu") {  // the file is its own parse
    arguments.parser += ":" + arguments.file;
    arguments.tokenized = true;
  }
  const std::string text = arguments.tokenized ? "" : read_file(arguments.file);
  if (const std::size_t at = find_invalid_utf8(text); at != std::string::npos)
    throw Error(str(arguments.file, ": expected UTF-8, found another byte at ", at));
  stop_while_parsing(arguments.parser, arguments.choice);
  const std::unique_ptr<syntax::Parser> parser = syntax::make_parser(arguments.parser, arguments.choice);
  const double begun = syntax::steady_seconds();
  const std::vector<syntax::ParsedSentence> results =
      arguments.tokenized
          ? parser->parse_tokens(given_tokens(arguments.file, arguments.parser == "conllu:" + arguments.file))
          : parser->parse_text(text);
  const double seconds = syntax::steady_seconds() - begun;
  std::string conllu, first_reason;
  std::size_t words = 0, unparsed = 0;
  for (const syntax::ParsedSentence& one : results) {
    if (!one.parsed && unparsed++ == 0) first_reason = one.reason;
    syntax::Sentence sentence = one.sentence;
    words += sentence.size();
    fill_words(sentence);
    if (sentence.words.empty()) continue;  // nothing but white space
    if (!one.parsed) sentence.comments.push_back("# unparsed = " + quote(one.reason, 120));
    conllu += conllu_text(sentence);
  }
  if (common.json) {
    Json json;
    json["parser"] = parser->info().name;
    json["model_sha256"] = parser->info().model_sha256;
    json["sentences"] = results.size();
    json["words"] = words;
    json["unparsed"] = unparsed;
    json["seconds"] = seconds;
    json["conllu"] = conllu;
    std::cout << json_text(json) << "\n";
  } else {
    std::cout << conllu;
  }
  std::ostringstream line;
  line.precision(3);
  line << results.size() << " sentences, " << words << " words in " << seconds << " s";
  if (unparsed > 0) line << "; " << unparsed << " unparsed, the first since: " << first_reason;
  say(common, line.str());
  return 0;
}

}  // namespace

void add_syntax_parse(Command& syntax, CommonOptions& common, Chosen& chosen) {
  auto arguments = std::make_shared<SyntaxParseArguments>();
  Command* command = syntax.add_subcommand("parse", "parse text; CoNLL-U goes to standard output");
  command->footer("Example: torsor syntax parse --parser ewt book.txt > book.conllu");
  command
      ->add_option(
          "--parser", arguments->parser,
          "the folder of a native model, conllu:FILE (conllu: the file itself), process:'COMMAND' or udpipe:MODEL")
      ->required();
  command->add_option("file", arguments->file, "UTF-8 text")->required();
  command->add_flag("--tokenized", arguments->tokenized,
                    "the file gives the words: a .conllu file, or a sentence a line with blanks between words");
  command->add_option("--lang", arguments->choice.language, "language told to a process")->capture_default_str();
  command->add_option("--log", arguments->choice.log, "file for a process's standard error");
  command->callback([&common, &chosen, arguments] {
    chosen = [&common, arguments] { return run_syntax_parse(*arguments, common); };
  });
}

}  // namespace torsor

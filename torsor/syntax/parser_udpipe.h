// UDPipe 1 (Straka and Strakova, "Tokenizing, POS Tagging, Lemmatizing and Parsing UD 2.0 with UDPipe", CoNLL 2017):
// the library itself, where the build was configured with TORSOR_WITH_UDPIPE.
#pragma once

#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "torsor/syntax/parser.h"

namespace torsor::syntax {

/// Whether this build has it.
bool has_udpipe();

/// A model file. Throws Error for a file that is none and, without UDPipe in the build, always.
std::unique_ptr<Parser> make_udpipe_parser(const std::string& model);

struct UdpipeTraining {
  std::vector<Sentence> trees;
  std::vector<Sentence> development;  ///< may be empty; decides when the tagger and the parser stop
  std::string tokenizer;  ///< UDPipe's options "name=value;name=value"; empty = its defaults, "none" = left out
  std::string tagger;
  std::string parser;
};

/// Trains tokenizer, tagger and parser as UDPipe does, in its own pace, and writes the model file in one step. More
/// than an hour on 12,000 sentences. `progress` receives its lines. Cannot be stopped and resumed. Throws Error.
void train_udpipe(const UdpipeTraining& training, const std::string& model, std::ostream& progress);

}  // namespace torsor::syntax

#include "torsor/model/tag_heads.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "torsor/encoding/syntax/sipe.h"
#include "torsor/model/attention_layer.h"
#include "torsor/model/attention_parameters.h"

namespace torsor {
namespace {

constexpr const char* kTau = "head.tau";
constexpr const char* kNu = "head.nu";
constexpr const char* kSentence = "head.sentence";
constexpr auto kSteps = static_cast<std::int64_t>(SentenceStep::Count);

bool reads(const Encoding& encoding, const char* input) {
  const std::vector<std::string> inputs = encoding.inputs();
  return std::find(inputs.begin(), inputs.end(), input) != inputs.end();
}

}  // namespace

at::Tensor sentence_steps(const at::Tensor& sentences) {
  const std::int64_t count = sentences.size(1);
  const at::Tensor place = at::arange(count, at::kLong).view({1, count}).expand_as(sentences);
  // The last token so far that is in a sentence; -1 = none yet.
  const at::Tensor last = std::get<0>(at::where(sentences.ge(0), place, -1).cummax(1)).narrow(1, 0, count - 1);
  const at::Tensor before = at::where(last.ge(0), sentences.gather(1, last.clamp_min(0)), -1);
  const at::Tensor own = sentences.narrow(1, 1, count - 1);
  const auto step = [](SentenceStep one) { return at::scalar_tensor(static_cast<std::int64_t>(one), at::kLong); };
  return at::where(own.lt(0), step(SentenceStep::None),
                   at::where(own.eq(before), step(SentenceStep::Same), step(SentenceStep::New)));
}

bool TagHeads::serve(const Encoding& encoding) {
  const std::vector<std::string> inputs = encoding.inputs();
  return reads(encoding, kSyntaxTags) && std::all_of(inputs.begin(), inputs.end(), [](const std::string& input) {
           return input == kSyntaxTags || input == kSyntaxSentences;
         });
}

bool TagHeads::owns(const std::string& parameter) {
  constexpr std::array kHeads = {kTau, kNu, kSentence};
  return std::any_of(kHeads.begin(), kHeads.end(),
                     [&](const char* head) { return parameter.starts_with(std::string(head) + "."); });
}

TagHeads::TagHeads(const Declare& declare, std::int64_t width, const Encoding& encoding) {
  const auto head = [&](const std::string& name, std::int64_t classes) {
    return Head{declare(name + ".weight", {classes, width}, inner_initial(width), true),
                declare(name + ".bias", {classes}, constant_initial(0), false)};
  };
  tau_ = head(kTau, kTauTags);
  nu_ = head(kNu, kNuTags);
  if (reads(encoding, kSyntaxSentences)) sentence_ = head(kSentence, kSteps);
}

at::Tensor TagHeads::losses(const at::Tensor& hidden, const NamedTensors& named, at::ScalarType dtype) const {
  const std::int64_t rows = hidden.size(0), tokens = hidden.size(1);
  const auto input = [&](const char* name) {
    const auto found = named.find(name);
    if (found == named.end() || found->second.size(1) != tokens + 1)
      throw Error(str("tag heads: '", name, "' of ", tokens + 1, " tokens is needed to predict those of ", tokens,
                      " positions"));
    return found->second;
  };
  const auto nats = [&](const Head& head, const at::Tensor& targets) {
    const at::Tensor scores = linear(hidden, head.weight, head.bias, dtype).flatten(0, 1);
    return at::cross_entropy_loss(scores, targets.reshape({-1}), {}, at::Reduction::None).view({rows, tokens});
  };
  const at::Tensor tags = input(kSyntaxTags).narrow(1, 1, tokens);
  at::Tensor sum = nats(tau_, tags.select(2, 0)) + nats(nu_, tags.select(2, 1));
  if (sentence_.weight.defined()) sum = sum + nats(sentence_, sentence_steps(input(kSyntaxSentences)));
  return sum;
}

double TagHeads::first_token() const {
  // A row's first token is in no sentence or in a new one, and that is told at no more than the price of three cases.
  return std::log(kTauTags) + std::log(kNuTags) + (sentence_.weight.defined() ? std::log(kSteps) : 0);
}

}  // namespace torsor

#include "torsor/encoding/syntax/syntax_tokens.h"

#include <cstdlib>

namespace torsor {
namespace {

constexpr std::int64_t kNuTags = 6, kTauTags = 3;

at::Tensor either(const at::Tensor& one, const at::Tensor& other) {
  return one.defined() && other.defined() ? one.logical_or(other) : one.defined() ? one : other;
}

at::Tensor find(const std::string& who, const NamedTensors* named, const char* name, std::vector<std::int64_t> shape,
                bool whole) {
  const auto found = named ? named->find(name) : NamedTensors::const_iterator();
  if (!named || found == named->end() || !found->second.defined())
    throw Error(str(who, ": the per-token input '", name, "' was not given"));
  const at::Tensor& given = found->second;
  // Of no tokens nobody knows the further shape.
  if (shape[1] == 0) {
    for (std::int64_t& extent : shape) extent = std::abs(extent);
    return at::zeros(shape, given.options().dtype(whole ? at::kLong : at::kFloat));
  }
  bool fits = given.dim() == static_cast<std::int64_t>(shape.size());
  for (std::size_t n = 0; fits && n < shape.size(); ++n)
    fits = shape[n] < 0 ? given.size(static_cast<std::int64_t>(n)) <= -shape[n]
                        : given.size(static_cast<std::int64_t>(n)) == shape[n];
  if (!fits) {
    std::string expected;
    for (const std::int64_t extent : shape)
      expected += str(expected.empty() ? "" : ", ", extent < 0 ? str("at most ", -extent) : str(extent));
    throw Error(str(who, ": '", name, "' must have shape (", expected, ") (batch, tokens",
                    shape.size() == 2 ? "" : ", ...", "), found ", given.sizes()));
  }
  if (whole ? !at::isIntegralType(given.scalar_type(), false) : !given.is_floating_point())
    throw Error(
        str(who, ": '", name, "' must hold ", whole ? "whole" : "real", " numbers, found ", given.scalar_type()));
  return given;
}

/// `tensor` with `value` for absent tokens.
at::Tensor without(const at::Tensor& tensor, const at::Tensor& absent, double value) {
  if (!absent.defined()) return tensor;
  std::vector<std::int64_t> shape(static_cast<std::size_t>(tensor.dim()), 1);
  shape[0] = absent.size(0);
  shape[1] = absent.size(1);
  return tensor.masked_fill(absent.view(shape), value);
}

}  // namespace

std::vector<std::string> SyntaxReader::inputs() const {
  std::vector<std::string> all;
  if (prior == SipePrior::Fsyn) all.emplace_back(kSyntaxVectors);
  if (prior == SipePrior::Hexatags && tags) all.emplace_back(kSyntaxTags);
  if (labels) all.emplace_back(kSyntaxLabels);
  if (sentences) all.emplace_back(kSyntaxSentences);
  if (links) all.emplace_back(kSyntaxLinks);
  return all;
}

at::Tensor absent_tokens(const Side& side) {
  at::Tensor absent, past;
  if (side.documents.defined()) absent = side.documents.eq(-1);
  if (side.lengths.defined()) past = at::arange(side.tokens(), side.lengths.options()).ge(side.lengths.unsqueeze(1));
  return either(absent, past);
}

at::Tensor absent_queries(const Question& question) {
  at::Tensor absent, none;
  if (question.query.documents.defined()) absent = question.query.documents.eq(-1);
  const std::int64_t queries = question.query.tokens(), keys = question.key.tokens();
  const at::Tensor& lengths = question.key.lengths;
  if (lengths.defined() || question.offsets.defined() || queries > keys) {
    const at::TensorOptions whole = at::TensorOptions(at::kLong).device(question.query.positions.device());
    const at::Tensor end = lengths.defined() ? lengths : at::full({1}, keys, whole);
    const at::Tensor first = question.offsets.defined() ? question.offsets : end - queries;
    const at::Tensor own = first.unsqueeze(1) + at::arange(queries, whole);
    none = own.lt(0).logical_or(own.ge(end.unsqueeze(1)));
  }
  return either(absent, none);
}

SyntaxTokens SyntaxReader::read(const NamedTensors* named, std::int64_t rows, std::int64_t count,
                                const at::Tensor& given_absent, at::ScalarType type, at::Device device) const {
  const at::Tensor absent = given_absent.defined() ? given_absent.to(device).expand({rows, count}) : given_absent;
  SyntaxTokens tokens;
  if (prior == SipePrior::Fsyn) {
    const at::Tensor given = find(name, named, kSyntaxVectors, {rows, count, kSyntaxVectorWidth}, false);
    tokens.vectors = without(given.detach().to(device, type), absent, 0);
    tokens.valid = tokens.vectors.ne(0).any(-1);
  } else if (tags) {
    const at::Tensor given =
        without(find(name, named, kSyntaxTags, {rows, count, 2}, true).to(device, at::kLong), absent, 0);
    const at::Tensor tau = given.select(2, 0), nu = given.select(2, 1);
    const at::Tensor wrong = tau.lt(0).logical_or(tau.ge(kTauTags)).logical_or(nu.lt(0)).logical_or(nu.ge(kNuTags));
    if (wrong.any().item<bool>()) {
      const at::Tensor first = wrong.nonzero()[0];
      const std::int64_t b = first[0].item<std::int64_t>(), t = first[1].item<std::int64_t>();
      throw Error(str(name, ": '", kSyntaxTags, "' holds tau 0 to 2 and nu 0 to 5, found ",
                      tau[b][t].item<std::int64_t>(), " and ", nu[b][t].item<std::int64_t>(), " at row ", b, ", token ",
                      t));
    }
    tokens.tag = tau * kNuTags + nu;
    tokens.valid = tokens.tag.ne(0);
  }
  if (labels) {
    tokens.label = without(find(name, named, kSyntaxLabels, {rows, count}, true).to(device, at::kLong), absent, 0);
    const at::Tensor wrong = tokens.label.lt(0).logical_or(tokens.label.gt(kSyntaxLabelCount));
    if (wrong.any().item<bool>()) {
      const at::Tensor first = wrong.nonzero()[0];
      throw Error(str(name, ": '", kSyntaxLabels, "' holds 0 to ", kSyntaxLabelCount, ", found ",
                      tokens.label.index_select(0, first[0].view({1}))
                          .select(1, first[1].item<std::int64_t>())
                          .item<std::int64_t>(),
                      " at row ", first[0].item<std::int64_t>(), ", token ", first[1].item<std::int64_t>()));
    }
    tokens.valid = either(tokens.valid, tokens.label.ne(0));
  }
  if (sentences)
    tokens.sentences =
        without(find(name, named, kSyntaxSentences, {rows, count}, true).to(device, at::kLong), absent, -1);
  if (links) {
    at::Tensor given = find(name, named, kSyntaxLinks, {rows, count, -kSyntaxArcs, 2}, true);
    given = without(given.to(device, at::kInt), absent, -1);
    tokens.links = at::constant_pad_nd(given, {0, 0, 0, kSyntaxArcs - given.size(2)}, -1);
  }
  return tokens;
}

std::vector<std::string> SyntaxReader::kept_names() const {
  std::vector<std::string> all = {name + (prior == SipePrior::Fsyn ? ".vector" : ".tag")};
  if (sentences) all.push_back(name + ".sentence");
  if (links) all.push_back(name + ".links");
  return all;
}

NamedTensors SyntaxReader::keep(const SyntaxTokens& tokens) const {
  NamedTensors all;
  const std::vector<std::string> names = kept_names();
  all[names.front()] = (prior == SipePrior::Fsyn ? tokens.vectors : tokens.tag).unsqueeze(1);
  if (sentences) all[name + ".sentence"] = tokens.sentences.unsqueeze(1);
  if (links) all[name + ".links"] = tokens.links.unsqueeze(1);
  return all;
}

bool SyntaxReader::is_kept(const NamedTensors* kept) const {
  return kept != nullptr && kept->find(kept_names().front()) != kept->end();
}

SyntaxTokens SyntaxReader::kept(const NamedTensors& kept, at::ScalarType type) const {
  const auto of = [&](const char* what) { return kept.at(name + what).squeeze(1); };
  SyntaxTokens tokens;
  if (prior == SipePrior::Fsyn) {
    tokens.vectors = of(".vector").to(type);
    tokens.valid = tokens.vectors.ne(0).any(-1);
  } else {
    tokens.tag = of(".tag");
    tokens.valid = tokens.tag.ne(0);
  }
  if (sentences) tokens.sentences = of(".sentence");
  if (links) tokens.links = of(".links");
  return tokens;
}

}  // namespace torsor

#include "torsor/syntax/network.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_map>

#include "torsor/base/error.h"
#include "torsor/train/state.h"

namespace torsor::syntax {

Weights::Weights(std::map<std::string, at::Tensor> loaded, std::string source)
    : loaded_(true), file_(std::move(loaded)), source_(std::move(source)) {}

at::Tensor Weights::take(const std::string& name, const std::vector<std::int64_t>& shape, double limit) {
  at::Tensor tensor = at::zeros(shape, at::kFloat);
  if (loaded_)
    tensor.copy_(find_tensor(file_, name, tensor, source_));
  else if (limit > 0)
    fill_uniform(tensor.mutable_data_ptr<float>(), static_cast<std::size_t>(tensor.numel()), -limit, limit, seed_,
                 stream_of(name));
  parameters_.push_back({name, tensor, shape.size() > 1});
  return tensor;
}

at::Tensor Weights::matrix(const std::string& name, std::int64_t rows, std::int64_t columns) {
  return take(name, {rows, columns}, std::sqrt(6.0 / static_cast<double>(rows + columns)));
}

void Weights::finish() const {
  std::set<std::string> taken;
  for (const NamedParameter& parameter : parameters_) taken.insert(parameter.name);
  for (const auto& [name, tensor] : file_)
    if (taken.count(name) == 0) throw Error(str(source_, ": tensor '", name, "' belongs to no part of this parser"));
}

std::map<std::string, at::Tensor> Weights::tensors() const {
  std::map<std::string, at::Tensor> result;
  for (const NamedParameter& parameter : parameters_) result.emplace(parameter.name, parameter.tensor.detach());
  return result;
}

WordEncoder::WordEncoder(std::shared_ptr<const Vocabulary> vocabulary, const WordSizes& sizes, Weights& weights)
    : vocabulary_(std::move(vocabulary)) {
  // Unit variance in sum over the width, as the inputs of an LSTM should have; a convolution's fan is three characters.
  words_ = weights.take("words", {vocabulary_->words(), sizes.word}, std::sqrt(3.0 / static_cast<double>(sizes.word)));
  characters_ = weights.take("characters", {vocabulary_->characters(), sizes.character},
                             std::sqrt(3.0 / static_cast<double>(sizes.character)));
  kernel_ = weights.matrix("spelling.weight", sizes.spelling, 3 * sizes.character);
  kernel_bias_ = weights.take("spelling.bias", {sizes.spelling}, 0);
}

WordBatch WordEncoder::batch(const std::vector<const std::vector<std::string>*>& sentences, bool root,
                             Random* dropping) const {
  const auto rows = static_cast<std::int64_t>(sentences.size());
  const std::int64_t before = root ? 1 : 0;
  std::int64_t length = 1;
  for (const auto* forms : sentences) length = std::max(length, static_cast<std::int64_t>(forms->size()) + before);
  std::vector<std::int64_t> words(static_cast<std::size_t>(rows * length), Vocabulary::kPadding);
  std::vector<std::int64_t> forms_of(words.size(), 0), reversed(words.size());
  std::vector<std::uint8_t> mask(words.size(), 0);
  std::vector<std::vector<std::int64_t>> spellings = {{Vocabulary::kBegin, Vocabulary::kEnd}};  // padding and the root
  std::unordered_map<std::string_view, std::int64_t> known;
  std::size_t longest = 3;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::vector<std::string>& forms = *sentences[static_cast<std::size_t>(row)];
    const std::int64_t size = static_cast<std::int64_t>(forms.size()) + before;
    for (std::int64_t place = 0; place < length; ++place) {
      const auto flat = static_cast<std::size_t>(row * length + place);
      reversed[flat] = row * length + (place < size ? size - 1 - place : place);
      if (place >= size) continue;
      mask[flat] = 1;
      if (place < before) {
        words[flat] = Vocabulary::kRoot;
        continue;
      }
      const std::string& form = forms[static_cast<std::size_t>(place - before)];
      std::int64_t word = vocabulary_->word(form);
      if (dropping != nullptr && word >= 3 &&
          dropping->uniform() < 0.25 / (0.25 + static_cast<double>(vocabulary_->count(word))))
        word = Vocabulary::kUnknown;
      words[flat] = word;
      const auto [entry, fresh] = known.emplace(form, static_cast<std::int64_t>(spellings.size()));
      if (fresh) spellings.push_back(vocabulary_->spelling(form));
      // One place more than the longest: its last character has a right neighbour like that of every other form, so
      // that a form's vector does not depend on the batch.
      longest = std::max(longest, spellings.back().size() + 1);
      forms_of[flat] = entry->second;
    }
  }
  std::vector<std::int64_t> characters(spellings.size() * longest, Vocabulary::kPadding);
  for (std::size_t i = 0; i < spellings.size(); ++i)
    std::copy(spellings[i].begin(), spellings[i].end(), characters.begin() + static_cast<std::ptrdiff_t>(i * longest));
  WordBatch batch;
  batch.words = at::tensor(words, at::kLong).view({rows, length});
  batch.spellings = at::tensor(characters, at::kLong)
                        .view({static_cast<std::int64_t>(spellings.size()), static_cast<std::int64_t>(longest)});
  batch.forms = at::tensor(forms_of, at::kLong).view({rows, length});
  batch.reversed = at::tensor(reversed, at::kLong);
  batch.mask = at::tensor(mask, at::kByte).view({rows, length}).to(at::kBool);
  return batch;
}

at::Tensor WordEncoder::operator()(const WordBatch& batch) const {
  const std::int64_t forms = batch.spellings.size(0), length = batch.spellings.size(1), width = characters_.size(1);
  const at::Tensor letters = at::embedding(characters_, batch.spellings);  // (U, L, C)
  // Three neighbours side by side: the convolution as one product.
  const at::Tensor windows =
      at::cat({letters.narrow(1, 0, length - 2), letters.narrow(1, 1, length - 2), letters.narrow(1, 2, length - 2)}, 2)
          .view({forms * (length - 2), 3 * width});
  // A place whose middle is padding does not count, so that a form's vector does not depend on its neighbours' lengths.
  const at::Tensor empty = batch.spellings.narrow(1, 1, length - 2).eq(Vocabulary::kPadding).unsqueeze(2);
  const at::Tensor found = at::relu(at::addmm(kernel_bias_, windows, kernel_.t()))
                               .view({forms, length - 2, kernel_.size(0)})
                               .masked_fill(empty, 0)
                               .amax(1);
  return at::cat({at::embedding(words_, batch.words), at::embedding(found, batch.forms)}, 2);
}

Lstm::Lstm(const std::string& name, std::int64_t inputs, std::int64_t width, Weights& weights) {
  const double limit = 1 / std::sqrt(static_cast<double>(width));
  input = weights.take(name + ".input", {4 * width, inputs}, limit);
  hidden = weights.take(name + ".hidden", {4 * width, width}, limit);
  bias = weights.take(name + ".bias", {4 * width}, 0);
}

at::Tensor Lstm::operator()(const at::Tensor& inputs, double drop) const {
  const at::Tensor zeros = at::zeros({1, inputs.size(0), width()}, inputs.options());
  const std::vector<at::Tensor> state = {zeros, zeros};
  const std::vector<at::Tensor> weights = {input, drop > 0 ? at::dropout(hidden, drop, /*train=*/true) : hidden, bias,
                                           at::zeros_like(bias)};
  return std::get<0>(at::lstm(inputs, state, weights, /*has_biases=*/true, /*num_layers=*/1, /*dropout=*/0,
                              /*train=*/input.requires_grad(), /*bidirectional=*/false, /*batch_first=*/true));
}

at::Tensor Lstm::step(const at::Tensor& inputs, const at::Tensor& state) const {
  const at::Tensor gates = at::addmv(at::addmv(bias, input, inputs), hidden, state[0]).view({4, width()});
  const at::Tensor cell = at::sigmoid(gates[1]) * state[1] + at::sigmoid(gates[0]) * at::tanh(gates[2]);
  return at::stack({at::sigmoid(gates[3]) * at::tanh(cell), cell});
}

at::Tensor both_ways(const Lstm& forward, const Lstm& backward, const at::Tensor& inputs, const WordBatch& batch) {
  const auto turn = [&](const at::Tensor& x) { return x.flatten(0, 1).index_select(0, batch.reversed).view_as(x); };
  return at::cat({forward(inputs), turn(backward(turn(inputs)))}, 2);
}

at::Tensor drop_channels(const at::Tensor& x, double rate) {
  if (rate <= 0) return x;
  const at::Tensor kept = at::empty({x.size(0), 1, x.size(2)}, x.options().requires_grad(false)).bernoulli_(1 - rate);
  return x * kept.div_(1 - rate);
}

Affine::Affine(const std::string& name, std::int64_t inputs, std::int64_t outputs, Weights& weights)
    : weight(weights.matrix(name + ".weight", outputs, inputs)), bias(weights.take(name + ".bias", {outputs}, 0)) {}

at::Tensor Affine::operator()(const at::Tensor& x) const { return at::linear(x, weight, bias); }

at::Tensor Affine::bent(const at::Tensor& x) const { return at::leaky_relu((*this)(x), 0.1); }

}  // namespace torsor::syntax

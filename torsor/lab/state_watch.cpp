#include "torsor/lab/state_watch.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "torsor/base/error.h"

namespace torsor {

StateWatch::StateWatch(Decoder& model, std::function<void(const std::string&)> on_alarm)
    : model_(model), on_alarm_(std::move(on_alarm)), carries_(model.encoding().traits().carries) {
  if (const auto rotation = model.encoding().rotation(1, {})) planes_ = rotation->width / 2;
  if (carries_)
    model_.observe_states([this](std::int64_t layer, const at::Tensor& state) {
      if (watching_) see(layer, state);
    });
}

StateWatch::~StateWatch() {
  if (carries_) model_.observe_states({});
}

void StateWatch::begin(std::int64_t step) {
  step_ = step + 1;
  watching_ = carries_ && step % kEvery == 0;
  largest_.clear();
  mean_.clear();
}

void StateWatch::see(std::int64_t layer, const at::Tensor& state) {
  const at::NoGradGuard no_gradient;
  // |z|^2 of every plane; of blocks [[c, s], [-s, c]] half the sum of squares is the same.
  const std::int64_t planes = planes_ > 0 && state.size(3) % planes_ == 0 ? planes_ : state.size(3) / 2;
  const std::int64_t columns = state.size(3) / planes;
  const at::Tensor squares = columns == 2
                                 ? state.narrow(3, 0, planes).square() + state.narrow(3, planes, planes).square()
                                 : state.unflatten(3, {planes, columns}).square().sum(4) / 2;
  const double largest = std::sqrt(squares.max().item<double>());
  largest_.push_back(largest);
  mean_.push_back(std::sqrt(squares.mean().item<double>()));
  const auto index = static_cast<std::size_t>(layer);
  if (told_.size() <= index) told_.resize(index + 1, false);
  if (largest <= kAlarm || told_[index]) return;
  told_[index] = true;
  char size[32];
  std::snprintf(size, sizeof size, "%.2g", largest);
  if (on_alarm_)
    on_alarm_(str("step ", step_, ": the position state of layer ", layer, " has grown to ", size,
                  " (it starts at 1; logits grow with its square); tape's key clip= bounds it"));
}

void StateWatch::annotate(Json& line, std::string& shown) {
  if (largest_.empty()) return;
  line["state_max"] = largest_;
  line["state_rms"] = mean_;
  char text[32];
  std::snprintf(text, sizeof text, "  state %.2f", *std::max_element(largest_.begin(), largest_.end()));
  shown += text;
}

}  // namespace torsor

// How large position states grow while a model trains.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "torsor/model/decoder.h"
#include "torsor/train/loop.h"

namespace torsor {

/// Watches the states that a model's layers change, at every `every`-th step and the first: the largest and the root
/// mean square size of a plane's number, which starts at 1 (at the magnitude of a scaled rotation). Sizes multiply
/// logits on both sides, so a state that doubles makes them four times as large; nothing in the method bounds it.
class StateWatch {
 public:
  /// A size that is worth a warning (tape.md, section 5).
  static constexpr double kAlarm = 8;
  static constexpr std::int64_t kEvery = 10;

  /// Nothing is watched in a model whose encoding carries no state. `on_alarm` is told once a layer, when its largest
  /// size first passes kAlarm. The model must outlive the watch, which must outlive its training.
  StateWatch(Decoder& model, std::function<void(const std::string&)> on_alarm);
  ~StateWatch();
  StateWatch(const StateWatch&) = delete;
  StateWatch& operator=(const StateWatch&) = delete;

  /// Called before the loss of the step after `step` finished ones.
  void begin(std::int64_t step);
  /// For TrainCallbacks::annotate: adds "state_max" and "state_rms", one number a layer that changed its state, to the
  /// log's line, and the largest to what is shown.
  void annotate(Json& line, std::string& shown);

 private:
  void see(std::int64_t layer, const at::Tensor& state);

  Decoder& model_;
  std::function<void(const std::string&)> on_alarm_;
  bool carries_ = false, watching_ = false;
  std::int64_t planes_ = 0;  ///< 0 = not known
  std::int64_t step_ = 0;
  std::vector<double> largest_, mean_;  ///< of the present step
  std::vector<bool> told_;
};

}  // namespace torsor

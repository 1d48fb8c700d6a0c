#include "torsor/base/progress.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <utility>

#include "torsor/base/utf8.h"

namespace torsor {
namespace {

constexpr int bar_cells = 20;

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string format(const char* pattern, auto... values) {
  char text[64];
  std::snprintf(text, sizeof text, pattern, values...);
  return text;
}

/// Three significant digits: 0.0123, 1.23, 12.3, 123, 1234567.
std::string format_rate(double rate) {
  if (rate >= 100) return format("%.0f/s", rate);
  return format("%.3g/s", rate);
}

/// At most `limit` code points.
std::string cut(const std::string& text, std::size_t limit) {
  std::size_t offset = 0;
  for (std::size_t count = 0; offset < text.size(); ++count) {
    if (count == limit) return text.substr(0, offset);
    offset += decode_utf8(text, offset).size;
  }
  return text;
}

}  // namespace

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e12) return "-";
  const auto whole = static_cast<long long>(std::llround(seconds));
  const long long hours = whole / 3600;
  const long long minutes = whole / 60 % 60;
  if (hours >= 48) return format("%lldd %lldh", hours / 24, hours % 24);
  if (hours > 0) return format("%lld:%02lld:%02lld", hours, minutes, whole % 60);
  return format("%lld:%02lld", minutes, whole % 60);
}

Progress::Progress(Options options) : options_(std::move(options)) {
  if (!options_.clock) options_.clock = steady_seconds;
  begun_ = options_.clock();
  // The live line appears at once, a plain one after the first interval.
  written_at_ = options_.terminal ? begun_ - options_.terminal_interval : begun_;
  done_ = options_.start;
}

Progress::~Progress() {
  if (!live_) return;
  try {
    options_.out << '\n' << std::flush;
  } catch (...) {  // a stream with exceptions on must not end the program while another error is on its way
  }
}

void Progress::update(std::int64_t done, const std::string& extra) {
  if (options_.quiet || finished_) return;
  pending_ = pending_ || done != done_ || extra != extra_;
  done_ = done;
  extra_ = extra;
  const double now = options_.clock();
  if (now - written_at_ >= (options_.terminal ? options_.terminal_interval : options_.plain_interval)) write(now);
}

void Progress::finish() {
  if (options_.quiet || finished_) return;
  finished_ = true;
  if (pending_ || options_.terminal) write(options_.clock());  // a live line is rewritten, now with the whole time
  if (live_) options_.out << '\n' << std::flush;
  live_ = false;
}

void Progress::write(double now) {
  const std::string text = line(now);
  if (options_.terminal) {
    // Back to the first column, clear to the end of the line (ECMA-48 EL). The last column stays free: writing to it
    // makes some terminals wrap.
    options_.out << "\r\x1b[K" << cut(text, static_cast<std::size_t>(std::max(options_.width - 1, 1))) << std::flush;
    live_ = true;
  } else {
    options_.out << text << '\n' << std::flush;
  }
  written_at_ = now;
  pending_ = false;
}

std::string Progress::line(double now) const {
  const bool known = options_.total > 0;
  const double share =
      known ? std::clamp(static_cast<double>(done_) / static_cast<double>(options_.total), 0.0, 1.0) : 0.0;
  // Rounded down: 100% is shown for a task that is done, never for one that nearly is.
  const int percent = static_cast<int>(share * 100);
  std::string text = options_.label;
  if (options_.terminal) {
    if (!text.empty()) text += ' ';
    if (known) {
      const int full = static_cast<int>(share * bar_cells);
      std::string bar(static_cast<std::size_t>(full), '=');
      if (full < bar_cells) bar += '>';
      bar.resize(bar_cells, ' ');
      text += '[' + bar + "] " + format("%3d%% ", percent);
    }
  } else if (!text.empty()) {
    text += ": ";
  }
  text += std::to_string(done_);
  if (known) text += '/' + std::to_string(options_.total);
  if (known && !options_.terminal) text += format(" (%d%%)", percent);

  const double elapsed = now - begun_;
  const auto fresh = static_cast<double>(done_ - options_.start);
  if (elapsed > 0 && fresh > 0) {
    const double rate = fresh / elapsed;
    text += "  " + format_rate(rate);
    if (known && done_ < options_.total) {
      text += "  " + format_duration(static_cast<double>(options_.total - done_) / rate) + " left";
    } else if (finished_) {
      text += "  " + format_duration(elapsed);
    }
  }
  if (!extra_.empty()) text += "  " + extra_;
  return text;
}

}  // namespace torsor

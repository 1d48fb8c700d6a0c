#include "tests/oracle/rotary.h"

#include <algorithm>
#include <cmath>

namespace oracle {
namespace {

const double pi = std::acos(-1.0);

Plane make_plane(int a, int b, int axis, int index, int width) {
  Plane plane;
  plane.a = a;
  plane.b = b;
  plane.axis = axis;
  plane.index = index;
  plane.width = width;
  return plane;
}

/// g(s, k) of C6.
double yarn_magnitude(double factor, double k) { return factor <= 1.0 ? 1.0 : 0.1 * k * std::log(factor) + 1.0; }

int axis_of_section(int plane, const std::vector<double>& sections) {
  double end = 0.0;
  for (std::size_t axis = 0; axis < sections.size(); ++axis) {
    end += sections[axis];
    if (plane < end) return static_cast<int>(axis);
  }
  throw Error("rope: the sections are fewer than the planes");
}

int axis_interleaved(int plane, const std::vector<double>& sections) {
  if (plane % 3 == 1 && plane < 3 * sections.at(1)) return 1;
  if (plane % 3 == 2 && plane < 3 * sections.at(2)) return 2;
  return 0;
}

/// b^(-2i/d), without learning and scaling.
double plain_frequency(const Plane& plane, double base) {
  return plane.still ? 0.0 : std::pow(base, -2.0 * plane.index / plane.width);
}

/// The base of C3: b s^(d/(d-2)).
double ntk_base(double base, double factor, double d) { return base * std::pow(factor, d / (d - 2.0)); }

}  // namespace

bool is_scaling(const std::string& name) {
  return name == "linear" || name == "ntk" || name == "ntk-by-parts" || name == "dynamic" || name == "yarn" ||
         name == "longrope" || name == "llama3";
}

bool is_rotary(const std::string& name) { return name == "rope" || name == "xpos" || is_scaling(name); }

std::vector<Plane> planes_of(const Term& term, int head_dim) {
  std::vector<Plane> planes;
  const bool interleaved_layout = term.word("layout", "half") == "interleaved";
  const bool proportional = term.word("frequencies", "partial") == "proportional";
  const double fraction = term.number("fraction", 1.0);
  const int axes = static_cast<int>(term.number("axes", 1));
  int d = static_cast<int>(term.number("dim", 0));
  if (d == 0) d = proportional ? head_dim : static_cast<int>(head_dim * fraction);
  if (d % 2 != 0 || d > head_dim || d < 2) throw Error("rope: the rotary width must be even and at most the head's");
  const int start = term.word("part", "prefix") == "suffix" ? head_dim - d : 0;

  const std::string arrangement = term.word("arrangement", "axial");
  if (axes > 1 && arrangement == "axial") {
    const int width = d / axes;
    if (d % axes != 0 || width % 2 != 0) throw Error("rope: the axes do not divide the rotary width into even blocks");
    for (int axis = 0; axis < axes; ++axis) {
      for (int i = 0; i < width / 2; ++i) {
        const int first = start + axis * width;
        planes.push_back(make_plane(first + i, first + i + width / 2, axis, i, width));
      }
    }
    return planes;
  }
  for (int i = 0; i < d / 2; ++i) {
    Plane plane = interleaved_layout ? make_plane(start + 2 * i, start + 2 * i + 1, 0, i, d)
                                     : make_plane(start + i, start + i + d / 2, 0, i, d);
    if (axes > 1) {
      const std::vector<double> sections = term.list("sections");
      if (static_cast<int>(sections.size()) != axes) throw Error("rope: one section an axis");
      plane.axis = arrangement == "interleaved" ? axis_interleaved(i, sections) : axis_of_section(i, sections);
    }
    if (proportional) plane.still = i >= static_cast<int>(std::floor(fraction * head_dim / 2.0));
    planes.push_back(plane);
  }
  return planes;
}

double yarn_ramp(double index, double d, double base, double length, double beta_fast, double beta_slow,
                 bool truncate) {
  double low = d * std::log(length / (2.0 * pi * beta_fast)) / (2.0 * std::log(base));
  double high = d * std::log(length / (2.0 * pi * beta_slow)) / (2.0 * std::log(base));
  if (truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, d - 1.0);
  if (low == high) high += 0.001;
  return std::clamp((index - low) / (high - low), 0.0, 1.0);
}

Rotary::Rotary(const Part& part, int head_dim, const Parameters& parameters) : part_(part) {
  rope_ = part.term;
  while (is_scaling(rope_->name)) {
    wrappers_.insert(wrappers_.begin(), rope_);
    rope_ = &rope_->inner();
  }
  if (!is_rotary(rope_->name)) throw Error("'" + part.term->name + "' takes a rotary, not '" + rope_->name + "'");
  planes_ = planes_of(*rope_, head_dim);
  if (rope_->flag("learn", false)) log_freq_ = &parameter(parameters, *rope_, "log_freq");
}

double Rotary::base(int key_head) const {
  const std::vector<double> bases = rope_->list("base");
  if (bases.empty()) return 10000.0;
  if (bases.size() == 1) return bases[0];
  if (static_cast<int>(bases.size()) != part_.key_heads) throw Error("rope: one base a key head");
  return bases[static_cast<std::size_t>(key_head)];
}

std::vector<Var> Rotary::frequencies(int key_head, double total) const {
  std::vector<Var> frequencies;
  for (std::size_t p = 0; p < planes_.size(); ++p) {
    Var theta = plain_frequency(planes_[p], base(key_head));
    if (log_freq_ != nullptr) {
      const int row = log_freq_->shape[0] == 1 ? 0 : key_head;
      theta = exp(log_freq_->at(row, static_cast<int>(p)));
    }
    for (const Term* wrapper : wrappers_) theta = scaled(*wrapper, theta, planes_[p], key_head, total);
    frequencies.push_back(theta);
  }
  return frequencies;
}

Var Rotary::scaled(const Term& wrapper, const Var& theta, const Plane& plane, int key_head, double total) const {
  const double b = base(key_head);
  const double d = plane.width;
  const double i = plane.index;
  if (plane.still) return theta;
  const bool changes_base = wrapper.name == "ntk" || wrapper.name == "ntk-by-parts" || wrapper.name == "dynamic";
  if (changes_base && (log_freq_ != nullptr || wrappers_.size() > 1)) {
    throw Unsupported("'" + wrapper.name + "' changes the base: learned or already scaled frequencies have none");
  }
  if (wrapper.name == "linear") return theta / wrapper.number("factor");
  if (wrapper.name == "ntk") return plain_frequency(plane, ntk_base(b, wrapper.number("factor"), d));
  if (wrapper.name == "dynamic") {
    const double L = wrapper.number("train_length");
    const double s = wrapper.number("factor");
    const double T = std::max(total, L);
    return plain_frequency(plane, ntk_base(b, s * T / L - (s - 1.0), d));
  }
  if (wrapper.name == "ntk-by-parts") {
    const double L = wrapper.number("train_length");
    const double s = wrapper.number("factor");
    const double ntk = plain_frequency(plane, ntk_base(b, s, d));
    const double r = yarn_ramp(i, d, b, L, 1.25, 0.75, true);
    const double blend = theta.value / s * r + ntk * (1.0 - r);
    const double r2 = yarn_ramp(i, d, b, L, 16.0, 2.0, true);
    return blend * r2 + theta.value * (1.0 - r2);
  }
  if (wrapper.name == "yarn") {
    const double r = yarn_ramp(i, d, b, wrapper.number("train_length"), wrapper.number("beta_fast", 32.0),
                               wrapper.number("beta_slow", 1.0), wrapper.flag("truncate", true));
    return theta / wrapper.number("factor") * r + theta * (1.0 - r);
  }
  if (wrapper.name == "longrope") {
    const bool far = total > wrapper.number("train_length");
    const std::vector<double> factors = wrapper.list(far ? "long" : "short");
    return theta / factors.at(static_cast<std::size_t>(plane.index));
  }
  if (wrapper.name == "llama3") {
    const double a = wrapper.number("low_freq_factor", 1.0);
    const double c = wrapper.number("high_freq_factor", 4.0);
    const double L = wrapper.number("train_length", 8192.0);
    const double s = wrapper.number("factor", 8.0);
    const Var wavelength = Var(2.0 * pi) / theta;
    if (wavelength.value < L / c) return theta;
    if (wavelength.value > L / a) return theta / s;
    const Var t = (Var(L) / wavelength - a) / (c - a);
    return (Var(1.0) - t) * theta / s + t * theta;
  }
  throw Unsupported("'" + wrapper.name + "' does not scale a rotary");
}

double Rotary::magnitude() const {
  double m = 1.0;
  for (const Term* w : wrappers_) {
    const bool given = w->word("attention_factor", "auto") != "auto";
    if (w->name == "yarn") {
      const double s = w->number("factor");
      const double mscale = w->number("mscale", 0.0);
      const double all_dim = w->number("mscale_all_dim", 0.0);
      if (given) {
        m *= w->number("attention_factor");
      } else if (mscale != 0.0 && all_dim != 0.0) {
        m *= yarn_magnitude(s, mscale) / yarn_magnitude(s, all_dim);
      } else {
        m *= yarn_magnitude(s, 1.0);
      }
    } else if (w->name == "longrope") {
      if (given) {
        m *= w->number("attention_factor");
      } else {
        const double s = w->number("factor");
        if (s > 1.0) m *= std::sqrt(1.0 + std::log(s) / std::log(w->number("train_length")));
      }
    }
  }
  return m;
}

double Rotary::direction() const { return rope_->word("orientation", "plus") == "minus" ? -1.0 : 1.0; }

double Rotary::softmax_factor() const {
  double factor = 1.0;
  for (const Term* w : wrappers_) {
    const double all_dim = w->name == "yarn" ? w->number("mscale_all_dim", 0.0) : 0.0;
    if (all_dim != 0.0) factor *= std::pow(yarn_magnitude(w->number("factor"), all_dim), 2.0);
  }
  return factor;
}

Var Rotary::product(const std::vector<Var>& q, const std::vector<Var>& k, const std::vector<Var>& frequencies,
                    const std::vector<double>& position_q, const std::vector<double>& position_k) const {
  const bool decays = rope_->name == "xpos";
  const double m = magnitude();
  Var total = 0.0;
  for (std::size_t p = 0; p < planes_.size(); ++p) {
    const Plane& plane = planes_[p];
    const auto axis = static_cast<std::size_t>(plane.axis);
    // the key as the query sees it: turned by the angle between the two
    const Var angle = frequencies[p] * (direction() * (position_k.at(axis) - position_q.at(axis)));
    const Var c = cos(angle);
    const Var s = sin(angle);
    const Var& ka = k[static_cast<std::size_t>(plane.a)];
    const Var& kb = k[static_cast<std::size_t>(plane.b)];
    Var part = q[static_cast<std::size_t>(plane.a)] * (ka * c - kb * s) +
               q[static_cast<std::size_t>(plane.b)] * (ka * s + kb * c);
    if (decays) {
      const double gamma = rope_->number("gamma", 0.4);
      const double zeta = (2.0 * plane.index + gamma * plane.width) / ((1.0 + gamma) * plane.width);
      part = part * std::pow(zeta, (position_q[axis] - position_k[axis]) / rope_->number("scale_base", 512.0));
    }
    total += part * (m * m);
  }
  return total;
}

}  // namespace oracle

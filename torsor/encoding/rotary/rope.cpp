#include "torsor/encoding/rotary/rope.h"

#include <cmath>
#include <numeric>

#include "torsor/encoding/rotary/rotary.h"

namespace torsor {
namespace {

// The span: the whole head, its first or last `dim` channels, or `fraction` of it.
void set_span(RotarySpec& spec, const Settings& settings, const Dimensions& dimensions) {
  const std::int64_t head = dimensions.head_dim;
  const std::int64_t dim = settings.integer("dim");
  const double fraction = settings.number("fraction");
  const bool suffix = settings.word("part") == "suffix";
  spec.proportional = settings.word("frequencies") == "proportional";
  if (spec.proportional) {
    const std::string whole = "rope: frequencies=proportional turns pairs of the whole head; leave ";
    if (dim != 0) throw UsageError(whole + "dim= out and give fraction=");
    if (suffix) throw UsageError(whole + "part= out");
    if (spec.axes != 1) throw UsageError("rope: frequencies=proportional has one axis only");
  }
  if (dim != 0 && fraction != 1) throw UsageError("rope: dim= and fraction= say the same thing; give one of them");
  if (dim > head) throw UsageError(str("rope: dim=", dim, " must be at most head_dim=", head));

  std::int64_t width = dim == 0 ? head : dim;
  std::string wrong = str(dim == 0 ? "head_dim=" : "dim=", width);
  if (!spec.proportional && fraction != 1) {
    width = static_cast<std::int64_t>(static_cast<double>(head) * fraction);
    wrong = str("fraction=", fraction, " of head_dim=", head, " is ", width, ", which");
  }
  if (width % 2 != 0 || width == 0) throw UsageError(str("rope: ", wrong, " must be even and at least 2"));
  spec.width = width;
  spec.offset = suffix ? head - width : 0;
}

void set_axes(RotarySpec& spec, const Settings& settings) {
  const std::string& arrangement = settings.word("arrangement");
  const std::vector<double> sections = settings.list("sections");
  spec.arrangement = arrangement == "contiguous"    ? Arrangement::Contiguous
                     : arrangement == "interleaved" ? Arrangement::Interleaved
                                                    : Arrangement::Axial;
  if (spec.arrangement == Arrangement::Axial) {
    if (!sections.empty()) throw UsageError("rope: sections= needs arrangement=contiguous or interleaved");
    if (spec.width % (2 * spec.axes) != 0)
      throw UsageError(str("rope: axes=", spec.axes, " needs a width that is a multiple of ", 2 * spec.axes, ", found ",
                           spec.width));
    spec.blocks = spec.axes;
    return;
  }
  if (spec.axes == 1) throw UsageError(str("rope: arrangement=", arrangement, " needs axes=2 or axes=3"));
  if (static_cast<std::int64_t>(sections.size()) != spec.axes)
    throw UsageError(str("rope: sections= needs ", spec.axes, " entries, one an axis, found ", sections.size()));
  double sum = 0;
  for (const double section : sections) {
    if (section != std::floor(section)) throw UsageError(str("rope: sections= counts planes, found ", section));
    sum += section;
  }
  if (sum != static_cast<double>(spec.planes()))
    throw UsageError(str("rope: sections= must sum to ", spec.planes(), " planes, found ", sum));
  for (const double section : sections) spec.sections.push_back(static_cast<std::int64_t>(section));
  if (spec.arrangement == Arrangement::Contiguous) return;
  for (std::int64_t axis = 1; axis < spec.axes; ++axis) {
    const std::int64_t most = (spec.planes() - axis + spec.axes - 1) / spec.axes;
    if (spec.sections[static_cast<std::size_t>(axis)] > most)
      throw UsageError(str("rope: sections= entry ", axis + 1, " can be at most ", most,
                           " with arrangement=interleaved, found ", spec.sections[static_cast<std::size_t>(axis)]));
  }
}

std::unique_ptr<Encoding> make_rope(MakeRequest& request) {
  const Settings& settings = request.settings;
  RotarySpec spec;
  spec.name = "rope";
  spec.layout = settings.word("layout") == "interleaved" ? Layout::Interleaved : Layout::Half;
  spec.minus = settings.word("orientation") == "minus";
  spec.axes = settings.integer("axes");
  set_span(spec, settings, request.dimensions);
  set_axes(spec, settings);

  spec.bases = settings.list("base");
  const std::int64_t bases = static_cast<std::int64_t>(spec.bases.size());
  if (bases != 1 && bases != request.dimensions.kv_heads)
    throw UsageError(str("rope: base= takes one number, or a list of ", request.dimensions.kv_heads,
                         ", one a key head; found ", bases));

  spec.exponent_width = spec.proportional ? request.dimensions.head_dim : spec.width / spec.blocks;
  spec.live = spec.block_planes();
  if (spec.proportional) {
    const double head = static_cast<double>(request.dimensions.head_dim);
    spec.live = static_cast<std::int64_t>(std::floor(settings.number("fraction") * head / 2));
    if (spec.live == 0)
      throw UsageError(str("rope: fraction=", settings.number("fraction"), " of head_dim=", head, " turns no plane"));
  }
  if (settings.boolean("learn")) {
    if (spec.proportional)
      throw UsageError("rope: learn=true cannot train frequencies=proportional: its zeros have no logarithm");
    spec.trained = request.prefix + ".log_freq";
  }
  return std::make_unique<Rotary>(request.dimensions, std::move(spec));
}

}  // namespace

NameInfo rope_name() {
  using Type = KeyInfo::Type;
  NameInfo info;
  info.name = "rope";
  info.summary = "turns q and k by angles that grow with the position, so that q.k knows the distance";
  info.formula = "plane i: (x_a + i x_b) * exp(i p theta_i), theta_i = base^(-2i/d)";
  info.source = "Su et al. 2021, arXiv:2104.09864, eq. 15";
  info.page = "rope";
  info.rotary = true;
  info.keys = {
      {"base", Type::NumberOrList, 10000.0, "base of the frequencies; a list gives one a key head", {}, 1, 1e300, true},
      {"layout",
       Type::Word,
       std::string("half"),
       "pairs (i, i + d/2), or interleaved pairs (2i, 2i + 1)",
       {"half", "interleaved"}},
      {"orientation", Type::Word, std::string("plus"), "sign of the angle", {"plus", "minus"}},
      {"dim", Type::Integer, 0.0, "channels that turn; 0 = the whole head", {}, 0},
      {"part",
       Type::Word,
       std::string("prefix"),
       "which channels turn when dim is smaller than the head",
       {"prefix", "suffix"}},
      {"frequencies",
       Type::Word,
       std::string("partial"),
       "partial: exponents over the channels that turn; proportional: over the whole head, zeros after the fraction",
       {"partial", "proportional"}},
      {"fraction", Type::Number, 1.0, "share of the head that turns", {}, 0, 1, true},
      {"axes", Type::Integer, 1.0, "axes of a position", {}, 1, 3},
      {"sections", Type::List, std::vector<double>{}, "planes of each axis, for contiguous and interleaved", {}, 0},
      {"arrangement",
       Type::Word,
       std::string("axial"),
       "how planes are given to axes",
       {"axial", "contiguous", "interleaved"}},
      {"learn", Type::Boolean, false, "train the frequencies", {}},
      {"allow",
       Type::Word,
       std::string(),
       "absolute: stand beside an encoding that adds to the embedding",
       {"absolute"}},
  };
  info.make = make_rope;
  return info;
}

}  // namespace torsor

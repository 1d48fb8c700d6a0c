#include "torsor/encoding/syntax/sipe.h"

#include <cmath>
#include <utility>

#include "torsor/encoding/syntax/sipe_encoding.h"

namespace torsor {
namespace {

/// Frequencies of the rotation inside, without what scales it and before anything has trained them, [1 or key
/// heads][planes].
std::vector<std::vector<double>> unscaled_frequencies(const Term& sipe, const Dimensions& dimensions) {
  const Term* inner = &sipe.operands.front().expression.terms.front();
  while (!inner->operands.empty()) inner = &inner->operands.front().expression.terms.front();
  const std::shared_ptr<const Encoding> plain = make_encoding(Expression{{*inner}, ""}, dimensions);
  PlainParameters first;
  for (const ParameterInfo& info : plain->parameters(0)) first[info.name] = info.initial.values;
  const auto rotation = plain->rotation(1, first);
  if (!rotation)
    throw UsageError(str("sipe: bound=warp needs the frequencies of planes, which '", inner->name, "' does not tell"));
  std::vector<std::vector<double>> rows = rotation->inv_freq;
  for (std::vector<double>& row : rows)
    for (double& frequency : row) frequency = std::abs(frequency);
  return rows;
}

}  // namespace

NameInfo sipe_name() {
  NameInfo info;
  info.name = "sipe";
  info.summary = "lets the syntax of the tokens change another encoding; without any it is that encoding";
  info.formula =
      "logit = scale * q.k + (1 + z_ij) P_ij, z = <q_i + v, W_E s_j> / sqrt(D) (tag_align); q, k turn by "
      "beta W_phi s_i more (rotation); x + s (input);  s = E^tau[tau_i] + E^nu[nu_i]";
  info.source =
      "Riaz, Kim, Surdeanu 2026, arXiv:2608.06111: input on encoders, tag_align on txl; the other couplings are this "
      "project's";
  info.page = "sipe";
  info.operand = Operand::Listed;
  info.operands = sipe_operands();
  info.keys = sipe_keys();
  info.make = [](MakeRequest& request) -> std::unique_ptr<Encoding> {
    const SipeOptions options = sipe_options(request.term, request.settings);
    if (request.dimensions.layers > 1 && options.inject_from > request.dimensions.layers)
      throw UsageError(str("sipe: inject_from=", options.inject_from, " lies beyond the model's ",
                           request.dimensions.layers, " layers"));
    std::vector<std::vector<double>> frequencies;
    if (options.warp) frequencies = unscaled_frequencies(request.term, request.dimensions);
    return std::make_unique<Sipe>(request.dimensions, request.prefix, std::move(request.operands.front()), options,
                                  std::move(frequencies));
  };
  return info;
}

}  // namespace torsor

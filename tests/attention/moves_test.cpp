// Moves with tensors a token: planes whose tables are trained, keys that widen, blocks; against plain operations, in
// value, gradient and gradient of the gradient.
#include "torsor/attention/moves.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "tests/attention/call.h"

namespace torsor::attention_test {
namespace {

/// How planes lie in a head, and whose tables they have.
struct Placing {
  Layout layout = Layout::Half;
  std::int64_t blocks = 1, head_dim = 8, offset = 0, width = 8;
  std::int64_t heads = 4, group = 1, first = 0, last = 4;  ///< heads of this side; the range is of query heads
  std::int64_t rows = 1;                                   ///< G
  Role role = Role::Query;
  bool one_batch = false, transposed = false;

  std::string name() const {
    return str(layout == Layout::Half ? "half" : "interleaved", ", blocks ", blocks, ", channels ", offset, "+", width,
               " of ", head_dim, ", heads ", first, "-", last, ", group ", group, ", tables ", rows,
               role == Role::Query ? ", query" : ", key", one_batch ? ", one batch" : "",
               transposed ? ", transposed" : "");
  }
};

std::vector<Placing> placings() {
  std::vector<Placing> all;
  for (const Layout layout : {Layout::Half, Layout::Interleaved})
    for (const std::int64_t blocks : {1, 2})
      for (const bool wide : {true, false})
        for (const std::int64_t which : {0, 1, 2, 3}) {
          Placing one;
          one.layout = layout;
          one.blocks = blocks;
          if (!wide) one.head_dim = 11, one.offset = 2;
          // Own tables; tables of key heads on either side; one table for all.
          if (which == 0) one.rows = 4;
          if (which == 1) one.group = 2, one.rows = 2;
          if (which == 2) one.group = 2, one.rows = 2, one.heads = 2, one.role = Role::Key;
          if (which == 3) one.one_batch = true;
          one.transposed = all.size() % 2 == 1;
          all.push_back(one);
        }
  Placing range;  // heads 2 and 3 of 6, two key heads' tables
  range.heads = 6, range.first = 2, range.last = 4, range.rows = 2;
  all.push_back(range);
  return all;
}

/// The channels of plane p: Layout says how they lie.
std::pair<std::int64_t, std::int64_t> channels(const Placing& at, std::int64_t plane) {
  const std::int64_t width = at.width / at.blocks, each = width / 2, block = plane / each, i = plane % each;
  const std::int64_t start = at.offset + block * width;
  return at.layout == Layout::Half ? std::pair{start + i, start + i + each}
                                   : std::pair{start + 2 * i, start + 2 * i + 1};
}

/// The same one channel at a time, with operations that differentiate themselves.
at::Tensor turned_plainly(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine, const Placing& at) {
  const at::ScalarType wide = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const bool query = at.role == Role::Query;
  std::vector<at::Tensor> heads;
  for (std::int64_t h = 0; h < at.heads; ++h) {
    const at::Tensor head = x.select(1, h).to(wide);
    const std::int64_t first = query ? at.first : at.first / at.group, last = query ? at.last : at.last / at.group;
    std::vector<at::Tensor> all;
    for (std::int64_t c = 0; c < at.head_dim; ++c) all.push_back(head.select(2, c));
    if (h >= first && h < last) {
      const std::int64_t row = cosine.size(1) == 1 ? 0 : (h - first) / (query ? at.group : 1);
      for (std::int64_t p = 0; p < at.width / 2; ++p) {
        const auto [a, b] = channels(at, p);
        const at::Tensor c = cosine.select(1, row).select(2, p), s = sine.select(1, row).select(2, p);
        const at::Tensor xa = head.select(2, a), xb = head.select(2, b);
        all[static_cast<std::size_t>(a)] = xa * c - xb * s;
        all[static_cast<std::size_t>(b)] = xa * s + xb * c;
      }
    }
    heads.push_back(at::stack(all, 2));
  }
  return at::stack(heads, 1).to(x.scalar_type());
}

struct Leaves {
  at::Tensor x, cosine, sine;
};

Leaves draw(const Placing& at, at::ScalarType dtype) {
  const std::int64_t batch = 2, tokens = 3;
  const at::ScalarType wide = dtype == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor x = at::randn({batch, at.heads, tokens, at.head_dim}, doubles()).to(dtype);
  if (at.transposed) x = x.transpose(1, 2).contiguous().transpose(1, 2);
  const auto table = [&] {
    return at::randn({at.one_batch ? 1 : batch, at.rows, tokens, at.width / 2}, doubles()).to(wide);
  };
  return {x.requires_grad_(true), table().requires_grad_(true), table().requires_grad_(true)};
}

at::Tensor turned(const Leaves& leaves, const Placing& at) {
  Planes planes;
  planes.heads = {at.first, at.last};
  planes.layout = at.layout;
  planes.offset = at.offset;
  planes.width = at.width;
  planes.blocks = at.blocks;
  planes.cosine = leaves.cosine;
  planes.sine = leaves.sine;
  return apply_moves(leaves.x, {planes}, at.role, at.group, Precision::Exact);
}

TEST(Moves, TrainedTablesHaveTheGradientsOfPlainOperations) {
  at::manual_seed(1);
  for (const Placing& at : placings())
    // float32: sums of some tens of products; bf16: what comes out is rounded, the tables' gradients are float32.
    for (const auto& [dtype, rounded, summed] :
         {std::tuple{at::kDouble, 1e-14, 1e-13}, {at::kFloat, 1e-6, 1e-5}, {at::kBFloat16, 8e-3, 1e-5}}) {
      SCOPED_TRACE(str(at.name(), ", ", dtype));
      const Leaves leaves = draw(at, dtype);
      const std::vector<at::Tensor> of = {leaves.x, leaves.cosine, leaves.sine};
      const at::Tensor found = turned(leaves, at), wanted = turned_plainly(leaves.x, leaves.cosine, leaves.sine, at);
      EXPECT_EQ(found.scalar_type(), dtype);
      EXPECT_LE(tensor_error(found, wanted), rounded);
      const at::Tensor upstream = at::randn_like(found);
      const auto gradients = torch::autograd::grad({found}, of, {upstream});
      const auto plain = torch::autograd::grad({wanted}, of, {upstream});
      EXPECT_LE(tensor_error(gradients[0], plain[0]), rounded);
      for (const std::size_t n : {1, 2}) {
        EXPECT_EQ(gradients[n].sizes(), of[n].sizes());
        EXPECT_EQ(gradients[n].scalar_type(), of[n].scalar_type());
        EXPECT_LE(tensor_error(gradients[n], plain[n]), summed) << n;
      }
    }
}

TEST(Moves, TrainedTablesHaveGradientsOfGradients) {
  at::manual_seed(2);
  for (const Placing& at : placings()) {
    SCOPED_TRACE(at.name());
    const Leaves leaves = draw(at, at::kDouble);
    const std::vector<at::Tensor> of = {leaves.x, leaves.cosine, leaves.sine};
    const at::Tensor upstream = at::randn({2, at.heads, 3, at.head_dim}, doubles()).requires_grad_(true);
    const at::Tensor weight = at::randn_like(upstream);
    const auto second = [&](const at::Tensor& out) {
      // A curved function of the output, so that every second derivative is there.
      const auto first =
          torch::autograd::grad({(out.sin() * weight).sum() + (out * upstream).sum()}, of, {}, true, true);
      const at::Tensor sum = first[0].square().sum() + first[1].sin().sum() + first[2].square().sum();
      return torch::autograd::grad({sum}, {leaves.x, leaves.cosine, leaves.sine, upstream});
    };
    const auto found = second(turned(leaves, at));
    const auto wanted = second(turned_plainly(leaves.x, leaves.cosine, leaves.sine, at));
    for (std::size_t n = 0; n < wanted.size(); ++n) EXPECT_LE(tensor_error(found[n], wanted[n]), 1e-12) << n;
  }
}

TEST(Moves, OneTrainedTableOfTwoHasItsGradient) {
  const Placing at;
  Leaves leaves = draw(at, at::kDouble);
  leaves.sine = leaves.sine.detach();
  const auto gradients = torch::autograd::grad({turned(leaves, at).square().sum()}, {leaves.cosine});
  const at::Tensor plain = turned_plainly(leaves.x, leaves.cosine, leaves.sine, at);
  EXPECT_LE(tensor_error(gradients[0], torch::autograd::grad({plain.square().sum()}, {leaves.cosine})[0]), 1e-13);
}

TEST(Moves, WidenedKeysTurnOnceForEachQueryHead) {
  at::manual_seed(3);
  Placing of_key, of_query;
  of_key.heads = 2, of_key.group = 2, of_key.role = Role::Key;
  of_query.rows = 4;
  const Leaves keys = draw(of_key, at::kDouble), tables = draw(of_query, at::kDouble);
  Planes planes;
  planes.heads = {0, 4};
  planes.width = 8;
  planes.cosine = tables.cosine;
  planes.sine = tables.sine;
  const std::vector<Move> moves = {Widen{{0, 4}}, planes};
  const at::Tensor found = apply_moves(keys.x, moves, Role::Key, 2, Precision::Exact);
  // After the widening a key head is a query head: the tables are its own.
  const at::Tensor wanted = turned_plainly(keys.x.repeat_interleave(2, 1), tables.cosine, tables.sine, of_query);
  EXPECT_LE(tensor_error(found, wanted), 1e-14);
  // Queries are as many already.
  EXPECT_LE(tensor_error(apply_moves(tables.x, moves, Role::Query, 2, Precision::Exact),
                         turned_plainly(tables.x, tables.cosine, tables.sine, of_query)),
            1e-14);
  const std::vector<at::Tensor> of = {keys.x, tables.cosine, tables.sine};
  const at::Tensor upstream = at::randn_like(found);
  const auto gradients = torch::autograd::grad({found}, of, {upstream});
  const auto plain = torch::autograd::grad({wanted}, of, {upstream});
  for (std::size_t n = 0; n < of.size(); ++n) EXPECT_LE(tensor_error(gradients[n], plain[n]), 1e-13) << n;
}

TEST(Moves, BlocksAreRowsTimesMatrices) {
  at::manual_seed(4);
  for (const Placing& at : placings()) {
    if (at.first != 0) continue;  // heads of one tensor are equally wide
    for (const std::int64_t columns : {2, 3, 5})
      for (const auto& [dtype, bound] : {std::pair{at::kDouble, 1e-13}, {at::kFloat, 1e-5}, {at::kBFloat16, 8e-3}}) {
        SCOPED_TRACE(str(at.name(), ", R = ", columns, ", ", dtype));
        const at::Tensor x = draw(at, dtype).x;
        const at::ScalarType wide = dtype == at::kDouble ? at::kDouble : at::kFloat;
        const std::int64_t planes = at.width / 2;
        const at::Tensor block =
            at::randn({at.one_batch ? 1 : 2, at.rows, 3, planes, 2, columns}, doubles()).to(wide).requires_grad_(true);
        PairBlocks pairs;
        pairs.heads = {0, at.role == Role::Key ? at.heads * at.group : at.heads};
        pairs.layout = at.layout;
        pairs.offset = at.offset;
        pairs.width = at.width;
        pairs.blocks = at.blocks;
        pairs.block = block;
        const at::Tensor found = apply_moves(x, {pairs}, at.role, at.group, Precision::Exact);
        ASSERT_EQ(found.size(3), at.head_dim - at.width + planes * columns);
        std::vector<at::Tensor> heads;
        for (std::int64_t h = 0; h < at.heads; ++h) {
          const at::Tensor head = x.select(1, h).to(wide);
          const std::int64_t row = at.rows == 1 ? 0 : h / (at.role == Role::Query ? at.group : 1);
          std::vector<at::Tensor> all = {head.narrow(2, 0, at.offset)};
          for (std::int64_t p = 0; p < planes; ++p) {
            const auto [a, b] = channels(at, p);
            const at::Tensor pair = at::stack({head.select(2, a), head.select(2, b)}, 2).unsqueeze(2);
            all.push_back(at::matmul(pair, block.select(1, row).select(2, p)).squeeze(2));
          }
          all.push_back(head.narrow(2, at.offset + at.width, at.head_dim - at.offset - at.width));
          heads.push_back(at::cat(all, 2));
        }
        const at::Tensor wanted = at::stack(heads, 1).to(dtype);
        EXPECT_LE(tensor_error(found, wanted), bound);
        const at::Tensor upstream = at::randn_like(found);
        const auto gradients = torch::autograd::grad({found}, {x, block}, {upstream});
        const auto plain = torch::autograd::grad({wanted}, {x, block}, {upstream});
        for (const std::size_t n : {0, 1}) EXPECT_LE(tensor_error(gradients[n], plain[n]), bound) << n;
      }
  }
}

TEST(Moves, ABlockOfCosinesAndSinesIsAPlane) {
  at::manual_seed(5);
  const Placing at;
  const Leaves query = draw(at, at::kDouble), key = draw(at, at::kDouble);
  const auto as_block = [](const Leaves& of) {
    const at::Tensor upper = at::stack({of.cosine, of.sine}, -1), lower = at::stack({-of.sine, of.cosine}, -1);
    PairBlocks pairs;
    pairs.heads = {0, 4};
    pairs.width = 8;
    pairs.block = at::stack({upper, lower}, -2);
    return apply_moves(of.x, {pairs}, Role::Query, 1, Precision::Exact);
  };
  // Channels lie in another order; the product of two that moved does not mind.
  EXPECT_LE(tensor_error((as_block(query) * as_block(key)).sum(-1), (turned(query, at) * turned(key, at)).sum(-1)),
            1e-14);
}

/// softmax(q k) v with q and k turned by a state, plainly; `state` (B, Hs, T, 2F), a head's own after repeating.
at::Tensor attention_plainly(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& state,
                             Placing at) {
  const std::int64_t heads = q.size(1), planes = state.size(3) / 2, tokens = q.size(2);
  const auto each = [&](const at::Tensor& x) { return x.repeat_interleave(heads / x.size(1), 1); };
  const at::Tensor z = each(state), cosine = z.narrow(3, 0, planes), sine = z.narrow(3, planes, planes);
  at.heads = at.last = at.rows = heads;
  const at::Tensor moved_q = turned_plainly(q, cosine, sine, at), moved_k = turned_plainly(each(k), cosine, sine, at);
  const at::ScalarType wide = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor logits = at::matmul(moved_q.to(wide), moved_k.to(wide).transpose(2, 3)) / std::sqrt(q.size(3));
  const at::Tensor hidden = at::ones({tokens, tokens}, at::kBool).triu(1);
  logits = logits.masked_fill(hidden, -std::numeric_limits<double>::infinity());
  return at::matmul(at::softmax(logits, -1), each(v).to(wide)).to(q.scalar_type());
}

TEST(Moves, AStateHasItsGradientThroughAttention) {
  at::manual_seed(6);
  struct Form {
    std::string expression;
    Placing at;
  };
  std::vector<Form> forms(4);
  forms[0].expression = "rope";
  forms[1].expression = "rope(layout=interleaved)", forms[1].at.layout = Layout::Interleaved;
  forms[2].expression = "rope(axes=2)", forms[2].at.blocks = 2;
  forms[3].expression = "rope(dim=4, part=suffix)", forms[3].at.offset = 4, forms[3].at.width = 4;
  for (const Form& form : forms)
    for (const std::string gqa : {"expand", "shared"})
      for (const std::int64_t kv_heads : {4, 2, 1})
        // bf16: moved queries and keys are rounded, libtorch's weights too, and gradients of sums of such.
        for (const auto& [dtype, bound] : {std::pair{at::kDouble, 1e-12}, {at::kFloat, 1e-5}, {at::kBFloat16, 4e-2}})
          for (const Path path : {Path::Auto, Path::Reference}) {
            SCOPED_TRACE(str(form.expression, ", ", gqa, ", key heads ", kv_heads, ", ", dtype));
            const auto tape =
                make_encoding("tape(" + form.expression + ", mlp=false, attention=false, gqa=" + gqa + ")",
                              {.heads = 4, .kv_heads = kv_heads, .head_dim = 8, .layers = 3});
            const std::int64_t carriers = gqa == "expand" ? 4 : kv_heads, tokens = 6;
            const auto normal = [&](std::vector<std::int64_t> shape, at::ScalarType type) {
              return at::randn(shape, doubles()).to(type).requires_grad_(true);
            };
            const at::ScalarType wide = dtype == at::kDouble ? at::kDouble : at::kFloat;
            const std::vector<at::Tensor> leaves = {
                normal({2, 4, tokens, 8}, dtype), normal({2, kv_heads, tokens, 8}, dtype),
                normal({2, kv_heads, tokens, 8}, dtype), normal({2, carriers, tokens, form.at.width}, wide)};
            AttendOptions options;
            options.positions = at::zeros({2, tokens, form.at.blocks}, doubles());  // a given state reads none
            options.state = leaves[3];
            options.layer = 1;
            options.layers = 3;
            options.path = path;
            const at::Tensor found = attend(leaves[0], leaves[1], leaves[2], *tape, options);
            const at::Tensor wanted = attention_plainly(leaves[0], leaves[1], leaves[2], leaves[3], form.at);
            EXPECT_LE(tensor_error(found, wanted), bound);
            const at::Tensor upstream = at::randn_like(found);
            const auto gradients = torch::autograd::grad({found}, leaves, {upstream});
            const auto plain = torch::autograd::grad({wanted}, leaves, {upstream});
            for (std::size_t n = 0; n < leaves.size(); ++n) EXPECT_LE(tensor_error(gradients[n], plain[n]), bound) << n;
          }
}

}  // namespace
}  // namespace torsor::attention_test

// An encoding and attention from the installed package: eight query heads, two key heads, two packed documents.
#include <torsor/torsor.h>

#include <exception>
#include <iostream>

int main() {
  try {
    const auto encoding = torsor::make_encoding("yarn(rope, factor=4) + alibi",
                                                {.heads = 8, .kv_heads = 2, .head_dim = 64, .train_length = 4096});
    const at::Tensor q = at::randn({1, 8, 6, 64}), k = at::randn({1, 2, 6, 64}), v = at::randn({1, 2, 6, 64});

    // Positions and documents are data: the second document starts again at 0.
    const at::Tensor positions = at::tensor({0, 1, 2, 0, 1, 2}, at::kDouble).view({1, 6, 1});
    const at::Tensor documents = at::tensor({0, 0, 0, 1, 1, 1}, at::kLong).view({1, 6});
    const at::Tensor out = torsor::attend(q, k, v, *encoding, {.positions = positions, .documents = documents});

    // The same tokens one at a time through a cache.
    torsor::KvCache cache(*encoding, {.capacity = 16});
    double worst = 0;
    for (int t = 0; t < 6; ++t) {
      const auto token = [t](const at::Tensor& x) { return x.narrow(2, t, 1); };
      const at::Tensor step =
          cache
              .attend(token(q), token(k), token(v),
                      {.positions = positions.narrow(1, t, 1), .documents = documents.narrow(1, t, 1)})
              .out;
      worst = std::max(worst, (step - token(out)).abs().max().item<double>());
    }
    std::cout << "output " << out.sizes() << ", step by step differs by at most " << worst << "\n";
    return worst < 1e-5 ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}

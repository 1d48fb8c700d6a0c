#include "torsor/base/hash.h"

#include <gtest/gtest.h>

namespace torsor {
namespace {

// The examples of FIPS 180-4 and of the NIST test vectors.
TEST(Sha256, KnownDigests) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_hex(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, EveryCutGivesTheSameDigest) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += static_cast<char>(i * 7);
  for (std::size_t size : {55, 56, 63, 64, 65, 119, 120, 128, 200}) {
    const std::string part = text.substr(0, size);
    const std::string whole = sha256_hex(part);
    for (std::size_t cut = 0; cut <= size; ++cut) {
      ASSERT_EQ(Sha256().update(part.substr(0, cut)).update(part.substr(cut)).hex(), whole) << size << ' ' << cut;
    }
  }
}

TEST(Sha256, HexDoesNotEndTheSum) {
  Sha256 sum;
  sum.update("a");
  EXPECT_EQ(sum.hex(), "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb");
  EXPECT_EQ(sum.hex(), sum.hex());
  sum.update("bc");
  EXPECT_EQ(sum.hex(), sha256_hex("abc"));
}

}  // namespace
}  // namespace torsor

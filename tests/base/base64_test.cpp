#include "torsor/base/base64.h"

#include <gtest/gtest.h>

namespace torsor {
namespace {

TEST(Base64, ReadsWhatTheStandardGives) {
  // RFC 4648, section 10.
  EXPECT_EQ(base64_bytes(""), "");
  EXPECT_EQ(base64_bytes("Zg=="), "f");
  EXPECT_EQ(base64_bytes("Zm8="), "fo");
  EXPECT_EQ(base64_bytes("Zm9v"), "foo");
  EXPECT_EQ(base64_bytes("Zm9vYg=="), "foob");
  EXPECT_EQ(base64_bytes("Zm9vYmE="), "fooba");
  EXPECT_EQ(base64_bytes("Zm9vYmFy"), "foobar");
  EXPECT_EQ(base64_bytes("+/8A"), std::string("\xFB\xFF\0", 3));
}

TEST(Base64, RefusesWhatNobodyWrites) {
  for (const char* text : {"Z", "Zg", "Zg=", "Zm9vY", "Z===", "====", "=", "Zh==", "Zm9=", "Zg==Zg==", "Zm9v\n", " Zm9",
                           "Zm-_", "Zm9\xFF", "Zg=a"})
    EXPECT_EQ(base64_bytes(text), std::nullopt) << text;
}

}  // namespace
}  // namespace torsor

// The smallest program on the installed library.
#include <torsor/base/error.h>
#include <torsor/base/hash.h>

#include <iostream>

int main() {
  try {
    std::cout << torsor::str("sha256 of nothing: ", torsor::sha256_hex("")) << "\n";
  } catch (const torsor::Error& error) {
    std::cerr << "example: " << error.what() << "\n";
    return 1;
  }
  return 0;
}

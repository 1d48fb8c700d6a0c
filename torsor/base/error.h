// Errors that the library throws, and the small helper that builds their messages.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace torsor {

/// The work could not be done: bad data, a file that cannot be read or written, tensors that do not fit.
/// The message is one line that says what was expected, what came, and where. The command line exits with 1.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The request itself has no meaning: an unknown option, name or key, a value outside its range.
/// The command line exits with 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

/// The user asked to stop and everything worth keeping has been saved. The command line exits with 130.
class Interrupted : public Error {
 public:
  using Error::Error;
};

namespace detail {
struct Concatenate {
  template <class... Arguments>
  std::string operator()(const Arguments&... arguments) const {
    std::ostringstream stream;
    (stream << ... << arguments);
    return stream.str();
  }
};
}  // namespace detail

/// str(a, b, ...) concatenates its arguments with operator<<; for error messages. It is an object and not a function so
/// that libtorch's own c10::str is not found beside it when an argument is one of libtorch's types.
inline constexpr detail::Concatenate str{};

}  // namespace torsor

#include "torsor/report/style.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <set>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "torsor/base/error.h"
#include "torsor/report/markup.h"

namespace torsor::report {
namespace {

using Vector = std::array<double, 3>;
using Matrix = std::array<Vector, 3>;

Vector multiply(const Matrix& m, const Vector& v) {
  Vector out{};
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j < 3; ++j) out[i] += m[i][j] * v[j];
  }
  return out;
}

Vector linear(const std::string& colour) {
  Vector out{};
  for (std::size_t i = 0; i < 3; ++i) {
    const double v = std::stoi(colour.substr(1 + 2 * i, 2), nullptr, 16) / 255.0;
    out[i] = v <= 0.04045 ? v / 12.92 : std::pow((v + 0.055) / 1.055, 2.4);
  }
  return out;
}

/// CIELAB (D65) of linear sRGB.
Vector lab(Vector rgb) {
  for (double& v : rgb) v = std::min(1.0, std::max(0.0, v));
  const Vector xyz = multiply({{{0.4124, 0.3576, 0.1805}, {0.2126, 0.7152, 0.0722}, {0.0193, 0.1192, 0.9505}}}, rgb);
  const auto f = [](double t) { return t > 0.008856 ? std::cbrt(t) : 7.787 * t + 16.0 / 116; };
  const double x = f(xyz[0] / 0.9505), y = f(xyz[1]), z = f(xyz[2] / 1.089);
  return {116 * y - 16, 500 * (x - y), 200 * (y - z)};
}

// Full protanopia, deuteranopia and tritanopia in linear sRGB: Machado, Oliveira and Fernandes (2009), table of
// severity 1.
const std::array<Matrix, 4> kSights = {
    {{{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}},
     {{{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}}},
     {{{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}}},
     {{{1.255528, -0.076749, -0.178779}, {-0.078411, 0.930809, 0.147602}, {0.004733, 0.691367, 0.303900}}}}};

void expect_distinct(const std::array<const char*, kColours>& colours, const char* paper) {
  for (std::size_t i = 0; i < kColours; ++i) {
    EXPECT_GE(contrast(colours[i], paper), 3.0) << colours[i];
    EXPECT_GE(contrast(legible(colours[i], paper), paper), 4.5) << colours[i];
    for (std::size_t j = 0; j < i; ++j) {
      for (std::size_t sight = 0; sight < kSights.size(); ++sight) {
        const Vector a = lab(multiply(kSights[sight], linear(colours[i])));
        const Vector b = lab(multiply(kSights[sight], linear(colours[j])));
        const double distance = std::hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]);
        EXPECT_GE(distance, 19) << colours[i] << " and " << colours[j] << ", sight " << sight;
      }
    }
  }
}

TEST(ReportStyle, ColoursStayApartForEveryKindOfSight) {
  expect_distinct(kLightColours, kLightPaper);
  expect_distinct(kDarkColours, kDarkPaper);
}

TEST(ReportStyle, ContrastIsThatOfTheGuideline) {
  EXPECT_NEAR(contrast("#000000", "#ffffff"), 21, 1e-9);
  EXPECT_NEAR(contrast("#767676", "#ffffff"), 4.54, 0.005);  // the known lightest grey that passes 4.5
  EXPECT_NEAR(contrast("#ffffff", "#767676"), 4.54, 0.005);
  EXPECT_EQ(legible("#000000", "#ffffff"), "#000000");
  EXPECT_THROW(contrast("red", "#ffffff"), Error);
  EXPECT_THROW(contrast("#12345g", "#ffffff"), Error);
}

TEST(ReportStyle, NoneIsNeutralAndTwentyNineEncodingsDiffer) {
  std::vector<std::string> names = {"rope", "none"};
  for (int i = 0; i < 27; ++i) names.push_back("e" + std::to_string(i));
  const std::vector<SeriesStyle> styles = series_styles(names);
  ASSERT_EQ(styles.size(), 29u);
  EXPECT_EQ(styles[0].colour, 0u);
  EXPECT_EQ(styles[1].colour, kColours - 1);
  EXPECT_EQ(styles[2].colour, 1u);
  EXPECT_EQ(styles[2].dash, 0u);
  EXPECT_EQ(styles[8].colour, 0u);  // the colours begin again: dashed
  EXPECT_EQ(styles[8].dash, 1u);
  EXPECT_NE(styles[8].mark, styles[0].mark);
  std::set<std::tuple<std::size_t, std::size_t, std::size_t>> seen;
  for (const SeriesStyle& style : styles) {
    EXPECT_TRUE(seen.insert({style.colour, style.mark, style.dash}).second);
    EXPECT_LT(style.colour, kColours);
    EXPECT_LT(style.mark, kMarks);
    EXPECT_LT(style.dash, kDashes);
  }
  EXPECT_EQ(styles[8].classes(), "c0 d1");
}

TEST(ReportStyle, MarksDiffer) {
  std::set<std::string> paths;
  for (std::size_t mark = 0; mark < kMarks; ++mark) paths.insert(mark_path(mark, 10, 10, 4));
  EXPECT_EQ(paths.size(), kMarks);
  EXPECT_EQ(mark_path(3, 10, 10, 5), "M10 3L17 10L10 17L3 10Z");
}

TEST(ReportMarkup, EscapesAndCloses) {
  EXPECT_EQ(escape_markup("<a href=\"x\">'&'</a>"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;&lt;/a&gt;");
  EXPECT_EQ(escape_markup("a\x01\xff"), "a\ufffd\ufffd");
  Markup markup;
  markup.open("p", {{"title", "\"<"}}).text("1 < 2").leaf("br").close();
  EXPECT_EQ(markup.finish(), "<p title=\"&quot;&lt;\">1 &lt; 2<br/></p>");
  EXPECT_THROW(markup.close(), Error);
  markup.open("b");
  EXPECT_THROW(markup.finish(), Error);
  EXPECT_EQ(coordinate(12.04), "12");
  EXPECT_EQ(coordinate(-0.04), "0");
  EXPECT_EQ(coordinate(3.26), "3.3");
}

}  // namespace
}  // namespace torsor::report

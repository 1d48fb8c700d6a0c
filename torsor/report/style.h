// The look of an encoding, the same in every picture: a colour, a mark and, past the eighth, a dash pattern.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

namespace torsor::report {

/// Colours of the series on light and on dark paper; the last one is the neutral colour of the control `none`. Chosen
/// by a search for the largest smallest distance in CIELAB under normal sight and the three dichromacies (simulated
/// after Machado, Oliveira and Fernandes, 2009), with a contrast of 3:1 against the paper; a test holds them to that.
inline constexpr std::size_t kColours = 8;
inline constexpr std::array<const char*, kColours> kLightColours = {"#052cc4", "#cc6e06", "#278d5a", "#63208e",
                                                                    "#0690f9", "#5c4810", "#f939b3", "#5a6068"};
inline constexpr std::array<const char*, kColours> kDarkColours = {"#347cc2", "#c06d0f", "#0df983", "#ad43fa",
                                                                   "#54c5f5", "#e3bf1d", "#eb1b64", "#a3abb5"};
inline constexpr const char* kLightPaper = "#ffffff";
inline constexpr const char* kDarkPaper = "#15181c";

inline constexpr std::size_t kMarks = 8;
inline constexpr std::size_t kDashes = 4;

struct SeriesStyle {
  std::size_t colour = 0;  ///< below kColours
  std::size_t mark = 0;    ///< below kMarks
  std::size_t dash = 0;    ///< below kDashes; 0 is a full line

  std::string classes() const;  ///< the CSS classes: "c0 d0"
};

/// One style an encoding, in their order: `none` is neutral, the others take the colours in turn and change the dash
/// pattern each time they begin again. No two are the same up to 29 encodings.
std::vector<SeriesStyle> series_styles(const std::vector<std::string>& encodings);

/// The SVG path of a mark of about `radius` around (x, y). All are filled shapes that differ without colour.
std::string mark_path(std::size_t mark, double x, double y, double radius);

/// Relative contrast of two colours "#rrggbb" (WCAG 2.1): 1..21. Throws Error for another notation.
double contrast(const std::string& a, const std::string& b);

/// `colour` mixed with black or white until it is readable as text on `paper` (4.5:1).
std::string legible(const std::string& colour, const std::string& paper);

}  // namespace torsor::report

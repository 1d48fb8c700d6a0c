// The style sheet and the script of the report. Both stand in the page itself: nothing is fetched.
//
// Classes of the charts: c0..c7 colour of a series, d0..d3 dash; line, band, mark, leader, spread, touch; name, figure,
// tick, value, axis-title (with end or mid for the anchor); grid, axis, reference, reference-text, beyond; heat with
// n4..n1, z, p1..p4; chart with wide, narrow, half or panel.
#pragma once

#include <string>

namespace torsor::report {

/// Colours for light and dark (prefers-color-scheme) screens, always light on paper; one column on phones.
std::string report_css();

/// Values beside the pointer, the other lines faded while one is pointed at; all without a library. Without script the
/// page is complete: values then show as the browser's own tips.
std::string report_script();

}  // namespace torsor::report

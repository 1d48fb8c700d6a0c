#include "torsor/report/html_style.h"

#include <array>

#include "torsor/base/error.h"
#include "torsor/report/heat_map.h"
#include "torsor/report/style.h"

namespace torsor::report {
namespace {

std::string colour_variables(const std::array<const char*, kColours>& colours, const char* paper) {
  std::string css;
  for (std::size_t i = 0; i < colours.size(); ++i) {
    css += str("--c", i, ':', colours[i], ";--t", i, ':', legible(colours[i], paper), ';');
  }
  return css;
}

/// The scale of the heat maps, and the colour of text on each of its steps: black or white, whichever reads better.
std::string heat_variables(const std::array<std::string, kHeatSteps>& steps) {
  std::string css;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const bool black = contrast("#000000", steps[i]) >= contrast("#ffffff", steps[i]);
    css += str("--q", i, ':', steps[i], ";--o", i, ':', black ? "#000000" : "#ffffff", ';');
  }
  return css;
}

std::string light() {
  return str("--paper:", kLightPaper,
             ";--ink:#1b1f24;--soft:#57606a;--rule:#d8dde3;--fill:#f4f6f8;--beyond:#f5f6f8;"
             "--low:#2c5fa8;--zero:#eef0f2;--high:#b65a12;--outline:#e06c00;",
             colour_variables(kLightColours, kLightPaper), heat_variables(light_heat()));
}

std::string dark() {
  return str("--paper:", kDarkPaper,
             ";--ink:#e8ebee;--soft:#a2acb6;--rule:#353b43;--fill:#1e2227;--beyond:#1b1f24;"
             "--low:#6ea4e8;--zero:#272c32;--high:#e8974f;--outline:#e06c00;",
             colour_variables(kDarkColours, kDarkPaper), heat_variables(dark_heat()));
}

constexpr const char* kRules = R"css(
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;text-size-adjust:100%}
body{margin:0;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;
font-variant-numeric:tabular-nums}
main{max-width:68rem;margin:0 auto;padding:1.5rem 1.25rem 3rem}
p,li{overflow-wrap:anywhere}
.facts{margin:0 0 .6rem;color:var(--soft);font-size:.9rem}
h1{font-size:clamp(1.3rem,1rem + 1.7vw,1.85rem);line-height:1.28;font-weight:650;letter-spacing:-.01em;
margin:0 0 .7rem;overflow-wrap:anywhere;text-wrap:balance}
h2{font-size:1.15rem;line-height:1.3;margin:2.6rem 0 .3rem}
h3{font-size:1rem;margin:0;overflow-wrap:anywhere}
.verdict{margin:0 0 1.2rem;padding:0;list-style:none}
.verdict li{margin:.2rem 0;padding-left:.9rem;position:relative}
.verdict li::before{content:"";position:absolute;left:0;top:.62em;width:.35rem;height:.35rem;border-radius:50%;
background:var(--soft)}
.note{color:var(--soft);font-size:.9rem;margin:.2rem 0 .6rem;max-width:48rem}
figure{margin:.4rem 0 0}
svg.chart{display:block;width:100%;height:auto;overflow:visible}
svg.narrow{display:none}
.pair{display:grid;grid-template-columns:1fr 1fr;gap:1.5rem}
.panels{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,15.5rem),1fr));gap:1.3rem 1.6rem;
margin-top:.8rem}
.panel-kind{color:var(--soft);font-size:.85rem;margin:.05rem 0 .1rem}
svg text{font-family:inherit;font-size:12.5px;fill:var(--ink)}
svg .tick,svg .axis-title,svg .reference-text{fill:var(--soft)}
svg .mid{text-anchor:middle}svg .end{text-anchor:end}
svg .grid{stroke:var(--rule);stroke-width:1}
svg .axis{stroke:var(--soft);stroke-width:1}
svg .beyond{fill:var(--beyond)}
svg .reference{stroke:var(--soft);stroke-width:1.2;stroke-dasharray:4 3}
svg .line{fill:none;stroke:var(--c);stroke-width:2.1;stroke-linejoin:round;stroke-linecap:round}
svg .line.head{stroke-width:1.3;stroke-opacity:.8}
svg .band{fill:var(--c);fill-opacity:.16;stroke:none}
svg .mark{fill:var(--c);stroke:var(--paper);stroke-width:1}
svg .leader{stroke:var(--c);stroke-width:1;stroke-opacity:.55}
svg .spread{stroke:var(--c);stroke-width:2;stroke-opacity:.6}
svg .heat rect{shape-rendering:crispEdges}
svg .grid-cells rect{stroke:var(--paper);stroke-width:1}
svg .grid-cells .gap{fill:none;stroke:var(--rule)}
svg .cell{font-size:9.5px;text-anchor:middle;pointer-events:none}
svg .outline{fill:none;stroke:var(--outline);stroke-width:2.4;pointer-events:none}
svg .outline.halo{stroke:var(--paper);stroke-width:5.4}
svg.heat-key{max-width:22rem;margin:.2rem 0 .4rem}
svg .touch{fill:transparent;stroke:none}
svg .name{fill:var(--t);font-weight:600;paint-order:stroke;stroke:var(--paper);stroke-width:3px;stroke-linejoin:round}
svg .name .figure{font-weight:400;fill:var(--soft)}
svg .value{fill:var(--t);paint-order:stroke;stroke:var(--paper);stroke-width:3px}
.d1 .line,.d1.icon .line{stroke-dasharray:7 4}.d2 .line,.d2.icon .line{stroke-dasharray:1.5 4.5}
.d3 .line,.d3.icon .line{stroke-dasharray:9 4 1.5 4}
.series{transition:opacity .12s}
.dim .series:not(.on){opacity:.18}
svg.icon{width:26px;height:12px;margin-right:.4rem;vertical-align:-1px;flex:none}
.scroll{overflow-x:auto;max-width:100%;border:1px solid var(--rule);border-radius:6px;margin:.5rem 0}
.scroll:focus-visible{outline:2px solid var(--soft);outline-offset:2px}
.tall{max-height:22rem;overflow-y:auto}
table{border-collapse:collapse;width:100%;font-size:.86rem;line-height:1.35}
caption{text-align:left;padding:.5rem .7rem;color:var(--soft);font-size:.88rem}
th,td{padding:.38rem .5rem;text-align:right;white-space:nowrap;border-top:1px solid var(--rule);
vertical-align:baseline}
thead th{font-weight:500;color:var(--soft);border-top:0;background:var(--fill)}
thead tr+tr th{padding-top:0}
th[scope=row],th.corner{text-align:left;position:sticky;left:0;z-index:1}
th[scope=row]{background:var(--paper);font-weight:600}
th.encoding{white-space:normal;overflow-wrap:anywhere;min-width:9.5rem;max-width:20rem}
th.group{text-align:center;border-left:1px solid var(--rule)}
td.first,th.first{border-left:1px solid var(--rule)}
td small{color:var(--soft);font-size:.85em;font-weight:400}
td.best{font-weight:750}
td.none{color:var(--soft);font-style:italic}
table.plain th,table.plain td{text-align:left;white-space:normal;overflow-wrap:anywhere;vertical-align:top}
table.plain th[scope=row]{font-weight:500;color:var(--soft);width:30%;min-width:7rem}
details{margin:.3rem 0 0}
summary{cursor:pointer;color:var(--soft);font-size:.9rem;width:fit-content;padding:.15rem 0}
summary:focus-visible{outline:2px solid var(--soft);outline-offset:2px}
pre{background:var(--fill);border:1px solid var(--rule);border-radius:6px;padding:.7rem .9rem;overflow-x:auto;
font-size:.9rem;margin:.6rem 0}
.findings{list-style:none;margin:.4rem 0;padding:0}
.findings li{border-top:1px solid var(--rule);padding:.6rem 0}
.finding{margin:0}.finding small{color:var(--soft);white-space:nowrap}
.why{margin:.2rem 0;color:var(--soft);font-size:.92rem;max-width:52rem}
.badge{display:inline-block;font-size:.75rem;line-height:1.5;padding:0 .5rem;border-radius:.7rem;
border:1px solid var(--soft);color:var(--soft);min-width:4.6rem;text-align:center}
.badge.degrades{border-color:var(--high);color:var(--high)}
.badge.breaks{border-color:var(--high);background:var(--high);color:var(--paper);font-weight:600}
.reasons{font-size:.9rem;color:var(--soft);padding-left:1.1rem;margin:.4rem 0}
footer{margin-top:3rem;color:var(--soft);font-size:.85rem;border-top:1px solid var(--rule);padding-top:.8rem}
#tip{position:fixed;z-index:9;pointer-events:none;background:var(--ink);color:var(--paper);font-size:.85rem;
line-height:1.3;padding:.3rem .55rem;border-radius:5px;max-width:min(20rem,80vw);overflow-wrap:anywhere;left:0;top:0}
#tip[hidden]{display:none}
@media (max-width:640px){
main{padding:1rem .95rem 2rem}
svg.wide{display:none}svg.narrow{display:block;max-width:30rem;margin:0 auto}
.pair svg.half{display:none}
.pair{grid-template-columns:1fr}
th,td{padding:.38rem .55rem}
th.encoding{min-width:6.8rem;max-width:9.5rem}
.encoding svg.icon{display:block;margin-bottom:.1rem}
}
@media print{
body{font-size:11pt}
main{max-width:none;padding:0}
details,#tip{display:none}
h2,.note{break-after:avoid;break-inside:avoid}h2{margin-top:1.6rem}.reasons~.note{break-after:auto}
figure,.panel,tr,.scroll{break-inside:avoid}
.panels{grid-template-columns:repeat(3,1fr)}.panel .note{break-after:auto}
.scroll{overflow:visible;border:0}
table{font-size:8.5pt}th,td{padding:.25rem .4rem}
th.encoding{min-width:7rem}td small{display:block}
svg .band,.heat rect,.grid-cells rect,.heat-key rect{print-color-adjust:exact;-webkit-print-color-adjust:exact}
svg.chart.panel{max-width:15rem}
}
@media (prefers-reduced-motion:reduce){.series{transition:none}}
)css";

}  // namespace

std::string report_css() {
  std::string css = str(":root{color-scheme:light dark;", light(),
                        "}\n@media screen and (prefers-color-scheme:dark){:root{", dark(), "}}\n");
  for (std::size_t i = 0; i < kColours; ++i) css += str(".c", i, "{--c:var(--c", i, ");--t:var(--t", i, ")}");
  // Heat: from the paper's middle tone to blue (negative) and to orange (positive), a colour pair that all kinds of
  // colour-blind tell apart; the strength tells the size.
  for (int i = 1; i <= 4; ++i) {
    css += str(".n", i, "{fill:var(--low);fill-opacity:", 0.25 * i, "}.p", i,
               "{fill:var(--high);fill-opacity:", 0.25 * i, '}');
  }
  css += ".z{fill:var(--zero)}";
  for (std::size_t i = 0; i < kHeatSteps; ++i)
    css += str(".q", i, "{fill:var(--q", i, ")}svg .on", i, "{fill:var(--o", i, ")}");
  return css + kRules;
}

std::string report_script() {
  return R"js((function(){
var tip=document.createElement("div");tip.id="tip";tip.hidden=true;document.body.appendChild(tip);
function at(e){var w=tip.offsetWidth,h=tip.offsetHeight,x=e.clientX+14,y=e.clientY-h-12;
if(x+w>innerWidth-6)x=Math.max(6,e.clientX-w-14);if(y<6)y=e.clientY+16;
tip.style.transform="translate("+x+"px,"+y+"px)";}
function off(){tip.hidden=true;document.querySelectorAll("svg.dim").forEach(function(s){s.classList.remove("dim");
s.querySelectorAll(".on").forEach(function(g){g.classList.remove("on");});});}
document.querySelectorAll("[data-tip] > title").forEach(function(t){t.remove();});
function over(e){var t=e.target;if(!t.closest)return;var p=t.closest("[data-tip]"),g=t.closest("[data-series]");off();
if(p){tip.textContent=p.getAttribute("data-tip");tip.hidden=false;at(e);}
if(g){var s=g.ownerSVGElement,n=g.getAttribute("data-series");s.classList.add("dim");
s.querySelectorAll("[data-series]").forEach(function(o){if(o.getAttribute("data-series")===n)o.classList.add("on");});}}
document.addEventListener("pointerover",over);document.addEventListener("pointerdown",over);
document.addEventListener("pointermove",function(e){if(!tip.hidden)at(e);});
document.addEventListener("scroll",off,{passive:true});
document.addEventListener("keydown",function(e){if(e.key==="Escape")off();});
})();)js";
}

}  // namespace torsor::report

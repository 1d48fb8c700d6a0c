#include <algorithm>

#include "torsor/base/error.h"
#include "torsor/report/diagnosis.h"
#include "torsor/report/diagnosis_pictures.h"
#include "torsor/report/diagnosis_tables.h"
#include "torsor/report/page.h"

namespace torsor::report {
namespace {

constexpr std::size_t kMostRotations = 4;

class DiagnosisPage : private PageWriter {
 public:
  explicit DiagnosisPage(const Json& diagnosis) : diagnosis_(diagnosis), facts_(diagnosis.at("facts")) {}

  std::string write() {
    begin("Torsor: diagnosis of " + text_of("encoding"));
    verdict();
    const bool measured = diagnosis_.at("measured").is_object();
    if (measured) losses();
    findings();
    if (measured) layers();
    rotations();
    biases();
    tables();
    settings();
    return end();
  }

 private:
  std::string text_of(const char* key) const { return diagnosis_.at(key).get<std::string>(); }

  void verdict() {
    const Json& model = diagnosis_.at("model");
    std::string facts =
        str("Torsor diagnosed ", diagnosis_.at("checkpoint").is_string() ? text_of("checkpoint") : "an expression",
            " \u00b7 ", text_of("encoding"), " \u00b7 trained at ", diagnosis_.at("train_length").get<std::int64_t>(),
            " tokens \u00b7 ", model.at("heads").get<std::int64_t>(), " heads of ",
            model.at("head_dim").get<std::int64_t>());
    html_.element("p", {{"class", "facts"}}, facts).raw("\n");
    const Json& sentences = diagnosis_.at("verdict");
    html_.element("h1", {}, keep_together(sentences.at(0).get<std::string>())).raw("\n");
    html_.open("ul", {{"class", "verdict"}});
    for (std::size_t i = 1; i < sentences.size(); ++i)
      html_.element("li", {}, keep_together(sentences.at(i).get<std::string>()));
    html_.close().raw("\n");
  }

  void losses() {
    const Json& measured = diagnosis_.at("measured");
    const bool beyond = measured.at("length").get<std::int64_t>() > diagnosis_.at("train_length").get<std::int64_t>();
    section("Loss by position",
            str("Measured on ", measured.at("text").get<std::string>(),
                beyond ? ". The second line scores the same targets in windows of the training length, each behind at "
                         "least half of it as context: where the first line rises above it, the length harms."
                       : ". No target lies past the training length."));
    line_figure(loss_picture(diagnosis_));
    if (beyond) line_figure(difference_picture(diagnosis_));
    end_section();
  }

  void findings() {
    section("Findings", "Expected: from expression and weights alone. Measured: on text.");
    const Json& all = diagnosis_.at("findings");
    if (all.empty()) html_.element("p", {}, "Nothing was found.");
    html_.open("ul", {{"class", "findings"}}).raw("\n");
    for (const Json& finding : all) {
      const auto severity = finding.at("severity").get<std::string>();
      html_.open("li").open("p", {{"class", "finding"}});
      html_.element("span", {{"class", "badge " + severity}}, severity).text(" ");
      html_.element("strong", {}, capital(finding.at("what").get<std::string>()));
      html_.text(" ").element("small", {}, finding_scope(finding)).close();
      html_.element("p", {{"class", "why"}}, capital(finding.at("why").get<std::string>()) + ".");
      for (const Json& one : finding.at("do")) {
        const auto advice = one.get<std::string>();
        if (advice.rfind("torsor ", 0) == 0)
          html_.open("pre").element("code", {}, advice).close();
        else
          html_.element("p", {{"class", "why"}}, capital(advice));
      }
      html_.close().raw("\n");
    }
    html_.close().raw("\n");
    end_section();
  }

  void layers() {
    section("Attention by position",
            "Means over queries and heads. Entropy grows with the logarithm of the keys where attention spreads "
            "evenly; the "
            "dashed line is the training length.");
    for (const char* key : {"entropy", "relative_entropy", "first_token", "distance"})
      line_figure(layer_picture(diagnosis_, key));
    html_.open("details").element("summary", {}, "Heads");
    rows_table(head_rows(diagnosis_), "Every head: means inside the training length and beyond it", true);
    html_.close().raw("\n");
    end_section();
    section("Activations by position",
            "The residual stream that enters each layer, and the largest logits of attention.");
    line_figure(layer_picture(diagnosis_, "rms"));
    line_figure(layer_picture(diagnosis_, "largest_logit"));
    html_.open("details").element("summary", {}, "Largest channels");
    rows_table(channel_rows(diagnosis_), "The channel of the residual stream with the largest mean magnitude", true);
    html_.close().raw("\n");
    end_section();
  }

  void rotations() {
    const Json& all = facts_.at("rotations");
    if (all.empty()) return;
    section(
        "Turns against the training length",
        "A plane whose wavelength lies above the training length never made a full turn in training: in longer texts "
        "its angles are new.");
    std::size_t drawn = 0;
    for (const Json& rotation : all) {
      if (drawn++ == kMostRotations) {
        html_.element("p", {{"class", "note"}}, str("The first ", kMostRotations, " of ", all.size(), " are drawn."));
        break;
      }
      line_figure(wavelength_picture(rotation, diagnosis_));
      if (rotation.at("scaling").is_object()) line_figure(scaling_picture(rotation, diagnosis_));
    }
    rows_table(dtype_rows(diagnosis_), "Angles in small numbers: the first position that is wrong", false);
    end_section();
  }

  void biases() {
    std::vector<PanelPicture> panels = bias_panels(diagnosis_);
    if (panels.empty()) return;
    section(
        "Bias by distance",
        "Lines above, the same as a strip of colour below: blue lowers, orange raises. The axis ends at -10, where a "
        "key keeps 1/22026 of its weight. The dashed line is the training length.");
    html_.open("div", {{"class", "panels"}}).raw("\n");
    for (PanelPicture& panel : panels) {
      html_.open("figure", {{"class", "panel"}}).element("h3", {}, panel.encoding);
      html_.element("p", {{"class", "panel-kind"}}, panel.kind);
      panel.chart->id = next_id();
      html_.raw(panel_chart(*panel.chart));
      if (!panel.note.empty()) html_.element("p", {{"class", "note"}}, panel.note);
      folded(panel.rows, panel.chart->title);
      html_.close().raw("\n");
    }
    html_.close().raw("\n");
    end_section();
  }

  void tables() {
    section("Lengths and memory");
    const auto table = [&](const Rows& rows, const char* caption) {
      if (rows.size() > 1) rows_table(rows, caption, false);
    };
    table(memory_rows(diagnosis_), "Memory by length: what a bias of length x length would take, and what is held");
    table(row_rows(diagnosis_), "Rows of tables that the distances of a length read");
    table(temperature_rows(diagnosis_), "Factor on the logits of the last query");
    table(claim_rows(diagnosis_), "Lengths that the expression takes as the one of training");
    end_section();
  }

  void settings() {
    section("Settings and how to repeat");
    if (diagnosis_.contains("repeat")) html_.open("pre").element("code", {}, text_of("repeat")).close().raw("\n");
    Json settings;
    for (const char* key : {"checkpoint", "encoding", "train_length", "lengths", "model", "bounds"})
      settings[key] = diagnosis_.at(key);
    plain_table(settings, "What was asked");
    end_section();
  }

  const Json& diagnosis_;
  const Json& facts_;
};

}  // namespace

std::string diagnosis_page(const Json& diagnosis) {
  check_diagnosis(diagnosis);
  try {
    return DiagnosisPage(diagnosis).write();
  } catch (const Json::exception& error) {
    throw Error(str("diagnosis: not the document that docs/diagnose.md describes: ", error.what()));
  }
}

}  // namespace torsor::report

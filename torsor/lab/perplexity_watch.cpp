#include "torsor/lab/perplexity_watch.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iomanip>
#include <sstream>
#include <utility>

#include "torsor/base/file.h"

namespace torsor {
namespace {

std::string percent(double share) {
  std::ostringstream text;
  text << std::showpos << std::fixed << std::setprecision(2) << 100 * share << " %";
  return text.str();
}

std::string short_number(double value) {
  std::ostringstream text;
  text << std::setprecision(4) << value;
  return text.str();
}

const char* verdict_word(syntax::PerplexityGate::Verdict verdict) {
  switch (verdict) {
    case syntax::PerplexityGate::Verdict::kFine:
      return "fine";
    case syntax::PerplexityGate::Verdict::kWarn:
      return "warn";
    case syntax::PerplexityGate::Verdict::kStop:
      return "stop";
  }
  return "fine";
}

/// "|beta| by layer 0.1 0.2" of the couplings' own sizes; where there is no beta, that of W_E. Empty without either.
std::string coupling_sizes(const Decoder& model) {
  const auto collect = [&](const char* tensor) {
    std::string text;
    for (const ModelParameter& parameter : model.parameters()) {
      const std::string& name = parameter.name;
      const std::string ending = str(".", tensor);
      if (name.find("sipe") == std::string::npos || name.size() <= ending.size() || !name.ends_with(ending)) continue;
      const at::Tensor size = parameter.tensor.detach().to(at::kDouble).pow(2).mean().sqrt();
      text += " " + short_number(size.item<double>());
    }
    return text;
  };
  if (const std::string betas = collect("beta"); !betas.empty()) return "|beta| by layer" + betas;
  if (const std::string sizes = collect("w_e"); !sizes.empty()) return "root mean square of w_e by layer" + sizes;
  return "";
}

/// "; mean |F - 1| by layer 0.1 - 0.2", with a dash for a layer that has no factor; empty where none has one.
std::string factor_sizes(const std::vector<std::optional<double>>& effects) {
  std::string text;
  bool any = false;
  for (const std::optional<double>& effect : effects) {
    any = any || effect.has_value();
    text += effect ? " " + short_number(*effect) : " -";
  }
  return any ? "; mean |F - 1| by layer" + text : "";
}

}  // namespace

std::string without_syntax(const std::string& expression) {
  return print(parse(print(unwrapped(parse(expression), "sipe"))));
}

std::vector<std::string> bases_first(std::vector<std::string> encodings) {
  const auto expression_of = [](const std::string& label) { return label.substr(0, label.find(" @ ")); };
  std::vector<std::string> bases;
  for (const std::string& label : encodings) {
    const std::string base = without_syntax(expression_of(label));
    if (base != label) bases.push_back(base);
  }
  std::stable_partition(encodings.begin(), encodings.end(), [&](const std::string& label) {
    return std::find(bases.begin(), bases.end(), label) != bases.end();
  });
  return encodings;
}

WatchedFigure watched_figure(const Json& entry, std::int64_t step, const std::vector<std::string>& domains) {
  WatchedFigure figure;
  figure.step = step;
  const auto take = [&](const char* key) {
    if (entry.contains(key) && entry.at(key).is_number()) figure.perplexity = entry.at(key).get<double>();
    return figure.perplexity.has_value();
  };
  if (entry.value("status", "") != "ok") {
    figure.kind = str("the evaluation was ", entry.value("status", ""), ": ", entry.value("reason", ""));
    return figure;
  }
  if (entry.value("leaks", false)) {
    figure.kind = take("joint_ppl") ? "joint_ppl" : "leaks: cond_ppl is no evidence, and there is no joint_ppl";
    return figure;
  }
  if (!take("perplexity")) {
    figure.kind = "the perplexity is not finite";
    return figure;
  }
  figure.kind = "perplexity";
  const Json& windows = entry.at("windows");
  if (windows.size() != domains.size()) return figure;
  std::map<std::string, std::pair<double, std::size_t>> sums;
  for (std::size_t w = 0; w < domains.size(); ++w) {
    if (domains[w].empty() || !windows[w].is_number()) continue;
    sums[domains[w]].first += windows[w].get<double>();
    ++sums[domains[w]].second;
  }
  for (const auto& [domain, sum] : sums) figure.domains[domain] = std::exp(sum.first / static_cast<double>(sum.second));
  return figure;
}

WatchRecord::WatchRecord(const std::string& folder) : path_(folder + "/watch.json") {
  if (!std::filesystem::exists(path_)) return;
  const Json json = read_json(path_);
  JsonObject object(json, path_, JsonObject::Blame::data);
  for (const Json& item : object.get<std::vector<Json>>("figures")) {
    JsonObject one(item, path_ + ": figures", JsonObject::Blame::data);
    WatchedFigure figure;
    figure.step = one.get<std::int64_t>("step");
    figure.kind = one.get<std::string>("kind");
    figure.perplexity = one.get<std::optional<double>>("perplexity", std::nullopt);
    figure.domains = one.get<std::map<std::string, double>>("domains");
    one.finish();
    figures_.push_back(std::move(figure));
  }
  object.finish();
}

const WatchedFigure* WatchRecord::at(std::int64_t step) const {
  for (const WatchedFigure& one : figures_)
    if (one.step == step) return &one;
  return nullptr;
}

void WatchRecord::add(WatchedFigure figure) {
  std::erase_if(figures_, [&](const WatchedFigure& one) { return one.step >= figure.step; });
  figures_.push_back(std::move(figure));
  Json json = {{"figures", Json::array()}};
  for (const WatchedFigure& one : figures_)
    json["figures"].push_back({{"step", one.step},
                               {"kind", one.kind},
                               {"perplexity", one.perplexity ? Json(*one.perplexity) : Json(nullptr)},
                               {"domains", one.domains}});
  write_file_atomic(path_, json_text(json, 1) + "\n");
}

PerplexityWatch::PerplexityWatch(std::string base, WatchRecord base_record, Options options)
    : base_(std::move(base)), base_record_(std::move(base_record)), options_(std::move(options)) {
  syntax::PerplexityGate::Options gate;
  gate.warn_only = options_.warn_only;
  gate_ = syntax::PerplexityGate(gate);
}

std::optional<syntax::PerplexityGate::Verdict> PerplexityWatch::judge(const WatchedFigure& figure, bool replayed) {
  if (!not_watched_.empty()) return std::nullopt;
  const auto give_up = [&](const std::string& why) {
    not_watched_ = why;
    if (!replayed && options_.on_message) options_.on_message(str("not watched beside '", base_, "': ", why));
    return std::nullopt;
  };
  if (!figure.perplexity) return give_up(figure.kind);
  const WatchedFigure* base = base_record_.at(figure.step);
  if (base == nullptr || !base->perplexity) return give_up(str("the base has no perplexity at step ", figure.step));
  const auto verdict = gate_.observe(*figure.perplexity, *base->perplexity, figure.step > options_.warmup_steps);
  Json domains = Json::object();
  for (const auto& [domain, perplexity] : figure.domains)
    if (const auto found = base->domains.find(domain); found != base->domains.end())
      domains[domain] = perplexity / found->second - 1;
  evaluations_.push_back({{"step", figure.step},
                          {"kind", figure.kind},
                          {"perplexity", *figure.perplexity},
                          {"base", *base->perplexity},
                          {"rise", gate_.rise()},
                          {"verdict", verdict_word(verdict)},
                          {"domains", std::move(domains)}});
  warned_ = warned_ || verdict != syntax::PerplexityGate::Verdict::kFine;
  return verdict;
}

void PerplexityWatch::replay(const WatchedFigure& figure) { judge(figure, true); }

void PerplexityWatch::observe(const WatchedFigure& figure, const Decoder& model) {
  const auto verdict = judge(figure, false);
  if (!verdict || *verdict == syntax::PerplexityGate::Verdict::kFine) return;
  const std::string text = reasons(figure, *base_record_.at(figure.step), model);
  if (*verdict == syntax::PerplexityGate::Verdict::kStop) {
    stopped_ = true;
    throw GateStop(text);
  }
  if (options_.on_message) options_.on_message("warning: " + text);
}

std::string PerplexityWatch::reasons(const WatchedFigure& figure, const WatchedFigure& base,
                                     const Decoder& model) const {
  std::string text = str(figure.kind, " rose ", percent(gate_.rise()), " beside '", base_, "' at step ", figure.step,
                         " (", short_number(*figure.perplexity), " against ", short_number(*base.perplexity), ")");
  const Json account = options_.account ? options_.account(model.encoding()) : Json(nullptr);
  std::vector<std::pair<double, std::string>> worst;
  for (const auto& [domain, rise] : evaluations_.back().at("domains").items())
    worst.emplace_back(rise.get<double>(), domain);
  std::sort(worst.rbegin(), worst.rend());
  for (std::size_t n = 0; n < std::min<std::size_t>(worst.size(), 3); ++n) {
    text += str(n == 0 ? "; worst domains: " : ", ", worst[n].second, " ", percent(worst[n].first));
    if (!account.is_object()) continue;
    for (const Json& one : account.at("domains"))
      if (one.at("domain") == worst[n].second && one.at("uas").is_number())
        text +=
            str(" (UAS ", short_number(one.at("uas").get<double>()), ", ", one.at("verdict").get<std::string>(), ")");
  }
  if (const std::string sizes = coupling_sizes(model); !sizes.empty()) text += "; " + sizes;
  if (options_.factors) text += factor_sizes(options_.factors(model));
  if (account.is_object()) {
    if (account.at("coverage").is_number())
      text += str("; coverage ", short_number(100 * account.at("coverage").get<double>()), " %");
    if (account.at("gate") == "not asked") text += "; gate of the parser: not asked";
  }
  return text +
         "; remedies in this order: a smaller beta, coupling=bilinear or factor=exp, closing domains that fail, "
         "inject=input, no syntax";
}

Json PerplexityWatch::to_json() const {
  Json json;
  json["base"] = base_;
  json["status"] = !not_watched_.empty() ? "not watched: " + not_watched_
                   : stopped_            ? "stopped"
                   : warned_             ? "warned"
                                         : "watched";
  json["rise"] = evaluations_.empty() ? Json(nullptr) : evaluations_.back().at("rise");
  json["evaluations"] = evaluations_;
  return json;
}

}  // namespace torsor

// The conformance files that the project ships: which cases there are, and how their inputs are drawn.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/oracle/case.h"

namespace oracle {

/// What one case is to be; the numbers are drawn from its id alone, so adding a case changes no other.
struct Spec {
  std::string id, encoding, note;
  int rows = 1, heads = 2, key_heads = 2, queries = 5, keys = 5, head_dim = 8, value_dim = 0, channels = 6;
  bool causal = true;
  std::optional<int> window;
  std::optional<double> scale;
  std::vector<double> start = {0.0};  ///< position of the first token, one for all rows or one a row
  double step = 1.0;                  ///< between neighbours
  int axes = 1;
  std::vector<double> positions_k, positions_q;  ///< instead of start and step, flat
  std::vector<int> documents_k, documents_q;     ///< flat; positions begin anew in each document
  std::vector<int> lengths;                      ///< key_lengths
  bool has_x = false;
  int state_heads = 0, state_width = 0;  ///< of a given state; 0 = none is given
  bool has_mlp = false;                  ///< whether mlp_out is given
  int layer = 0, layers = 1;
  int frequency_rows = 1;                                 ///< rows of rope.log_freq
  double loudness = 1.0;                                  ///< multiplies q
  std::optional<double> leftover;                         ///< what keys and values past the length hold
  bool far = false;                                       ///< phases of large positions: a wider float64 tolerance
  std::map<std::string, std::vector<double>> parameters;  ///< instead of drawn ones

  Spec(std::string i, std::string e, std::string n = "")
      : id(std::move(i)), encoding(std::move(e)), note(std::move(n)) {}
  Spec& batch(int b) { return rows = b, *this; }
  Spec& of_heads(int h, int k) { return heads = h, key_heads = k, *this; }
  Spec& tokens(int tq, int tk) { return queries = tq, keys = tk, *this; }
  Spec& tokens(int t) { return tokens(t, t); }
  Spec& width(int d, int dv = 0) { return head_dim = d, value_dim = dv, *this; }
  Spec& full() { return causal = false, *this; }
  Spec& windowed(int w) { return window = w, *this; }
  Spec& scaled(double s) { return scale = s, *this; }
  Spec& from(std::vector<double> first, double by = 1.0) { return start = std::move(first), step = by, *this; }
  Spec& at(std::vector<double> k, std::vector<double> q) {
    return positions_k = std::move(k), positions_q = std::move(q), *this;
  }
  Spec& on_axes(int n) { return axes = n, *this; }
  Spec& documents(std::vector<int> k) { return documents_k = std::move(k), *this; }
  Spec& documents(std::vector<int> k, std::vector<int> q) {
    return documents_k = std::move(k), documents_q = std::move(q), *this;
  }
  Spec& key_lengths(std::vector<int> l) { return lengths = std::move(l), *this; }
  Spec& with_x(int c) { return channels = c, has_x = true, *this; }
  Spec& with_state(int h, int w) { return state_heads = h, state_width = w, *this; }
  Spec& without_state() { return state_heads = 0, *this; }
  Spec& with_mlp(int c) { return channels = c, has_mlp = true, *this; }
  Spec& hidden(int c) { return channels = c, *this; }  ///< the width C, without x
  Spec& left_over(double held) { return leftover = held, *this; }
  Spec& in_layer(int l, int n) { return layer = l, layers = n, *this; }
  Spec& frequencies_in_rows(int n) { return frequency_rows = n, *this; }
  Spec& loud(double by) { return loudness = by, *this; }
  Spec& far_away() { return far = true, *this; }
  Spec& set(const std::string& parameter, std::vector<double> values) {
    return parameters[parameter] = std::move(values), *this;
  }
};

/// Draws the inputs and the parameters.
Case draw(const Spec& spec);

/// One file of the folder: its name without `.json`, and what is in it.
struct Group {
  std::string name;
  std::string about;
  std::vector<Spec> specs;
};

std::vector<Group> groups();

// The lists, one function a file of the folder.
std::vector<Spec> mask_specs();
std::vector<Spec> rotary_specs();
std::vector<Spec> scaling_specs();
std::vector<Spec> bias_specs();
std::vector<Spec> content_specs();
std::vector<Spec> gate_specs();
std::vector<Spec> turn_specs();
std::vector<Spec> state_specs();
std::vector<Spec> syntax_specs();
std::vector<Spec> absolute_specs();
std::vector<Spec> composition_specs();
std::vector<Spec> position_specs();
std::vector<Spec> shape_specs();

/// What every encoding that runs over tokens must get right: shapes, masks, padding, documents. Ids begin with `id`.
void add_token_layouts(std::vector<Spec>& specs, const std::string& id, const std::string& encoding);

/// Writes every group into `directory`. Returns the exit code.
int make(const std::string& directory);

}  // namespace oracle

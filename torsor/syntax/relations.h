// Numbers for the relations of Universal Dependencies, the same for every parser and checkpoint.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace torsor::syntax {

/// The universal relations of UD 2 (https://universaldependencies.org/u/dep/), without subtypes, in alphabetic order.
/// Their numbers are part of checkpoints: 1 for the first; 0 stands for none and for every other label.
inline constexpr std::array<std::string_view, 37> kRelations = {
    "acl",      "advcl",     "advmod", "amod",       "appos", "aux",      "case",      "cc",         "ccomp", "clf",
    "compound", "conj",      "cop",    "csubj",      "dep",   "det",      "discourse", "dislocated", "expl",  "fixed",
    "flat",     "goeswith",  "iobj",   "list",       "mark",  "nmod",     "nsubj",     "nummod",     "obj",   "obl",
    "orphan",   "parataxis", "punct",  "reparandum", "root",  "vocative", "xcomp"};

/// The number of a DEPREL, its subtype left off.
std::uint16_t relation_id(std::string_view deprel);
/// The relation of a number; "_" for 0. Throws Error beyond the last.
std::string_view relation_name(std::uint16_t id);

}  // namespace torsor::syntax

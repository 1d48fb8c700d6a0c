#include "torsor/syntax/hexatags.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "torsor/base/error.h"
#include "torsor/base/utf8.h"
#include "torsor/data/tree.h"
#include "torsor/syntax/words.h"

namespace torsor::syntax {
namespace {

void require_tree(std::span<const int> heads) {
  if (const auto defect = find_defect(heads))
    throw Error(str("tree: ", defect->reason(heads), defect->word > 0 ? str(" for word ", defect->word) : ""));
}

/// Dependents of every head in rising order: those of word h (0 = the root's) are items[begin[h] .. begin[h + 1]).
struct Dependents {
  std::vector<int> begin, items;

  explicit Dependents(std::span<const int> heads) : begin(heads.size() + 2, 0), items(heads.size()) {
    for (const int head : heads) ++begin[static_cast<std::size_t>(head) + 1];
    std::partial_sum(begin.begin(), begin.end(), begin.begin());
    std::vector<int> next(begin.begin(), begin.end() - 1);
    for (int word = 1; word <= static_cast<int>(heads.size()); ++word) {
      int& place = next[static_cast<std::size_t>(heads[index(word)])];
      items[static_cast<std::size_t>(place++)] = word;
    }
  }
  std::span<const int> of(int head) const {
    const auto h = static_cast<std::size_t>(head);
    return std::span(items).subspan(static_cast<std::size_t>(begin[h]),
                                    static_cast<std::size_t>(begin[h + 1] - begin[h]));
  }
};

/// The words from the root downwards: every word behind its head.
std::vector<int> downwards(const Dependents& dependents, std::size_t words) {
  std::vector<int> order(dependents.of(0).begin(), dependents.of(0).end());
  order.reserve(words);
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (const int dependent : dependents.of(order[i])) order.push_back(dependent);
  }
  return order;
}

/// Numbers by which "descends from" takes one comparison: word w descends from h, or is h, where first[h] <= first[w]
/// < last[h].
struct Descent {
  std::vector<int> first, last;

  explicit Descent(std::span<const int> heads) : first(heads.size() + 1), last(heads.size() + 1) {
    const Dependents dependents(heads);
    std::vector<int> size(heads.size() + 1, 1);
    const std::vector<int> order = downwards(dependents, heads.size());
    for (auto word = order.rbegin(); word != order.rend(); ++word)
      size[static_cast<std::size_t>(heads[index(*word)])] += size[static_cast<std::size_t>(*word)];
    last[0] = static_cast<int>(heads.size()) + 1;
    std::vector<int> free(heads.size() + 1, 0);  // the next number in the range of each head
    free[0] = 1;
    for (const int word : order) {
      const auto w = static_cast<std::size_t>(word), h = static_cast<std::size_t>(heads[index(word)]);
      first[w] = free[h];
      last[w] = free[h] += size[w];
      free[w] = first[w] + 1;
    }
  }
  bool below(int word, int head) const {
    const auto w = static_cast<std::size_t>(word), h = static_cast<std::size_t>(head);
    return first[h] <= first[w] && first[w] < last[h];
  }
};

bool arc_is_projective(const Descent& descent, int head, int word) {
  for (int between = std::min(head, word) + 1; between < std::max(head, word); ++between) {
    if (!descent.below(between, head)) return false;
  }
  return true;
}

bool is_left_child(NonTerminal mark) {
  return mark == NonTerminal::kLeftChildLeftHead || mark == NonTerminal::kLeftChildRightHead;
}
bool is_right_child(NonTerminal mark) {
  return mark == NonTerminal::kRightChildLeftHead || mark == NonTerminal::kRightChildRightHead;
}
bool head_is_left(NonTerminal mark) {
  return mark == NonTerminal::kLeftChildLeftHead || mark == NonTerminal::kRightChildLeftHead;
}

NonTerminal nonterminal_of(bool left_child, bool left_head) {
  if (left_child) return left_head ? NonTerminal::kLeftChildLeftHead : NonTerminal::kLeftChildRightHead;
  return left_head ? NonTerminal::kRightChildLeftHead : NonTerminal::kRightChildRightHead;
}

}  // namespace

int count_nonprojective(std::span<const int> heads) {
  require_tree(heads);
  const Descent descent(heads);
  int count = 0;
  for (int word = 1; word <= static_cast<int>(heads.size()); ++word)
    count += arc_is_projective(descent, heads[index(word)], word) ? 0 : 1;
  return count;
}

std::vector<int> projectivise(std::span<const int> heads) {
  require_tree(heads);
  std::vector<int> lifted(heads.begin(), heads.end());
  for (;;) {
    const Descent descent(lifted);
    int found = 0, shortest = std::numeric_limits<int>::max();
    for (int word = 1; word <= static_cast<int>(lifted.size()); ++word) {
      const int length = std::abs(lifted[index(word)] - word);
      // Arcs from 0 span words that all descend from it.
      if (length < shortest && !arc_is_projective(descent, lifted[index(word)], word)) {
        shortest = length;
        found = word;
      }
    }
    if (found == 0) return lifted;
    lifted[index(found)] = lifted[index(lifted[index(found)])];
  }
}

std::vector<Hexatag> hexatags_of(std::span<const int> heads) {
  if (count_nonprojective(heads) != 0) throw Error("hexatags: expected a projective tree, got one with crossing arcs");
  const int n = static_cast<int>(heads.size());
  // Nodes 0 .. n - 1 are the words, those above inner ones with two children.
  struct Node {
    int left = -1, right = -1;
    bool left_head = false;
  };
  std::vector<Node> nodes(static_cast<std::size_t>(2 * n - 1));
  std::vector<int> top(static_cast<std::size_t>(n) + 1);  // the node that spans a word's whole subtree
  int free = n;
  const Dependents dependents(heads);
  const std::vector<int> order = downwards(dependents, heads.size());
  for (auto at = order.rbegin(); at != order.rend(); ++at) {
    int node = *at - 1;
    const std::span<const int> below = dependents.of(*at);
    const auto middle = std::lower_bound(below.begin(), below.end(), *at);
    for (auto left = middle; left != below.begin();) {
      nodes[static_cast<std::size_t>(free)] = {top[static_cast<std::size_t>(*--left)], node, false};
      node = free++;
    }
    for (auto right = middle; right != below.end(); ++right) {
      nodes[static_cast<std::size_t>(free)] = {node, top[static_cast<std::size_t>(*right)], true};
      node = free++;
    }
    top[static_cast<std::size_t>(*at)] = node;
  }

  std::vector<Hexatag> tags(static_cast<std::size_t>(n));
  struct Visit {
    int node;
    bool left_child;
    bool entered;
  };
  std::vector<Visit> open = {{top[static_cast<std::size_t>(order.front())], true, false}};
  std::size_t word = 0;  // words read so far
  while (!open.empty()) {
    const Visit visit = open.back();
    open.pop_back();
    const Node& node = nodes[static_cast<std::size_t>(visit.node)];
    if (node.left < 0) {
      tags[word++].terminal = visit.left_child ? Terminal::kLeftChild : Terminal::kRightChild;
    } else if (visit.entered) {
      tags[word - 1].nonterminal = nonterminal_of(visit.left_child, node.left_head);
      open.push_back({node.right, false, false});
    } else {
      open.push_back({visit.node, visit.left_child, true});
      open.push_back({node.left, true, false});
    }
  }
  tags.back().nonterminal = NonTerminal::kEnd;
  return tags;
}

std::vector<int> heads_of(std::span<const Hexatag> tags) {
  if (tags.empty()) throw Error("hexatags: expected words, got none");
  const int n = static_cast<int>(tags.size());
  HexatagAutomaton automaton(n);
  std::vector<int> heads(tags.size(), 0);
  // Trees that wait for their right part: the nodes from the top down to the gap, each with the head of its left part.
  struct Waiting {
    int left;
    bool left_head;
  };
  std::vector<std::vector<Waiting>> stack;
  for (int word = 1; word <= n; ++word) {
    const Hexatag& tag = tags[index(word)];
    if (!automaton.allows(tag.terminal))
      throw Error(str("hexatags: expected another mark for word ", word, " of ", n, ", got ", hexatag_text(tag)));
    automaton.take(tag.terminal);
    int head = word;
    if (tag.terminal == Terminal::kRightChild) {
      for (auto node = stack.back().rbegin(); node != stack.back().rend(); ++node) {
        if (node->left_head) {
          heads[index(head)] = node->left;
          head = node->left;
        } else {
          heads[index(node->left)] = head;
        }
      }
      stack.pop_back();
    }
    if (!automaton.allows(tag.nonterminal))
      throw Error(str("hexatags: expected another mark behind word ", word, " of ", n, ", got ", hexatag_text(tag)));
    automaton.take(tag.nonterminal);
    if (tag.nonterminal == NonTerminal::kEnd) break;  // the last word, and one tree: heads[head] stays 0
    if (is_left_child(tag.nonterminal)) stack.emplace_back();
    stack.back().push_back({head, head_is_left(tag.nonterminal)});
  }
  return heads;
}

bool HexatagAutomaton::allows(Terminal terminal) const {
  if (in_word_ || left_ == 0) return false;
  // Each word closes one open tree at most, so there may never be more of them than words.
  if (terminal == Terminal::kLeftChild) return open_ + 1 <= left_ && (left_ > 1 || open_ == 0);
  return terminal == Terminal::kRightChild && open_ > 0;
}

bool HexatagAutomaton::allows(NonTerminal nonterminal) const {
  if (!in_word_) return false;
  if (nonterminal == NonTerminal::kEnd) return left_ == 0 && open_ == 0;
  if (is_left_child(nonterminal)) return open_ + 1 <= left_;
  return is_right_child(nonterminal) && open_ > 0 && open_ <= left_;
}

void HexatagAutomaton::take(Terminal terminal) {
  if (!allows(terminal)) throw Error("hexatags: expected a mark of a word that keeps a tree possible");
  if (terminal == Terminal::kRightChild) --open_;
  --left_;
  in_word_ = true;
}

void HexatagAutomaton::take(NonTerminal nonterminal) {
  if (!allows(nonterminal)) throw Error("hexatags: expected a mark of a gap that keeps a tree possible");
  if (is_left_child(nonterminal)) ++open_;
  in_word_ = false;
}

std::vector<Hexatag> best_hexatags(std::span<const float> terminals, std::span<const float> nonterminals) {
  const std::size_t n = terminals.size() / 2;
  if (n == 0 || terminals.size() != n * 2 || nonterminals.size() != n * 5) {
    throw Error(str("hexatags: expected scores (n, 2) and (n, 5) of n words, got ", terminals.size(), " and ",
                    nonterminals.size(), " numbers"));
  }
  // Ahead of word i, with n - i words left, at most min(i, n - i) trees are open (see HexatagAutomaton).
  const double never = -std::numeric_limits<double>::infinity();
  const std::size_t depths = n / 2 + 2;
  std::vector<double> best(depths, never), next(depths);
  std::vector<Hexatag> choice(n * depths);         // of the word, by the depth behind it
  std::vector<std::int32_t> from(n * depths, -1);  // the depth ahead of the word
  best[0] = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t left = n - i - 1;
    std::fill(next.begin(), next.end(), never);
    for (std::size_t depth = 0; depth < depths; ++depth) {
      if (best[depth] == never) continue;
      for (const Terminal terminal : {Terminal::kLeftChild, Terminal::kRightChild}) {
        if (terminal == Terminal::kRightChild && depth == 0) continue;
        const std::size_t open = terminal == Terminal::kRightChild ? depth - 1 : depth;
        const double score = best[depth] + terminals[i * 2 + static_cast<std::size_t>(terminal) - 1];
        for (int id = 1; id <= 5; ++id) {
          const auto mark = static_cast<NonTerminal>(id);
          if ((mark == NonTerminal::kEnd) != (left == 0)) continue;
          if (mark == NonTerminal::kEnd ? open != 0 : is_right_child(mark) && open == 0) continue;
          const std::size_t behind = open + (is_left_child(mark) ? 1 : 0);
          if (behind > left || behind >= depths) continue;
          const double sum = score + nonterminals[i * 5 + static_cast<std::size_t>(id) - 1];
          if (sum <= next[behind] && next[behind] != never) continue;
          next[behind] = sum;
          choice[i * depths + behind] = {terminal, mark};
          from[i * depths + behind] = static_cast<std::int32_t>(depth);
        }
      }
    }
    best.swap(next);
  }
  std::vector<Hexatag> tags(n);
  std::size_t depth = 0;
  for (std::size_t i = n; i-- > 0;) {
    if (from[i * depths + depth] < 0) throw Error("hexatags: expected finite scores");
    tags[i] = choice[i * depths + depth];
    depth = static_cast<std::size_t>(from[i * depths + depth]);
  }
  return tags;
}

std::string hexatag_text(const Hexatag& tag) {
  std::string text = tag.terminal == Terminal::kLeftChild ? "L:" : tag.terminal == Terminal::kRightChild ? "R:" : "_:";
  if (tag.nonterminal == NonTerminal::kEnd) return text + "E";
  if (tag.nonterminal == NonTerminal::kNone) return text + "_";
  text += is_left_child(tag.nonterminal) ? 'L' : 'R';
  text += head_is_left(tag.nonterminal) ? 'L' : 'R';
  return text;
}

Hexatag parse_hexatag(std::string_view text) {
  for (const Terminal terminal : {Terminal::kLeftChild, Terminal::kRightChild}) {
    for (int id = 1; id <= 5; ++id) {
      const Hexatag tag{terminal, static_cast<NonTerminal>(id)};
      if (hexatag_text(tag) == text) return tag;
    }
  }
  throw Error(str("hexatags: expected L or R, a colon, and LL, LR, RL, RR or E, got ", quote(text, 40)));
}

}  // namespace torsor::syntax

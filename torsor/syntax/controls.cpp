#include "torsor/syntax/controls.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "torsor/base/error.h"
#include "torsor/base/random.h"
#include "torsor/base/utf8.h"
#include "torsor/syntax/hexatags.h"
#include "torsor/syntax/relations.h"

namespace torsor::syntax {
namespace {

std::size_t place(int number) { return static_cast<std::size_t>(number) - 1; }

std::size_t below(Random& random, std::size_t bound) { return static_cast<std::size_t>(random.below(bound)); }

/// A random order of 0 .. n - 1.
std::vector<std::size_t> random_order(std::size_t n, Random& random) {
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  random.shuffle(order);
  return order;
}

void shuffle_whole(ParseSentence& sentence, Random& random) {
  const std::vector<ParseWord> old = sentence.words;
  const std::vector<std::size_t> tags = random_order(old.size(), random), nodes = random_order(old.size(), random);
  for (std::size_t i = 0; i < old.size(); ++i) {
    sentence.words[i].tag = old[tags[i]].tag;
    ParseWord& word = sentence.words[nodes[i]];
    word.relation = old[i].relation;
    word.head = old[i].head > 0 ? static_cast<std::int32_t>(nodes[place(old[i].head)]) + 1 : old[i].head;
  }
}

void random_whole(ParseSentence& sentence, Random& random) {
  const std::vector<std::size_t> order = random_order(sentence.words.size(), random);
  std::vector<int> heads(order.size(), 0);
  for (std::size_t i = 1; i < order.size(); ++i) heads[order[i]] = static_cast<int>(order[below(random, i)]) + 1;
  heads = projectivise(heads);
  std::vector<std::uint16_t> relations;
  for (const ParseWord& word : sentence.words) {
    if (word.head != 0) relations.push_back(word.relation);
  }
  random.shuffle(relations);
  auto next = relations.begin();
  for (std::size_t i = 0; i < order.size(); ++i) {
    sentence.words[i].head = heads[i];
    sentence.words[i].relation = heads[i] == 0 ? relation_id("root") : *next++;
  }
}

/// The newest words of the document, to draw tags and relations from.
class Recent {
 public:
  void add(const ParseWord& word) {
    tags_[count_ % kMost] = word.tag;
    if (word.relation != 0) relations_[relation_count_++ % kMost] = word.relation;
    ++count_;
  }
  CausalTag tag(Random& random) const { return tags_[below(random, std::min(count_, kMost))]; }
  std::uint16_t relation(Random& random) const {
    return relation_count_ == 0 ? std::uint16_t{0} : relations_[below(random, std::min(relation_count_, kMost))];
  }

 private:
  static constexpr std::size_t kMost = 64;
  std::array<CausalTag, kMost> tags_ = {};
  std::array<std::uint16_t, kMost> relations_ = {};
  std::size_t count_ = 0, relation_count_ = 0;
};

/// The word's arcs and relation at the time it was read: later words may still have given it a head.
ParseWord as_read(const ParseSentence& sentence, int number) {
  ParseWord word = sentence.words[place(number)];
  if (word.head > number) {
    word.head = kNoHead;
    word.relation = 0;
  }
  return word;
}

/// As many links as the word made, with words drawn from those that it could have linked.
void shuffle_links(ParseSentence& sentence, int number, int taken, bool has_left_head, const Recent& recent,
                   std::vector<int>& waiting, Random& random) {
  for (; taken > 0 && !waiting.empty(); --taken) {
    const std::size_t drawn = below(random, waiting.size());
    ParseWord& dependent = sentence.words[place(waiting[drawn])];
    dependent.head = number;
    dependent.relation = recent.relation(random);
    waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(drawn));
  }
  ParseWord& word = sentence.words[place(number)];
  word.head = kNoHead;
  word.relation = 0;
  if (has_left_head && number > 1) {
    for (int tries = 0; tries < 16 && word.head == kNoHead; ++tries) {
      const int drawn = static_cast<int>(below(random, place(number))) + 1;
      int top = drawn;
      while (top != number && sentence.words[place(top)].head > 0) top = sentence.words[place(top)].head;
      if (top != number) word.head = drawn;  // else a cycle would close
    }
    if (word.head != kNoHead) word.relation = recent.relation(random);
  }
  if (word.head == kNoHead) waiting.push_back(number);
}

/// A word of a random derivation: of English words about 36 in 100 have their head on the left, 6 are roots, and what
/// is on the stack is popped about as often (EWT, static oracle).
void random_transitions(ParseSentence& sentence, ArcEager& state, const Recent& recent, Random& random) {
  state.read();
  while (state.top() != 0 && random.uniform() < 0.4) {
    const bool reduce = state.allows(Action::kReduce);
    state.take(reduce ? Action::kReduce : Action::kLeftArc, recent.relation(random));
  }
  const bool right = random.uniform() < 0.42 && state.allows(Action::kRightArc);
  state.take(right ? Action::kRightArc : Action::kShift, recent.relation(random));
  for (const MadeArc& arc : made_arcs(state)) {
    sentence.words[place(arc.dependent)].head = arc.head;
    sentence.words[place(arc.dependent)].relation = arc.head == 0 ? relation_id("root") : arc.relation;
  }
}

void control_incremental(Parse& parse, Control control, Random& random) {
  Recent recent;
  for (ParseSentence& sentence : parse.sentences) {
    const ParseSentence old = sentence;
    std::vector<int> waiting;
    ArcEager state;
    for (ParseWord& word : sentence.words) {  // nothing of the parse is left that was not made anew
      word.head = kNoHead;
      word.relation = 0;
    }
    std::vector<int> taken(old.words.size(), 0);
    for (const ParseWord& word : old.words) {
      if (word.head > word.number) ++taken[place(word.head)];
    }
    for (int number = 1; number <= static_cast<int>(old.words.size()); ++number) {
      const ParseWord read = as_read(old, number);
      recent.add(read);
      ParseWord& word = sentence.words[place(number)];
      const bool tagged = read.tag.tau != 0 || read.tag.nu != 0;
      if (!tagged) continue;  // beyond max_words
      if (control == Control::kShuffled) {
        word.tag = recent.tag(random);
        if (read.head == 0) {
          word.head = 0;
          word.relation = read.relation;
        } else {
          shuffle_links(sentence, number, taken[place(number)], read.head > 0, recent, waiting, random);
        }
      } else if (control == Control::kRandomTree) {
        random_transitions(sentence, state, recent, random);
        word.tag = state.tag();
      } else {
        word.head = number - 1;
        word.relation = number == 1 ? relation_id("root") : recent.relation(random);
        word.tag = {1, 1};
      }
    }
  }
}

}  // namespace

std::string_view control_name(Control control) {
  switch (control) {
    case Control::kNone:
      return "none";
    case Control::kShuffled:
      return "shuffled";
    case Control::kRandomTree:
      return "random_tree";
    case Control::kRightChain:
      return "right_chain";
  }
  return "";
}

Control control_named(std::string_view name) {
  for (const Control control : {Control::kNone, Control::kShuffled, Control::kRandomTree, Control::kRightChain}) {
    if (control_name(control) == name) return control;
  }
  throw UsageError(str("expected the control none, shuffled, random_tree or right_chain, got ", quote(name, 40)));
}

Parse controlled(const Parse& parse, Control control, std::uint64_t seed) {
  Parse result = parse;
  if (control == Control::kNone || parse.mode == ParseMode::kNone) return result;
  Random random(seed, stream_of(str("control ", control_name(control), " ", parse.doc_id)));
  if (parse.mode == ParseMode::kIncremental) {
    control_incremental(result, control, random);
    return result;
  }
  for (ParseSentence& sentence : result.sentences) {
    if (sentence.words.empty()) continue;
    if (control == Control::kShuffled) {
      shuffle_whole(sentence, random);
    } else if (control == Control::kRandomTree) {
      random_whole(sentence, random);
    } else {
      const auto root = std::find_if(sentence.words.begin(), sentence.words.end(),
                                     [](const ParseWord& word) { return word.head == 0; });
      std::swap(root->relation, sentence.words.front().relation);
      for (std::size_t i = 0; i < sentence.words.size(); ++i) sentence.words[i].head = static_cast<std::int32_t>(i);
    }
  }
  if (control != Control::kShuffled) set_mode(result, result.mode);
  return result;
}

}  // namespace torsor::syntax

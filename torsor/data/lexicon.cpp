#include "torsor/data/lexicon.h"

#include <array>
#include <sstream>

#include "torsor/base/error.h"

namespace torsor::grammar {

namespace {

bool is_vowel(char c) { return std::string_view("aeiou").find(c) != std::string_view::npos; }

bool ends_with_sibilant(std::string_view word) {
  for (const std::string_view end : {"s", "x", "z", "ch", "sh"}) {
    if (word.ends_with(end)) return true;
  }
  return false;
}

// The regular plural of a noun, which is spelt like the third person of a verb.
std::string with_s(const std::string& word) {
  if (ends_with_sibilant(word) || word.ends_with("o")) return word + "es";
  if (word.ends_with("y") && !is_vowel(word[word.size() - 2])) return word.substr(0, word.size() - 1) + "ies";
  return word + "s";
}

std::string regular_past(const std::string& word) {
  if (word.ends_with("e")) return word + "d";
  if (word.ends_with("y") && !is_vowel(word[word.size() - 2])) return word.substr(0, word.size() - 1) + "ied";
  return word + "ed";
}

std::string regular_gerund(const std::string& word) {
  if (word.ends_with("e") && !word.ends_with("ee")) return word.substr(0, word.size() - 1) + "ing";
  return word + "ing";
}

std::vector<std::string> words_of(const std::string& list) {
  std::istringstream stream(list);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// "singular" or "singular/plural".
void add_nouns(Lexicon& lexicon, unsigned classes, const std::string& list) {
  for (const std::string& entry : words_of(list)) {
    const std::size_t slash = entry.find('/');
    const std::string singular = entry.substr(0, slash);
    lexicon.nouns.push_back(
        {singular, slash == std::string::npos ? with_s(singular) : entry.substr(slash + 1), classes});
  }
}

void add_adjectives(Lexicon& lexicon, unsigned classes, const std::string& list) {
  for (const std::string& form : words_of(list)) {
    bool known = false;
    for (Adjective& adjective : lexicon.adjectives) {
      if (adjective.form != form) continue;
      adjective.classes |= classes;
      known = true;
    }
    if (!known) lexicon.adjectives.push_back({form, classes});
  }
}

// "base", "base/past", "base/past/participle"; a final "+x" doubles the letter x in regular past and gerund, and in the
// gerund alone when the past is given. A verb listed again gains the frames and objects.
void add_verbs(Lexicon& lexicon, unsigned frames, unsigned objects, const std::string& list) {
  for (std::string entry : words_of(list)) {
    std::string doubled;
    if (const std::size_t plus = entry.find('+'); plus != std::string::npos) {
      doubled = entry.substr(plus + 1);
      entry.resize(plus);
    }
    std::vector<std::string> parts;
    std::istringstream stream(entry);
    for (std::string part; std::getline(stream, part, '/');) parts.push_back(part);
    const std::string& base = parts[0];
    Verb* verb = nullptr;
    for (Verb& known : lexicon.verbs) {
      if (known.base == base) verb = &known;
    }
    if (verb == nullptr) {
      Verb added;
      added.base = base;
      added.third = with_s(base);
      added.past = parts.size() > 1 ? parts[1] : doubled.empty() ? regular_past(base) : base + doubled + "ed";
      added.participle = parts.size() > 2 ? parts[2] : added.past;
      added.gerund = doubled.empty() ? regular_gerund(base) : base + doubled + "ing";
      lexicon.verbs.push_back(added);
      verb = &lexicon.verbs.back();
    }
    verb->frames |= frames;
    verb->objects |= objects;
  }
}

void add_all_nouns(Lexicon& lexicon) {
  add_nouns(
      lexicon, kPerson | kWork,
      "baker farmer teacher doctor tailor carpenter miller fisherman/fishermen painter singer guard soldier clerk "
      "lawyer judge nurse sailor priest merchant smith weaver potter shepherd hunter gardener butcher cobbler "
      "actor poet writer banker barber pilot surgeon librarian jeweller locksmith printer brewer beekeeper "
      "engineer astronomer dentist ferryman/ferrymen postman/postmen watchmaker tanner glazier");
  add_nouns(lexicon, kPerson,
            "child/children man/men woman/women neighbour stranger guest cousin uncle aunt friend student traveller "
            "beggar prisoner king queen thief/thieves twin orphan widow visitor boy girl");
  add_nouns(
      lexicon, kAnimal,
      "dog cat horse goat cow pig hen goose/geese duck donkey mule fox wolf/wolves rabbit mouse/mice rat raven owl "
      "parrot hawk pony lamb ox/oxen badger hedgehog tortoise ferret");
  add_nouns(
      lexicon, kThing,
      "lantern lamp knife/knives hammer ladder basket barrel bucket kettle cup bottle chair table mirror clock "
      "watch coat hat scarf/scarves boot glove ring necklace coin purse box trunk key rope saddle wheel cart boat "
      "violin flute drum trumpet umbrella candle broom spade axe/axes needle carpet curtain statue telescope "
      "compass anchor whistle vase blanket pillow cradle shield sword");
  add_nouns(lexicon, kThing | kText,
            "letter book map poem diary contract ticket recipe newspaper calendar portrait manuscript receipt postcard "
            "dictionary notebook");
  add_nouns(lexicon, kFood,
            "apple pear plum fig cherry onion carrot potato turnip loaf/loaves cake pie egg biscuit pancake dumpling "
            "sausage cheese lemon melon olive mushroom walnut pudding tart herring");
  add_nouns(lexicon, kPlace | kWork,
            "garden kitchen harbour market mill church school library tavern stable orchard castle theatre museum "
            "hospital prison station bakery palace workshop cemetery lighthouse warehouse monastery laundry quarry "
            "vineyard");
  add_nouns(lexicon, kPlace,
            "cellar barn tower bridge meadow forest river island cottage courtyard chapel square cave fountain swamp");
  add_nouns(lexicon, kIdea,
            "plan idea answer rumour promise story mistake decision rule secret reason question theory warning excuse "
            "suggestion joke prophecy bargain proposal accusation");
}

void add_all_verbs(Lexicon& lexicon) {
  // Frames and objects are separate lists, so that a verb stands in each pattern it enters.
  add_verbs(
      lexicon, kPersonAlone, 0,
      "sleep/slept laugh wait work smile travel+l sing/sang/sung dance rest whisper cough shiver swim/swam/swum+m "
      "pray complain argue hesitate stumble kneel/knelt sneeze yawn wander arrive nod+d weep/wept return kneel "
      "tremble retire");
  add_verbs(lexicon, kAnimalAlone, 0,
            "run/ran/run+n jump hide/hid/hidden rest shiver limp wander snore growl tremble sleep swim escape");
  add_verbs(
      lexicon, kThingAlone, 0,
      "fall/fell/fallen break/broke/broken vanish burn crack shake/shook/shaken rattle collapse dry rust glow leak "
      "creak sink/sank/sunk slip+p gleam disappear");
  add_verbs(
      lexicon, kPersonObject, kThing,
      "carry clean paint hold/held hide lose/lost find/found steal/stole/stolen buy/bought repair drop+p "
      "bring/brought lift polish borrow wrap+p bury move wash admire examine weigh choose/chose/chosen break burn "
      "measure mend notice describe");
  add_verbs(lexicon, kPersonObject, kText, "study copy sign write/wrote/written translate recite print correct");
  add_verbs(lexicon, kPersonObject, kFood, "eat/ate/eaten cook bake taste peel slice fry boil share buy pick");
  add_verbs(lexicon, kPersonObject, kPerson,
            "help praise follow watch visit greet thank blame admire teach/taught meet/met invite avoid warn "
            "see/saw/seen hear/heard obey pity defend envy miss introduce");
  add_verbs(lexicon, kPersonObject, kAnimal, "feed/fed chase catch/caught brush wash train watch find see follow");
  add_verbs(lexicon, kPersonObject, kPlace, "visit sweep/swept leave/left reach cross clean paint avoid guard admire");
  add_verbs(lexicon, kPersonObject, kIdea,
            "accept reject discuss explain doubt forget/forgot/forgotten+t mention defend remember");
  add_verbs(lexicon, kPersonObject | kState, kPerson | kPlace | kIdea, "know/knew/known");
  add_verbs(lexicon, kPersonObject | kState, kIdea, "understand/understood believe");
  add_verbs(lexicon, kPersonObject | kState, kThing | kAnimal, "need");
  add_verbs(lexicon, kPersonObject, kPerson, "remember");
  add_verbs(lexicon, kAnimalObject, kAnimal | kPerson,
            "chase bite/bit/bitten follow watch scratch smell lick frighten push find guard");
  add_verbs(lexicon, kIdeaObject, kPerson, "surprise worry please trouble amuse comfort confuse annoy");
  add_verbs(lexicon, kGift, kThing, "give/gave/given send/sent show/showed/shown sell/sold offer lend/lent hand bring");
  add_verbs(lexicon, kClause, 0,
            "think/thought say/said claim hope fear suspect admit+t insist notice learn remember forget explain");
  add_verbs(lexicon, kClause | kState, 0, "know believe understand");
  add_verbs(lexicon, kQuestion, 0, "wonder ask remember forget learn explain");
  add_verbs(lexicon, kQuestion | kState, 0, "know");
  add_verbs(lexicon, kInfinitive, 0, "try hope refuse begin/began/begun+n decide plan+n promise learn forget");
  add_verbs(lexicon, kInfinitive | kState, 0, "want need");
  add_verbs(lexicon, kPersonObject | kOptionalObject, kThing, "paint clean polish wash carve");
  add_verbs(lexicon, kPersonObject | kOptionalObject, kText, "study write draw/drew/drawn");
  add_verbs(lexicon, kPersonObject | kOptionalObject, kFood, "cook bake eat");
  add_verbs(lexicon, kPersonObject | kOptionalObject, kAnimal, "hunt");
  add_verbs(lexicon, kPersonObject | kOptionalObject, kPlace, "sweep");
  add_verbs(lexicon, kLeadable, kPerson | kAnimal,
            "lead/led carry push drag+g rush march walk bring send chase follow");
  add_verbs(lexicon, kReflexive, kPerson, "blame praise admire help defend wash pity watch warn introduce");
  // In no pattern: these tell attributes of a story's people and nothing else.
  add_verbs(lexicon, kState, 0, "live own keep/kept like belong trust");
}

void add_all_adjectives(Lexicon& lexicon) {
  add_adjectives(lexicon, kPerson,
                 "tired happy hungry angry nervous calm proud lonely cheerful quiet famous clever stubborn careful "
                 "generous jealous polite brave shy patient restless gloomy old young poor rich");
  add_adjectives(lexicon, kAnimal, "hungry tired tame wild old young fast lazy clever thirsty lame restless nervous");
  add_adjectives(lexicon, kThing,
                 "heavy small old new dusty cheap expensive rusty clean dirty wet dry empty strange beautiful ugly "
                 "fragile large light");
  add_adjectives(lexicon, kText, "long short secret dull sad faded unfinished famous strange");
  add_adjectives(lexicon, kFood, "fresh sweet bitter sour salty ripe stale delicious cold warm spicy small large");
  add_adjectives(lexicon, kPlace, "quiet crowded empty dark narrow cold famous old distant muddy safe dangerous large");
  add_adjectives(lexicon, kIdea,
                 "simple strange dangerous clever wrong true false absurd secret popular foolish vague");
}

Lexicon build() {
  Lexicon lexicon;
  add_all_nouns(lexicon);
  add_all_verbs(lexicon);
  add_all_adjectives(lexicon);
  lexicon.colours = words_of("red green blue yellow white black grey brown purple orange silver golden scarlet violet");
  lexicon.female_names = words_of(
      "Anna Bella Clara Dora Edith Flora Greta Hilda Ida Julia Karin Laura Martha Nora Olga Paula Rosa Sarah Thea Vera "
      "Wanda Agnes Bridget Cecilia Esther Frieda Hannah Irene Judith Lydia Mabel Norma Sylvia Ursula Winifred");
  lexicon.male_names = words_of(
      "Adam Boris Carl David Edgar Felix George Henry Ivan Jacob Konrad Lewis Martin Nathan Oscar Peter Robert Simon "
      "Thomas Victor Walter Albert Bernard Conrad Ernest Frank Gilbert Harold Isaac Leonard Magnus Norbert Rupert "
      "Stephen");
  lexicon.pet_names = words_of(
      "Pip Biscuit Shadow Pepper Rusty Button Clover Dusty Fidget Ginger Hazel Juniper Misty Nutmeg Patch Quill Smoky "
      "Thistle Tuppence Whisker");
  lexicon.name_beginnings = words_of(
      "Alder Amber Ash Barn Beck Birch Black Brack Bram Brindle Brock Cold Cran Dun Elder Fern Gar Glen Grim Hale Hart "
      "Hawk Hazel Holm Kel Lang Mar Mill Nor Oak Pen Quil Raven Red Sand Stan Stor Thorn Under Wes Whit Win");
  lexicon.surname_endings = words_of("man smith well wood field sworth bury more ridge son worth gate stone wick by");
  lexicon.town_endings = words_of("ford ton ham mouth bridge port haven stead minster dale wick burn pool cross mere");
  lexicon.manner_adverbs =
      words_of("slowly quickly quietly carefully suddenly gladly secretly patiently loudly badly well eagerly calmly");
  lexicon.frequency_adverbs = words_of("often always usually sometimes still really finally");
  lexicon.degree_adverbs = words_of("very quite rather too extremely");
  lexicon.openers = words_of("Later Today Meanwhile Afterwards Fortunately Perhaps Soon Suddenly Usually Eventually");
  lexicon.modals = words_of("will can must may should");
  lexicon.subordinators = words_of("because although when after before while until unless");
  lexicon.place_prepositions = words_of("in near behind beside outside");
  return lexicon;
}

}  // namespace

const Verb& Lexicon::verb(std::string_view base) const {
  for (const Verb& verb : verbs) {
    if (verb.base == base) return verb;
  }
  throw Error(str("lexicon: expected a known verb, got ", base));
}

const Lexicon& lexicon() {
  static const Lexicon lexicon = build();
  return lexicon;
}

std::string_view indefinite_article(std::string_view word) {
  return !word.empty() && is_vowel(word.front()) ? "an" : "a";
}

std::string number_word(int number) {
  static constexpr std::array<const char*, 20> kSmall = {
      "",    "one",    "two",    "three",    "four",     "five",    "six",     "seven",     "eight",    "nine",
      "ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"};
  static constexpr std::array<const char*, 10> kTens = {"",      "",      "twenty",  "thirty", "forty",
                                                        "fifty", "sixty", "seventy", "eighty", "ninety"};
  if (number < 1 || number > 99) throw Error(str("number word: expected 1 to 99, got ", number));
  const auto n = static_cast<std::size_t>(number);
  if (n < 20) return kSmall[n];
  return n % 10 == 0 ? kTens[n / 10] : str(kTens[n / 10], "-", kSmall[n % 10]);
}

}  // namespace torsor::grammar

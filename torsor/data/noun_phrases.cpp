// Noun phrases and the relative clauses inside them.
#include "torsor/data/sentence_writer.h"

namespace torsor::grammar {

namespace {

bool person(unsigned classes) { return (classes & kPerson) != 0; }

}  // namespace

Phrase SentenceWriter::name_phrase(std::size_t entity) {
  spoken_of_.insert(static_cast<int>(entity));
  const int head = add(world_.entities[entity].name, "PROPN");
  return {head, Number::kSingular, kPerson, static_cast<int>(entity)};
}

Phrase SentenceWriter::pronoun_phrase(std::size_t entity) {
  spoken_of_.insert(static_cast<int>(entity));
  const int head = add(world_.entities[entity].female ? "she" : "he", "PRON");
  return {head, Number::kSingular, kPerson, static_cast<int>(entity)};
}

// "Anna", or what she is known for: "the baker"; sometimes with a reminder: "Anna, who lives in Brindleford,".
Phrase SentenceWriter::entity_phrase(std::size_t entity, bool subject) {
  const auto& stated = discourse_.stated[entity];
  if (stated.test(static_cast<std::size_t>(Attribute::kTrade)) && chance(0.3)) {
    spoken_of_.insert(static_cast<int>(entity));
    const int determiner = add("the", "DET");
    const int head = add(world_.entities[entity].value(Attribute::kTrade), "NOUN");
    attach(determiner, head, "det");
    mention(entity, Attribute::kTrade, head, head);
    return {head, Number::kSingular, kPerson, static_cast<int>(entity)};
  }
  const Phrase phrase = name_phrase(entity);
  if (subject && depth_ > 0 && room(16) && stated.test(static_cast<std::size_t>(Attribute::kTown)) && chance(0.06)) {
    const int open = comma();
    const int who = add("who", "PRON");
    const int verb = verb_word(lexicon().verb("live"), VerbForm::kFinite, Number::kSingular);
    const int in = add("in", "ADP");
    const int town = add(world_.entities[entity].value(Attribute::kTown), "PROPN");
    const int close = comma();
    mention(entity, Attribute::kTown, town, town);
    attach(open, verb, "punct");
    attach(who, verb, "nsubj");
    attach(in, town, "case");
    attach(town, verb, "obl");
    attach(verb, phrase.head, "acl:relcl");
    attach(close, verb, "punct");
  }
  return phrase;
}

int SentenceWriter::choose_entity() {
  if (discourse_.introduced == 0) return -1;
  if (discourse_.focus >= 0 && chance(0.5)) return discourse_.focus;
  return static_cast<int>(random_.below(discourse_.introduced));
}

// "her" when the entity is the only one of the sentence so far, else "Anna's". Sets the first word, the word that
// attaches to what is owned, and which of the two it is.
void SentenceWriter::owner(std::size_t entity, int* first, int* head, bool* pronoun) {
  *pronoun = spoken_of_.size() == 1 && *spoken_of_.begin() == static_cast<int>(entity);
  if (*pronoun) {
    *head = *first = add(world_.entities[entity].female ? "her" : "his", "PRON");
    return;
  }
  *head = *first = name_phrase(entity).head;
  attach(add("'s", "'s", "PART", false), *head, "case");
}

// "Anna's green lantern"
Phrase SentenceWriter::possession_phrase(std::size_t entity) {
  int first = 0;
  int head_of_owner = 0;
  bool pronoun = false;
  owner(entity, &first, &head_of_owner, &pronoun);
  const std::string& value = world_.entities[entity].value(Attribute::kPossession);
  const std::size_t space = value.find(' ');
  const int colour = add(value.substr(0, space), "ADJ");
  const int noun = add(value.substr(space + 1), "NOUN");
  mention(entity, Attribute::kPossession, colour, noun);
  attach(head_of_owner, noun, "nmod:poss");
  attach(colour, noun, "amod");
  return {noun, Number::kSingular, kThing};
}

// "Pip", or "Anna's goat"
Phrase SentenceWriter::pet_phrase(std::size_t entity) {
  if (chance(0.5)) {
    const int head = add(world_.entities[entity].pet_name, "PROPN");
    return {head, Number::kSingular, kAnimal};
  }
  int first = 0;
  int head_of_owner = 0;
  bool pronoun = false;
  owner(entity, &first, &head_of_owner, &pronoun);
  const int noun = add(world_.entities[entity].value(Attribute::kPet), "NOUN");
  mention(entity, Attribute::kPet, noun, noun);
  attach(head_of_owner, noun, "nmod:poss");
  return {noun, Number::kSingular, kAnimal};
}

Phrase SentenceWriter::common_noun(unsigned noun_class, const PhraseOptions& options) {
  const Noun& noun = pick_noun(noun_class);
  const double which = random_.uniform();
  Number number = chance(0.62) ? Number::kSingular : Number::kPlural;
  if (options.number) number = *options.number;
  const bool singular = number == Number::kSingular;
  const std::string* adjective = chance(0.25) ? &pick_adjective(noun_class) : nullptr;
  const std::string& form = singular ? noun.singular : noun.plural;

  // The determiner, by shares of `which`. "every" and "few" are rare; "a" needs the word after it.
  std::string determiner = "the";
  const char* upos = "DET";
  const char* relation = "det";
  if (options.licensed && which < 0.6) {
    determiner = "any";
  } else if (options.definite) {
    determiner = "the";
  } else if (singular) {
    if (which > 0.55 || options.indefinite) determiner = indefinite_article(adjective != nullptr ? *adjective : form);
    if (!options.indefinite && which > 0.88) determiner = which > 0.96 ? "every" : which > 0.92 ? "this" : "that";
  } else {
    static const std::vector<std::string> kMany = {"some", "many", "several", "these", "those"};
    static const std::vector<std::string> kCount = {"two", "three", "four", "five"};
    if (options.indefinite || which > 0.85) {
      determiner = pick(kCount);
      upos = "NUM";
      relation = "nummod";
    } else if (which > 0.55) {
      determiner = pick(kMany);
    }
  }
  const int first = add(determiner, upos);
  const int modifier = adjective != nullptr ? add(*adjective, "ADJ") : -1;
  const int head = add(form, noun.singular, "NOUN");
  attach(first, head, relation);
  if (modifier >= 0) attach(modifier, head, "amod");
  Phrase phrase{head, number, noun_class};
  if (options.modifiers) modify(phrase, options);
  return phrase;
}

// What may follow the noun: seldom more than one.
void SentenceWriter::modify(Phrase& phrase, const PhraseOptions& options) {
  const double which = random_.uniform();
  if (which < 0.09 && room(10) && phrase.classes != kPlace && phrase.classes != kIdea) {
    prepositional_phrase(pick(lexicon().place_prepositions), kPlace, phrase.head, "nmod");
  } else if (which < 0.12 && room(10) && (phrase.classes & (kThing | kText | kAnimal)) != 0) {
    prepositional_phrase("of", kPerson, phrase.head, "nmod");
  } else if (which < 0.19 && depth_ > 0 && room(12)) {
    if (person(phrase.classes) || phrase.classes == kAnimal) {
      chance(0.6) ? subject_relative(phrase) : object_relative(phrase, false);
    } else {
      object_relative(phrase, chance(0.15) && room(16));
    }
  } else if (which < 0.22 && room(10) && (phrase.classes & (kThing | kText)) != 0) {
    reduced_relative(phrase);
  } else if (which < 0.26 && options.subject && person(phrase.classes) && room(8)) {
    PhraseOptions plain;
    plain.modifiers = false;
    plain.entities = false;
    const int conjunction = add("and", "CCONJ");
    const Phrase other = common_noun(kPerson, plain);
    attach(conjunction, other.head, "cc");
    attach(other.head, phrase.head, "conj");
    phrase.number = Number::kPlural;
  }
}

Phrase SentenceWriter::noun_phrase(unsigned classes, const PhraseOptions& options) {
  const unsigned chosen = pick_class(classes);
  const bool any_number = !options.number || *options.number == Number::kSingular;
  if (options.entities && any_number && !options.licensed && !options.indefinite && discourse_.introduced > 0) {
    const double which = random_.uniform();
    const int entity = choose_entity();
    const auto e = static_cast<std::size_t>(entity);
    if (chosen == kPerson && which < 0.55 && !spoken_of_.contains(entity)) return entity_phrase(e, options.subject);
    if (chosen == kThing && which < 0.25 &&
        discourse_.stated[e].test(static_cast<std::size_t>(Attribute::kPossession))) {
      return possession_phrase(e);
    }
    if (chosen == kAnimal && which < 0.25 && discourse_.stated[e].test(static_cast<std::size_t>(Attribute::kPet))) {
      return pet_phrase(e);
    }
  }
  return common_noun(chosen, options);
}

// The subject of a main or complement clause: "she" where it is clear who that is.
Phrase SentenceWriter::subject_phrase(unsigned classes) {
  if ((classes & kPerson) != 0) {
    const bool first = words_.empty() && discourse_.last >= 0 && chance(0.45);
    const bool later = !words_.empty() && spoken_of_.size() == 1 && chance(0.35);
    if (first || later) {
      return pronoun_phrase(static_cast<std::size_t>(first ? discourse_.last : *spoken_of_.begin()));
    }
  }
  const double which = random_.uniform();
  const unsigned chosen = which < 0.6    ? kPerson
                          : which < 0.75 ? kAnimal
                          : which < 0.87 ? kThing
                          : which < 0.94 ? kIdea
                                         : kPlace;
  PhraseOptions options;
  options.subject = true;
  return noun_phrase((chosen & classes) != 0 ? chosen : classes, options);
}

void SentenceWriter::prepositional_phrase(std::string_view preposition, unsigned classes, int head,
                                          const char* relation, std::optional<Number> number) {
  const int adposition = add(preposition, "ADP");
  PhraseOptions options;
  options.modifiers = false;
  options.number = number;
  const Phrase phrase = noun_phrase(classes, options);
  attach(adposition, phrase.head, "case");
  attach(phrase.head, head, relation);
}

// "who follow the baker"
void SentenceWriter::subject_relative(const Phrase& antecedent) {
  --depth_;
  const int pronoun = add(person(antecedent.classes) ? "who" : "that", "PRON");
  PredicateOptions options;
  options.embedded = false;
  const Predicate inner = predicate(antecedent, options);
  attach(pronoun, inner.head, inner.subject);
  attach(inner.head, antecedent.head, "acl:relcl");
  ++depth_;
}

// "that the guards carry", "the guards carry", "that the baker thinks the guards carry"
void SentenceWriter::object_relative(const Phrase& antecedent, bool long_distance) {
  --depth_;
  const bool zero = !long_distance && chance(0.3);
  const int pronoun = zero ? -1 : add("that", "PRON");
  PhraseOptions subject_options;
  subject_options.subject = true;
  subject_options.modifiers = depth_ > 0;
  const Phrase subject = noun_phrase(kPerson, subject_options);
  int top = -1;
  Phrase inner_subject = subject;
  if (long_distance) {
    const Verb& thinking = pick_verb(kClause);
    top = verb_word(thinking, VerbForm::kFinite, subject.number);
    attach(subject.head, top, "nsubj");
    subject_options.modifiers = false;
    inner_subject = noun_phrase(kPerson, subject_options);
  }
  const Verb& verb = gapped_verb(antecedent.classes);
  const Auxiliaries before = auxiliaries(inner_subject.number, (verb.frames & kState) != 0, {});
  const int head = verb_word(verb, before.form, inner_subject.number);
  attach_all(before, head);
  attach(inner_subject.head, head, "nsubj");
  if (pronoun >= 0) attach(pronoun, head, "obj");
  if (long_distance) {
    attach(head, top, "ccomp");
    attach(top, antecedent.head, "acl:relcl");
  } else {
    attach(head, antecedent.head, "acl:relcl");
  }
  ++depth_;
}

// "painted by the guards"
void SentenceWriter::reduced_relative(const Phrase& antecedent) {
  const Verb& verb = gapped_verb(antecedent.classes);
  const int head = verb_word(verb, VerbForm::kParticiple, Number::kSingular);
  attach(head, antecedent.head, "acl");
  prepositional_phrase("by", kPerson, head, "obl");
}

}  // namespace torsor::grammar

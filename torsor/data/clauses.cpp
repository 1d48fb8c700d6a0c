// Verbs with their auxiliaries, and what they take.
#include "torsor/data/sentence_writer.h"

namespace torsor::grammar {

namespace {

bool has_fact(const Discourse& discourse, int entity, Attribute attribute) {
  return entity >= 0 && discourse.stated[static_cast<std::size_t>(entity)].test(static_cast<std::size_t>(attribute));
}

}  // namespace

int SentenceWriter::verb_word(const Verb& verb, VerbForm form, Number number) {
  const std::string* text = &verb.base;
  if (form == VerbForm::kParticiple) text = &verb.participle;
  if (form == VerbForm::kGerund) text = &verb.gerund;
  if (form == VerbForm::kFinite && world_.past) text = &verb.past;
  if (form == VerbForm::kFinite && !world_.past && number == Number::kSingular) text = &verb.third;
  return add(*text, verb.base, "VERB");
}

int SentenceWriter::finite_be(Number number, const char* upos) {
  const bool singular = number == Number::kSingular;
  return add(world_.past ? (singular ? "was" : "were") : (singular ? "is" : "are"), "be", upos);
}

// The auxiliaries before a full verb. "never" and "often" count among them, since they stand there.
Auxiliaries SentenceWriter::auxiliaries(Number number, bool state, const PredicateOptions& options) {
  Auxiliaries result;
  result.form = options.form;
  if (options.form != VerbForm::kFinite || options.overt) return result;
  const bool singular = number == Number::kSingular;
  const auto have = [&] {
    result.words.emplace_back(add(world_.past ? "had" : singular ? "has" : "have", "have", "AUX"), "aux");
    result.form = VerbForm::kParticiple;
    result.perfect = true;
  };
  const auto modal = [&] {
    result.words.emplace_back(add(pick(lexicon().modals), "AUX"), "aux");
    result.form = VerbForm::kBase;
  };
  const auto adverb = [&](std::string_view word, const char* upos) {
    result.words.emplace_back(add(word, upos), "advmod");
  };
  const double which = random_.uniform();
  if (options.licensed) {
    if (which < 0.5) {
      have();
      adverb("ever", "ADV");
    } else if (which < 0.7) {
      modal();
    }
  } else if (which < 0.55) {
    if (chance(0.1)) adverb(pick(lexicon().frequency_adverbs), "ADV");
  } else if (which < 0.63) {
    modal();
  } else if (which < 0.75) {
    have();
  } else if (which < 0.85) {
    if (!state) {
      result.words.emplace_back(finite_be(number), "aux");
      result.form = VerbForm::kGerund;
    }
  } else {
    const double how = random_.uniform();
    result.negative = true;
    if (how < 0.45) {
      result.words.emplace_back(add(world_.past ? "did" : singular ? "does" : "do", "do", "AUX"), "aux");
      result.form = VerbForm::kBase;
      adverb("not", "PART");
    } else if (how < 0.6) {
      modal();
      adverb("not", "PART");
    } else if (how < 0.8) {
      have();
      adverb("not", "PART");
    } else {
      adverb("never", "ADV");
    }
  }
  return result;
}

// "is", "has been", "will be", "is not": `relation` is that of the form of "be" to what follows.
Auxiliaries SentenceWriter::be(Number number, const PredicateOptions& options, const char* relation) {
  Auxiliaries result;
  const bool singular = number == Number::kSingular;
  if (options.form == VerbForm::kBase) {
    result.words.emplace_back(add("be", "AUX"), relation);
    return result;
  }
  const double which = random_.uniform();
  if (options.overt || which < 0.75) {
    result.words.emplace_back(finite_be(number), relation);
    if (!options.overt && !options.licensed && chance(0.14)) {
      result.words.emplace_back(chance(0.7) ? add("not", "PART") : add("never", "ADV"), "advmod");
      result.negative = true;
    }
    return result;
  }
  if (which < 0.85) {
    result.words.emplace_back(add(pick(lexicon().modals), "AUX"), "aux");
    result.words.emplace_back(add("be", "AUX"), relation);
    return result;
  }
  result.words.emplace_back(add(world_.past ? "had" : singular ? "has" : "have", "have", "AUX"), "aux");
  if (options.licensed) result.words.emplace_back(add("ever", "ADV"), "advmod");
  result.words.emplace_back(add("been", "be", "AUX"), relation);
  result.perfect = true;
  return result;
}

Predicate SentenceWriter::predicate(const Phrase& subject, const PredicateOptions& options) {
  // Of the past forms only those of "be" show number.
  if (options.overt && world_.past) return copular(subject, options);
  const double which = random_.uniform();
  switch (subject.classes) {
    case kPerson:
      if (which < 0.22) return alone(subject, options);
      if (which < 0.64 && which >= 0.55) return gift(subject, options);
      if (which >= 0.64 && which < 0.76 && options.embedded && room(14)) return clausal(subject, options);
      if (which >= 0.76 && which < 0.83 && options.embedded && room(10)) return infinitive(subject, options);
      if (which >= 0.83 && which < 0.93) return copular(subject, options);
      if (which >= 0.93) return passive(subject, options);
      return transitive(subject, options);
    case kAnimal:
      if (which < 0.45) return alone(subject, options);
      return which < 0.8 ? transitive(subject, options) : copular(subject, options);
    case kThing:
    case kText:
      if (which < 0.45) return alone(subject, options);
      return which < 0.8 ? copular(subject, options) : passive(subject, options);
    case kFood:
      if (which < 0.2) return alone(subject, options);
      return which < 0.7 ? copular(subject, options) : passive(subject, options);
    case kIdea:
      if (which < 0.5) return copular(subject, options);
      return which < 0.85 ? transitive(subject, options) : passive(subject, options);
    default:
      return copular(subject, options);
  }
}

// Where, how, and the words that a negation allows.
void SentenceWriter::after_verb(int verb, const Phrase& subject, const Auxiliaries& auxiliaries, bool licensed) {
  const double which = random_.uniform();
  if (auxiliaries.negative || licensed) {
    if (auxiliaries.negative && auxiliaries.perfect && which < 0.35) {
      attach(add("yet", "ADV"), verb, "advmod");
    } else if (which < 0.12) {
      const int at = add("at", "ADP");
      attach(add("all", "DET"), at, "fixed");
      attach(at, verb, "advmod");
    } else if (which < 0.2) {
      attach(add("anywhere", "ADV"), verb, "advmod");
    }
    return;
  }
  if (which < 0.2) {
    attach(add(pick(lexicon().manner_adverbs), "ADV"), verb, "advmod");
  } else if (which < 0.42 && room(6)) {
    if (has_fact(discourse_, subject.entity, Attribute::kTown) && chance(0.35)) {
      const auto entity = static_cast<std::size_t>(subject.entity);
      const int in = add(chance(0.7) ? "in" : "near", "ADP");
      const int town = add(world_.entities[entity].value(Attribute::kTown), "PROPN");
      mention(entity, Attribute::kTown, town, town);
      attach(in, town, "case");
      attach(town, verb, "obl");
    } else {
      prepositional_phrase(pick(lexicon().place_prepositions), kPlace, verb, "obl");
    }
  } else if (which < 0.46 && room(6)) {
    const int without = add("without", "ADP");
    PhraseOptions options;
    options.licensed = true;
    options.modifiers = false;
    const Phrase phrase = noun_phrase(kThing | kText | kFood, options);
    attach(without, phrase.head, "case");
    attach(phrase.head, verb, "obl");
  }
}

Phrase SentenceWriter::object_of(const Verb& verb, const Phrase& subject, bool licensed) {
  if (licensed && chance(0.15)) {
    const bool person = verb.objects == kPerson || (verb.objects & (kThing | kText | kFood)) == 0;
    const int head = add(person ? "anybody" : "anything", "PRON");
    return {head, Number::kSingular, person ? kPerson : kThing};
  }
  if ((verb.objects & kFood) != 0 && has_fact(discourse_, subject.entity, Attribute::kFood) && chance(0.4)) {
    const auto entity = static_cast<std::size_t>(subject.entity);
    const int head =
        add(world_.entities[entity].value(Attribute::kFood), world_.nouns_of[entity].food->singular, "NOUN");
    mention(entity, Attribute::kFood, head, head);
    return {head, Number::kPlural, kFood};
  }
  PhraseOptions options;
  options.licensed = licensed && chance(0.6);
  return noun_phrase(verb.objects, options);
}

Predicate SentenceWriter::alone(const Phrase& subject, const PredicateOptions& options) {
  const unsigned frame = subject.classes == kPerson   ? kPersonAlone
                         : subject.classes == kAnimal ? kAnimalAlone
                                                      : kThingAlone;
  const Verb& verb = pick_verb(frame);
  const Auxiliaries before = auxiliaries(subject.number, (verb.frames & kState) != 0, options);
  const int head = verb_word(verb, before.form, subject.number);
  attach_all(before, head);
  after_verb(head, subject, before, options.licensed);
  return {head};
}

Predicate SentenceWriter::transitive(const Phrase& subject, const PredicateOptions& options) {
  const unsigned frame = subject.classes == kPerson   ? kPersonObject
                         : subject.classes == kAnimal ? kAnimalObject
                                                      : kIdeaObject;
  const Verb& verb = pick_verb(frame);
  const Auxiliaries before = auxiliaries(subject.number, (verb.frames & kState) != 0, options);
  const int head = verb_word(verb, before.form, subject.number);
  attach_all(before, head);
  // A verb may take other objects of a person than of an animal.
  Verb narrowed = verb;
  if (subject.classes == kAnimal) narrowed.objects = kAnimal | kPerson;
  if (subject.classes == kIdea) narrowed.objects = kPerson;
  attach(object_of(narrowed, subject, before.negative || options.licensed).head, head, "obj");
  if (room(4)) after_verb(head, subject, before, options.licensed);
  return {head};
}

Predicate SentenceWriter::copular(const Phrase& subject, const PredicateOptions& options) {
  const Auxiliaries before = be(subject.number, options, "cop");
  const int degree = chance(0.3) ? add(pick(lexicon().degree_adverbs), "ADV") : -1;
  const int head = add(pick_adjective(subject.classes), "ADJ");
  attach_all(before, head);
  if (degree >= 0) attach(degree, head, "advmod");
  if (before.negative && before.perfect && chance(0.3)) attach(add("yet", "ADV"), head, "advmod");
  return {head};
}

Predicate SentenceWriter::passive(const Phrase& subject, const PredicateOptions& options) {
  const Verb& verb = gapped_verb(subject.classes);
  const Auxiliaries before = be(subject.number, options, "aux:pass");
  const int head = verb_word(verb, VerbForm::kParticiple, subject.number);
  attach_all(before, head);
  if (room(4) && chance(0.5)) {
    prepositional_phrase("by", kPerson, head, "obl");
  } else if (room(4) && !before.negative && chance(0.5)) {
    prepositional_phrase(pick(lexicon().place_prepositions), kPlace, head, "obl");
  }
  return {head, "nsubj:pass"};
}

Predicate SentenceWriter::gift(const Phrase& subject, const PredicateOptions& options) {
  const Verb& verb = pick_verb(kGift);
  const Auxiliaries before = auxiliaries(subject.number, false, options);
  const int head = verb_word(verb, before.form, subject.number);
  attach_all(before, head);
  PhraseOptions object;
  object.modifiers = false;
  object.licensed = (before.negative || options.licensed) && chance(0.6);
  attach(noun_phrase(kThing | kText, object).head, head, "obj");
  prepositional_phrase("to", kPerson, head, "obl");
  return {head};
}

Predicate SentenceWriter::clausal(const Phrase& subject, const PredicateOptions& options) {
  const Verb& verb = pick_verb(kClause);
  const Auxiliaries before = auxiliaries(subject.number, (verb.frames & kState) != 0, options);
  const int head = verb_word(verb, before.form, subject.number);
  attach_all(before, head);
  complement_clause(head);
  return {head};
}

void SentenceWriter::complement_clause(int verb) {
  const int that = chance(0.65) ? add("that", "SCONJ") : -1;
  PredicateOptions options;
  options.embedded = room(18) && chance(0.3);
  const int inner = clause(options);
  if (that >= 0) attach(that, inner, "mark");
  attach(inner, verb, "ccomp");
}

Predicate SentenceWriter::infinitive(const Phrase& subject, const PredicateOptions& options) {
  const Verb& verb = pick_verb(kInfinitive);
  const Auxiliaries before = auxiliaries(subject.number, (verb.frames & kState) != 0, options);
  const int head = verb_word(verb, before.form, subject.number);
  attach_all(before, head);
  const int to = add("to", "PART");
  PredicateOptions inner;
  inner.form = VerbForm::kBase;
  inner.embedded = false;
  inner.licensed = before.negative || options.licensed;
  const Predicate what = chance(0.7) ? transitive(subject, inner) : alone(subject, inner);
  attach(to, what.head, "mark");
  attach(what.head, head, "xcomp");
  return {head};
}

const Verb& SentenceWriter::gapped_verb(unsigned filler) { return pick_verb(kPersonObject, filler); }

int SentenceWriter::clause(const PredicateOptions& options) { return clause_about(subject_phrase(), options); }

int SentenceWriter::clause_about(const Phrase& subject, const PredicateOptions& options) {
  const Predicate what = predicate(subject, options);
  attach(subject.head, what.head, what.subject);
  return what.head;
}

}  // namespace torsor::grammar

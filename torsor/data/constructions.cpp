// The patterns of whole sentences.
#include "torsor/base/error.h"
#include "torsor/data/sentence_writer.h"

namespace torsor::grammar {

namespace {

Number other(Number number) { return number == Number::kSingular ? Number::kPlural : Number::kSingular; }

}  // namespace

void SentenceWriter::write(Construction construction) {
  int root = -1;
  std::string_view mark = ".";
  switch (construction) {
    case Construction::kSimple:
      root = simple();
      break;
    case Construction::kCoordination:
      root = coordination();
      break;
    case Construction::kAttractor:
      root = attractor();
      break;
    case Construction::kSubjectRelative:
    case Construction::kObjectRelative:
    case Construction::kLongDistanceRelative:
      root = relative(construction);
      break;
    case Construction::kCenterEmbedding:
      root = center_embedding();
      break;
    case Construction::kComplement: {
      const Phrase subject = subject_phrase(kPerson);
      root = clausal(subject, {}).head;
      attach(subject.head, root, "nsubj");
      break;
    }
    case Construction::kSubordinate:
      root = subordinate();
      break;
    case Construction::kPassive: {
      PhraseOptions options;
      options.subject = true;
      const Phrase subject = noun_phrase(kThing | kText | kFood | kPerson | kIdea, options);
      root = passive(subject, {}).head;
      attach(subject.head, root, "nsubj:pass");
      break;
    }
    case Construction::kExistential:
      root = existential();
      break;
    case Construction::kWhQuestion:
      root = wh_question();
      mark = "?";
      break;
    case Construction::kPolarQuestion:
      root = polar_question();
      mark = "?";
      break;
    case Construction::kEmbeddedQuestion:
      root = embedded_question();
      break;
    case Construction::kCleft:
      root = cleft();
      break;
    case Construction::kGardenPathObject:
      root = garden_path_object();
      break;
    case Construction::kGardenPathReduced:
      root = garden_path_reduced();
      break;
    case Construction::kGardenPathComplement:
      root = garden_path_complement();
      break;
    case Construction::kNegativePolarity:
      root = negative_polarity();
      break;
    case Construction::kReflexive:
      root = reflexive();
      break;
    case Construction::kInfinitive: {
      const Phrase subject = subject_phrase(kPerson);
      root = infinitive(subject, {}).head;
      attach(subject.head, root, "nsubj");
      break;
    }
    case Construction::kFact:
    case Construction::kFactQuestion:
      throw Error("grammar: facts need an entity");
  }
  end(root, mark);
}

int SentenceWriter::simple() {
  const int opener = chance(0.08) ? add(pick(lexicon().openers), "ADV") : -1;
  const int root = clause({});
  if (opener >= 0) attach(opener, root, "advmod");
  return root;
}

// Two clauses, or two verbs of one subject.
int SentenceWriter::coordination() {
  PredicateOptions options;
  options.embedded = false;
  if (chance(0.5)) {
    const Phrase subject = subject_phrase(kPerson | kAnimal);
    const Predicate first = chance(0.4) ? alone(subject, options) : transitive(subject, options);
    attach(subject.head, first.head, "nsubj");
    const int conjunction = add("and", "CCONJ");
    const Predicate second = chance(0.4) ? alone(subject, options) : transitive(subject, options);
    attach(conjunction, second.head, "cc");
    attach(second.head, first.head, "conj");
    return first.head;
  }
  const int first = clause(options);
  const int pause = comma();
  const int conjunction = add(chance(0.6) ? "and" : "but", "CCONJ");
  const int second = clause(options);
  attach(pause, second, "punct");
  attach(conjunction, second, "cc");
  attach(second, first, "conj");
  return first;
}

int SentenceWriter::attractor() {
  PhraseOptions options;
  options.subject = true;
  options.entities = false;
  options.modifiers = false;
  const Phrase subject = noun_phrase(kThing | kText | kAnimal | kPerson, options);
  const bool place = chance(0.5);
  prepositional_phrase(place ? pick(lexicon().place_prepositions) : std::string(chance(0.5) ? "of" : "near"),
                       place ? kPlace : kPerson, subject.head, "nmod", other(subject.number));
  PredicateOptions predicate_options;
  predicate_options.overt = true;
  predicate_options.embedded = false;
  return clause_about(subject, predicate_options);
}

int SentenceWriter::relative(Construction construction) {
  PhraseOptions options;
  options.subject = true;
  options.entities = false;
  options.modifiers = false;
  const bool subject_gap = construction == Construction::kSubjectRelative;
  const Phrase subject =
      noun_phrase(subject_gap ? kPerson | kAnimal : kPerson | kThing | kText | kFood | kIdea, options);
  if (subject_gap) {
    subject_relative(subject);
  } else {
    object_relative(subject, construction == Construction::kLongDistanceRelative);
  }
  PredicateOptions after;
  after.embedded = false;
  after.overt = chance(0.5);
  return clause_about(subject, after);
}

// The goat that the baker who the guards know feeds limps.
int SentenceWriter::center_embedding() {
  PhraseOptions options;
  options.entities = false;
  options.modifiers = false;
  const Phrase outer = noun_phrase(kThing | kText | kAnimal, options);
  const int that = add("that", "PRON");
  const Phrase middle = noun_phrase(kPerson, options);
  const int who = chance(0.6) ? add("who", "PRON") : -1;
  const Phrase inner = noun_phrase(kPerson, options);
  const int inner_verb = verb_word(gapped_verb(kPerson), VerbForm::kFinite, inner.number);
  const int middle_verb = verb_word(gapped_verb(outer.classes), VerbForm::kFinite, middle.number);
  attach(inner.head, inner_verb, "nsubj");
  if (who >= 0) attach(who, inner_verb, "obj");
  attach(inner_verb, middle.head, "acl:relcl");
  attach(middle.head, middle_verb, "nsubj");
  attach(that, middle_verb, "obj");
  attach(middle_verb, outer.head, "acl:relcl");
  PredicateOptions after;
  after.embedded = false;
  after.overt = true;
  return clause_about(outer, after);
}

int SentenceWriter::subordinate() {
  PredicateOptions options;
  options.embedded = false;
  if (chance(0.5)) {
    const int mark = add(pick(lexicon().subordinators), "SCONJ");
    const int inner = clause(options);
    const int pause = comma();
    const int root = clause(options);
    attach(mark, inner, "mark");
    attach(inner, root, "advcl");
    attach(pause, root, "punct");
    return root;
  }
  const int root = clause(options);
  const int mark = add(pick(lexicon().subordinators), "SCONJ");
  const int inner = clause(options);
  attach(mark, inner, "mark");
  attach(inner, root, "advcl");
  return root;
}

int SentenceWriter::existential() {
  const Number number = chance(0.6) ? Number::kSingular : Number::kPlural;
  const int there = add("there", "PRON");
  const int root = finite_be(number, "VERB");
  PhraseOptions options;
  options.number = number;
  options.indefinite = true;
  options.modifiers = chance(0.3);
  const Phrase what = noun_phrase(kThing | kText | kFood | kAnimal | kPerson, options);
  attach(there, root, "expl");
  attach(what.head, root, "nsubj");
  if (room(5)) prepositional_phrase(pick(lexicon().place_prepositions), kPlace, root, "obl");
  return root;
}

// "Who feeds the goat?", "Which lamp did the guards carry?", "What did the baker say that the guards carry?"
int SentenceWriter::wh_question() {
  PredicateOptions base;
  base.form = VerbForm::kBase;
  base.embedded = false;
  if (chance(0.3)) {
    const int who = add("who", "PRON");
    PredicateOptions finite;
    finite.embedded = false;
    const Predicate what = transitive({who, Number::kSingular, kPerson}, finite);
    attach(who, what.head, "nsubj");
    return what.head;
  }
  const unsigned filler = pick_class(kThing | kText | kFood | kPerson);
  int determiner = -1;
  int fronted = 0;
  if (chance(0.6)) {
    determiner = add("which", "DET");
    const Noun& noun = pick_noun(filler);
    fronted = chance(0.7) ? add(noun.singular, "NOUN") : add(noun.plural, noun.singular, "NOUN");
    attach(determiner, fronted, "det");
  } else {
    fronted = add(filler == kPerson ? "who" : "what", "PRON");
  }
  const bool far = chance(0.35);
  // "do" shows the number of a subject that stands after it, so the number comes first.
  const Number number = chance(0.6) ? Number::kSingular : Number::kPlural;
  const int auxiliary = add(world_.past ? "did" : number == Number::kSingular ? "does" : "do", "do", "AUX");
  PhraseOptions options;
  options.modifiers = false;
  options.number = number;
  const Phrase subject = noun_phrase(kPerson, options);
  const Verb& outer = far ? pick_verb(kClause) : gapped_verb(filler);
  const int root = verb_word(outer, VerbForm::kBase, number);
  attach(auxiliary, root, "aux");
  attach(subject.head, root, "nsubj");
  if (!far) {
    attach(fronted, root, "obj");
    return root;
  }
  const int that = add("that", "SCONJ");
  options.number.reset();
  const Phrase inner_subject = noun_phrase(kPerson, options);
  const Verb& verb = gapped_verb(filler);
  const Auxiliaries before = auxiliaries(inner_subject.number, (verb.frames & kState) != 0, {});
  const int inner = verb_word(verb, before.form, inner_subject.number);
  attach_all(before, inner);
  attach(that, inner, "mark");
  attach(inner_subject.head, inner, "nsubj");
  attach(fronted, inner, "obj");
  attach(inner, root, "ccomp");
  return root;
}

int SentenceWriter::polar_question() {
  const Number number = chance(0.6) ? Number::kSingular : Number::kPlural;
  const int auxiliary = add(world_.past ? "did" : number == Number::kSingular ? "does" : "do", "do", "AUX");
  PhraseOptions options;
  options.modifiers = false;
  options.number = number;
  const Phrase subject = noun_phrase(kPerson, options);
  const int ever = chance(0.5) ? add("ever", "ADV") : -1;
  PredicateOptions base;
  base.form = VerbForm::kBase;
  base.embedded = false;
  base.licensed = true;
  const Predicate what = transitive(subject, base);
  attach(auxiliary, what.head, "aux");
  if (ever >= 0) attach(ever, what.head, "advmod");
  attach(subject.head, what.head, "nsubj");
  return what.head;
}

// "The baker wonders which lamp the guards carry.", "... who carries the lamp."
int SentenceWriter::embedded_question() {
  const Phrase subject = subject_phrase(kPerson);
  const Verb& asking = pick_verb(kQuestion);
  const Auxiliaries before = auxiliaries(subject.number, (asking.frames & kState) != 0, {});
  const int root = verb_word(asking, before.form, subject.number);
  attach_all(before, root);
  attach(subject.head, root, "nsubj");
  PredicateOptions finite;
  finite.embedded = false;
  if (chance(0.35)) {
    const int who = add("who", "PRON");
    const Predicate what = transitive({who, Number::kSingular, kPerson}, finite);
    attach(who, what.head, "nsubj");
    attach(what.head, root, "ccomp");
    return root;
  }
  const unsigned filler = pick_class(kThing | kText | kFood | kPerson);
  const int determiner = add("which", "DET");
  const Noun& noun = pick_noun(filler);
  const int fronted = chance(0.7) ? add(noun.singular, "NOUN") : add(noun.plural, noun.singular, "NOUN");
  PhraseOptions options;
  options.modifiers = false;
  const Phrase inner_subject = noun_phrase(kPerson, options);
  const Verb& verb = gapped_verb(filler);
  const Auxiliaries inner_before = auxiliaries(inner_subject.number, (verb.frames & kState) != 0, finite);
  const int inner = verb_word(verb, inner_before.form, inner_subject.number);
  attach_all(inner_before, inner);
  attach(determiner, fronted, "det");
  attach(fronted, inner, "obj");
  attach(inner_subject.head, inner, "nsubj");
  attach(inner, root, "ccomp");
  return root;
}

int SentenceWriter::cleft() {
  const int it = add("it", "PRON");
  const int copula = finite_be(Number::kSingular);
  PhraseOptions options;
  options.modifiers = false;
  options.definite = true;
  const Phrase focus = noun_phrase(kPerson | kAnimal | kThing | kText, options);
  attach(it, focus.head, "expl");
  attach(copula, focus.head, "cop");
  if (focus.classes == kPerson || focus.classes == kAnimal) {
    subject_relative(focus);
  } else {
    object_relative(focus, false);
  }
  return focus.head;
}

// "While the baker painted the lamp fell.": the noun looks like an object until the second verb comes.
int SentenceWriter::garden_path_object() {
  const bool while_first = chance(0.7);
  const int mark = add(while_first ? "while" : "when", "SCONJ");
  PhraseOptions options;
  options.subject = true;
  options.modifiers = false;
  const Phrase subject = noun_phrase(kPerson, options);
  constexpr unsigned kFallible = kThing | kText | kFood | kAnimal;  // what can do something by itself
  const Verb& verb = pick_verb(kOptionalObject, kFallible);
  int auxiliary = -1;
  VerbForm form = VerbForm::kFinite;
  if (while_first && chance(0.4)) {
    auxiliary = finite_be(subject.number);
    form = VerbForm::kGerund;
  }
  const int inner = verb_word(verb, form, subject.number);
  const int pause = chance(0.3) ? comma() : -1;  // which takes the surprise away
  options.entities = false;
  options.definite = true;
  const Phrase second = noun_phrase(verb.objects & kFallible, options);
  PredicateOptions after;
  after.embedded = false;
  const int root = alone(second, after).head;
  attach(mark, inner, "mark");
  attach(subject.head, inner, "nsubj");
  if (auxiliary >= 0) attach(auxiliary, inner, "aux");
  if (pause >= 0) attach(pause, root, "punct");
  attach(inner, root, "advcl");
  attach(second.head, root, "nsubj");
  return root;
}

// "The goat led past the mill fell.": the participle looks like the main verb.
int SentenceWriter::garden_path_reduced() {
  PhraseOptions options;
  options.entities = false;
  options.modifiers = false;
  const Phrase subject = noun_phrase(kPerson | kAnimal, options);
  const int participle = verb_word(pick_verb(kLeadable), VerbForm::kParticiple, subject.number);
  static const std::vector<std::string> kWays = {"past", "through", "to", "across"};
  prepositional_phrase(pick(kWays), kPlace, participle, "obl");
  attach(participle, subject.head, "acl");
  PredicateOptions after;
  after.embedded = false;
  const int root = alone(subject, after).head;
  attach(subject.head, root, "nsubj");
  return root;
}

// "The baker knew the answer was wrong.": the noun looks like an object.
int SentenceWriter::garden_path_complement() {
  const Phrase subject = subject_phrase(kPerson);
  const int root = verb_word(pick_verb(kClause, kIdea), VerbForm::kFinite, subject.number);
  attach(subject.head, root, "nsubj");
  PhraseOptions options;
  options.modifiers = false;
  options.definite = true;
  const Phrase idea = noun_phrase(kIdea, options);
  const int inner = copular(idea, {}).head;
  attach(idea.head, inner, "nsubj");
  attach(inner, root, "ccomp");
  return root;
}

int SentenceWriter::negative_polarity() {
  PredicateOptions licensed;
  licensed.embedded = false;
  licensed.licensed = true;
  if (chance(0.25)) {
    const int nobody = add("nobody", "PRON");
    const Phrase subject{nobody, Number::kSingular, kPerson, -1, true};
    if (chance(0.3)) prepositional_phrase("in", kPlace, nobody, "nmod");
    const int root = transitive(subject, licensed).head;
    attach(nobody, root, "nsubj");
    return root;
  }
  const Number number = chance(0.5) ? Number::kSingular : Number::kPlural;
  const int determiner =
      add(number == Number::kPlural && chance(0.4) ? "few" : "no", number == Number::kPlural ? "few" : "no", "DET");
  const Noun& noun = pick_noun(kPerson);
  const int head = add(number == Number::kSingular ? noun.singular : noun.plural, noun.singular, "NOUN");
  attach(determiner, head, "det");
  const Phrase subject{head, number, kPerson, -1, true};
  if (chance(0.2) && depth_ > 0) {
    subject_relative(subject);
  } else if (chance(0.25)) {
    prepositional_phrase(pick(lexicon().place_prepositions), kPlace, head, "nmod");
  }
  const int root = transitive(subject, licensed).head;
  attach(head, root, "nsubj");
  return root;
}

// The pronoun needs to know its gender: an entity, a noun of one gender, or several.
int SentenceWriter::reflexive() {
  static const std::vector<std::string> kFemale = {"woman", "girl", "queen", "aunt", "widow"};
  static const std::vector<std::string> kMale = {"man", "boy", "king", "uncle"};
  Phrase subject;
  const char* pronoun = "themselves";
  const int entity = choose_entity();
  if (entity >= 0 && chance(0.6)) {
    subject = discourse_.last == entity && chance(0.4) ? pronoun_phrase(static_cast<std::size_t>(entity))
                                                       : name_phrase(static_cast<std::size_t>(entity));
    pronoun = world_.entities[static_cast<std::size_t>(entity)].female ? "herself" : "himself";
  } else if (chance(0.5)) {
    PhraseOptions options;
    options.number = Number::kPlural;
    subject = noun_phrase(kPerson, options);
  } else {
    const bool female = chance(0.5);
    const int determiner = add("the", "DET");
    const int head = add(pick(female ? kFemale : kMale), "NOUN");
    attach(determiner, head, "det");
    subject = {head, Number::kSingular, kPerson};
    pronoun = female ? "herself" : "himself";
  }
  const Verb& verb = pick_verb(kReflexive);
  const Auxiliaries before = auxiliaries(subject.number, false, {});
  const int root = verb_word(verb, before.form, subject.number);
  attach_all(before, root);
  attach(subject.head, root, "nsubj");
  attach(add(pronoun, "PRON"), root, "obj");
  after_verb(root, subject, before, false);
  return root;
}

}  // namespace torsor::grammar

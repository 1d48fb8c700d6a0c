// Sentences that tell or ask what is known of a story's people.
#include "torsor/data/sentence_writer.h"

namespace torsor::grammar {

void SentenceWriter::write_fact(std::size_t entity, Attribute attribute, bool full_name) {
  if (!full_name && chance(0.2)) {
    if (const int root = fact_the_other_way(entity, attribute); root >= 0) return end(root, ".");
  }
  Phrase subject;
  if (!full_name && discourse_.last == static_cast<int>(entity) && chance(0.5)) {
    subject = pronoun_phrase(entity);
  } else {
    subject = name_phrase(entity);
    if (full_name) attach(add(world_.entities[entity].surname, "PROPN"), subject.head, "flat");
  }
  end(fact(entity, attribute, subject), ".");
}

// The plain way: the subject stands already.
int SentenceWriter::fact(std::size_t entity, Attribute attribute, const Phrase& subject) {
  const Entity& who = world_.entities[entity];
  const EntityNouns& nouns = world_.nouns_of[entity];
  const std::string& value = who.value(attribute);
  const auto verb = [&](std::string_view base) {
    const int head = verb_word(lexicon().verb(base), VerbForm::kFinite, Number::kSingular);
    attach(subject.head, head, "nsubj");
    return head;
  };
  switch (attribute) {
    case Attribute::kTrade: {
      const int copula = chance(0.6) ? finite_be(Number::kSingular) : -1;
      const int root = copula < 0 ? verb("work") : -1;
      const int as = copula < 0 ? add("as", "ADP") : -1;
      const int article = add(indefinite_article(value), "DET");
      const int noun = add(value, "NOUN");
      attach(article, noun, "det");
      mention(entity, attribute, noun, noun);
      if (copula >= 0) {
        attach(copula, noun, "cop");
        attach(subject.head, noun, "nsubj");
        return noun;
      }
      attach(as, noun, "case");
      attach(noun, root, "obl");
      return root;
    }
    case Attribute::kTown: {
      const int adverb = chance(0.2) ? add("still", "ADV") : -1;
      const int root = verb("live");
      if (adverb >= 0) attach(adverb, root, "advmod");
      const int in = add("in", "ADP");
      const int town = add(value, "PROPN");
      mention(entity, attribute, town, town);
      attach(in, town, "case");
      attach(town, root, "obl");
      return root;
    }
    case Attribute::kPossession: {
      const int root = verb("own");
      const std::size_t space = value.find(' ');
      const int article = add(indefinite_article(value), "DET");
      const int colour = add(value.substr(0, space), "ADJ");
      const int noun = add(value.substr(space + 1), "NOUN");
      mention(entity, attribute, colour, noun);
      attach(article, noun, "det");
      attach(colour, noun, "amod");
      attach(noun, root, "obj");
      return root;
    }
    case Attribute::kWorkplace: {
      const int root = verb("work");
      const int in = add("in", "ADP");
      const int article = add("the", "DET");
      const int place = add(value, "NOUN");
      mention(entity, attribute, place, place);
      attach(in, place, "case");
      attach(article, place, "det");
      attach(place, root, "obl");
      return root;
    }
    case Attribute::kFood: {
      const int root = verb("like");
      const int food = add(value, nouns.food->singular, "NOUN");
      mention(entity, attribute, food, food);
      attach(food, root, "obj");
      return root;
    }
    case Attribute::kPet: {
      const int root = verb("keep");
      const int article = add(indefinite_article(value), "DET");
      const int animal = add(value, "NOUN");
      const int called = add("called", "call", "VERB");
      const int name = add(who.pet_name, "PROPN");
      mention(entity, attribute, animal, animal);
      attach(article, animal, "det");
      attach(called, animal, "acl");
      attach(name, called, "xcomp");
      attach(animal, root, "obj");
      return root;
    }
    case Attribute::kFriend: {
      const int root = verb("trust");
      const int name = add(value, "PROPN");
      mention(entity, attribute, name, name);
      attach(name, root, "obj");
      return root;
    }
    case Attribute::kAge:
      break;
  }
  const int copula = finite_be(Number::kSingular);
  const int number = add(value, "NUM");
  const int years = add("years", "year", "NOUN");
  const int old = add("old", "ADJ");
  mention(entity, attribute, number, number);
  attach(number, years, "nummod");
  attach(years, old, "obl");
  attach(copula, old, "cop");
  attach(subject.head, old, "nsubj");
  return old;
}

// From the value to the entity, which then has to be recalled: "The green lantern belongs to Anna." Not every attribute
// has such a form: -1 then, and nothing is written.
int SentenceWriter::fact_the_other_way(std::size_t entity, Attribute attribute) {
  const std::string& value = world_.entities[entity].value(attribute);
  switch (attribute) {
    case Attribute::kTrade: {
      const int article = add("the", "DET");
      const int noun = add(value, "NOUN");
      attach(article, noun, "det");
      mention(entity, attribute, noun, noun);
      const int copula = finite_be(Number::kSingular);
      const int root = add("called", "call", "VERB");
      attach(noun, root, "nsubj:pass");
      attach(copula, root, "aux:pass");
      attach(name_phrase(entity).head, root, "xcomp");
      return root;
    }
    case Attribute::kPossession: {
      const std::size_t space = value.find(' ');
      const int article = add("the", "DET");
      const int colour = add(value.substr(0, space), "ADJ");
      const int noun = add(value.substr(space + 1), "NOUN");
      mention(entity, attribute, colour, noun);
      attach(article, noun, "det");
      attach(colour, noun, "amod");
      const int root = verb_word(lexicon().verb("belong"), VerbForm::kFinite, Number::kSingular);
      attach(noun, root, "nsubj");
      const int to = add("to", "ADP");
      const int owner_head = name_phrase(entity).head;
      attach(to, owner_head, "case");
      attach(owner_head, root, "obl");
      return root;
    }
    case Attribute::kTown: {
      const int in = add("in", "ADP");
      const int town = add(value, "PROPN");
      mention(entity, attribute, town, town);
      const int everybody = add("everybody", "PRON");
      const int root = verb_word(lexicon().verb("know"), VerbForm::kFinite, Number::kSingular);
      attach(in, town, "case");
      attach(town, root, "obl");
      attach(everybody, root, "nsubj");
      attach(name_phrase(entity).head, root, "obj");
      return root;
    }
    default:
      return -1;
  }
}

bool SentenceWriter::write_fact_question(std::size_t* entity, Attribute* attribute) {
  const int chosen = choose_entity();
  if (chosen < 0) return false;
  *entity = static_cast<std::size_t>(chosen);
  *attribute = static_cast<Attribute>(random_.below(kAttributeCount));
  if (!discourse_.stated[*entity].test(static_cast<std::size_t>(*attribute))) return false;
  const auto does = [&] { return add(world_.past ? "did" : "does", "do", "AUX"); };
  int front = -1;
  int auxiliary = -1;
  int subject = -1;
  int root = -1;
  switch (*attribute) {
    case Attribute::kTown:
    case Attribute::kWorkplace:
      front = add("where", "ADV");
      auxiliary = does();
      subject = name_phrase(*entity).head;
      root = add(*attribute == Attribute::kTown ? "live" : "work", "VERB");
      attach(front, root, "advmod");
      break;
    case Attribute::kFood:
    case Attribute::kPossession:
      front = add("what", "PRON");
      auxiliary = does();
      subject = name_phrase(*entity).head;
      root = add(*attribute == Attribute::kFood ? "like" : "own", "VERB");
      attach(front, root, "obj");
      break;
    case Attribute::kFriend:
      front = add("who", "PRON");
      auxiliary = does();
      subject = name_phrase(*entity).head;
      root = add("trust", "VERB");
      attach(front, root, "obj");
      break;
    case Attribute::kPet: {
      front = add("which", "DET");
      const int animal = add("animal", "NOUN");
      attach(front, animal, "det");
      auxiliary = does();
      subject = name_phrase(*entity).head;
      root = add("keep", "VERB");
      attach(animal, root, "obj");
      break;
    }
    case Attribute::kAge:
      front = add("how", "ADV");
      root = add("old", "ADJ");
      attach(front, root, "advmod");
      auxiliary = finite_be(Number::kSingular);
      subject = name_phrase(*entity).head;
      attach(auxiliary, root, "cop");
      attach(subject, root, "nsubj");
      end(root, "?");
      return true;
    case Attribute::kTrade:
      front = add("what", "PRON");
      root = front;
      auxiliary = finite_be(Number::kSingular);
      subject = name_phrase(*entity).head;
      attach(auxiliary, root, "cop");
      attach(subject, root, "nsubj");
      end(root, "?");
      return true;
  }
  attach(auxiliary, root, "aux");
  attach(subject, root, "nsubj");
  end(root, "?");
  return true;
}

}  // namespace torsor::grammar

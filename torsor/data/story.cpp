#include "torsor/data/story.h"

#include <algorithm>

#include "torsor/base/error.h"

namespace torsor::grammar {

namespace {

template <class T>
std::vector<const T*> shuffled(const std::vector<T>& values, Random& random) {
  std::vector<const T*> result;
  for (const T& value : values) result.push_back(&value);
  random.shuffle(result);
  return result;
}

template <class T>
const T& any_of_list(const std::vector<T>& values, Random& random) {
  return values[random.below(values.size())];
}

std::string invented_name(Random& random, const std::vector<std::string>& endings) {
  // "Millmill" would look like a mistake; so would "Brockckby".
  while (true) {
    const std::string& beginning = any_of_list(lexicon().name_beginnings, random);
    const std::string& ending = any_of_list(endings, random);
    if (beginning.back() != ending.front()) return beginning + ending;
  }
}

// The first `count` different results of `draw`.
template <class Draw>
std::vector<std::string> distinct(std::size_t count, Draw draw) {
  std::vector<std::string> result;
  while (result.size() < count) {
    const std::string value = draw();
    if (std::find(result.begin(), result.end(), value) == result.end()) result.push_back(value);
  }
  return result;
}

// Takes the first noun of the list that `suits` away from it, so that no other part of the document uses it.
template <class Suits>
const Noun* take(std::vector<const Noun*>& nouns, Suits suits) {
  const auto found = std::find_if(nouns.begin(), nouns.end(), suits);
  if (found == nouns.end()) throw Error("grammar: the lexicon has too few nouns");
  const Noun* noun = *found;
  nouns.erase(found);
  return noun;
}

bool is_work(const Noun* noun) { return (noun->classes & kWork) != 0; }

}  // namespace

bool chance(Random& random, double probability) { return random.uniform() < probability; }

std::size_t preferred(Random& random, std::size_t size) {
  const double u = random.uniform();
  return static_cast<std::size_t>(static_cast<double>(size) * u * u);
}

World make_world(Random& random, std::size_t entities) {
  const Lexicon& words = lexicon();
  World world;
  world.past = chance(random, 0.5);
  for (const Noun* noun : shuffled(words.nouns, random)) {
    for (std::size_t bit = 0; bit < world.nouns.size(); ++bit) {
      if ((noun->classes >> bit & 1U) != 0) world.nouns[bit].push_back(noun);
    }
  }
  world.verbs = shuffled(words.verbs, random);
  world.adjectives = shuffled(words.adjectives, random);
  if (entities == 0) return world;

  const std::vector<std::string> towns = distinct(entities, [&] { return invented_name(random, words.town_endings); });
  const std::vector<std::string> surnames =
      distinct(entities, [&] { return invented_name(random, words.surname_endings); });
  const std::vector<std::string> names = distinct(
      entities, [&] { return any_of_list(chance(random, 0.5) ? words.female_names : words.male_names, random); });
  const std::vector<std::string> pets = distinct(entities, [&] { return any_of_list(words.pet_names, random); });
  const std::vector<std::string> colours =
      distinct(std::min(entities, words.colours.size()), [&] { return any_of_list(words.colours, random); });
  // Everyone's friend is the next in a shuffled ring: nobody's own, and no two share one.
  std::vector<std::size_t> ring(entities);
  for (std::size_t e = 0; e < entities; ++e) ring[e] = e;
  random.shuffle(ring);

  const auto set = [](Entity& entity, Attribute attribute, const std::string& value) {
    entity.values[static_cast<std::size_t>(attribute)] = value;
  };
  std::vector<const Noun*> animals = world.nouns[1];  // animals may be spoken of in general as well
  for (std::size_t e = 0; e < entities; ++e) {
    Entity entity;
    entity.name = names[e];
    entity.surname = surnames[e];
    entity.female =
        std::find(words.female_names.begin(), words.female_names.end(), entity.name) != words.female_names.end();
    EntityNouns nouns;
    nouns.trade = take(world.nouns[0], is_work);
    nouns.possession = take(world.nouns[2], [](const Noun* noun) { return noun->classes == kThing; });
    nouns.workplace = take(world.nouns[5], is_work);
    nouns.food = take(world.nouns[4], [](const Noun*) { return true; });
    nouns.pet = take(animals, [](const Noun*) { return true; });
    set(entity, Attribute::kTrade, nouns.trade->singular);
    set(entity, Attribute::kTown, towns[e]);
    set(entity, Attribute::kPossession, colours[e % colours.size()] + " " + nouns.possession->singular);
    set(entity, Attribute::kWorkplace, nouns.workplace->singular);
    set(entity, Attribute::kFood, nouns.food->plural);
    set(entity, Attribute::kPet, nouns.pet->singular);
    set(entity, Attribute::kAge, number_word(18 + static_cast<int>(random.below(70))));
    entity.pet_name = pets[e];
    world.entities.push_back(entity);
    world.nouns_of.push_back(nouns);
  }
  for (std::size_t k = 0; k < entities; ++k) {
    set(world.entities[ring[k]], Attribute::kFriend, world.entities[ring[(k + 1) % entities]].name);
  }
  return world;
}

}  // namespace torsor::grammar

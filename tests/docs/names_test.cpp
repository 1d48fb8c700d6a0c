// The pages about encodings agree with the registry.
#include <gtest/gtest.h>

#include <set>

#include "tests/docs/pages.h"
#include "torsor/encoding/registry.h"
#include "torsor/lab/profile.h"

namespace torsor {
namespace {

const Dimensions kModel = {.heads = 8, .kv_heads = 4, .head_dim = 16, .width = 128, .train_length = 128, .layers = 4};

bool is_needed(const KeyInfo& key) {
  const std::string* word = std::get_if<std::string>(&key.fallback);
  return word && word->empty() && key.type != KeyInfo::Type::Word;
}

/// The cell of expressions.md for the keys of a name.
std::string keys_cell(const NameInfo& info) {
  std::string cell;
  for (const KeyInfo& key : info.keys)
    cell +=
        str(cell.empty() ? "" : ", ", "`", key.name, "=", print(key.fallback), "`", is_needed(key) ? " (needed)" : "");
  return cell;
}

/// Names of the trained tensors that a name has under its defaults or with one flag, word or number changed, without
/// their prefix; of what takes a rotation, around a plain one; of what takes one of a list, around a term and around a
/// rotation, with one or two changed.
std::set<std::string> tensors_of(const NameInfo& info) {
  std::set<std::string> names;
  if (info.operand == Operand::Items) return names;
  std::vector<std::string> changes;
  for (const KeyInfo& key : info.keys) {
    if (key.type == KeyInfo::Type::Boolean) changes.push_back(key.name + "=true");
    for (const std::string& word : key.words) changes.push_back(str(key.name, "=", word));
    if (key.type == KeyInfo::Type::Integer && key.fallback == Value(0.0)) changes.push_back(key.name + "=4");
  }
  std::vector<std::string> ways;
  const bool listed = info.operand == Operand::Listed;
  const std::vector<std::string> plain = {"alibi", "rope"};  // without trained tensors
  for (const std::string& operand : info.operand == Operand::Rotary ? std::vector<std::string>{"rope"}
                                    : listed                        ? plain
                                                                    : std::vector<std::string>{""}) {
    const std::string before = operand.empty() ? "" : operand + ", ";
    ways.push_back(operand.empty() ? info.name : str(info.name, "(", operand, ")"));
    for (const std::string& change : changes) ways.push_back(str(info.name, "(", before, change, ")"));
    // Keys of what changes another encoding need each other.
    for (std::size_t i = 0; listed && i < changes.size(); ++i)
      for (std::size_t j = i + 1; j < changes.size(); ++j)
        if (changes[i].substr(0, changes[i].find('=')) != changes[j].substr(0, changes[j].find('=')))
          ways.push_back(str(info.name, "(", before, changes[i], ", ", changes[j], ")"));
  }
  for (const std::string& way : ways) try {
      for (const ParameterInfo& parameter : make_encoding(way, kModel)->parameters(0))
        names.insert(parameter.name.substr(parameter.name.find('.') + 1));
    } catch (const UsageError&) {
      // Such a word needs another key beside it, or the name one that has no default.
    }
  return names;
}

TEST(DocsNames, EveryNameHasItsPage) {
  for (const NameInfo& info : registry()) {
    const DocsPage page = read_page("docs/encodings/" + info.page + ".md");
    ASSERT_FALSE(page.lines.empty()) << page.path << " is missing for the encoding '" << info.name << "'";
    EXPECT_EQ(page.lines.front(), "# " + info.name) << page.path;
    std::set<std::string> words;
    for (const std::string& line : page.lines)
      for (const std::string& word : quoted(line)) words.insert(word);
    for (const KeyInfo& key : info.keys)
      EXPECT_TRUE(words.count(key.name)) << page.path << " does not name the key `" << key.name << "`";
  }
}

TEST(DocsNames, IndexHasEveryName) {
  const auto rows = table_rows(read_page("docs/encodings/README.md"),
                               "| name | family | what it does | past the training length | in a KV cache |");
  std::vector<std::string> listed, names;
  for (const auto& row : rows) {
    ASSERT_EQ(row.size(), 5u) << row.front();
    for (const std::string& cell : row) EXPECT_FALSE(cell.empty()) << row.front();
    listed.push_back(row.front());
  }
  for (const NameInfo& info : registry()) names.push_back(str("[`", info.name, "`](", info.page, ".md)"));
  EXPECT_EQ(listed, names);
}

TEST(DocsNames, TableOfExpressionsAgreesWithTheRegistry) {
  const auto rows =
      table_rows(read_page("docs/expressions.md"), "| name | takes | keys and defaults | trained tensors |");
  ASSERT_EQ(rows.size(), registry().size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const NameInfo& info = registry()[i];
    const auto& row = rows[i];
    ASSERT_EQ(row.size(), 4u) << info.name;
    EXPECT_EQ(row[0], str("[`", info.name, "`](encodings/", info.page, ".md)"));
    EXPECT_EQ(row[1], info.operand == Operand::None     ? ""
                      : info.operand == Operand::Rotary ? "a rotation"
                      : info.operand == Operand::Listed ? "one encoding"
                                                        : "items");
    EXPECT_EQ(row[2], keys_cell(info)) << info.name;
    std::set<std::string> tensors;
    for (const std::string& word : quoted(row[3]))
      if (word.find('=') == std::string::npos) tensors.insert(word);
    EXPECT_EQ(tensors, tensors_of(info)) << info.name;
  }
}

TEST(DocsNames, CanonicalFormsAreAsShown) {
  const auto rows = table_rows(read_page("docs/expressions.md"), "| written | canonical form |");
  EXPECT_GE(rows.size(), 5u);
  for (const auto& row : rows) {
    ASSERT_EQ(row.size(), 2u);
    EXPECT_EQ(print(parse(quoted(row[0]).at(0))), quoted(row[1]).at(0));
  }
}

TEST(DocsNames, ExamplesCanBeMade) {
  const auto rows = table_rows(read_page("docs/expressions.md"), "| expression | what it is |");
  EXPECT_GE(rows.size(), 8u);
  for (const auto& row : rows) {
    const std::string text = quoted(row.at(0)).at(0);
    EXPECT_NO_THROW(make_encoding(text, kModel)) << text;
    EXPECT_EQ(print(parse(text)), text) << "not the canonical form";
  }
}

// An ellipsis at the end of a shown message stands for the rest.
TEST(DocsNames, ErrorsAreAsShown) {
  const auto rows = table_rows(read_page("docs/expressions.md"), "| written | message |");
  EXPECT_GE(rows.size(), 12u);
  for (const auto& row : rows) {
    ASSERT_EQ(row.size(), 2u);
    const std::string text = quoted(row[0]).at(0);
    std::string shown = row[1];
    try {
      make_encoding(text, kModel);
      ADD_FAILURE() << text << " is no error";
    } catch (const UsageError& error) {
      std::string message = error.what();
      // The table leaves out what all of them begin with.
      const std::string source = str("encoding '", text, "', ");
      if (message.rfind(source, 0) == 0) message.erase(0, source.size());
      if (shown.size() > 4 && shown.compare(shown.size() - 4, 4, " ...") == 0) {
        shown.resize(shown.size() - 3);
        message.resize(std::min(message.size(), shown.size()));
      }
      EXPECT_EQ(message, shown) << text;
    }
  }
}

TEST(DocsNames, SettingsOfTheTasksAreThoseOfTheProfiles) {
  const auto rows =
      table_rows(read_page("docs/tasks.md"),
                 "| task | profile | trained length | tested | `--problems` | `--batch` | steps | seeds |");
  ASSERT_EQ(rows.size(), 6u);
  for (const auto& row : rows) {
    ASSERT_EQ(row.size(), 8u);
    const std::string task = quoted(row[0]).at(0);
    const ComparePlan plan = profile_plan(quoted(row[1]).at(0), task);
    EXPECT_EQ(row[2], str(plan.run.length, task == "addition" ? " digits" : " tokens"));
    EXPECT_EQ(row[3], str(plan.eval_lengths.front(), " to ", plan.eval_lengths.back()));
    EXPECT_EQ(row[4], str(plan.problems));
    EXPECT_EQ(row[5], str(plan.run.batch));
    EXPECT_EQ(row[6], str(plan.run.steps));
    EXPECT_EQ(row[7], str(plan.seeds.size()));
  }
}

}  // namespace
}  // namespace torsor

#include "support/config_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "support/error.h"
#include "testing/temp_folder.h"

namespace mlc_native {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class ConfigFieldsTest : public ::testing::Test {
 protected:
  ConfigFields Fields(const std::string& text) {
    folder_.Write("x.json", text);
    return ConfigFields::ReadFile(folder_.file("x.json"));
  }
  // The message of the LoadError about `field` that an action throws, without the path.
  template <typename Action>
  std::string Error(const std::string& field, Action action) {
    try {
      action();
    } catch (const LoadError& error) {
      EXPECT_EQ(error.field(), field);
      const std::string message = error.what(), path = folder_.file("x.json") + ": ";
      EXPECT_THAT(message, StartsWith(path));
      return message.substr(path.size());
    }
    ADD_FAILURE() << "nothing was thrown for " << field;
    return "";
  }

  const testing::TempFolder folder_;
};

TEST_F(ConfigFieldsTest, ErrorsNameFieldValueAndRange) {
  const ConfigFields fields = Fields(R"({"i": 5, "r": 1.5, "s": "x", "l": [1, "a"], "n": null})");
  EXPECT_EQ(Error("i", [&] { fields.Integer("i", {}, 6, 9); }),
            "\"i\" must be an integer in [6, 9], got 5");
  EXPECT_EQ(Error("i", [&] { fields.Integer("i", {}, 6, 6); }),
            "\"i\" must be the integer 6, got 5");
  EXPECT_EQ(Error("r", [&] { fields.Integer("r", {}, 0, 9); }),
            "\"r\" must be an integer in [0, 9], got 1.5");
  EXPECT_EQ(Error("s", [&] { fields.Number("s", {}); }), "\"s\" must be a number, got \"x\"");
  EXPECT_EQ(Error("n", [&] { fields.Number("n", {}); }), "\"n\" must be a number, got nothing");
  EXPECT_EQ(Error("l", [&] { fields.Strings("l"); }),
            "\"l\" must be a list of strings, got [1,\"a\"]");
  EXPECT_EQ(Error("i", [&] { fields.Object("i"); }), "\"i\" must be a JSON object, got 5");
}

TEST_F(ConfigFieldsTest, AbsentAndNullTakeTheDefault) {
  const ConfigFields fields = Fields(R"({"n": null})");
  for (const char* name : {"n", "absent"}) {
    EXPECT_EQ(fields.Integer(name, 3, 0, 9), 3);
    EXPECT_EQ(fields.String(name, "d"), "d");
    EXPECT_TRUE(fields.Strings(name).empty());
    EXPECT_FALSE(fields.HasObject(name));
    EXPECT_TRUE(fields.Object(name).Names().empty());
  }
  EXPECT_TRUE(fields.IsNull("n"));
  EXPECT_FALSE(fields.IsNull("absent"));
}

TEST_F(ConfigFieldsTest, ObjectsOutliveWhatTheyAreOf) {
  std::vector<ConfigFields> items =
      Fields(R"({"o": {"l": [{"i": 1}, {"i": 2}]}})").Object("o").Objects("l");
  EXPECT_EQ(items.at(1).Integer("i", {}, 0, 9), 2);
  EXPECT_EQ(Error("i", [&] { items[1].Integer("i", {}, 5, 9); }),
            "l[1]: \"i\" must be an integer in [5, 9], got 2");
}

TEST_F(ConfigFieldsTest, FlattenedAndRespelled) {
  const ConfigFields flat = Fields(R"({"a": 1, "b": 2, "o": {"b": 3, "aa": 4}})").Flattened("o");
  EXPECT_THAT(flat.Names(), ElementsAre("a", "aa", "b", "o"));
  EXPECT_EQ(flat.Integer("b", {}, 0, 9), 3);
  const ConfigFields spelled = flat.Respelled({{"x", "a"}, {"y", "absent"}});
  EXPECT_EQ(spelled.Integer("x", {}, 0, 9), 1);
  EXPECT_EQ(spelled.Integer("y", 7, 0, 9), 7);
  const auto none = ConfigFields::SmallNumbers::kNotGiven;
  EXPECT_FALSE(Fields(R"({"a": 0})").Respelled({{"x", "a"}}, none).Has("x"));
  EXPECT_TRUE(Fields(R"({"a": 0})").Respelled({{"x", "a"}}).Has("x"));
}

TEST_F(ConfigFieldsTest, AFileThatIsNoObject) {
  EXPECT_THAT(Error("x.json", [&] { Fields("{"); }), HasSubstr("is not valid JSON: "));
  EXPECT_EQ(Error("x.json", [&] { Fields("[]"); }), "is not a JSON object");
  EXPECT_THROW(ConfigFields::ReadFile(folder_.file("absent.json")), LoadError);
  EXPECT_THROW(ConfigFields::ReadFile(folder_.path()), LoadError);  // a folder
}

TEST(ConfigFields, TextOfACaller) {
  try {
    ConfigFields::Parse("[1]", "The thing", "thing", ThrowFieldError<InvalidConfig>);
    FAIL() << "accepted";
  } catch (const InvalidConfig& error) {
    EXPECT_STREQ(error.what(), "The thing must be a JSON object, got [1]");
    EXPECT_EQ(error.field(), "thing");
  }
  const ConfigFields fields =
      ConfigFields::Parse(R"({"a": 1})", "The thing", "thing", ThrowFieldError<InvalidConfig>);
  EXPECT_THROW(fields.String("a"), InvalidConfig);
}

}  // namespace
}  // namespace mlc_native

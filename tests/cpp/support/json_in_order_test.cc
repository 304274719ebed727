#include "support/json_in_order.h"

#include <gtest/gtest.h>

#include <string>

namespace mlc_native {
namespace {

std::string OrderOf(std::string_view text) {
  JsonWriter json;
  json.Put(ReadOrder(text));
  return json.Take();
}

TEST(JsonInOrderTest, KeepsNamesAndShape) {
  EXPECT_EQ(OrderOf(R"({"z": 1, "a": {"y": [true, {"c": "}]", "b": -1e3}], "x": {}}, "m": []})"),
            R"({"z":null,"a":{"y":[null,{"c":null,"b":null}],"x":{}},"m":[]})");
  EXPECT_EQ(OrderOf("{ \"b\\\"\\u0041\" :\n[ ] ,\t\"\" : null }"), R"({"b\"A":[],"":null})");
  EXPECT_EQ(OrderOf(" [ [ ] , 1 ] "), "[[],null]");
  EXPECT_EQ(OrderOf("\"{\""), "null");
}

}  // namespace
}  // namespace mlc_native

#include "grammar/xgrammar/structural_tag.h"

#include <vector>

#include <nlohmann/json.hpp>

#include "grammar/backend.h"

namespace mlc_native {
namespace {

using Json = nlohmann::json;

constexpr int kMaxWhitespace = 2;  // characters in one place

Json FromTriggers(const Json& tag) {
  Json tags = Json::array();
  for (const Json& structure : tag.at("structures")) {
    tags.push_back({{"type", "tag"},
                    {"begin", structure.at("begin")},
                    {"content", {{"type", "json_schema"}, {"json_schema", structure.at("schema")}}},
                    {"end", structure.at("end")}});
  }
  return {{"type", "triggered_tags"}, {"triggers", tag.at("triggers")}, {"tags", tags}};
}

// In `format` and everything below it, but not inside of schemas.
void LimitWhitespace(Json& format) {
  std::vector<Json*> todo = {&format};
  while (!todo.empty()) {
    Json& part = *todo.back();
    todo.pop_back();
    if (part.is_object() && part.contains("json_schema")) {
      if (!part.contains("max_whitespace_cnt")) part["max_whitespace_cnt"] = kMaxWhitespace;
    } else if (part.is_structured()) {
      for (Json& below : part) todo.push_back(&below);
    }
  }
}

}  // namespace

std::string PrepareStructuralTag(const std::string& text) {
  try {
    Json tag = Json::parse(text);
    Json format = tag.contains("structures") ? FromTriggers(tag) : tag.at("format");
    LimitWhitespace(format);
    return Json{{"type", "structural_tag"}, {"format", std::move(format)}}.dump();
  } catch (const Json::exception& error) {
    throw GrammarError(std::string("no structural tag: ") + error.what());
  }
}

}  // namespace mlc_native

#include "template/chat_template.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/utf8.h"

namespace mlc_native {
namespace {

constexpr char kChat[] = R"({"messages": [{"role": "user", "content": "Hi <s>"},
    {"role": "assistant", "content": "é", "n": 1.50, "list": [1, true, null, "a'b"]}],
    "tools": null, "add_generation_prompt": true, "text": "ab\ncd"})";

RenderedPrompt Render(const std::string& source, const RenderLimits& limits = {}) {
  return ChatTemplate::Compile(source)->Render(kChat, R"({"bos_token": "<s>"})", limits);
}

std::string TextOf(const std::string& source) { return Render(source).text; }

TemplateError ErrorOf(const std::string& source, const RenderLimits& limits = {}) {
  try {
    Render(source, limits);
  } catch (const TemplateError& error) {
    return error;
  }
  ADD_FAILURE() << source << " renders";
  return {TemplateError::Kind::kSyntax, "", 0};
}

TEST(ChatTemplate, KeepsTextsOfTheInputApart) {
  const RenderedPrompt prompt = Render("{{ bos_token }}[{{ messages[0].content }}]{{ 1 + 1 }}");
  EXPECT_EQ(prompt.text, "<s>[Hi <s>]2");
  EXPECT_TRUE(prompt.has_input);
  EXPECT_EQ(prompt.own, (std::vector<PromptRange>{{0, 4}, {10, 12}}));
  EXPECT_FALSE(Render("{{ messages[0].role }}").has_input);  // a role may be a control token
  EXPECT_TRUE(Render("{{ messages }}").own.empty());
  const RenderedPrompt names = Render("{% for name in messages[0] %}{{ name }}{% endfor %}");
  EXPECT_EQ(names.text, "rolecontent");
  EXPECT_TRUE(names.own.empty());
}

TEST(ChatTemplate, RemovesWhiteSpaceAroundTags) {
  EXPECT_EQ(TextOf("a\n  {% if true %}\n b\n  {% endif %}\nc\n"), "a\n b\nc");
  EXPECT_EQ(TextOf("a {%- if true -%} b {%- endif -%}\n c"), "abc");
  EXPECT_EQ(TextOf("  {%+ if true +%}\nb{% endif %}"), "  \nb");
  EXPECT_EQ(TextOf("a\n {# b #}\nc {#- d -#} e"), "a\nce");
  EXPECT_EQ(TextOf("{% raw %}{{ x }}{% endraw %}\n{{ '}}' }}{{ {'a': {}}['a'] }}"), "{{ x }}}}{}");
}

TEST(ChatTemplate, ShowsValuesAsPython) {
  EXPECT_EQ(TextOf("{{ messages[1].list }}{{ messages[1].n }}{{ tools }}"),
            "[1, True, None, \"a'b\"]1.5None");
  EXPECT_EQ(TextOf("{{ [1e16, 1e-5, 0.1, 7 / 2, 7 // -2, -7 % 3, 2 ** 10] }}"),
            "[1e+16, 1e-05, 0.1, 3.5, -4, 2, 1024]");
  EXPECT_EQ(TextOf("{{ (1,) }}{{ 'é\\n' | list }}{{ {'a': (), 1: none} }}"),
            "(1,)['é', '\\n']{'a': (), 1: None}");
  EXPECT_EQ(TextOf("{{ messages[1] | tojson }}"),
            R"({"role": "assistant", "content": "é", "n": 1.5, "list": [1, true, null, "a'b"]})");
  EXPECT_EQ(TextOf("{{ {'b': [], 'a': [1]} | tojson(indent=2, sort_keys=true) }}"),
            "{\n  \"a\": [\n    1\n  ],\n  \"b\": []\n}");
  EXPECT_EQ(TextOf("{{ 'a\x7F' | tojson }}{{ 'a\x7F' | tojson(ensure_ascii=true) }}"),
            "\"a\x7F\"\"a\\u007f\"");
  EXPECT_EQ(TextOf("{{ ' a b c '.split(none, 1) }}{{ ' a b '.split(none, 5) }}"),
            "['a', 'b c ']['a', 'b']");
  EXPECT_EQ(TextOf("{{ '+-5' | int }}{{ '+-5' | float(1) }}{{ '+5' | int }}"), "015");
  EXPECT_EQ(TextOf("{{ (0 - 0.4) | round(0, 'ceil') }}"), "0.0");
}

TEST(ChatTemplate, HasScopes) {
  EXPECT_EQ(TextOf("{% set x = 1 %}{% for i in [2] %}{% set x = i %}{{ x }}{% endfor %}{{ x }}"),
            "21");
  EXPECT_EQ(TextOf("{% set n = namespace(x=0) %}{% for i in range(4) if i != 2 %}"
                   "{% set n.x = n.x + i %}{{ loop.index }}{{ loop.last }}{% endfor %}{{ n.x }}"),
            "1False2False3True4");
  EXPECT_EQ(TextOf("{% macro f(a, b=a) %}{{ a }}{{ b }}{{ caller() }}{% endmacro %}"
                   "{% call f(1) %}x{% endcall %}"),
            "11x");
  EXPECT_EQ(
      TextOf("{% for i in [] %}{% else %}none{% endfor %}"
             "{% for i in [1, 2, 3] %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}"),
      "none1");
  // `else` follows a loop of which no iteration reached the end of its body.
  EXPECT_EQ(
      TextOf("{% for i in [1, 2] %}{% break %}{% else %}a{% endfor %}"
             "{% for i in [1, 2] %}{% continue %}{% else %}b{% endfor %}"
             "{% for i in [1, 2] if i > 1 %}{% break %}{% else %}c{% endfor %}"
             "{% for i in [1, 2] %}{% if i == 2 %}{% break %}{% endif %}{% else %}d{% endfor %}"),
      "abc");
  EXPECT_EQ(TextOf("{% generation %}{% set x = 1 %}{{ x }}{% endgeneration %}{{ x }}"), "1");
  EXPECT_EQ(TextOf("{% set b = 9 %}{% macro f(a=b, b=1, c=a ~ b) %}{{ a }}{{ b }}{{ c }}"
                   "{% endmacro %}{{ f() }} {{ f(b=5) }} {{ f(3) }}"),
            "11 5555 3131");
}

TEST(ChatTemplate, QuotesWholeCharactersInItsErrors) {
  for (const char* source :
       {"{{ '%é' % 'x' }}", "{{ 5['a' ~ 'é' * 30] }}", "{{ '{éé aéééééééééé}'.format(1) }}"}) {
    EXPECT_TRUE(IsValidUtf8(ErrorOf(source).what())) << source;
  }
  EXPECT_THROW(ChatTemplate::Compile("{{ x 'ééééééééééééééééééééééé' }}"), TemplateError);
}

TEST(ChatTemplate, FindsMembersOfLargeObjects) {
  std::string numbers, names;
  for (int i = 0; i < 1000; ++i) {
    numbers += std::to_string(i) + ": " + std::to_string(-i) + ", ";
    names += "'k" + std::to_string(i) + "': " + std::to_string(i) + ", ";
  }
  EXPECT_EQ(TextOf("{% set d = {" + numbers + "} %}{{ d[999] }}{{ d[1.0] }}{{ d | length }}"),
            "-999-11000");
  EXPECT_EQ(TextOf("{% set d = {" + names + "'k7': 'x'} %}{{ d.k999 }}{{ d.k7 }}{{ d.k1000 }}"),
            "999x");
}

TEST(ChatTemplate, CountsCodePoints) {
  EXPECT_EQ(TextOf("{{ 'aéb'[1] }}{{ 'aéb'[-2:] }}{{ 'aéb' | length }}{{ 'aéb'.find('b') }}"),
            "ééb32");
}

TEST(ChatTemplate, NamesWhatItDoesNotSupport) {
  for (const char* source : {"{% include 'x' %}", "{{ 1 | wordwrap }}", "{{ 1 is escaped }}",
                             "{{ 9999999999999999 * 9999 }}", "{{ 'É' | lower }}"}) {
    EXPECT_EQ(ErrorOf(source).kind(), TemplateError::Kind::kNotSupported) << source;
  }
  const TemplateError error = ErrorOf("\n\n{% include 'x' %}");
  EXPECT_STREQ(error.what(), "the tag include");
  EXPECT_EQ(error.line(), 3);
}

TEST(ChatTemplate, FailsWithALine) {
  const TemplateError raised = ErrorOf("a\n{{ raise_exception('no ' ~ 1) }}");
  EXPECT_EQ(raised.kind(), TemplateError::Kind::kRaised);
  EXPECT_STREQ(raised.what(), "no 1");
  EXPECT_EQ(raised.line(), 2);
  EXPECT_EQ(ErrorOf("{{ nothing.x }}").kind(), TemplateError::Kind::kFailed);
  EXPECT_EQ(ErrorOf("{{ 1 + 'a' }}").kind(), TemplateError::Kind::kFailed);
  for (const char* source : {"{% for i %}", "{{ ", "{% if 1 %}", "{{ (1 }}", "{{ 1 2 }}", "\xFF"}) {
    EXPECT_EQ(ErrorOf(source).kind(), TemplateError::Kind::kSyntax) << source;
  }
  const auto any = ChatTemplate::Compile("a");
  for (const char* json : {"", "[]", "{", "{\"a\": \"\xFF\"}", "{\"a\": \"\\ud800\"}", "{} 1"}) {
    EXPECT_THROW(any->Render(json), TemplateError) << json;
  }
}

TEST(ChatTemplate, IsBounded) {
  const RenderLimits limits{.seconds = 60, .steps = 50'000, .memory_bytes = 1 << 20};
  for (const char* source :
       {"{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}", "{{ 'a' * 9999999999 }}",
        "{% set s = namespace(x=[1]) %}{% for i in range(60) %}{% set s.x = [s.x, s.x] %}{% endfor "
        "%}"
        "{{ s.x }}",
        "{% set s = namespace(x=[1]) %}{% for i in range(999) %}{% set s.x = [s.x] %}{% endfor %}"
        "{{ s.x | tojson }}",
        "{% set s = namespace(x='a') %}{% for i in range(99) %}{% set s.x = s.x ~ s.x %}{% endfor "
        "%}",
        "{% set s = namespace(x=[1]) %}{% for i in range(9999) %}{% set s.x = s.x | map('string') "
        "%}"
        "{% endfor %}{{ s.x | list }}",
        "{% set s = namespace() %}{% set s.x = [s] %}{{ 'a' * 9999999999 }}"}) {
    const TemplateError error = ErrorOf(source, limits);
    EXPECT_EQ(error.kind(), TemplateError::Kind::kLimit) << source << ": " << error.what();
  }
}

}  // namespace
}  // namespace mlc_native

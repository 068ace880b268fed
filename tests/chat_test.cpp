// Chat templates: what each construct of Jinja makes, what is refused, and that hostile templates end.
#include "model/chat/render.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "heed/error.hpp"

namespace {

using heed::detail::chat::dict_of;
using heed::detail::chat::list_of;
using heed::detail::chat::None;
using heed::detail::chat::Value;

Value message(const char* role, const char* content) {
  return dict_of({{"role", role}, {"content", content}});
}

std::string rendered(const std::string& source) {
  std::vector<std::pair<std::string, Value>> variables = {
      {"messages", list_of({message("system", "Be brief."), message("user", " Hi, Zoë! "),
                            message("assistant", "Yes.")})},
      {"tools", None{}},
      {"bos_token", "<s>"},
      {"add_generation_prompt", true}};
  return heed::detail::chat::rendered(source, std::move(variables));
}

std::string refusal(const std::string& source) {
  try {
    return "gives '" + rendered(source) + "'";
  } catch (const heed::Error& error) {
    EXPECT_EQ(error.code(), heed::ErrorCode::invalid_argument);
    return error.what();
  }
}

struct Case {
  const char* source;
  const char* expected;
};

// Expectations from jinja2 3.1.6 with transformers' settings.
TEST(Chat, TemplatesMakeTheirText) {
  const std::vector<Case> cases = {
      {"", ""},
      {"plain\n", "plain"},
      {"a\r\nb\rc", "a\nb\nc"},
      {"{{ bos_token }}x{{ missing }}", "<s>x"},
      {"{{ 1 + 2 * 3 }} {{ 7 // -2 }} {{ -7 % 3 }} {{ 1 / 4 }} {{ 'ab' * 2 }} {{ 'n' ~ 1 ~ none ~ true }}",
       "7 -4 2 0.25 abab n1NoneTrue"},
      {"{{ 1 < 2 < 3 and not (2 >= 3) }} {{ 'b' in 'abc' }} {{ 4 not in [1, 2] }} {{ 0 or 'x' }} {{ '' and 1 "
       "}}",
       "True True True x "},
      {"{{ 'yes' if messages|length == 3 else 'no' }}{{ 'lost' if false }}", "yes"},
      {"{{ messages[-1]['content'] }} {{ messages[0].role }} {{ messages[1].content[1:3] }} {{ 'abc'[::-1] "
       "}}",
       "Yes. system Hi cba"},
      {"{% for m in messages %}{{ loop.index0 }}{{ m.role[0] }}{% if not loop.last %}, {% endif %}{% endfor "
       "%}",
       "0s, 1u, 2a"},
      {"{% for m in messages if m.role != 'user' %}{{ loop.index }}/{{ loop.length }} {% else %}none{% "
       "endfor %}",
       "1/2 2/2 "},
      {"{% for x in [] %}{% else %}empty{% endfor %}", "empty"},
      {"{% for x in [1] %}{{ x }}{% break %}{% else %} none ended{% endfor %}", "1 none ended"},
      {"{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }};{% endfor %}", "a=1;b=2;"},
      {"{% for i in range(9) %}{% if i == 1 %}{% continue %}{% elif i == 3 %}{% break %}{% endif %}{{ i }}{% "
       "endfor %}",
       "02"},
      {"{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = 5 %}{% endfor %}{{ x }}", "111"},
      {"{% set ns = namespace(n=0) %}{% for i in [1, 2] %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}",
       "3"},
      {"{% set a, b = 'x', 'y' %}{{ b }}{{ a }}{% set t %}<{{ a }}>{% endset %}{{ t|length }}", "yx3"},
      {"{% macro f(a, b='-') %}{{ a }}{{ b }}{{ bos_token }}{% endmacro %}{{ f(1) }}{{ f(2, b=3) }}",
       "1-<s>23<s>"},
      {"{% generation %}g{% endgeneration %}{# a comment #}", "g"},
      {"a \n  {% if true %}\n  b\n  {%- endif %}  \n c", "a \n  b  \n c"},
      {"a\n  {{ 'b' }}\n{%+ if true %} c {% endif +%}\nd", "a\n  b\n c \nd"},
      {"{{- ' x ' -}}   y {#- z -#}  w", " x yw"},
      {"{{ '\\n\\'\\x41\\u00e9' \"b\" }}", "\n'A\u00e9b"},
      {"{{ messages[1].content|trim }}|{{ messages[1].content.strip()|upper if false }}", "Hi, Zo\u00eb!|"},
      {"{{ 'xxabx'.strip('x') }} {{ 'a,b,,c'.split(',')|join('+') }} {{ ' a  b '.split()[1] }} {{ "
       "'a-b-c'.rsplit('-', 1)[0] }}",
       "ab a+b++c b a-b"},
      {"{{ 'abcabc'.replace('b', 'X', 1) }} {{ 'it is'|title }} {{ 'aBC'|capitalize }} {{ "
       "'ab'.startswith(('x', 'a')) }}",
       "aXcabc It Is Abc True"},
      {"{{ missing|default('d') }} {{ ''|default('e', true) }} {{ none is none }} {{ missing is defined }} "
       "{{ 3 is odd }}",
       "d e True False True"},
      {"{{ {'a': [1, 2.5, none, true], 'b': '\"\\n\u00e9'}|tojson }}",
       "{\"a\": [1, 2.5, null, true], \"b\": \"\\\"\\n\u00e9\"}"},
      {"{{ {'a': [1], 'b': {}}|tojson(indent=2) }}", "{\n  \"a\": [\n    1\n  ],\n  \"b\": {}\n}"},
      {"{{ messages|map(attribute='role')|join(' ') }} {{ messages|selectattr('role', 'equalto', "
       "'user')|list|length }}",
       "system user assistant 1"},
      {"{{ messages|rejectattr('role', 'in', ['user', 'tool'])|map(attribute='role')|first }}", "system"},
      {"{{ strftime_now is defined }} {{ raise_exception is defined }} {{ tools is none }}",
       "True True True"},
      {"{{ '\\x41\\u00e9\\U0001F600\\q' }}{{ 'a\\\nb' }}", "A\u00e9\U0001F600\\qab"},
      {"{{ True }}{{ False }}{{ None }} {{ 1.5 }} {{ ()|length }}{{ (1,)|length }}", "TrueFalseNone 1.5 01"},
      {"{% for (a, b) in [[1, 2]] %}{{ a }}{{ b }}{% endfor %} {{ 2 is eq 2 }} {{ 2 is eq(2) }}",
       "12 True True"},
      {"{{ {'a': 1,}|length }}{{ [1,]|length }}{{ {}|length }} {{ true }}{{ false }}{{ none }} {{ +1 }}{{ "
       "--2 "
       "}}{{ 2 * -3 }}",
       "110 TrueFalseNone 12-6"},
      {"{{ 'abcdef'[1:4:2] }} {{ 'abc'[:2] }} {{ 'abc'[::] }} {{ 'abc'[1:] }} {{ 'abcd'[::2] }}",
       "bd ab abc bc ac"},
      {"{{ 1 != 2 }} {{ 2 <= 1 }} {{ 2 > 1 }} {{ not 1 is odd }} {{ 2 is not odd }} {{ 4 is divisibleby 2 }} "
       "{{ 'a' is in 'abc' }} {{ 'a' is in ['b'] }}",
       "True False True False True True True False"},
      {"{{ 'x' if none is none else 'y' }}{{ 1 is odd or 0 }}{{ 1 is odd and 3 }}", "xTrue3"},
      {"{{ (messages|first).role }} {{ ['a'|upper, 1.25] |join('-') }} {{ (1, 2)|last }}", "system A-1.25 2"},
      {"{% if tools %}{{ tools|unheard_of }}{{ x.y.z }}{% endif %}ok", "ok"},
      {"{% if messages|selectattr('role', 'eq', 'tool') %}a{% endif %}{% if []|map('upper') %}b{% endif %}{% "
       "if "
       "missing|reject %}c{% endif %}{% if {}|items %}d{% endif %}{% if []|reverse %}e{% endif %}{% if "
       "{}.items() "
       "%}f{% endif %}",
       "abcde"},
      {"{{ (messages|map(attribute='role'))[0] }}{{ (messages|reverse)[0] }}{{ ({'a': 1}.keys())[0] }}|{{ "
       "range(3)[1] }}{{ range(3)[1:]|length }}",
       "|12"},
      {"{{ messages|map(attribute='role')|reverse|join(' ') }} {{ "
       "messages|map(attribute='role')|reverse|length "
       "}} {{ messages|reverse|map(attribute='role')|first }} {{ {'a': 1}.keys()|last }}",
       "assistant user system 3 assistant a"},
      {"{{ 'user' in messages|map(attribute='role') }} {{ []|select is sequence }} {{ []|select is iterable "
       "}} {{ "
       "{}.keys() is sequence }} {{ range(2) is sequence }}",
       "True False True False True"},
      {"{{ range(2) == [0, 1] }} {{ range(2) == range(2) }} {{ {'a': 1}.keys() == ['a'] }} {{ ['a'] == "
       "('a',) }}",
       "False True False False"},
      {"{% for x in messages|map(attribute='role') %}{{ x }} {{ loop.length }}{{ loop.previtem }} {% endfor "
       "%}{% "
       "set a, b = ['x', 'y']|map('upper') %}{{ b }}",
       "system 3 user 3system assistant 3user Y"},
      {"{% for x in 'ab' %}{% for y in 'c' %}{{ loop.depth }}{{ loop.depth0 }}{{ loop['length'] }}{{ loop is "
       "mapping }}{{ loop.nope }}{% endfor %}{% endfor %}",
       "101False101False"},
      {"a\r", "a"},
      {"a\r\r\n", "a\n"},
      {"x {% if true %}y{% endif %}\nz {# c #}w", "x yz w"},
      {"{##}a{#-#} b{#+#} c {# d +#}\ne", "a b c \ne"},
      {"{{ ' \x1c a\x1f'|trim }}\xff|", "a\xff|"},
      {"{% macro f(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ f(1, 2) }}", "12"},
      {"{% set x = 1, %}{{ x|length }}{{ (2, )|first }}", "12"},
      {"{% set n = 2 %}{{ 4 is divisibleby n }} {{ 1 is eq 1.0 }} {{ {} is eq {} }}", "True True True"},
      {"{{ 'a' if true if false else 'b' }}{{ 1 if 0 if 1 }}{{ 7 if 1 else 8 if 0 else 9 }}", "b7"},
      {"{% for x in [1, 2, 3] if x > 1 if x > 2 %}{{ x }}{% endfor %}", "3"},
      {"{{ 1 -1 }}{{ - 2 ~ 3 }} {{ 2 - -2 }} {{ not not 1 in [1] }}", "0-23 4 True"},
  };
  for (const Case& one : cases)
    EXPECT_EQ(refusal(one.source), std::string("gives '") + one.expected + "'") << one.source;
}

TEST(Chat, TemplatesAreRefusedWithTheirLine) {
  const std::vector<Case> cases = {
      {"\n{{ 'a'|xmlattr }}", "uses the filter 'xmlattr', which heed does not know (line 2)"},
      {"{{ 'a' is sameas 'a' }}", "uses the test 'sameas', which heed does not know (line 1)"},
      {"{{ 'a'.zfill(3) }}", "uses the method 'zfill', which heed does not know (line 1)"},
      {"{{ cycler(1) }}", "uses 'cycler', which heed does not know (line 1)"},
      {"{% include 'x' %}", "uses the block 'include', which heed does not know (line 1)"},
      {"{{ messages.append(1) }}", "uses the method 'append' of a list, which heed does not know (line 1)"},
      {"{{ {'items': 1}.items }}",
       "uses 'items' of a dict without calling it, which heed does not know (line 1)"},
      {"{{ ''.__class__ }}",
       "uses '__class__' of a text without calling it, which heed does not know (line 1)"},
      {"{{ missing.x }}", "asks an undefined value, 'missing', for its 'x' (line 1)"},
      {"{{ messages }}", "writes a list as Python does, which heed does not know (line 1)"},
      {"{{ 'a' + 1 }}", "computes '+' of a text and an integer (line 1)"},
      {"{{ 1 // 0 }}", "divides by 0 (line 1)"},
      {"{{ 9223372036854775807 + 1 }}", "makes a number beyond 64 bits (line 1)"},
      {"{{ '\u00e9'|upper }}", "changes the case of a text beyond ASCII, which heed does not know (line 1)"},
      {"{{ raise_exception('roles must alternate') }}",
       "refuses the messages: 'roles must alternate' (line 1)"},
      {"{{ 'a'|replace('a') }}", "gives the filter 'replace' no 'new' (line 1)"},
      {"{{ 'a'|trim(1, 2) }}", "gives the filter 'trim' 2 arguments; at most 1 are expected (line 1)"},
      {"{% if true %}\n\n", "has its end where 'endif' is expected (line 2)"},
      {"{% endif %}", "uses the block 'endif', which heed does not know (line 1)"},
      {"{{ 1", "has a tag without an end (line 1)"},
      {"{{ 1 + }}", "has the end of a tag where a value is expected (line 1)"},
      {"{{ {'a' 1} }}", "has '1' where ':' is expected (line 1)"},
      {"{{ {'a': 1 2} }}", "has '2' where ',' is expected (line 1)"},
      {"{{ [1 2] }}", "has '2' where ',' is expected (line 1)"},
      {"{{ 'a'[1:2:3:4] }}", "has ':' where ']' is expected (line 1)"},
      {"{{ 'a'[1 2] }}", "has '2' where ']' is expected (line 1)"},
      {"{{ (1 2) }}", "has '2' where ')' is expected (line 1)"},
      {"{{ 'a'|replace(old='a', 'b') }}", "has 'b' where an argument with a name is expected (line 1)"},
      {"{{ 'a'|replace('a' 'b') }}", "gives the filter 'replace' no 'new' (line 1)"},
      {"{{ 'a'. }}", "has the end of a tag where a name is expected (line 1)"},
      {"{{ 'a'|1 }}", "has '1' where a name is expected (line 1)"},
      {"{{ 'a'|a.b }}", "uses the filter 'a.b', which heed does not know (line 1)"},
      {"{{ 1 is odd is odd }}", "has 'is' where no second test of the same value is expected (line 1)"},
      {"{{ 1 is }}", "has the end of a tag where a name is expected (line 1)"},
      {"{{ 2 ** 3 }}", "has '**', which heed does not know (line 1)"},
      {"{{ 99999999999999999999 }}",
       "has the number '99999999999999999999', which heed does not know (line 1)"},
      {"{{ 1 not 2 }}", "has 'not' where '}}' is expected (line 1)"},
      {"{{ 1 not is 2 }}", "has 'not' where '}}' is expected (line 1)"},
      {"{{ ''", "has a tag without an end (line 1)"},
      {"{{ '' '", "has a string without an end (line 1)"},
      {"{% for 1 in x %}", "has '1' where a name is expected (line 1)"},
      {"{% for a x %}", "has 'x' where 'in' is expected (line 1)"},
      {"{% set 1 = 2 %}", "has '1' where a name is expected (line 1)"},
      {"{% set a.b.c = 2 %}", "has '.' where '%}' is expected (line 1)"},
      {"{% if 1 else %}", "has 'else' where '%}' is expected (line 1)"},
      {"{% 1 %}", "has '1' where a name is expected (line 1)"},
      {"{% if 1 %}{% else %}{% else %}{% endif %}",
       "uses the block 'else', which heed does not know (line 1)"},
      {"{{ (1] }}", "has ']' that closes nothing (line 1)"},
      {"{{ 0x1F }}", "has the number '0x', which heed does not know (line 1)"},
      {"{{ 007 }}", "has the number '007', which heed does not know (line 1)"},
      {"{{ 1.5e3 }}", "has the number '1.5e', which heed does not know (line 1)"},
      {"{{ '\\777' }}", "has the escape '\\7' in a string, which heed does not know (line 1)"},
      {"{{ '\\N{DASH}' }}", "has the escape '\\N' in a string, which heed does not know (line 1)"},
      {"{{ '\\x4' }}", "has an escape in a string that is no character (line 1)"},
      {"{{ '\\ud800' }}", "has an escape in a string that is no character (line 1)"},
      {"{{ '\\U00110000' }}", "has an escape in a string that is no character (line 1)"},
      {"{% set x | upper %}a{% endset %}", "filters a block of set, which heed does not know (line 1)"},
      {"{% for x in messages recursive %}{% endfor %}",
       "has a recursive loop, which heed does not know (line 1)"},
      {"{% break %}", "has break outside of a loop (line 1)"},
      {"{% macro f(a=1, b) %}{% endmacro %}",
       "has a macro whose parameter 'b' without a default follows one with a default (line 1)"},
      {"{% macro f(a, a) %}{% endmacro %}", "has a macro with two parameters 'a' (line 1)"},
      {"{% macro f(a,) %}{% endmacro %}", "has ')' where a name is expected (line 1)"},
      {"{{ []|map('upper')|length }}", "asks for the length of a generator (line 1)"},
      {"{{ messages|reverse|length }}", "asks for the length of a generator (line 1)"},
      {"{{ []|select|last }}", "asks for the last item of a generator (line 1)"},
      {"{{ []|select|tojson }}", "writes a generator as JSON (line 1)"},
      {"{{ {'a': 1}.keys()|tojson }}", "writes a view of a dict as JSON (line 1)"},
      {"{{ range(3)|tojson }}", "writes a range as JSON (line 1)"},
      {"{{ []|select + [] }}", "computes '+' of a generator and a list (line 1)"},
      {"{{ range(3) + [] }}", "computes '+' of a range and a list (line 1)"},
      {"{{ range(3).stop }}", "uses 'stop' of a range without calling it, which heed does not know (line 1)"},
      {"{{ ({}.keys())[1:] }}", "takes a slice of a view of a dict (line 1)"},
      {"{{ {}.keys() == {}.keys() }}", "compares two views of dicts, which heed does not know (line 1)"},
      {"{% set u = []|select %}{{ u|join }}{{ u|join }}",
       "takes the items of a generator twice, which heed does not know (line 1)"},
      {"{% set u = [[]|select] %}", "puts a generator into a list or a dict (line 1)"},
      {"{{ []|groupby('x') }}", "uses the filter 'groupby', which heed does not know (line 1)"},
      {"{% for x in [1] %}{{ loop|length }}{% endfor %}", "asks for the length of a namespace (line 1)"},
      {"{{ [2, 1]|sort(reverse='yes') }}", "gives a text where an integer is expected (line 1)"},
      {"{{ ['a', 1]|sort }}", "compares an integer with a text (line 1)"},
      {"{{ [[2], [1]]|sort }}", "compares a list with a list (line 1)"},
      {"{{ [{'a': 1}, {}]|sort(attribute='a') }}", "compares an undefined value with an integer (line 1)"},
      {"{{ ['\u00e9', 'a']|sort }}",
       "changes the case of a text beyond ASCII, which heed does not know (line 1)"},
      {"{{ [[1]]|unique }}", "looks for a list among others, which heed does not know (line 1)"},
      {"{{ ['a']|sum }}", "computes '+' of an integer and a text (line 1)"},
      {"{{ ['a']|sum(start='') }}", "sums texts (line 1)"},
      {"{{ [0.5]|sum }}", "sums floats, which heed does not know (line 1)"},
      {"{% for x in [1] %}{{ loop.cycle() }}{% endfor %}",
       "calls loop.cycle() with other than values (line 1)"},
      {"{% for x in [1] %}{{ loop.items() }}{% endfor %}", "calls an undefined value, 'items' (line 1)"},
      {"{% for x in [1] %}{% set loop.x = 1 %}{% endfor %}",
       "sets a member of the variable 'loop'; a namespace is expected (line 1)"},
      {"{{ dict(a=1, a=2) }}", "gives the argument 'a' twice (line 1)"},
      {"{{ 1 '' }}", "has '' where '}}' is expected (line 1)"},
      {"{{ 1, }}", "writes a tuple as Python does, which heed does not know (line 1)"},
      {"{{ f(a '=') }}", "has '=' where ',' is expected (line 1)"},
      {"{{ 'a'|trim()('b') }}", "calls a text, 'trim' (line 1)"},
      {"{{ 1. }}", "has the end of a tag where a name is expected (line 1)"},
      {"{{ 1) }}", "has ')' that closes nothing (line 1)"},
      {"{{ $ }}", "has '$' in a tag, which heed does not know (line 1)"},
      {"{# x", "has a comment without an end (line 1)"},
      {"{{ '\\xzz' }}", "has an escape in a string that is no character (line 1)"},
      {"{{ '\\x4z' }}", "has an escape in a string that is no character (line 1)"},
      {"{{ '\\\u00e9' }}", "has the escape '\\?' in a string, which heed does not know (line 1)"},
      {"{% set ns = namespace() %}{% set ns.me = ns %}", "puts a namespace into a list or a dict (line 1)"},
  };
  for (const Case& one : cases) EXPECT_EQ(refusal(one.source), one.expected) << one.source;
}

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

// Each would take hours, all memory, or the stack.
TEST(Chat, HostileTemplatesEnd) {
  EXPECT_EQ(refusal("{% set x = 9.5 %}" + repeated("{% set x = x * x %}", 12) + "{{ x < x - x }}"),
            "makes a number that is not finite (line 1)");
  const std::string steps = "takes more than 67108864 steps and bytes (line 1)";
  EXPECT_EQ(refusal(repeated("{% for a in range(1000) %}", 6) + "x" + repeated("{% endfor %}", 6)), steps);
  EXPECT_EQ(refusal("{% set s = 'ab' %}" + repeated("{% set s = s ~ s %}", 60)), steps);
  EXPECT_EQ(refusal("{{ range(1000000000)|length }}"), steps);
  EXPECT_EQ(refusal("{{ 'a' * 1000000000 }}"), steps);
  EXPECT_EQ(refusal("{% set x = [0] %}" + repeated("{% set x = [x, x] %}", 40) + "{{ x|tojson }}"), steps);
  EXPECT_EQ(refusal("{% set x = [0] %}" + repeated("{% set x = [x] %}", 70)),
            "nests values more than 64 deep (line 1)");
  EXPECT_EQ(refusal("{{ " + repeated("(", 5000) + "1" + repeated(")", 5000) + " }}"),
            "nests expressions more than 100 deep (line 1)");
  EXPECT_EQ(refusal("{{ 1" + repeated(" ~ 1", 5000) + " }}"),
            "nests expressions more than 100 deep (line 1)");
  EXPECT_EQ(refusal("{{ 1" + repeated("|abs", 5000) + " }}"),
            "nests expressions more than 100 deep (line 1)");
  EXPECT_EQ(refusal(repeated("{% if 1 %}", 5000)), "nests blocks more than 50 deep (line 1)");
  EXPECT_EQ(refusal("{% if 0 %}" + repeated("{% elif 0 %}", 5000) + "{% endif %}"),
            "nests blocks more than 50 deep (line 1)");
  EXPECT_EQ(refusal("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
            "nests blocks, expressions and macros more than 400 deep (line 1)");
}

}  // namespace

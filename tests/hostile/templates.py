"""Chat templates of a hostile model folder: bombs, escapes and programs of a generator."""

from __future__ import annotations

import os
import random
from itertools import product

from hostile.frame import Case, HostileClass

NUM_PROGRAMS = 200
SECRET = "the secret of the process"
MESSAGES = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "What is <|end|> here? " * 4},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": {"a": [1, {}]}}}
        ],
    },
    {"role": "tool", "content": "{}", "name": "f", "tool_call_id": "c"},
]
TOOLS = [
    {"type": "function", "function": {"name": f"f{i}", "parameters": {"type": "object"}}}
    for i in range(3)
]

# A value that holds itself twice, 60 levels deep: as a list, an object, a tuple.
_DEEP = {
    "list": "{% set s = namespace(x=[1]) %}{% for i in range(60) %}{% set s.x = [s.x, s.x] %}"
    "{% endfor %}",
    "object": "{% set s = namespace(x={'a': 1}) %}{% for i in range(60) %}"
    "{% set s.x = {'a': s.x, 'b': s.x} %}{% endfor %}",
    "tuple": "{% set s = namespace(x=(1,)) %}{% for i in range(60) %}{% set s.x = (s.x, s.x) %}"
    "{% endfor %}",
}
# What walks a value; ``y`` is another one like it.
_WALKS = {
    **{"output": "{{ s.x }}", "tojson": "{{ s.x | tojson }}", "string": "{{ s.x | string }}"},
    **{"concat": "{{ s.x ~ '' }}", "equal": "{{ s.x == y }}", "less": "{{ s.x < y }}"},
    **{"unequal": "{{ s.x != y }}", "in": "{{ s.x in [y, y] }}", "not in": "{{ s.x not in [y] }}"},
    **{"sort": "{{ [s.x, y] | sort }}", "unique": "{{ [s.x, y] | unique | list }}"},
    **{"format": "{{ '%s' % (s.x,) }}", "format filter": "{{ '%s' | format(s.x) }}"},
    **{"format method": "{{ '{}'.format(s.x) }}", "key": "{{ {s.x: 1} }}"},
    **{"item": "{{ messages[0][s.x] }}", "get": "{{ messages[0].get(s.x) }}"},
    **{"join": "{{ s.x | join }}", "map": "{{ [s.x] | map('string') | list }}"},
    **{"select": "{{ [s.x] | select('==', y) | list }}", "test": "{{ s.x is eq y }}"},
    **{"select in": "{{ [s.x] | select('in', [y]) | list }}", "upper": "{{ s.x | upper }}"},
    **{"index": "{{ [y, s.x].index(y) }}", "count": "{{ [y].count(s.x) }}"},
    **{"pprint": "{{ s.x | pprint }}", "escape": "{{ s.x | e }}", "min": "{{ [s.x, y] | min }}"},
    **{"groupby": "{{ [{'k': s.x}, {'k': y}] | groupby('k') }}", "max": "{{ [s.x, y] | max }}"},
    **{"dictsort": "{{ {'a': s.x, 'b': y} | dictsort(by='value') }}"},
    **{"raise": "{{ raise_exception(s.x) }}", "chain": "{{ 0 < s.x < y }}"},
    **{
        "dict": "{{ dict([(s.x, 1)]) }}",
        "changed": "{% for i in [1, 2] %}{{ loop.changed([s.x]) }}{% endfor %}",
    },
    **{"wordcount": "{{ s.x | wordcount }}", "length of text": "{{ (s.x | string) | length }}"},
    **{
        "namespace": "{{ s }}",
        "urlencode": "{{ s.x | urlencode }}",
        "is upper": "{{ s.x is upper }}",
    },
}
_BIG = "{% set big = 'x' * 90000 %}"
# Lines of a template each; a name says what it is.
_BOMBS = {
    "join by a huge separator": _BIG + "{{ range(99999) | join(big) }}",
    "join of mapped numbers": _BIG + "{{ range(99999) | map('string') | join(big) }}",
    "join of a generator of texts": _BIG + "{{ range(9999) | map('center', 9999) | join(big) }}",
    "method join": _BIG + "{{ big.join(['a'] * 90000) }}",
    "join with an attribute": _BIG + "{{ (messages * 9999) | join(big, attribute='role') }}",
    "tojson with a huge indent": "{{ (messages * 999) | tojson(indent=99999) }}",
    "tojson with a text as indent": _BIG + "{{ (messages * 99) | tojson(indent=big) }}",
    "tojson with huge separators": _BIG + "{{ ([1] * 9999) | tojson(separators=(big, big)) }}",
    "range counted as one": "{% for i in range(99999) %}{{ range(99999) | list | length }}"
    "{% endfor %}",
    "range in range": "{{ range(99999) | select('in', range(99999) | list) | list | length }}",
    "text in range": "{% for i in range(9999) %}{{ 'a' in range(99999) }}{% endfor %}",
    "select in a list": "{% set l = range(9999) | list %}{{ l | select('in', l) | list | length }}",
    "reject in a list": "{% set l = range(99999) | list %}{{ l | reject('in', l) | first }}",
    "objects in a list": "{% set l = messages * 999 %}{{ l | select('in', l) | list | length }}",
    "a big product of a list": "{{ ([1] * 9999999) | length }}",
    "products of products": "{% set a = [1] * 9999 %}{% set b = a * 9999 %}{{ b | length }}",
    "lists added up": "{% set s = namespace(l=[1]) %}{% for i in range(99) %}"
    "{% set s.l = s.l + s.l %}{% endfor %}{{ s.l | length }}",
    "tuples added up": "{% set s = namespace(l=(1,)) %}{% for i in range(99) %}"
    "{% set s.l = s.l + s.l %}{% endfor %}{{ s.l | length }}",
    "memory kept in lists": _BIG + "{% set s = namespace(l=[]) %}{% for i in range(99999) %}"
    "{% set s.l = [s.l, big ~ i] %}{% endfor %}",
    "memory kept in objects": _BIG + "{% set s = namespace(l={}) %}{% for i in range(99999) %}"
    "{% set s.l = {'a': s.l, 'b': big + 'y'} %}{% endfor %}",
    "wide characters": "{% for i in range(99999) %}{% set x = '\U0001f600' * 90000 %}{% endfor %}",
    "many wide fields": "{{ ('%9999d' * 9999) % ((1,) * 9999) }}",
    "many wide fields of a method": "{{ ('{:>9999}' * 9999).format(*([1] * 9999)) }}",
    "one argument many times": _BIG + "{{ ('{0}' * 9999).format(big) }}",
    "one argument many times by name": _BIG + "{{ ('%(a)s' * 9999) % {'a': big} }}",
    "one argument many times, filter": _BIG + "{{ ('%(a)s' * 9999) | format(a=big) }}",
    "format_map": _BIG + "{{ ('{a}' * 9999).format_map({'a': big}) }}",
    "a width in an argument": "{{ '{:>{}}'.format('a', 99999999) }}",
    "widths in arguments": "{{ ('{:>{}}' * 999).format(*([99999] * 1998)) }}",
    "a text that is odd": "{{ '%9999999999d' is odd }}",
    "a text that is divisible": "{{ '%9999999999d' is divisibleby 2 }}",
    "indent by a text": _BIG + "{{ ('\n' * 90000) | indent(big) }}",
    "indent far": "{{ ('a\n' * 90000) | indent(99999) }}",
    "replace all": _BIG + "{{ big | replace('x', big) }}",
    "replace nothing": _BIG + "{{ big | replace('', big) }}",
    "replace of a method": _BIG + "{{ big.replace('x', big) }}",
    "replace in the input": _BIG
    + "{{ messages[1].content | replace('a', big) | replace('x', big) }}",
    "expandtabs": "{{ ('\t' * 90000).expandtabs(99999) }}",
    "translate": _BIG + "{{ big.translate({120: big}) }}",
    "wordwrap": _BIG + "{{ big | wordwrap(1, wrapstring=big) }}",
    "urlize": "{{ ('www.a.' * 9999) | urlize }}",
    "urlize of brackets": "{{ ('(' * 90000) | urlize }}",
    "striptags": "{{ ('<!--' * 22000) | striptags }}",
    "striptags of brackets": "{{ ('<' * 90000) | striptags }}",
    "title": "{{ ('a-(' * 300000) | title }}",
    "wordcount": "{{ ('a ' * 9999999) | wordcount }}",
    "xmlattr": _BIG + "{% for i in range(9999) %}{{ {'a': big} | xmlattr }}{% endfor %}",
    "split into many": "{% for i in range(99) %}{% set x = ('a ' * 2000000).split() %}{% endfor %}",
    "split by a letter": "{% set x = ('ab' * 4000000).split('b') %}{{ x | length }}",
    "letters of a text": "{% set x = ('ab' * 9999999) | list %}{{ x | length }}",
    "sorted letters": "{{ ('ba' * 4000000) | sort | length }}",
    "reversed letters": "{{ ('ba' * 4000000) | reverse | length }}",
    "unique letters": "{{ ('ba' * 4000000) | unique | list }}",
    "splitlines": "{{ ('\n' * 9999999).splitlines() | length }}",
    "partition": "{% for i in range(99999) %}{% set x = ('a' * 4000000).partition('b') %}"
    "{% endfor %}",
    "batch": "{{ range(99999) | batch(1, 'x') | list | length }}" * 20,
    "batch filled": "{{ [1] | batch(99999, 'x' * 90000) | list }}",
    "slice": "{{ range(99999) | slice(99999, 'x') | list | length }}" * 20,
    "sum of lists": "{{ ([[1]] * 99999) | sum(start=[]) | length }}",
    "sum of a big list": "{% for i in range(9999) %}{{ range(99999) | sum }}{% endfor %}",
    "sorting": "{% for i in range(9999) %}{{ range(99999) | sort | first }}{% endfor %}",
    "sorting backwards": "{{ range(99999, 0, -1) | sort(reverse=true) | first }}" * 100,
    "a large power": "{{ 4096 ** 4096 ** 4 }}",
    "powers of powers": "{% set x = 4000 ** 4000 %}{{ x * x }}",
    "a doubling number": "{% set s = namespace(n=3) %}{% for i in range(99999) %}"
    "{% set s.n = s.n + s.n %}{% endfor %}{{ s.n // 7 }}",
    "a number doubled by minus": "{% set s = namespace(n=3) %}{% for i in range(99999) %}"
    "{% set s.n = s.n - (0 - s.n) %}{% endfor %}{{ s.n % 7 }}",
    "a number of many digits": "{{ ('9' * 90000) | int }}",
    "a number in hexadecimal digits": "{% set n = ('f' * 9000000) | int(base=16) %}{{ n // 3 }}",
    "a float": "{{ 1e308 * 1e308 }}{{ (1e308 * 10) | int }}",
    "round": "{{ 1.5 | round(99999, 'ceil') }}",
    "many numbers shown": "{% set n = 4096 ** 300 %}{{ [n] * 90000 }}",
    "characters shown as escapes": "{{ ['\x01' * 1000000] * 9 }}",
    "escapes in json": "{{ ['\x01' * 1000000] * 9 | tojson }}",
    "html": "{{ ('<' * 4000000) | e }}{{ ('<' * 4000000) | forceescape }}",
    "autoescape": "{% autoescape true %}{% for i in range(99) %}{{ '<' * 4000000 }}{% endfor %}"
    "{% endautoescape %}",
    "a loop over letters": "{% for c in 'ab' * 4000000 %}{% endfor %}",
    "a loop over mapped letters": "{% for c in ('ab' * 4000000) | map('upper') %}{% endfor %}",
    "a loop without a body": "{% for c in range(99999) %}{% for d in range(99999) if c < 0 %}"
    "{% endfor %}{% endfor %}",
    "else of a loop": "{% for c in range(99999) %}{% for d in [] %}{% else %}{{ c }}{% endfor %}"
    "{% endfor %}" * 20,
    "the length of a generator": "{% for x in (messages * 99999) | map(attribute='role') %}"
    "{{ loop.length }}{% endfor %}",
    "a recursive loop": "{% for x in [[]] recursive %}{{ loop([x, x]) }}{% endfor %}",
    "a deep recursive loop": "{% for x in [1] recursive %}{{ loop([x]) }}{% endfor %}",
    "macros that call each other": "{% macro a(n) %}{{ b(n) }}{% endmacro %}"
    "{% macro b(n) %}{{ a(n) }}{% endmacro %}{{ a(1) }}",
    "macros that branch": "{% macro f(n) %}{{ f(n - 1) ~ f(n - 1) if n else 'x' }}{% endmacro %}"
    "{{ f(40) }}",
    "a caller that calls": "{% macro f(n) %}{{ caller(n) }}{{ caller(n) }}{% endmacro %}"
    "{% for i in range(99999) %}{% call(x) f(i) %}{% for j in range(99999) %}{% endfor %}"
    "{% endcall %}{% endfor %}",
    "a block within itself": "{% block a %}{{ self.a() }}{% endblock %}",
    "blocks that branch": "{% block a %}{% if false %}{% endif %}{{ self.b() }}{{ self.b() }}"
    "{% endblock %}{% block b %}{{ self.a() }}{% endblock %}",
    "a set block that doubles": "{% set s = namespace(x='ab') %}{% for i in range(60) %}"
    "{% set y %}{{ s.x }}{{ s.x }}{% endset %}{% set s.x = y %}{% endfor %}{{ s.x }}",
    "a filter block that doubles": "{% for i in range(99999) %}{% filter center(99999) %}a"
    "{% endfilter %}{% endfor %}",
    "a tuple as deep as the stack": "{% set s = namespace(x=(1,)) %}{% for i in range(99999) %}"
    "{% set s.x = (s.x,) %}{% endfor %}{{ {s.x: 1} }}",
    "a list as deep as the stack": "{% set s = namespace(x=[1]) %}{% for i in range(99999) %}"
    "{% set s.x = [s.x] %}{% endfor %}{{ s.x | tojson }}{{ s.x == s.x }}",
    "a namespace in itself": "{% set s = namespace() %}{% set s.x = [s, s] %}{{ s }}"
    "{{ s.x | string }}{{ s.x == [s, 1] }}",
    "a list of itself": "{% set l = [] %}{{ l.append(l) }}{{ l }}",
    "an object of itself": "{% set d = {} %}{{ d.update(a=d) }}{{ d }}",
    "a self-made object of itself": "{% set d = {} %}{% set d.x = d %}{{ d }}",
    "a cycler of all": "{% set c = cycler(*(messages * 99999)) %}{{ c.next() }}",
    "a joiner of a big text": _BIG + "{% set j = joiner(big) %}{% for i in range(99999) %}{{ j() }}"
    "{% endfor %}",
    "many arguments": "{{ dict(**dict((messages * 9999) | map('items') | map('first'))) }}",
    "a huge literal": "{{ '" + "x" * 900_000 + "' * 99 }}",
    "many tokens": "{{ a }}" * 150_000,
    "many operators": "{{ 1" + " + 1" * 100_000 + " }}",
    "deep parentheses": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "deep lists": "{{ " + "[" * 5000 + "1" + "]" * 5000 + " }}",
    "deep conditions": "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
    "deep loops": "{% for i in [1] %}" * 60 + "{% endfor %}" * 60,
    "deep filters": "{{ 1" + " | string" * 20_000 + " }}",
    "deep attributes": "{{ a" + ".b" * 25_000 + " }}",
    "deep not": "{{ " + "not " * 20_000 + "1 }}",
    "many comparisons": "{{ 1" + " < 2" * 20_000 + " }}",
    "many macros": "".join(f"{{% macro m{i}() %}}{{% endmacro %}}" for i in range(8000)),
    "many names": "".join(f"{{% set n{i} = 1 %}}" for i in range(14_000)),
    "an unclosed comment": "{#" * 300_000,
    "unclosed blocks": "{%" * 300_000,
    "an unclosed raw": "{% raw %}" * 100_000,
    "a source that is too long": "x" * ((1 << 20) + 1),
    "a long source": "x" * (1 << 20),
    "the output of a loop": "{% for i in range(99999) %}{{ 'x' * 9999 }}{% endfor %}",
    "the input many times": "{% for i in range(99999) %}{{ messages }}{% endfor %}",
    "the tools many times": "{% for i in range(99999) %}{{ tools | tojson }}{% endfor %}",
    "slices": "{% set l = range(99999) | list %}{% for i in l %}{% set x = l[i:] %}{% endfor %}",
    "slices backwards": "{% set l = range(99999) | list %}{% for i in l %}{% set x = l[::-1] %}"
    "{% endfor %}",
    "a test of a test": "{% for i in range(99999) %}{{ range(99999) is iterable }}"
    "{{ messages is sequence }}{% endfor %}" * 9,
    "dates": "{% for i in range(99999) %}{{ strftime_now('%c' * 99999) }}{% endfor %}",
    "a text compared with itself": "{% set a = 'x' * 4000000 %}{% set b = 'x' * 4000000 %}"
    "{% for i in range(99999) %}{{ a == b }}{% endfor %}",
    "a text in a text": "{% set a = 'x' * 2000000 %}{% for i in range(99999) %}"
    "{{ ('x' * 999 + 'y') in a }}{% endfor %}",
    "a text found in a text": "{% set a = 'x' * 2000000 %}{% for i in range(99999) %}"
    "{{ a.find('x' * 999 + 'y') }}{{ a.count('xx') }}{% endfor %}",
}
_ESCAPES = {
    f"escape {i}": source
    for i, source in enumerate(
        [
            "{{ ''.__class__.__mro__[1].__subclasses__() }}",
            "{{ ''['__class__'] }}",
            "{{ '' | attr('__class__') }}",
            "{{ ['__class__'] | map('attr') | list }}",
            "{{ [''] | map(attribute='__class__') | list }}",
            "{{ messages.__class__ }}",
            "{{ messages[0].keys.__self__ }}",
            "{{ messages.append.__self__ }}",
            "{{ raise_exception.__globals__ }}",
            "{{ strftime_now.__globals__['json'] }}",
            "{{ range.__init__.__globals__ }}",
            "{{ cycler.__init__.__globals__.os.environ }}",
            "{{ joiner.__init__.__globals__.os.environ }}",
            "{{ namespace.__init__.__globals__.os.environ }}",
            "{{ lipsum.__globals__.os.environ }}",
            "{{ self.__init__.__globals__ }}",
            "{{ self._TemplateReference__context }}",
            "{{ self._TemplateReference__context.environment }}",
            "{{ loop.__class__ }}",
            "{% for i in [1] %}{{ loop._iterable }}{{ loop.__init__.__globals__ }}{% endfor %}",
            "{% macro m() %}{{ varargs.__class__ }}{% endmacro %}{{ m._environment }}{{ m() }}",
            "{% macro m() %}{% endmacro %}{{ m._func.__globals__ }}",
            "{{ '{0.__class__.__mro__}'.format('') }}",
            "{{ '{0.__class__.__mro__}'.format_map({'0': 1}) }}",
            "{{ '{a.__class__}'.format_map({'a': 1}) }}",
            "{{ '%s' | format(''.__class__) }}",
            "{{ ('{0.__cl' ~ 'ass__}').format(1) }}",
            "{{ ['{0.__class__}'] | map('format', 1) | list }}",
            "{{ '{0.__globals__}'.format(raise_exception) }}",
            "{{ '{0.__init__.__globals__}'.format(cycler) }}",
            "{{ (namespace.__init__ | attr('__globals__')).os }}",
            "{{ environment }}{{ context }}{{ environment.globals }}",
            "{{ get_flashed_messages }}{{ config }}{{ request }}",
            "{% include '/etc/passwd' %}",
            "{% import '/etc/passwd' as x %}{{ x }}",
            "{% extends '/etc/passwd' %}",
            "{% from 'os' import environ %}{{ environ }}",
            "{{ import_module('os').environ }}",
            "{{ ().__class__.__base__.__subclasses__()[80].__init__.__globals__ }}",
            "{{ messages.__reduce_ex__(2) }}",
            "{{ (1).__class__.__bases__ }}{{ 1.0.__class__ }}",
            "{{ messages | attr('__len__') }}",
            "{% set messages.x = 1 %}",
            "{{ messages.clear() }}{{ messages.pop() }}{{ messages[0].update(a=1) }}",
            "{{ messages[0].setdefault('a', 1) }}",
            "{% set x = messages.sort %}{{ x() }}",
            "{{ tick.__self__ }}{{ environment.tick }}",
            "{{ (messages | map('tojson')).gi_frame.f_globals }}",
            "{{ (messages | select).gi_code }}{{ messages | select | attr('gi_frame') }}",
            "{% set g = messages | map('upper') %}{{ g.gi_frame.f_back.f_globals }}",
            "{{ ''.join.__self__.__class__ }}",
            "{{ 'a'.encode().__class__ }}{{ messages[1].content.encode('utf-16') }}",
            "{{ dict.__base__ }}{{ dict.mro() }}",
            "{{ dict.fromkeys('abc', namespace.__dict__) }}",
            "{{ caller.__globals__ }}{% call(x) cycler() %}{% endcall %}",
            "{{ _budget }}{{ __builtins__ }}{{ __import__('os') }}",
            "{{ undefined_thing.__class__ }}{{ (undefined_thing | default).x.y }}",
        ]
    )
}


def _bombs() -> list[Case]:
    walks = [
        Case(
            f"{walk} of a {kind} in itself", _DEEP[kind] + "{% set y = s.x %}" + _DEEP[kind] + body
        )
        for (kind, (walk, body)) in product(_DEEP, _WALKS.items())
    ]
    others = (_BOMBS | _ESCAPES).items()
    return [*walks, *(Case(name, source) for name, source in others)]


class _Programs:
    """Writes templates of random statements, which make their variables larger and larger."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._depth = 0

    def program(self) -> str:
        """A template."""
        begin = "{% set s = namespace(a='ab', b=[1, 'x'], c={'k': (1, 2)}, n=3) %}"
        return begin + "".join(self._statement() for _ in range(self._random.randint(2, 6)))

    def _statement(self) -> str:
        self._depth += 1
        pick = self._random.choice
        kind = pick(("set", "set", "output", "loop", "loop", "if", "block", "macro"))
        if self._depth > 4:
            kind = "set"
        if kind == "set":
            text = f"{{% set s.{pick('abcn')} = {self._value()} %}}"
        elif kind == "output":
            text = f"{{{{ {self._value()} }}}}"
        elif kind == "loop":
            over = pick(("range(60)", "range(9999)", "messages", "s.b", "s.a", self._value()))
            text = f"{{% for i in {over} %}}{self._statement()}{self._statement()}{{% endfor %}}"
        elif kind == "if":
            text = f"{{% if {self._value()} %}}{self._statement()}{{% endif %}}"
        elif kind == "block":
            text = f"{{% set y %}}{self._statement()}{{% endset %}}{{% set s.a = y ~ y %}}"
        else:
            name = f"m{self._random.randint(0, 9)}"
            text = (
                f"{{% macro {name}(x) %}}{self._statement()}{{% endmacro %}}{{{{ {name}(s.b) }}}}"
            )
        self._depth -= 1
        return text

    def _value(self, depth: int = 0) -> str:
        pick = self._random.choice
        leaves = (
            "s.a",
            "s.b",
            "s.c",
            "s.n",
            "messages",
            "tools",
            "messages[1].content",
            "i",
            "7",
            "'xy'",
            "range(9999)",
            "99999",
            "[]",
            "s",
        )
        if depth > 2:
            return pick(leaves)
        one, two = self._value(depth + 1), self._value(depth + 1)
        forms = (
            *("{0}", "[{0}, {0}]", "({0}, {1})", "{{'k': {0}, 'l': {0}}}", "({0} + {1})"),
            *("({0} ~ {1})", "({0} * {1})", "({0} % {1})", "({0} ** {1})", "({0} - {1})"),
            *("({0} == {1})", "({0} in {1})", "({0} < {1})", "{0}[{1}]", "{0}[1:]", "{0}[::-1]"),
            *("({0} | tojson)", "({0} | tojson(indent=9999))", "({0} | join({1}))"),
            *("({0} | string)", "({0} | list)", "({0} | sort)", "({0} | unique | list)"),
            *("({0} | replace('x', {1}))", "({0} | select('in', {1}) | list)", "({0} | first)"),
            *("({0} | map('string') | list)", "({0} | sum(start={1}))", "({0} | center(9999))"),
            *("({0} | batch(3, {1}) | list)", "({0} | indent({1}))", "'{{}}{{}}'.format({0}, {1})"),
            *(
                "('%s' * 99) % {0}",
                "{{ {0}: 1 }}".replace("{{", "{{").replace("}}", "}}"),
            ),
            *("{0}.split('x')", "{0}.join({1})", "{0}.items()", "namespace(x={0})", "{0}.x"),
            *("({0} is odd)", "({0} | length)", "({0} | groupby('k') | list)", "({0} | upper)"),
        )
        form: str = pick(forms)
        return form.format(one, two)


def hostile_class() -> HostileClass:
    """The class."""
    programs = [Case(f"program {seed}", _Programs(seed).program()) for seed in range(NUM_PROGRAMS)]
    os.environ["MLC_NATIVE_HOSTILE_SECRET"] = SECRET
    return HostileClass(
        "templates", [*_bombs(), *programs], _attempt, cpu_s=1, memory_mib=64, sample=60
    )


def _attempt(source: str) -> str:
    from mlc_native.conversation import ChatTemplate
    from mlc_native.errors import InvalidRequest, LoadError

    try:
        text = ChatTemplate(source).render(MESSAGES, tools=TOOLS, enable_thinking=True)
    except (InvalidRequest, LoadError) as error:
        return "refused" if len(str(error)) < 500 else f"an error of {len(str(error))} characters"
    assert SECRET not in text, "it reads the environment"
    assert "root:" not in text, "it reads files"
    return "served"

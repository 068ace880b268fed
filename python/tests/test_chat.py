"""Chat templates, compared with transformers' apply_chat_template()."""

import json
import os
import pathlib
import random
import re

import heed
import pytest
import chat_templates
import real_models
import small_tokenizers
import tiny_models
import transformers
from jinja2 import TemplateError

SHARE = int(os.environ.get("HEED_TEST_SHARE", "1"))
TEXTS = ["Hello!", "  two\n\n lines \t", "", "Zoë says: <|im_end|> “naïve”", "1 < 2 && \"x\" 'y' \\n", "<think>\nhm\n</think>\n\nYes.",
         "a" * 70]


def chats(generator: random.Random) -> list[list[dict[str, str]]]:
    """Conversations with and without a system message, of one to five turns."""
    made = []
    for turns in (1, 2, 3, 5):
        for system in (False, True):
            roles = ["system"] * system + ["user", "assistant", "user", "assistant", "user"][:turns]
            made.append([{"role": role, "content": generator.choice(TEXTS)} for role in roles])
    return made + [[{"role": "assistant", "content": "I begin."}], [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A tiny Llama with a byte-level tokenizer that has special tokens of chats."""
    path = tmp_path_factory.mktemp("chat")
    tokenizer = small_tokenizers.byte_level()
    tokenizer.add_special_tokens({"bos_token": "<s>", "eos_token": "</s>", "additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    tokenizer.save_pretrained(path)
    tiny_models.make("llama", vocab_size=len(tokenizer)).save_pretrained(path)
    return path


def with_template(folder: pathlib.Path, template: str) -> tuple[heed.Model, transformers.PreTrainedTokenizerBase]:
    (folder / "chat_template.jinja").write_bytes(template.encode())
    return heed.load_model(folder), transformers.AutoTokenizer.from_pretrained(folder)


def outcome(render) -> str | None:
    """The text; None if the template refuses the messages or fails."""
    try:
        return render()
    except (TemplateError, TypeError, ValueError, ZeroDivisionError, OverflowError):
        return None


@pytest.mark.parametrize("family", chat_templates.ALL)
def test_texts_and_ids_are_those_of_transformers(folder, family):
    model, tokenizer = with_template(folder, chat_templates.ALL[family])
    generator = random.Random(family)
    refused = 0
    for chat in chats(generator) * 3:
        for prompt in (False, True):
            expected = outcome(lambda: tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=prompt))
            assert outcome(lambda: model.chat_text(chat, prompt)) == expected, chat
            refused += expected is None
            if expected:
                ids = tokenizer.apply_chat_template(chat, add_generation_prompt=prompt, return_dict=False)
                assert model.chat_ids(chat, prompt) == ids
    assert refused < 36


def test_templates_stand_in_the_settings_too(folder):
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    hello = [{"role": "user", "content": "Hello!"}]
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "{{ messages[0].content }}{{ eos_token }}"}]
    by_name = {one["name"]: one["template"] for one in named}
    for given, expected in ((named[1]["template"], "Hello!</s>"), (named, "Hello!</s>"), (by_name, "Hello!</s>")):
        (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"chat_template": given}))
        assert heed.load_model(folder).chat_text("Hello!") == expected
        assert transformers.AutoTokenizer.from_pretrained(folder).apply_chat_template(hello, tokenize=False) == expected
    for given in (named[:1], {"tool_use": "tools"}, {"default": None}):
        (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"chat_template": given}))
        with pytest.raises(ValueError, match="the model has several chat templates and none with the name default"):
            heed.load_model(folder).chat_text("Hello!")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"chat_template": 3}))
    with pytest.raises(OSError, match="with a chat_template that is neither a text nor a list or object of texts"):
        heed.load_model(folder)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match="the model has no chat template, by which it would read messages"):
        heed.load_model(folder).chat_text("Hello!")


def test_messages_are_checked(folder):
    model, _ = with_template(folder, chat_templates.CHATML)
    with pytest.raises(ValueError, match="messages has no message; at least one is expected"):
        model.chat_text([])
    with pytest.raises(ValueError, match=r"messages\[0\] has the keys \['name', 'role'\]; role and content are expected"):
        model.chat_text([{"role": "user", "name": "x"}])
    with pytest.raises(TypeError, match=r"content of messages\[0\] is 3; a str is expected"):
        model.chat_text([{"role": "user", "content": 3}])
    model, _ = with_template(folder, "{{ raise_exception('no') }}")
    with pytest.raises(ValueError, match=r"the chat template in '.*chat_template.jinja' refuses the messages: 'no' \(line 1\)"):
        model.chat_text("Hello!")


class Grammar:
    """Small random templates, of what heed knows."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def pick(self, *options: str) -> str:
        return self.random.choice(options)

    def space(self) -> str:
        return self.pick("", "", " ", "\n", "\n  ", "  \n", "\t", "x", " y\n", "\u00a0")

    def tag(self, inside: str) -> str:
        return "{%" + self.pick("", "", "-", "+") + " " + inside + " " + self.pick("", "", "-", "+") + "%}"

    def value(self, depth: int = 0) -> str:
        if depth > 2 or self.random.random() < 0.3:
            return self.pick("1", "2", "-3", "2.5", "'a'", "' bA '", "''", "'a b'", "bos_token", "messages[-1].content", "x", "y",
                             self.pick("0", "missing", "none", "true", "[]", "[1, 'b']", "('a', 2)", "{}", "{'k': 'v'}", "messages",
                                       "messages[0]", "loop", "ns.n"))
        a, b = (f"({one})" if self.random.random() < 0.8 else one for one in (self.value(depth + 1), self.value(depth + 1)))
        operation = self.pick("+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", ">=", "in", "not in", "and", "or")
        return self.pick(
            f"({a} {operation} {b})", f"{a} {operation} {b}", f"not {a}", f"({a} if {b} else {a})", f"{a} if {b}", f"[{a}, {b}]",
            f"{{'k': {a}, 'content': {b}}}", f"{a}[{b}]", f"{a}.content", f"{a}[1:]", f"{a}[:-1]", f"{a}[::-1]", f"{a}[{b}:{a}]",
            f"{a}|trim", f"{a}|length", f"{a}|tojson", f"{a}|string", f"{a}|upper", f"{a}|title", f"{a}|capitalize", f"{a}|first",
            f"{a}|last", f"{a}|join({b})", f"{a}|list", f"{a}|default({b})", f"{a}|default({b}, true)", f"{a}|replace('a', {b})",
            f"{a}|reverse|list", f"{a}|sort", f"{a}|sort(reverse={b})", f"{a}|unique|list", f"{a}|sum", f"{a}|map('length')|list", f"{a}|map(attribute='content')|list", f"{a}|select('string')|list",
            f"{a}|selectattr('content')|list", f"{a}|rejectattr('role', 'equalto', {b})|list", f"{a}|items|list", f"{a}|int",
            f"{a} is defined", f"{a} is not none", f"{a} is string", f"{a} is mapping", f"{a} is iterable", f"{a} is number",
            f"{a} is sequence", f"{a} is boolean", f"{a} is true", f"{a} is odd", f"{a} is eq {b}", f"{a} is in({b})",
            f"{a}.strip()", f"{a}.strip('a')", f"{a}.split()", f"{a}.split('a')", f"{a}.split('a', 1)[0]", f"{a}.startswith({b})",
            f"{a}.endswith(('A', ' '))", f"{a}.replace('a', 'c')", f"{a}.lower()", f"{a}.items()|list", f"{a}.get('k', {b})",
            f"{a}.keys()|list", f"{a}.find('a')", f"{a}.removeprefix('a')", f"f({a})", f"f({a}, b={b})", f"range({a})|list",
            f"{a} < {b} < {a}", f"-{a}", f"{a} | trim | length")

    def block(self, depth: int = 0) -> str:
        kind = self.random.randrange(9 if depth < 3 else 3)
        if kind < 2:
            return self.space() + "{{" + self.pick("", "-") + " " + self.value() + " " + self.pick("", "-") + "}}" + self.space()
        if kind == 2:
            target = self.pick("x = " + self.value(), "y = " + self.value(), "ns.n = " + self.value(), "x, y = " + self.value())
            return self.space() + self.tag("set " + target) + self.space()
        body, other = self.body(depth + 1), self.body(depth + 1)
        if kind == 3:
            return self.tag("if " + self.value()) + body + self.tag("elif " + self.value()) + other + self.tag("endif")
        if kind == 4:
            return self.tag("if " + self.value()) + body + self.tag("else") + other + self.tag("endif") + self.space()
        if kind < 7:
            target = self.pick("x", "m", "k, v") + " in " + self.pick("messages", "[1, 2]", "x", "{'a': 1}.items()", self.value())
            inner = self.pick("", "{{ loop.index }}", "{{ m.role }}", "{% if loop.last %}!{% endif %}", "{% if x %}{% break %}{% endif %}")
            end = self.tag("else") + other if kind == 5 else ""
            return self.tag("for " + target + self.pick("", " if " + self.value())) + body + inner + end + self.tag("endfor")
        if kind == 7:
            return self.tag("set x") + body + self.tag("endset") + "{# note #}" + self.space()
        return self.tag("generation") + body + self.tag("endgeneration")

    def body(self, depth: int = 0) -> str:
        return "".join(self.block(depth) for _ in range(self.random.randint(1, 3)))

    def template(self) -> str:
        """Without dots in the names of filters and tests: Jinja refuses such names where heed does not yet reach them."""
        made = self.any_template()
        return self.template() if re.search(r"(\||\bis (not )?)\s*\w+\.", made) else made

    def any_template(self) -> str:
        return ("{% set ns = namespace(n=1) %}{% macro f(a, b='B') %}<{{ a }}{{ b }}>{% endmacro %}" + self.body() + self.space()
                + self.pick("", "\n", "\n\n"))


@pytest.mark.filterwarnings("ignore")  # of Python about what Jinja makes of some of them
def test_random_templates_are_rendered_as_jinja_does(folder):
    chat = [{"role": "system", "content": "a b"}, {"role": "user", "content": " Aa "}]
    texts = refused = 0
    for seed in range(600 // SHARE):
        template = Grammar(seed).template()
        model, tokenizer = with_template(folder, template) if seed == 0 else (None, tokenizer)
        (folder / "chat_template.jinja").write_bytes(template.encode())
        expected = outcome(lambda: tokenizer.apply_chat_template(chat, chat_template=template, tokenize=False, add_generation_prompt=True))
        found = outcome(lambda: heed.load_model(folder).chat_text(chat))
        assert found in (expected, None), template
        texts += found is not None
        refused += found is None and expected is not None  # lists as Python prints them, slices of numbers and the like
    # heed refused 185 of 6,000 and rendered 859. It refuses 3 of the 75 that CI makes, and renders 7.
    assert refused < texts and texts >= 60 // SHARE


TITLES = ["it's 3rd snake_case x.y", "O'NEIL/x,y;z:w", "A--B\\tc\\nd\\x1ce\\x0bf", "a-b (c) {d} [e] <f>", "a{[<-b", "ab>cd)ef]gh}ij", " -x"]
LIKE_JINJA = {
    "titles": [f'{{{{ "{text}"|title }}}} {{{{ "{text}".title() }}}} {{{{ "{text}"|capitalize }}}}' for text in TITLES],
    "attributes": [
        "{{ [{'a': {'b': 1}}, {'a': {'b': 2}}]|map(attribute='a.b')|join(',') }}",
        "{{ [{'a': {'b': 1}}, {'a': {'b': 2}}]|selectattr('a.b', 'eq', 2)|list|length }}",
        "{{ [{'a': {'b': 1}}, {'a': {'b': 2}}, {'a': {'b': 3}}]|rejectattr('a.b', 'eq', 2)|list|length }}",
        "{{ [[1, 2], [3, 4]]|map(attribute='0')|join(',') }}", "{{ [[1, 2], [3, 4]]|map(attribute=-1)|join(',') }}",
        "{{ [[1, 2], [3, 4]]|map(attribute='-1')|join(',') }}", "{{ [{'x': [[5, 6]]}]|map(attribute='x.0.1')|join }}",
        "{{ ['abc', 'de']|map(attribute='1')|join }}", "{{ [{'a': {'b': 1}}, {'a': {'b': 2}}]|join('+', attribute='a.b') }}",
        "{{ [[1, 2]]|join('+', 0) }}", "{{ [{'0': 1}]|map(attribute='0')|join(',') }}", "{{ [[0]]|selectattr(0)|list|length }}",
        "{{ [{'a': 1}, {}]|map(attribute='a', default=none)|join(',') }}", "{{ [{}]|map(attribute='a.b', default={'b': 3})|join(',') }}"],
    "orders": [
        "{{ [3, 1, 2.5, true]|sort|join(',') }}", "{{ ['b', 'A', 'a', 'B']|sort|join }}", "{{ ['b', 'A', 'a', 'B']|sort(true)|join }}",
        "{{ ['b', 'A', 'a', 'B']|sort(case_sensitive=true)|join }}", "{{ ['b', 'A', 'a', 'B']|sort(true, true)|join }}",
        "{{ [{'n': 2, 'k': 'b'}, {'n': 1, 'k': 'c'}, {'n': 2, 'k': 'a'}]|sort(attribute='n,k')|map(attribute='k')|join }}",
        "{{ [{'n': 2, 'k': 'b'}, {'n': 1, 'k': 'c'}, {'n': 2, 'k': 'a'}]|sort(attribute='n', reverse=true)|map(attribute='k')|join }}",
        "{{ [{'n': 2, 'k': 'b'}, {'n': 1, 'k': 'c'}, {'n': 2, 'k': 'a'}]|sort(attribute='n')|map(attribute='k')|join }}",
        "{{ [{'a': {'b': 'Z'}}, {'a': {'b': 'y'}}]|sort(attribute='a.b')|map(attribute='a.b')|join }}", "{{ [[2, 1], [1, 2]]|sort(attribute=1)|first|join }}",
        "{{ 'bCa'|sort|join }}", "{{ {'b': 1, 'a': 2}|sort|join }}", "{{ missing|sort|length }}", "{{ [none, none]|sort|length }}", "{{ [{}]|sort|length }}",
        "{{ [[1], [1]]|sort|length }}", "{{ ['\u65e5', 'a', 'Z']|sort(case_sensitive=true)|join }}", "{{ [1, 0, true, 1.0, '1', none, none]|unique|join(',') }}",
        "{{ ['a', 'A', 'b', 'a']|unique|join }}", "{{ ['a', 'A', 'b', 'a']|unique(true)|join }}", "{{ 'abcab'|unique|join }}", "{{ [missing, missing]|unique|list|length }}",
        "{{ [{'k': 'x', 'n': 1}, {'k': 'X', 'n': 2}]|unique(attribute='k')|map(attribute='n')|join }}", "{% if []|unique %}a generator{% endif %}",
        "{{ [1, true, 3]|sum }}", "{{ [{'n': 1}, {'n': 2}]|sum('n') }}", "{{ [{'n': 1}, {'n': 2}]|sum(attribute='n', start=10) }}", "{{ []|sum }}",
        "{{ [[1], [2, 3]]|sum(start=[])|join(',') }}", "{{ [[1, 5], [2, 6]]|sum(attribute=1) }}", "{{ messages|map(attribute='content')|map('length')|sum }}",
        "{% for i in range(5) %}{{ loop.cycle('a', 2, bos_token) }}{% endfor %}", "{% for i in range(2) %}{{ loop.cycle is defined }}{{ loop.cycle(i) }}{% endfor %}",
        "{% for i in range(3) %}{% set c = loop.cycle %}{% for j in 'xy' %}{{ c(1, 2) }}{{ loop.cycle(3, 4) }}{% endfor %}{% endfor %}"],
    "macros": [
        "{% for i in [1, 2] %}{% macro g() %}{{ i }}{{ loop.index0 }}{% endmacro %}{{ g() }}{% endfor %}",
        "{% macro f(z) %}{% macro g() %}{{ z }}{% endmacro %}{{ g() }}{% endmacro %}{{ f(5) }}",
        "{% macro a(f) %}{% set i = 9 %}{{ f() }}{% endmacro %}{% for i in [1] %}{% macro g() %}{{ i }}{% endmacro %}{{ a(g) }}{% endfor %}",
        "{% macro f(n) %}{% macro g() %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ g() }}{% endmacro %}{{ f(3) }}",
        "{% macro m() %}{{ i }}{% endmacro %}{% for i in [1] %}{{ m() }}{% endfor %}",
        "{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% for i in [1] %}{% set x = 2 %}{{ m() }}{% endfor %}{% set x = 3 %}{{ m() }}",
        "{% set kwargs = 5 %}{% macro f() %}{{ kwargs|length }}{{ varargs|length }}{% endmacro %}{{ f() }}{{ kwargs }}"],
    "JSON and signs": [
        "{{ [1]|tojson(false) }}", "{{ [1]|tojson(none) }}", "{{ [1]|tojson(false, 2) }}", "{{ [[1]]|tojson(indent=-1) }}",
        "{{ 'é'|tojson }}", "{{ [1]|tojson(indent=none) }}", "{{ -0.0 }} {{ (-0.0)|tojson }} {{ +(-0.0) }} {{ - -0.0 }} {{ -2.5 }} {{ -true }}",
        "{{ caller is defined }}{{ super is defined }}{{ environment is defined }}{{ varargs is defined }}"],
}


@pytest.mark.parametrize("kind", LIKE_JINJA)
def test_templates_are_rendered_as_jinja_does(folder, kind):
    chat = [{"role": "user", "content": "Hi"}]
    _, tokenizer = with_template(folder, "")
    for template in LIKE_JINJA[kind]:
        (folder / "chat_template.jinja").write_bytes(template.encode())
        expected = tokenizer.apply_chat_template(chat, chat_template=template, tokenize=False)
        assert heed.load_model(folder).chat_text(chat) == expected, template


@pytest.mark.parametrize("template, reason", [
    ("{{ [{}]|map(attribute='items')|list }}", "uses 'items' of a dict without calling it"),
    ("{% macro f() %}{% endmacro %}{{ f.name }}", "uses 'name' of a function without calling it"),
    ("{{ ['a']|map('upper', default='x')|join }}", r"calls map\(\) with other than a filter or an attribute"),
    ("{{ []|groupby('x') }}", "uses the filter 'groupby', which heed does not know"),
    ("{{ 'é'|tojson(true) }}", "writes JSON with ensure_ascii"),
    *((f"{{{{ {name} is defined }}}}", f"uses '{name}', which heed does not know") for name in ("cycler", "joiner", "lipsum", "self")),
])
def test_what_jinja_has_besides_is_refused_by_name(folder, template, reason):
    with pytest.raises(ValueError, match=reason):
        with_template(folder, template)[0].chat_text("Hello!")


def test_a_real_model_reads_chats_as_transformers_does():
    path = real_models.smollm2()
    model = heed.load_model(path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    for chat in chats(random.Random(1)):
        for prompt in (False, True):
            expected = outcome(lambda: tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=prompt))
            assert outcome(lambda: model.chat_text(chat, prompt)) == expected
            if expected:
                assert model.chat_ids(chat, prompt) == tokenizer.apply_chat_template(chat, add_generation_prompt=prompt, return_dict=False)


def test_a_real_model_without_a_template_says_so():
    with pytest.raises(ValueError, match="the model has no chat template, by which it would read messages; a plain text is expected"):
        heed.load_model(real_models.gemma3()).chat_text("Hello!")

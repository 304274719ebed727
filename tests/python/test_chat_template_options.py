"""How a chat becomes a prompt: chat_template_kwargs, documents, continue_final_message, and
render_chat, which shows it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from facades import ALL_FACADES, OPENAI_FACADES

from mlc_native import SyncMLCEngine
from mlc_native.conversation import ChatTemplate
from mlc_native.errors import InvalidConfig, InvalidRequest, LoadError
from mlc_native.protocol.conversation_protocol import Conversation
from mlc_native.protocol.generation_config import GenerationConfig

MakeModel = Callable[..., str]
# As Qwen3's: without thinking, an empty thought is put in front of the answer.
TEMPLATE = (
    "{% for d in documents or [] %}[{{ d.title }}]{% endfor %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
    "{% for t in tools or [] %}({{ t.function.name }}){% endfor %}"
    "{% if add_generation_prompt %}<assistant>"
    "{% if enable_thinking is defined and enable_thinking is false %}<think></think>{% endif %}"
    "{% endif %}"
)
USER = {"role": "user", "content": "Hi"}
ASSISTANT = {"role": "assistant", "content": "Hello, "}
TOOL = {"type": "function", "function": {"name": "f"}}
FUNCTION = {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}
ANSWER = "<user>Hi</><assistant>"

RENDERED: list[tuple[list[dict[str, str]], dict[str, Any], str]] = [
    ([USER], {}, ANSWER),
    ([USER], {"chat_template_kwargs": {"enable_thinking": False}}, ANSWER + "<think></think>"),
    ([USER], {"chat_template_kwargs": {"enable_thinking": True, "self": 1}}, ANSWER),
    ([USER], {"chat_template": "{{ messages[0].content }}:"}, "Hi:"),
    ([USER], {"documents": [{"title": "a"}, {"title": "b"}]}, "[a][b]" + ANSWER),
    ([USER], {"add_generation_prompt": False}, "<user>Hi</>"),
    ([USER], {"tools": [TOOL]}, "<user>Hi</>(f)<assistant>"),
    ([USER], {"tools": [TOOL], "tool_choice": "none"}, ANSWER),
    (  # in the order of transformers, which models are trained with
        [USER],
        {
            "tools": [{"function": dict(sorted(FUNCTION.items())), "type": "function"}],
            "chat_template": "{{ tools | tojson }}",
        },
        json.dumps([{"type": "function", "function": FUNCTION}]),
    ),
    ([USER, ASSISTANT], {"continue_final_message": True}, ANSWER + "Hello, "),
    ([USER], {"continue_final_message": True}, "<user>Hi"),
    (
        [USER, ASSISTANT],
        {"continue_final_message": True, "add_generation_prompt": False},
        ANSWER + "Hello, ",
    ),
    (
        [{"role": "system", "content": "a"}, {"role": "system", "content": "b"}, USER],
        {},
        "<system>a</><system>b</>" + ANSWER,
    ),
    (
        [USER, {"role": "developer", "content": "c"}, USER],
        {},
        "<user>Hi</><system>c</>" + ANSWER,
    ),
]


@pytest.fixture(params=ALL_FACADES)
def any_engine(
    request: pytest.FixtureRequest, make_model: MakeModel, fake_lib: str
) -> Iterator[Any]:
    made: Any = ALL_FACADES[request.param](
        make_model(answer="ok", chat_template=TEMPLATE), model_lib=fake_lib
    )
    yield made
    made.terminate()


@pytest.fixture(params=OPENAI_FACADES)
def openai_engine(
    request: pytest.FixtureRequest, make_model: MakeModel, fake_lib: str
) -> Iterator[Any]:
    made: Any = OPENAI_FACADES[request.param](
        make_model(answer="ok", chat_template=TEMPLATE), model_lib=fake_lib
    )
    yield made
    made.terminate()


def render(facade: Any, messages: list[dict[str, str]], **arguments: Any) -> Any:
    rendered = facade.engine.render_chat(messages, **arguments)
    return facade.run(rendered) if asyncio.iscoroutine(rendered) else rendered


def test_render_chat(any_engine: Any) -> None:
    for messages, arguments, expected in RENDERED:
        rendered = render(any_engine, messages, **arguments)
        assert rendered.text == expected
        assert rendered.token_ids == list(expected.encode())


def test_what_a_template_sees_of_an_answer(any_engine: Any) -> None:
    """As from transformers, an empty list of calls is none, and reasoning has both of its names."""
    source = (
        "{% for m in messages %}{% if 'tool_calls' in m %}{{ m.tool_calls[0].function.name }}"
        "{% endif %}({{ m.reasoning_content }}, {{ m.thinking }}){% endfor %}"
    )
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    for message, expected in (
        ({"content": "a", "tool_calls": []}, "(, )"),
        ({"content": "a", "reasoning_content": "r", "tool_calls": []}, "(r, r)"),
        ({"content": None, "reasoning_content": "r", "tool_calls": [call]}, "f(r, r)"),
        # gpt-oss refuses a call that has both thinking and content.
        ({"content": "a", "reasoning_content": "r", "tool_calls": [call]}, "f(r, )"),
    ):
        answer: Any = {"role": "assistant", **message}
        assert render(any_engine, [answer], chat_template=source).text == expected


def test_chats_use_the_same_prompt(openai_engine: Any) -> None:
    for messages, arguments, expected in RENDERED:
        direct = {k: v for k, v in arguments.items() if k in ("tools", "tool_choice")}
        extra = {k: v for k, v in arguments.items() if k not in direct}
        response = openai_engine.chat(messages=messages, extra_body=extra, **direct)
        assert response.usage.prompt_tokens == len(expected)
        assert response.choices[0].message.content == "ok"


@pytest.mark.parametrize(
    ("messages", "arguments", "field", "message"),
    [
        ([USER], {"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs", "messages"),
        (
            [USER],
            {"chat_template_kwargs": {"add_generation_prompt": False}},
            "chat_template_kwargs",
            "add_generation_prompt",
        ),
        ([USER], {"chat_template_kwargs": 3}, "chat_template_kwargs", "dictionary"),
        ([USER], {"chat_template": "{% if %}"}, "chat_template", "template is invalid"),
        ([USER], {"documents": "a"}, "documents", "list"),
        (
            [USER, ASSISTANT],
            {"continue_final_message": True, "add_generation_prompt": True},
            "continue_final_message",
            "exclude each other",
        ),
        (
            [USER, {"role": "assistant", "content": ""}],
            {"continue_final_message": True},
            "continue_final_message",
            "content",
        ),
        ([], {}, "messages", "empty"),
        (
            [USER, {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}]}],
            {},
            "messages",
            r"messages\[1\].content\[1\]: must be",
        ),
    ],
)
def test_wrong_arguments_are_named(
    openai_engine: Any, messages: Any, arguments: dict[str, Any], field: str, message: str
) -> None:
    for call in (
        lambda: render(openai_engine, messages, **arguments),
        lambda: openai_engine.chat(messages=messages, extra_body=arguments),
    ):
        with pytest.raises(InvalidRequest, match=message) as error:
            call()
        assert error.value.field == field


# ------------------------------------------------------------------------ continue_final_message


@pytest.mark.parametrize(
    ("source", "content", "expected"),
    [
        ("{{ messages[-1].content }}<end>", "a b ", "a b "),
        ("{{ messages[-1].content | trim }}<end>", "a b ", "a b"),
        ("{{ messages[-1].content | trim }}\n<end>", "a b", "a b"),
        ("x{{ messages[0].content }}|{{ messages[-1].content }}", "a", "xa|a"),
    ],
)
def test_continues_as_transformers_does(source: str, content: str, expected: str) -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": content}]
    template = ChatTemplate(source)
    options: dict[str, Any] = {"add_generation_prompt": False, "continue_final_message": True}
    assert template.render(messages, **options) == expected
    utils = pytest.importorskip("transformers.utils.chat_template_utils")
    texts, _ = utils.render_jinja_template([messages], chat_template=source, **options)
    assert texts == [expected]


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[0].content }}",
        "{{ messages[-1].content[:2] }}",
        # Qwen3 drops the thoughts of a message.
        "{{ messages[-1].content.split('</think>')[-1] }}",
    ],
)
def test_a_template_that_hides_the_message(source: str) -> None:
    content = "<think>why</think>because"
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": content}]
    with pytest.raises(InvalidRequest, match="cannot continue") as error:
        ChatTemplate(source).render(messages, continue_final_message=True)
    assert error.value.field == "continue_final_message"


def test_a_continued_answer_keeps_its_leading_space(tmp_path: Any) -> None:
    """What continues a message is no text of its own, so the decoder's strip is not for it."""
    pytest.importorskip("transformers")
    import sys

    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
    from make_random_checkpoint import make_checkpoint

    from mlc_native import MLCEngine

    path = make_checkpoint("tiny-llama", tmp_path / "m")
    with MLCEngine(str(path), "cpu") as engine:
        extra = {"continue_final_message": True}
        for messages in ([USER, ASSISTANT], [USER, {"role": "assistant", "content": "x"}]):
            rendered = engine.render_chat(messages, continue_final_message=True)
            assert rendered.text.endswith(messages[-1]["content"])
            chat = engine.chat.completions.create(
                messages=messages, temperature=0, max_tokens=6, extra_body=extra
            )
            completion = engine.completions.create(
                prompt=rendered.token_ids, temperature=0, max_tokens=6
            )
            assert chat.choices[0].message.content == completion.choices[0].text


def test_a_request_of_a_sync_engine_says_whether_a_turn_begins(
    make_model: Callable[..., str], fake_lib: str
) -> None:
    model = make_model(answer=" hello")
    path = Path(model) / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    steps = [tokenizer["decoder"], {"type": "Fuse"}, strip]
    tokenizer["decoder"] = {"type": "Sequence", "decoders": steps}
    path.write_text(json.dumps(tokenizer))
    engine = SyncMLCEngine(model, model_lib=fake_lib)
    greedy = GenerationConfig(temperature=0)
    assert engine.generate(["x"], greedy)[0] == [[" hello"]]
    assert engine.generate(["x"], greedy, begins_turn=True)[0] == [["hello"]]


def test_a_conversation_of_mlc_takes_one_system_message() -> None:
    conversation = Conversation(roles={"user": "U", "assistant": "A"}, seps=["|"])
    template = conversation.chat_template("")
    messages = [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]
    assert template.render(messages) == "aUb|A"
    with pytest.raises(InvalidRequest, match="position 0 only, got one at 1"):
        template.render([messages[0], {"role": "system", "content": "c"}, messages[1]])


@pytest.mark.parametrize("named", ["by its text", "by its file"])
def test_another_template(named: str, make_model: MakeModel, fake_lib: str, tmp_path: Path) -> None:
    path = tmp_path / "other.jinja"
    path.write_text(TEMPLATE)
    chat_template = TEMPLATE if named == "by its text" else str(path)
    for folder_has_one in (None, "{{ messages[0].content }}"):
        model = make_model(chat_template=folder_has_one)
        engine = SyncMLCEngine(model, model_lib=fake_lib, chat_template=chat_template)
        assert engine.render_chat([USER]).text == ANSWER
        assert engine.engine_config.chat_template == chat_template
        engine.unload()


@pytest.mark.parametrize(
    ("chat_template", "message"),
    [
        ("/no/such/file.jinja", "which is neither"),
        ("", "which is neither"),
        ("{% for %}", "the chat template is invalid"),
    ],
)
def test_a_template_that_cannot_be_used(
    chat_template: str, message: str, make_model: MakeModel, fake_lib: str
) -> None:
    with pytest.raises((InvalidConfig, LoadError), match=message) as error:
        SyncMLCEngine(make_model(), model_lib=fake_lib, chat_template=chat_template)
    assert error.value.field == "chat_template"

"""The page at ``/``: what the server says about it, and what it does in Chromium (nightly)."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_model import write_model
from live_server import WAIT_S, LiveServer

import mlc_native.server.page
from mlc_native import AsyncMLCEngine
from mlc_native.server import ServerConfig

FILE = Path(mlc_native.server.page.__file__).with_name("page.html")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
WAIT_MS = WAIT_S * 1000


def test_the_page(serve: Any) -> None:
    server = serve(ServerConfig(api_keys=["secret"]), answer="x")
    response = server.client.get("/")
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert response.content == FILE.read_bytes()
    assert len(response.content) < 150_000
    again = server.client.get("/", headers={"if-none-match": response.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert server.client.get("/v1/models").status_code == 401


def test_the_page_may_run_nothing_else(serve: Any) -> None:
    response = serve(answer="x").client.get("/")
    rules = dict(
        rule.split(" ", 1) for rule in response.headers["content-security-policy"].split("; ")
    )
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["connect-src"] == "'self'"
    for tag in ("script", "style"):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", response.text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert rules[f"{tag}-src"] == f"'sha256-{digest}'"
    assert not re.findall(r'(?:src|href)="(?!data:,)', response.text)
    assert "innerHTML =" not in response.text


def test_no_page(serve: Any) -> None:
    server = serve(ServerConfig(page=False), answer="x")
    assert server.client.get("/").status_code == 404


# --------------------------------------------------------------------------------------- Chromium

RICH = """<think>Let me think
about it.</think>## Result
**bold** [good](https://example.com) [bad](javascript:alert(1))
<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>

| a | b |
|---|---|
| 1 | 2 |

```python
print("<b>")
```
<tool_call>
{"name": "weather", "arguments": {"city": "Paris"}}
</tool_call>"""
TEMPLATE = (
    '{% if tools %}Use: <tool_call>\\n{"name": ...}\\n</tool_call> <think>{% endif %}'
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
)
TOOLS = '[{"type": "function", "function": {"name": "weather"}}]'
LONG = "word " * 800

nightly = [
    pytest.mark.nightly,
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium"),
]


@pytest.fixture(scope="module")
def page_server(fake_lib: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """The demo model, one that answers with everything that the page shows, and a slow one."""
    folder = tmp_path_factory.mktemp("models")
    rich = write_model(folder / "rich", answer=RICH, chat_template=TEMPLATE)
    slow = write_model(
        folder / "slow",
        answer=LONG,
        chat_template=TEMPLATE,
        us_per_step=5000,
        cost="sleep",
    )
    server = LiveServer(
        {
            "demo": AsyncMLCEngine("demo", "cpu", mode="server"),
            "rich": AsyncMLCEngine(rich, model_lib=fake_lib, mode="server"),
            "slow": AsyncMLCEngine(slow, model_lib=fake_lib, mode="server"),
        }
    )
    yield server
    server.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def wait_for_text(page: Any, selector: str, pattern: str) -> None:
    """Returns when the text of an element matches."""
    expect = pytest.importorskip("playwright.sync_api").expect
    expect(page.locator(selector)).to_have_text(re.compile(pattern), timeout=WAIT_MS)


class Tab:
    """A tab with the page. Closing it checks that the page caused no error and no request to
    another host."""

    def __init__(self, browser: Any, server: LiveServer, **options: Any) -> None:
        self._server = server
        self._context = browser.new_context(**options)
        self.page = self._context.new_page()
        self.page.set_default_timeout(WAIT_MS)
        self.problems: list[str] = []
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("console", self._on_console)
        self.page.on("request", self._on_request)
        self.page.goto(f"{server.url}/")
        self.page.wait_for_selector("#model option", state="attached")

    def _on_console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(message.text)

    def _on_request(self, request: Any) -> None:
        if not request.url.startswith((self._server.url, "data:")):
            self.problems.append(request.url)

    def ask(self, text: str, model: str | None = None) -> None:
        if model is not None:
            self.page.select_option("#model", model)
        self.page.fill("#prompt", text)
        self.page.keyboard.press("Enter")

    def wait_for_answer(self) -> str:
        """The text of the last answer, when it is complete."""
        self.page.wait_for_selector("#send:not([hidden])")
        text: str = self.page.locator(".message.assistant .body").last.inner_text()
        return text

    def wait_for_text(self, selector: str, pattern: str) -> None:
        wait_for_text(self.page, selector, pattern)

    def set(self, **fields: str) -> None:
        self.page.click("#show-settings")
        for name, value in fields.items():
            field = self.page.locator(f"#settings [name={name}]")
            is_choice = field.evaluate("field => field.tagName") == "SELECT"
            field.select_option(value) if is_choice else field.fill(value)
        self.page.click("#settings button[type=submit]")

    def close(self) -> None:
        self._context.close()
        assert self.problems == []


@pytest.fixture
def tab(browser: Any, page_server: LiveServer) -> Iterator[Tab]:
    tab = Tab(browser, page_server)
    yield tab
    tab.close()


def in_chromium(test: Any) -> Any:
    for mark in nightly:
        test = mark(test)
    return test


@in_chromium
def test_a_conversation(tab: Tab) -> None:
    tab.ask("What is the capital of France?", "demo")
    assert tab.wait_for_answer() == "The capital of France is Paris."
    assert re.search(r"\d+ tokens.* of \d+ prompt tokens cached", tab.page.inner_text(".count"))
    tab.ask("What is the capital of Italy?")
    assert tab.wait_for_answer() == "The capital of Italy is Rome."
    tab.page.reload()
    assert tab.page.locator(".message").count() == 4
    # An edit of the first message drops what follows it.
    tab.page.locator(".message.user button").first.click()
    tab.page.locator("article textarea").fill("What is the capital of Spain?")
    tab.page.locator("article button", has_text="Send").click()
    assert tab.wait_for_answer() == "The capital of Spain is Madrid."
    assert tab.page.locator(".message").count() == 2
    tab.page.click("text=Regenerate")
    assert tab.wait_for_answer() == "The capital of Spain is Madrid."
    assert tab.page.locator(".message").count() == 2


@in_chromium
def test_what_an_answer_shows(tab: Tab) -> None:
    tab.set(tools=TOOLS)
    tab.ask("Show it.", "rich")
    shown = tab.wait_for_answer()
    answer = tab.page.locator(".message.assistant").last
    assert "<img src=x onerror=" in shown
    assert answer.locator("img, script").count() == 0
    assert [link.get_attribute("href") for link in answer.locator("a").all()] == [
        "https://example.com"
    ]
    assert answer.locator("th").all_inner_texts() == ["a", "b"]
    assert answer.locator(".body pre").inner_text() == 'print("<b>")'
    thought = answer.locator("details.reasoning")
    assert thought.get_attribute("open") is None
    thought.locator("summary").click()
    assert thought.locator(".thought").inner_text() == "Let me think\nabout it."
    call = answer.locator("details.call")
    assert call.locator("summary").inner_text() == "Calls weather"
    assert json.loads(call.locator("pre").inner_text()) == {"city": "Paris"}
    call.locator("input").fill("sunny")
    call.locator("button", has_text="Send the result").click()
    tab.page.wait_for_selector(".message.tool")
    tab.wait_for_answer()
    assert tab.page.locator(".message.assistant").count() == 2
    assert tab.page.title() == "Chat"


@in_chromium
def test_text_grows_and_stop_ends_the_request(tab: Tab, page_server: LiveServer) -> None:
    tab.ask("Write a lot.", "slow")
    tab.wait_for_text(".assistant .body", ".{5}")
    length = len(tab.page.inner_text(".assistant .body"))
    tab.wait_for_text(".assistant .body", f".{{{length + 20}}}")
    assert page_server.state.running.count == 1
    tab.page.keyboard.press("Escape")
    tab.page.wait_for_selector("#send:not([hidden])")
    page_server.wait_until_idle()
    assert len(tab.page.inner_text(".assistant .body")) < len(LONG)


@in_chromium
def test_a_schema_and_settings(tab: Tab) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Rome"]}},
        "required": ["city"],
        "additionalProperties": False,
    }
    tab.set(schema=json.dumps(schema), temperature="0", max_tokens="40", seed="3")
    tab.ask("What is the capital of France?", "demo")
    assert json.loads(tab.wait_for_answer()) == {"city": "Paris"}
    tab.page.click("#show-settings")
    tab.page.fill("#settings [name=schema]", "{")
    tab.page.click("#settings button[type=submit]")
    assert tab.page.inner_text("#settings-error") == "The JSON schema is no JSON."
    tab.page.keyboard.press("Escape")
    tab.set(schema='{"type": 5}')
    tab.ask("Hi")
    tab.wait_for_text(".message .error", "response_format")
    (problem,) = tab.problems  # Chromium reports the status 400
    assert "400" in problem
    tab.problems.clear()


@in_chromium
def test_keyboard_only(tab: Tab) -> None:
    keyboard = tab.page.keyboard
    keyboard.type("What is the capital")  # the page begins with the focus on the message
    keyboard.press("Shift+Enter")
    keyboard.type("of France?")
    keyboard.press("Enter")
    tab.wait_for_answer()
    assert tab.page.inner_text(".user .body") == "What is the capital\nof France?"
    focused = "() => document.activeElement.getAttribute('aria-label')"
    for _ in range(40):
        if tab.page.evaluate(focused) == "Regenerate the answer":
            break
        keyboard.press("Shift+Tab")
    keyboard.press("Enter")
    tab.wait_for_answer()
    assert tab.page.locator(".message").count() == 2


@in_chromium
@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1200])
def test_looks(browser: Any, page_server: LiveServer, width: int, colours: str) -> None:
    size = {"width": width, "height": 740}
    tab = Tab(browser, page_server, viewport=size, color_scheme=colours)
    tab.set(tools=TOOLS)
    tab.ask("Show " + "it" * 200, "rich")
    tab.wait_for_answer()
    page = tab.page
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    red = int(re.findall(r"\d+", background)[0])
    assert (red > 128) is (colours == "light")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.querySelector('#log').scrollWidth") <= width
    if width == 360:
        assert not page.is_visible("#side")
        page.click("#menu")
    page.wait_for_selector("#side", state="visible")
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    found = axe.Axe().run(page).response["violations"]
    assert [each["id"] for each in found if each["impact"] in ("serious", "critical")] == []
    tab.close()


@in_chromium
def test_a_key(browser: Any, serve: Any) -> None:
    server = serve(ServerConfig(api_keys=["secret"]), answer="ok")
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    page.goto(f"{server.url}/")
    page.fill("#prompt", "hi")
    page.keyboard.press("Enter")
    page.wait_for_selector(".message .error")
    assert "key" in page.inner_text(".message .error")
    page.click("#show-settings")
    page.fill("#settings [name=key]", "secret")
    page.click("#settings button[type=submit]")
    page.wait_for_selector("#model option", state="attached")
    page.click("text=Regenerate")
    wait_for_text(page, ".assistant .body", "ok")
    assert "secret" not in page.evaluate("JSON.stringify(localStorage)")
    context.close()

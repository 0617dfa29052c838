"""The explorer in a browser, against a real server and a real store."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect

import charllm
from charllm.cli.parser import build_parser
from charllm.cli.spec_flags import keywords_from
from tests.browser.conftest import LONG_MS, SCREENSHOTS, await_true, keep_screenshot
from tests.browser.served import HOSTILE, make_store, measuring, serving

START = "#explore?model=llama3-8b&cluster=h200x8&tp=2&gbs=32"
SIGN = "[+\u2212]"
EXPECTED = ("the server responded with a status of 400", "net::ERR_FAILED")
"""What a browser logs of its own when a request is refused, or cut off."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def opened_address(store: Path) -> Iterator[str]:
    with serving(store) as found:
        yield found


@pytest.fixture
def tab(browser: Browser, opened_address: str) -> Iterator[Page]:
    """A fresh tab that must end its test without an error in its console and without a foreign request.

    Opening the printed address once gives the browser its token.
    """
    address = opened_address.partition("?")[0]
    context = browser.new_context(viewport={"width": 1280, "height": 900}, base_url=address)
    first = context.new_page()
    first.goto(opened_address)
    first.close()
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened = context.new_page()
    opened.set_default_timeout(LONG_MS)
    errors: list[str] = []

    def note_message(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            errors.append(message.text)

    def note_request(request: Request) -> None:
        if not request.url.startswith((address, "data:", "blob:")):
            errors.append(f"asked the network for {request.url}")

    opened.on("console", note_message)
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.on("dialog", lambda dialog: errors.append(f"ran {dialog.message}"))
    opened.on("request", note_request)
    yield opened
    context.close()
    assert [text for text in errors if not any(each in text for each in EXPECTED)] == []


def await_state(tab: Page, state: str) -> None:
    expect(tab.locator(".result-head")).to_have_attribute("data-state", state, timeout=LONG_MS)


def explore(tab: Page, at: str = START) -> None:
    tab.goto(f"/{at}")
    await_state(tab, "coupled")
    # Long enough to be read: what comes next is compared with it.
    tab.wait_for_timeout(700)


def fact(tab: Page, label: str) -> str:
    return tab.locator(".strip div", has_text=label).locator("dd").first.inner_text()


def violations(tab: Page) -> list[str]:
    found = Axe().run(tab).response["violations"]
    return [f"{each['id']}: {node['html'][:120]}" for each in found for node in each["nodes"]]


def overflow(tab: Page) -> Any:
    return tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


WATCH = """() => {
  window.seen = [];
  const head = document.querySelector('.result-head');
  new MutationObserver(() => {
    const state = head.dataset.state;
    if (window.seen.at(-1) !== state) window.seen.push(state);
  }).observe(head, {attributes: true});
}"""


def test_the_printed_address_opens_the_page_which_keeps_the_token_out_of_address_and_cookies(
    browser: Browser, opened_address: str
) -> None:
    address, _question, asked = opened_address.partition("?")
    token = asked.removeprefix("token=")
    context = browser.new_context()
    page = context.new_page()
    page.goto(opened_address)
    page.get_by_role("heading", name="Settings").or_(page.locator("aside")).first.wait_for(timeout=LONG_MS)
    assert page.url.partition("#")[0] == address
    assert token not in page.url
    assert all(token not in cookie.get("value", "") for cookie in context.cookies())
    # Another tab of the same browser, and a reload, still know it.
    again = context.new_page()
    again.goto(f"{address}#runs")
    again.get_by_role("cell", name="tp2").first.wait_for(timeout=LONG_MS)
    again.reload()
    again.get_by_role("cell", name="tp2").first.wait_for(timeout=LONG_MS)
    context.close()


def test_a_moved_slider_shows_the_fast_answer_then_the_coupled_one(tab: Page) -> None:
    explore(tab)
    assert tab.locator("h1").inner_text().startswith("llama3-8b on ")
    assert tab.locator("figure").count() >= 5
    assert fact(tab, "Peak temperature").endswith(" C")
    before = fact(tab, "Step time")
    tab.evaluate(WATCH)
    tab.get_by_label("Tensor, tp, slider").press("ArrowRight")
    assert tab.get_by_label("Tensor, tp", exact=True).input_value() == "4"
    await_true(tab, "window.seen.includes('coupled')")
    # Both may arrive in one piece; a long drag, below, shows fast answers all along.
    assert tab.evaluate("window.seen.filter((each) => each !== 'waiting')") in (["fast", "coupled"], ["coupled"])
    assert fact(tab, "Step time") != before
    assert tab.locator(".against").inner_text() == "Differences from the previous prediction: Tensor, tp 2 → 4."
    assert re.fullmatch(rf"{SIGN}\S+ %.*", tab.locator(".strip .delta").first.inner_text(), re.DOTALL)
    assert tab.locator("[aria-live=polite]").first.inner_text().startswith("llama3-8b")
    # What follows from the others shows what it was taken as.
    assert tab.get_by_label("Data, dp", exact=True).input_value() == "2"
    tab.wait_for_url("**tp=4**")
    tab.go_back()
    expect(tab.get_by_label("Tensor, tp", exact=True)).to_have_value("2")
    await_state(tab, "coupled")
    assert fact(tab, "Step time") == before


DRAG = """async () => {
  window.shown = new Set();
  const value = document.querySelector('.strip dd');
  new MutationObserver(() => window.shown.add(value.textContent)).observe(value, {childList: true});
  const slider = document.querySelector("[aria-label='Power cap, W, slider']");
  const move = async (to) => {
    slider.value = to;
    slider.dispatchEvent(new Event('input', {bubbles: true}));
    await new Promise((resolve) => setTimeout(resolve, 30));
  };
  let moves = 0;
  for (; moves < 1000 && window.shown.size < 3; moves += 1) await move(Number(slider.max) - 1 - (moves % 11));
  await move(Number(slider.max) - 12);
  return moves;
}"""


def test_a_long_drag_shows_answers_all_along_and_ends_with_the_last(tab: Page) -> None:
    asked: list[str] = []
    explore(tab)
    tab.on("request", lambda each: asked.append(each.url) if "answers" in each.url else None)
    moves = tab.evaluate(DRAG)
    await_state(tab, "coupled")
    assert moves < 1000, "a fast answer was shown while the slider moved"
    assert tab.get_by_label("Power cap, W", exact=True).input_value() == "400"
    expect(tab.locator(".against")).to_contain_text("Power cap, W 700 → 400.")
    assert len(asked) <= moves + 1, "one request at a time, and the last change"


def test_an_invalid_combination_is_explained_at_its_setting_and_keeps_the_last_answer(tab: Page) -> None:
    explore(tab)
    before = fact(tab, "Step time")
    field = tab.get_by_label("Tensor, tp", exact=True)
    field.fill("3")
    await_state(tab, "refused")
    assert "expected a divisor of the 8 GPUs" in tab.locator("#tp-note").inner_text()
    assert field.get_attribute("aria-invalid") == "true"
    assert field.get_attribute("aria-describedby") == "tp-note"
    assert fact(tab, "Step time") == before
    assert tab.locator(".sheet").evaluate("each => getComputedStyle(each).filter") == "grayscale(1)"
    # The last valid result does not fill the screen any more.
    assert tab.locator(".sheet").evaluate("each => each.getBoundingClientRect().height") < 400
    tab.screenshot(path=SCREENSHOTS / "explorer-invalid.png")
    assert violations(tab) == []
    tab.get_by_role("button", name="Tensor, tp 4", exact=True).click()
    await_state(tab, "coupled")
    assert tab.locator("#tp-note").inner_text() == ""
    assert field.input_value() == "4"
    assert tab.locator(".offers").inner_text() == ""


def test_a_run_that_does_not_fit_says_so(tab: Page) -> None:
    explore(tab, "#explore?model=llama3-70b&cluster=h200x8&gbs=32")
    assert fact(tab, "Step time") == "does not fit"
    assert "does not fit" in tab.locator(".sheet .answer").inner_text()
    # With what would fit as a button: full sharding, recomputation, states on the CPU.
    tab.locator(".offers button").click()
    expect(tab.locator(".strip div", has_text="Step time").locator("dd").first).to_have_text(re.compile(r"\d s$"))
    assert float(tab.get_by_label("Offload states", exact=True).input_value()) > 0


def test_a_machine_of_any_size_with_another_network_trains_adapters(tab: Page) -> None:
    explore(tab)
    tab.get_by_label("Machine", exact=True).fill("64xH100")
    tab.keyboard.press("Enter")
    expect(tab.locator("h1")).to_contain_text("on h100x64", timeout=30000)
    tab.get_by_label("Network", exact=True).select_option("100g-per-node")
    expect(tab.locator(".sheet .answer")).to_contain_text("1 x 100 Gb/s per node", timeout=30000)
    tab.get_by_label("LoRA rank", exact=True).fill("16")
    tab.wait_for_url("**lora=16**")
    expect(tab.locator(".against")).to_contain_text("LoRA rank 0 → 16")


def test_pinned_answers_stand_side_by_side_and_outlive_a_reload(tab: Page) -> None:
    explore(tab)
    pin = tab.get_by_role("button", name="Pin", exact=True)
    pin.click()
    tab.get_by_label("Tensor, tp", exact=True).fill("4")
    expect(tab.locator(".against")).to_contain_text("2 → 4")
    await_state(tab, "coupled")
    pin.click()
    rows = tab.locator(".kept tbody tr")
    assert rows.first.inner_text().split("\t")[1:] == ["2", "4"]
    step = str(tab.locator(".kept tr", has_text="Step time").text_content())
    assert re.search(rf"{SIGN}[\d.]+ %", step)
    tab.wait_for_url("**pin=**pin=**")
    keep_screenshot(tab, "explorer-pins")
    # The address alone is enough, for someone who has never asked.
    tab.evaluate("sessionStorage.clear()")
    tab.reload()
    await_state(tab, "coupled")
    expect(tab.locator(".kept tr", has_text="Step time")).to_have_text(step, timeout=LONG_MS)
    tab.get_by_role("button", name="Remove pinned answer 1").focus()
    tab.keyboard.press("Enter")
    assert tab.locator(".kept thead th").count() == 2
    assert tab.evaluate("document.activeElement.textContent") == "Remove"


EVERY = (
    "nodes=1&pp=1&vpp=1&cp=1&ep=1&dp=4&zero=1&sp=true&mbs=2&seq_length=4096&precision=fp16&recompute=selective"
    "&schedule=1f1b&framework=nemo&overlap=tp,dp&power_cap=500&clock_cap=1800&inlet=30&lora=8&network=none"
    "&optimizer_offload=0.5&activation_offload=0.25"
)
"""A value for every other setting."""


def test_the_copied_command_and_call_are_the_run_that_is_shown(tab: Page) -> None:
    explore(tab, f"{START}&{EVERY}")
    shown = fact(tab, "Step time")
    tab.get_by_role("button", name="Copy as command").click()
    tab.get_by_role("button", name="Copy shell command").click()
    expect(tab.get_by_text("The shell command is copied.")).to_be_visible()
    words = shlex.split(tab.evaluate("navigator.clipboard.readText()"))
    assert words[:2] == ["charllm", "simulate"]
    keywords = keywords_from(build_parser("simulate").parse_args(words[2:]))
    tab.get_by_role("button", name="Copy Python call").click()
    expect(tab.get_by_text("The Python call is copied.")).to_be_visible()
    call = tab.evaluate("navigator.clipboard.readText()")
    result = eval(call, {"charllm": charllm})
    offloads = {"optimizer_offload_fraction": 0.5, "activation_offload_fraction": 0.25}
    assert keywords["set"] == {"cluster": {"nodes": 1}, "training": offloads}
    assert charllm.simulate(**keywords).metrics.step_time_s == result.metrics.step_time_s
    assert f"{result.metrics.step_time_s:.2f} s" == shown
    assert result.spec["parallelism"]["overlap"] == ["tp", "dp"]
    assert result.spec["conditions"]["clock_cap_hz"] == 1.8e9
    assert len(set(tab.evaluate("charllm.explorer.settings.SETTINGS.map((each) => each.word)"))) == EVERY.count("=") + 4


def test_a_plan_on_several_machines_is_a_budget(tab: Page) -> None:
    pinned = "model=llama3-8b&cluster=h200x8&gbs=32&tp=2&pp=1&cp=1&mbs=1&zero=1&recompute=none&overlap=dp"
    tab.goto(f"/#plan?{pinned}&machines=h100x8&tokens=1000")
    assert tab.get_by_label("Compare with").input_value() == "h100x8"
    tab.get_by_role("button", name="Find the best strategy").click()
    await_state(tab, "coupled")
    assert tab.locator("h1").inner_text() == "Budget of 2 machines"
    assert "Cheapest for its tokens" in tab.locator(".sheet .answer").inner_text()
    points = tab.locator("#machines-front path.point")
    points.first.wait_for()
    assert points.count() == 2
    assert violations(tab) == []
    tab.screenshot(path=SCREENSHOTS / "explorer-budget.png")


BAR = """(drawing, change) => {
  drawing.scrollIntoView({block: 'center'});
  const middle = (each) => each.getBoundingClientRect().y + each.getBoundingClientRect().height / 2;
  const label = [...drawing.querySelectorAll('text')].find((each) => each.textContent.includes(change));
  const bar = [...drawing.querySelectorAll('rect')].find((each) => Math.abs(middle(each) - middle(label)) < 8);
  return [bar.getBoundingClientRect().x + 2, middle(bar)];
}"""


def test_a_click_on_a_change_makes_it(tab: Page) -> None:
    explore(tab, "#explore?model=llama3-8b&cluster=h200x8&tp=8&gbs=32")
    before = fact(tab, "Step time")
    tab.get_by_role("button", name="What would help?").click()
    drawing = tab.locator("section[aria-label='What would help?'] svg").first
    drawing.wait_for()
    assert "--tp 4 --dp 2" in str(drawing.text_content())
    x, y = drawing.evaluate(BAR, "--tp 4 --dp 2")
    tab.mouse.click(x, y)
    expect(tab.locator(".against")).to_contain_text("Tensor, tp 8 → 4")
    await_state(tab, "coupled")
    assert tab.get_by_label("Tensor, tp", exact=True).input_value() == "4"
    assert fact(tab, "Step time") != before
    # The same by a button, for those who do not point.
    tab.get_by_role("button", name="What would help?").click()
    tab.get_by_role("button", name="--tp 2 --dp 4").click()
    expect(tab.get_by_label("Tensor, tp", exact=True)).to_have_value("2")


def test_the_keyboard_alone_picks_a_model_and_moves_a_setting(tab: Page) -> None:
    explore(tab)
    tab.evaluate("document.activeElement.blur()")
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.textContent") == "Skip to the content"
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.activeElement.id") == "content"
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.id") == "set-model"
    tab.keyboard.type("mixtral 8x7b")
    assert tab.get_by_role("option").first.inner_text().startswith("mixtral-8x7b")
    tab.keyboard.press("Enter")
    await_state(tab, "coupled")
    tab.wait_for_url("**model=mixtral-8x7b**")
    reached: list[str] = []
    for _ in range(90):
        tab.keyboard.press("Tab")
        reached.append(tab.evaluate("document.activeElement.id || document.activeElement.textContent"))
    for needed in (
        "set-cluster",
        "set-ep",
        "set-overlap-tp",
        "set-inlet",
        "Pin",
        "What would help?",
        "Copy as command",
    ):
        assert needed in reached, needed
    outline = tab.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"


def test_stored_runs_are_found_opened_and_compared(tab: Page) -> None:
    tab.goto("/#runs")
    rows = tab.locator("table.runs tbody tr")
    expect(rows).to_have_count(4)
    assert "broken" in tab.locator("section", has_text="Skipped").inner_text()
    assert HOSTILE in rows.filter(has_text="<img").inner_text()
    assert tab.locator("img").count() == 0
    tab.get_by_role("button", name="Name").click()
    assert tab.locator("th[aria-sort=ascending]").inner_text().startswith("Name")
    tab.get_by_label("Kind").select_option("study")
    expect(rows).to_have_count(1)
    rows.get_by_role("link").click()
    tab.wait_for_selector("article figure")
    tab.go_back()
    expect(tab.get_by_label("Kind")).to_have_value("study")
    tab.get_by_label("Kind").select_option("")
    rows.filter(has_text="<img").get_by_role("link").click()
    tab.wait_for_selector("article figure")
    assert HOSTILE in tab.locator("h1").inner_text()
    assert tab.locator("img").count() == 0
    tab.goto("/#runs?search=tp")
    for name in ("tp 2 x dp 4", "tp 4 x dp 2"):
        tab.get_by_label(re.compile(rf"Select llama3-8b .*{name}")).check()
    tab.get_by_role("button", name="Compare selected").click()
    tab.wait_for_selector("article figure")
    keep_screenshot(tab, "explorer-compare")
    tab.goto("/#run?path=../../etc")
    expect(tab.locator(".refusal")).to_contain_text("a path inside the store")


def test_a_running_measurement_is_followed_to_its_end(tab: Page, store: Path, tmp_path: Path) -> None:
    with measuring(store, tmp_path) as end:
        tab.route("**/api/live*", lambda route: route.abort())
        tab.goto("/#live")
        link = tab.get_by_role("link", name="mine")
        link.click()
        expect(tab.locator(".progress")).to_contain_text("connection lost")
        tab.unroute("**/api/live*")
        expect(tab.locator(".progress")).to_contain_text("running")
        expect(tab.locator(".scroll tbody tr")).to_have_count(2)
        tab.wait_for_selector(".live-chart canvas")
        await_true(tab, "Number(document.querySelectorAll('.strip dd')[2].textContent) > 1")
        steps = int(fact(tab, "Steps"))
        await_true(tab, f"Number(document.querySelectorAll('.strip dd')[2].textContent) > {steps}")
        assert float(fact(tab, "Tokens/J")) > 0
        assert fact(tab, "Loss") == "2.5"
        assert violations(tab) == []
        tab.wait_for_timeout(1500)
        keep_screenshot(tab, "explorer-live")
        end.touch()
        expect(tab.locator(".progress")).to_contain_text("ended", timeout=LONG_MS)
    tab.get_by_role("link", name="Open the page of this run").click()
    tab.wait_for_selector("article figure")
    assert tab.locator(".badge").first.inner_text() == "measured"


@pytest.mark.parametrize(("theme", "width"), [("light", 390), ("dark", 1280)])
def test_pages_are_labelled_legible_and_fit_their_width(tab: Page, theme: str, width: int) -> None:
    tab.set_viewport_size({"width": width, "height": 900})
    tab.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    explore(tab)
    assert tab.evaluate("charllm.theme.now()") == theme
    tab.get_by_role("button", name="Pin", exact=True).click()
    tab.get_by_role("button", name="Copy as command").click()
    assert violations(tab) == []
    assert overflow(tab) <= 0
    keep_screenshot(tab, f"explorer-explore-{theme}-{width}")
    tab.goto("/#runs")
    tab.wait_for_selector("table.runs")
    assert violations(tab) == []
    assert overflow(tab) <= 0
    keep_screenshot(tab, f"explorer-runs-{theme}-{width}")
    if width == 1280:
        tab.get_by_role("button", name=f"{'Light' if theme == 'dark' else 'Dark'} theme").click()
        assert tab.evaluate("charllm.theme.now()") != theme


PLANNED = "&pp=1&cp=1&mbs=1&zero=1&recompute=none&overlap=dp&clock_cap=1980"
"""Leaves a plan few strategies to search."""


def find_best(tab: Page) -> None:
    tab.goto(f"/{START.replace('explore', 'plan')}{PLANNED}")
    tab.get_by_role("button", name="Find the best strategy").click()
    await_state(tab, "coupled")
    tab.locator("#front path.point").first.wait_for()


def test_a_plan_is_searched_and_searched_again_when_a_limit_moves(tab: Page) -> None:
    asked: list[str] = []
    tab.on("request", lambda each: asked.append(each.post_data or "") if "api/plan" in each.url else None)
    find_best(tab)
    assert tab.locator("h1").inner_text() == "Plan of llama3-8b on h200x8"
    # What the best has taken stands in italics where nothing was fixed.
    assert tab.get_by_label("Data, dp", exact=True).input_value() == "4"
    best = tab.locator(".answer .lead").inner_text()
    hottest = float(fact_of(tab, "Peak temperature").removesuffix(" C"))
    slider = tab.get_by_label("Peak temperature, C, at most, slider")
    slider.fill(str(int(hottest) - 3))
    await_state(tab, "waiting")
    tab.get_by_role("button", name="Cancel").click()
    assert tab.locator(".result-head").get_attribute("data-state") == "cancelled"
    slider.press("ArrowLeft")
    await_state(tab, "waiting")
    await_state(tab, "coupled")
    expect(tab.locator(".answer .lead")).not_to_have_text(best)
    assert float(fact_of(tab, "Peak temperature").removesuffix(" C")) < hottest - 3
    assert "temperature_peak_c<" in asked[-1]
    assert "limit=temperature_peak_c" in tab.url
    assert "best: 1:" in tab.locator("#front .count").inner_text()
    tab.get_by_role("button", name="Open the best in Explore").click()
    await_state(tab, "coupled")
    assert tab.get_by_label("Tensor, tp", exact=True).input_value() == "2"


def fact_of(tab: Page, label: str) -> str:
    return tab.locator(".facts li", has_text=label).locator(".value").inner_text()


def test_a_plan_can_be_read_pinned_and_refused_by_keyboard_in_the_dark(tab: Page) -> None:
    tab.emulate_media(color_scheme="dark")
    find_best(tab)
    tab.locator("#front .chart").focus()
    for key in ("Home", "Enter", "Escape"):
        tab.keyboard.press(key)
    assert "charllm simulate" in tab.locator("#front .pin").inner_text()
    assert violations(tab) == []
    keep_screenshot(tab, "explorer-plan-dark-1280")
    tab.get_by_label("Peak temperature, C", exact=True).fill("20")
    await_state(tab, "refused")
    assert "limits that some strategy meets" in tab.locator(".result-head").inner_text()
    tab.set_viewport_size({"width": 390, "height": 844})
    assert overflow(tab) == 0
    keep_screenshot(tab, "explorer-plan-dark-390")

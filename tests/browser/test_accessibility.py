"""People can use the page who do not see it, who have no mouse, or who need contrast."""

from itertools import pairwise

import pytest

from tests.browser.axe import AxeUnavailable, violations
from tests.browser.states import SIZES, THEMES, V, sample, states
from tests.browser.tree import focused, tree
from tests.golden.rows import rows


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("size", SIZES)
def test_every_state_fits_and_follows_wcag(chromium, long_report, pictures, size, theme, tmp_path):
    """A picture of each state is kept."""
    broken = []
    unavailable = ""
    with chromium.new_page(*SIZES[size], theme) as page:
        for name in states(page, tmp_path, long_report):
            page.screenshot(pictures / f"{name}-{size}-{theme}.png")
            assert page.ask("document.documentElement.scrollWidth <= innerWidth"), name
            try:
                broken += [(name, *violation) for violation in violations(page)]
            except AxeUnavailable as error:
                unavailable = str(error)
    assert broken == []
    if unavailable:
        pytest.skip(unavailable)


def test_a_rule_that_is_broken_is_found(usual):
    try:
        assert violations(usual) == []
    except AxeUnavailable as error:
        pytest.skip(str(error))
    for name in ("aria-label", "placeholder", "title"):
        usual.ask(f"document.querySelector('input[type=search]').removeAttribute('{name}')")
    usual.ask("document.querySelector('.sent').style.color = '#ccc'")
    assert {rule for rule, *_ in violations(usual)} == {"label", "color-contrast"}


def test_screen_reader_is_told_the_page(tidewatch):
    tidewatch.ask(f"{V}.go(246)")
    tidewatch.wait("document.querySelector('.told')?.textContent.startsWith('Version 246 of 286')")
    nodes = tree(tidewatch)
    names = {(node.role, node.name) for node in nodes}
    assert {*map(tuple, rows("page.json", "a version of the sample, to a screen reader"))} <= names
    (strip, chart) = (node for node in nodes if node.role == "image")
    assert strip.name.endswith("with 2 errors, 5 condensations and 2 waits")
    assert (
        chart.name == "Versions 0 to 286: 5 condensations. The View is largest at version 152, with"
        " ≈\N{NO-BREAK SPACE}25k tokens."
    )
    (slider,) = (node for node in nodes if node.role == "slider")
    assert (slider.name, slider.value) == ("Version", "246")
    spoken = tidewatch.ask("document.querySelector('.slider').getAttribute('aria-valuetext')")
    assert spoken.startswith("246 of 286, ≈")
    live = [node for node in nodes if node.role == "status"]
    assert all(node.properties["live"] == "polite" for node in live)
    assert "The model is sent 22 events and 2 summaries" in tidewatch.text(".told")
    assert not [
        node
        for node in nodes
        if node.role in ("button", "link", "listbox", "group", "image") and not node.name
    ]
    levels = [node.properties["level"] for node in nodes if node.role == "heading"]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_screen_reader_follows_changes_of_the_page(page, report):
    page.open(f"{report(sample())}#v=281&from=280&e=280")
    page.wait("document.querySelector('.stored')")
    nodes = tree(page)
    names = {(node.role, node.name) for node in nodes}
    assert {*map(tuple, rows("page.json", "a comparison, to a screen reader"))} <= names
    assert [node.properties["pressed"] for node in nodes if node.name == "Changes"] == ["true"]
    page.run(f"{V}.find('flaky')")
    page.wait(f"{V}.searched")
    page.settle()
    assert any(node.role == "heading" and node.name.endswith("found") for node in tree(page))


def test_tab_order_and_visible_focus(tidewatch):
    names = []
    while names[-1:] != ["What the model knew"]:
        tidewatch.press("Tab")
        element, name, ringed = focused(tidewatch)
        assert ringed, (element, name)
        names.append(name)
    waits = [name for name in names if name.endswith(", the longest wait")]
    assert names.pop(0).startswith("largest View ≈")
    assert names == [
        *(
            f"{which} {mark}"
            for mark in ("error", "condensation")
            for which in ("Previous", "Next")
        ),
        *(waits and [*waits, "Previous wait", "Next wait"]),
        *("Transcript", "Memory", "Search all events, or an id", "Help"),
        "Version",
        *("Previous version (←)", "Go to version", "Next version (→)"),
        *("Now, the newest version (End)", "Zoom out", "Zoom in", "Whole history"),
        *("Copy link", "Expand all", "Plain text", "All events", "What the model knew"),
    ]


def test_everything_can_be_done_with_the_keyboard(page, report):
    def tab_to(name, *, back=False):
        for _ in range(120):
            page.press("Tab", shift=back)
            if focused(page)[1] == name:
                return
        raise AssertionError(f"the keyboard does not come to {name!r}")

    page.open(report(sample()))
    page.press("j")
    assert page.ask(f"{V}.event") is not None
    tab_to("Condensation 93")
    page.press("Enter")
    page.wait("document.querySelector('.knew h2')?.innerText === 'Condensation 93'")
    tab_to("Compare before and after")
    page.press("Enter")
    assert page.text(".knew h2") == "Version 93 → 94"
    tab_to("Search all events, or an id")
    page.type("pytest")
    page.wait(f"{V}.searched")
    page.press("Enter")
    first = page.ask(f"{V}.event")
    page.press("Enter")
    assert page.ask(f"{V}.event") > first
    page.press("Escape")
    assert focused(page)[1] == "Transcript"
    tab_to("Stop comparing")
    page.press("Enter")
    page.press("Escape")
    assert page.ask(f"[{V}.from, {V}.event]") == [None, None]
    tab_to("Compare from here")
    page.press("Enter")
    assert page.ask(f"{V}.from") == page.ask(f"{V}.version")
    page.press("Escape")
    page.press("?")
    assert focused(page)[1] == "Close"
    page.press("Escape")
    assert not page.ask(f"{V}.help.open")
    tab_to("Version", back=True)
    page.press("Home")
    assert page.ask(f"{V}.version") == 0
    tab_to("Next version (→)")
    page.press("Enter")
    page.press("Enter")
    assert (page.ask(f"{V}.version"), focused(page)[1]) == (2, "Next version (→)")

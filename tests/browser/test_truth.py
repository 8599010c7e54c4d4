"""The picture stays true where many events share a pixel."""

from foldlog.eventstore import CondensationAction
from tests.browser.states import V
from tests.said import replied, said

LEFT = 58
"""Where the plot begins, in pixels (``LEFT`` of ``strip.js``)."""
WHOLE = f"{V}.chart.setWindow(0, {V}.history.version + 1)"
PIXELS = """((left, top, width, height, canvas = window.foldlog.chart.base) => {
  return Array.from(canvas.getContext('2d').getImageData(left, top, width, height).data);
})"""
COLOR = """((name) => {
  const context = document.createElement('canvas').getContext('2d');
  context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(name);
  context.fillRect(0, 0, 1, 1);
  return Array.from(context.getImageData(0, 0, 1, 1).data).slice(0, 3).join();
})"""


def test_colours_of_thin_rows_follow_tokens(page, report):
    """Each line of pixels has a message of the user, with one part in a hundred of the tokens."""
    page.open(report(replied("x" * 110) if n % 8 else said("x" * 8) for n in range(8_000)))
    page.run(WHOLE)
    counts = page.ask(f"""(() => {{
      const {{ livesTop, livesHeight, plotWidth }} = {V}.chart.box;
      // A column near the right end, without the lowest rows, whose events come right of it.
      const x = {LEFT} + Math.floor(plotWidth) - 40;
      const data = {PIXELS}(x, Math.ceil(livesTop), 1, Math.floor(livesHeight) - 60);
      const counts = {{}};
      for (let at = 0; at < data.length; at += 4) {{
        const color = data.slice(at, at + 3).join();
        counts[color] = (counts[color] ?? 0) + 1;
      }}
      return [counts[{COLOR}('--user')] ?? 0, counts[{COLOR}('--agent')] ?? 0];
    }})()""")
    user, agent = counts
    assert 0 < user < 0.05 * agent
    ticks = page.ask(f"""(() => {{
      const {{ livesTop, livesHeight, plotWidth }} = {V}.chart.box;
      // The ticks of the messages of the user are right of the plot.
      const x = {LEFT} + Math.floor(plotWidth) + 7;
      const data = {PIXELS}(x, Math.ceil(livesTop), 1, Math.floor(livesHeight));
      const color = {COLOR}('--user');
      let ticks = 0;
      for (let at = 0; at < data.length; at += 4) if (data.slice(at, at + 3).join() === color) ticks += 1;
      return ticks;
    }})()""")
    assert ticks > 250


def test_every_peak_of_the_curve_is_drawn(page, report):
    """Thirty times the View grows to the same size and is forgotten: some five versions share a
    pixel.
    """
    events = []
    for _ in range(30):
        start = len(events)
        events += [replied("y" * 400) for _ in range(150)]
        events.append(CondensationAction(forgotten_event_ids=list(range(start, start + 150))))
    page.open(report(events))
    page.run(WHOLE)
    tops = page.ask(f"""(() => {{
      const {{ strip, history }} = {V};
      return history.made.map((change) => {{
        const left = Math.floor(strip.x(change.id)) - 3;
        const data = {PIXELS}(left, 14, 2, 50, strip.canvas);
        for (let at = 0; at < data.length; at += 4) if (data[at + 3] > 60) return Math.floor(at / 8);
        return -1;
      }});
    }})()""")
    assert len(tops) == 30
    assert min(tops) >= 0, "a peak is not drawn"
    assert max(tops) - min(tops) <= 1

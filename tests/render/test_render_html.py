"""The report page: whole without JavaScript, safe whatever a log says, small however long the run was."""

from __future__ import annotations

import base64
import gzip
import json
import re
from html.parser import HTMLParser
from itertools import pairwise

import msgspec
import plotly.graph_objects as go
import pytest
import sample
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_render_live import random_events

from chaos.judge import judge
from chaos.render import ReportExtras, report_html
from chaos.render.evidence import NOTHING, evidence_rows, periods
from chaos.render.html import embed_json
from chaos.render.panes.pane import ROLES
from chaos.render.record import Record
from chaos.render.timeline import build_timeline

EXTRAS = ReportExtras(
    repeat=("pdchaos run scenarios/abort-cascade.yaml --target lab:sim --seed 1",),
    folder="20261129-193000-abort-cascade-1f3a",
    files=("verdict.json", "journal.jsonl"),
    target_kind="lab:sim",
)
VOID = {"meta", "link", "br", "hr", "wbr"}


class Page(HTMLParser):
    """Reads a page strictly: every element closed in order; keeps text, tags and what scripts hold."""

    def __init__(self, markup):
        super().__init__(convert_charrefs=True)
        self.stack, self.tags, self.text, self.scripts, self.attrs = [], [], [], {}, []
        self.feed(markup)
        self.close()
        assert [] == self.stack

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attrs += [(tag, *attr) for attr in attrs]
        if tag not in VOID:
            self.stack.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert tag == self.stack.pop()[0]

    def handle_data(self, data):
        tag, attrs = self.stack[-1] if self.stack else ("", {})
        if tag == "script":
            self.scripts[attrs.get("id", "page")] = data
        elif tag != "style" and data.strip():
            self.text.append(" ".join(data.split()))

    @property
    def figure(self):
        return json.loads(self.scripts["figure"])


def folded(events):
    record = Record()
    for event in events:
        record.feed(event)
    return record


@pytest.fixture(scope="module")
def pages():
    runs = {
        "wedged": (sample.wedged_events(), sample.wedged_verdict()),
        "healthy": (sample.healthy_events(), sample.healthy_verdict()),
        "minimal": ([], sample.minimal_verdict()),
        "unknown": (sample.wedged_events()[:3], sample.unknown_verdict()),
        "hostile": (sample.hostile_events(), sample.hostile_verdict()),
    }
    return {name: Page(report_html(events, verdict, EXTRAS)) for name, (events, verdict) in runs.items()}


@pytest.mark.parametrize("name", ["wedged", "healthy", "minimal", "unknown"])
def test_the_text_of_the_page_says_the_same_as_last_time(name, pages, snapshot):
    snapshot(f"report-{name}.txt", "\n".join(pages[name].text) + "\n")


def test_the_page_asks_the_network_for_nothing(pages):
    for page in pages.values():
        assert not {tag for tag in page.tags if tag in ("link", "img", "iframe", "object", "embed", "base", "form")}
        links = [value for _, name, value in page.attrs if name in ("src", "href", "action")]
        assert all(link.startswith("#") for link in links)
        policy = next(value for tag, name, value in page.attrs if tag == "meta" and "default-src" in (value or ""))
        assert policy.startswith("default-src 'none'")


def test_the_same_events_give_the_same_bytes():
    pair = [report_html(sample.wedged_events(), sample.wedged_verdict(), EXTRAS) for _ in range(2)]
    assert pair[0] == pair[1]


def test_hostile_text_is_shown_and_starts_no_element(pages):
    page = pages["hostile"]
    assert 3 == page.tags.count("script")
    assert {"figure", "plotly", "page"} == set(page.scripts)
    assert "img" not in page.tags
    assert not [name for _, name, _ in page.attrs if name.startswith("on")]
    assert any("</script><script>alert(1)</script>" in text for text in page.text)


def test_hostile_text_stays_text_inside_the_figure(pages):
    raw = pages["hostile"].scripts["figure"]
    assert "<" not in raw
    assert "alert(1)" in raw

    def strings(value):
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict | list):
            for item in value.values() if isinstance(value, dict) else value:
                yield from strings(item)

    # plotly reads a little HTML in its texts: only the markup that this project writes may be there.
    tags = {tag for text in strings(pages["hostile"].figure) for tag in re.findall(r"<[^>]*>", text)}
    assert tags <= {"<b>", "</b>", "<br>", "<extra>", "</extra>"}


@settings(deadline=None)  # machines starve
@given(st.text())
def test_no_string_can_end_the_script_that_holds_it(text):
    embedded = embed_json({"x": text})
    assert not {"<", ">", "&", "\u2028", "\u2029"} & set(embedded)
    assert {"x": text} == json.loads(embedded)


def test_the_chart_library_is_whole_in_the_page(pages):
    script = gzip.decompress(base64.b64decode(pages["wedged"].scripts["plotly"]))
    assert b"newPlot" in script
    assert len(script) > 1_000_000


@pytest.mark.parametrize("name", ["wedged", "healthy", "hostile", "unknown", "minimal"])
def test_every_figure_is_valid_for_plotly(name, pages):
    go.Figure(pages[name].figure)


def test_every_pane_stands_on_one_time_axis(pages):
    figure = pages["wedged"].figure
    assert {"x"} == {trace["xaxis"] for trace in figure["data"]}
    assert ["xaxis"] == [name for name in figure["layout"] if name.startswith("xaxis")]
    domains = [axis["domain"] for name, axis in figure["layout"].items() if name.startswith("yaxis")]
    assert 7 == len(domains)
    assert all(upper[0] > lower[1] for upper, lower in pairwise(domains))


def traces(figure, name):
    return [trace for trace in figure["data"] if trace["name"] == name and trace["mode"] == "markers"]


def test_canaries_are_drawn_by_their_fate_with_a_symbol_each(pages):
    wedged, healthy = pages["wedged"].figure, pages["healthy"].figure
    lanes, latency = traces(wedged, "never finished")
    assert 12 == len(lanes["x"]) == len(latency["x"])
    assert 47 == pytest.approx(max(latency["y"]), abs=1)
    assert 3 == len(traces(healthy, "late")[0]["x"])
    symbols = [traces(figure, fate)[0]["marker"]["symbol"] for figure, fate in
               ((wedged, "in time"), (wedged, "never finished"), (healthy, "late"))]  # fmt: skip
    assert 3 == len(set(symbols))


def test_a_canary_that_we_hung_up_after_the_last_look_never_finished():
    stream = sample.Stream()
    stream.canary("routed", 1.0, None)
    stream.add(sample.ev.RequestEnded, 9.0, req="canary-routed-0000", kind="canary", path="routed",
               error="cancelled", ended_by="harness")  # fmt: skip
    assert ("0 of 1 in time, 1 never finished",) == evidence_rows(folded(stream))[0].cells


def test_every_wave_is_shaded_where_it_was_fired(pages):
    shaded = [s for s in pages["healthy"].figure["layout"]["shapes"] if s["name"] == "wave" and s["type"] == "rect"]
    assert [14.0, 30.0] == [shape["x0"] for shape in shaded]
    assert all(shape["x1"] > shape["x0"] for shape in shaded)


def test_sessions_vanish_with_the_wave_that_killed_them(pages):
    waiting = next(t for t in pages["wedged"].figure["data"] if t["name"] == "waiting")
    at = dict(zip(waiting["x"], waiting["y"], strict=True))
    assert 43 == at[13.5]
    assert 0 == at[15.0]


def test_a_frozen_gauge_is_drawn_at_its_frozen_value(pages):
    prealloc = next(t for t in pages["wedged"].figure["data"] if t["name"] == "decode-0 prealloc")
    assert 29 == prealloc["y"][-1]


def test_the_fatal_line_is_in_the_log_lane(pages):
    fatal = next(t for t in pages["wedged"].figure["data"] if t["name"] == "fatal")
    assert [14.41] == fatal["x"]
    assert "NixlMsgGuard" in fatal["text"][0]


def test_every_trace_has_a_role_that_the_style_sheet_colours(pages):
    page = report_html([], sample.minimal_verdict(), EXTRAS)
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)[1]
    light, dark = style.split("prefers-color-scheme: dark", 1)
    for role in ROLES:
        assert f"--{role}:" in light
        assert f"--{role}:" in dark
        if role != "wave":
            assert f".role-{role} " in style
    used = {trace["meta"]["role"] for page in pages.values() for trace in page.figure["data"]}
    assert used <= set(ROLES)


def test_the_evidence_table_tells_before_during_and_after():
    rows = {(row.topic, row.what): row.cells for row in evidence_rows(folded(sample.wedged_events()))}
    assert ("before", "during", "after") == tuple(p.name for p in periods(folded(sample.wedged_events())))
    assert rows["canaries", "routed"][0].startswith("13 of 13 in time, p50 0.2")
    assert "0 of 6 in time, 6 never finished" == rows["canaries", "routed"][2]
    assert ("200 \u00d714", "200 \u00d71", "200 \u00d747") == rows["liveness", "prefill-0 /health"]
    assert "last 29, most 29" == rows["queue gauges", "decode-0 decode_prealloc_queue"][2]
    assert "0 /s" == rows["progress", "decode-0 generated_tokens"][2]
    assert ("never counted", "+43", "+0") == rows["aborts counted", "prefill-0 aborted_requests"]
    assert ("none", "1 line", "none") == next(c for (t, w), c in rows.items() if t == "log lines" and "fatal" in w)
    assert "alive, 1 of 1 children" == rows["processes", "prefill-0"][2]


def test_a_counter_that_was_there_before_the_run_is_not_counted_as_risen():
    stream = sample.Stream()
    sample._head(stream)
    for at_s, value in ((1.0, 500.0), (2.0, 500.0), (3.0, 503.0)):
        samples = (sample.ev.Sample(name="aborted_requests", labels="", value=value),)
        stream.add(sample.ev.Scrape, at_s, node="prefill-0", ok=True, samples=samples)
    cells = {row.what: row.cells for row in evidence_rows(folded(stream))}
    assert ("+3",) == cells["prefill-0 aborted_requests"]


def test_a_gauge_that_means_nothing_on_a_node_is_left_out():
    stream = sample.Stream()
    sample._head(stream)
    samples = (sample.ev.Sample(name="prefill_bootstrap_queue", labels="", value=0.0),)
    stream.add(sample.ev.Scrape, 1.0, node="decode-0", ok=True, samples=samples)
    assert [] == evidence_rows(folded(stream))


def test_what_no_probe_saw_is_called_that_and_not_zero():
    events = [event for event in sample.wedged_events() if event.t_ns < sample.Stream.ns(16)]
    rows = {(row.topic, row.what): row.cells for row in evidence_rows(folded(events))}
    assert NOTHING == rows["canaries", "prefill-0>decode-0"][1]


def test_ranks_are_told_apart_by_the_labels_that_differ():
    stream = sample.Stream()
    sample._head(stream)
    for rank in (0, 1):
        labels = f"model_name=m,tp_rank={rank}"
        samples = (sample.ev.Sample(name="decode_prealloc_queue", labels=labels, value=float(rank)),)
        stream.add(sample.ev.Scrape, 1.0 + rank, node="decode-0", ok=True, samples=samples)
    whats = [row.what for row in evidence_rows(folded(stream))]
    assert ["decode-0 decode_prealloc_queue tp_rank=0", "decode-0 decode_prealloc_queue tp_rank=1"] == whats


@pytest.mark.parametrize(
    ("outcome", "events"), [("wedged", sample.wedged_events()), ("healthy", sample.healthy_events())]
)
def test_the_sample_runs_are_what_the_judge_says_they_are(outcome, events):
    assert outcome == judge(events).outcome


def test_the_page_tells_everything_the_design_asks_for(pages):
    text = " ".join(pages["wedged"].text)
    for needed in (
        "WEDGED", "silent", "total", "confirmed", "sgl-project/sglang#30352", "0.5.16", "NixlMsgGuard",
        "waiting 43 · streaming 17", "Do fresh requests complete on every path?", "events #410, #422, #431",
        "unknown", "n.a.", "content of answers: the engine echoes nothing", "decode waiting for KV", "0.5.14",
        EXTRAS.repeat[0], "9f2c00000000", "667 events, none missing", EXTRAS.folder, "journal.jsonl",
    ):  # fmt: skip
        assert needed in text


def test_a_run_of_a_hundred_thousand_events_and_a_thousand_findings_stays_below_six_megabytes():
    page = report_html(sample.many_events(100_000), sample.huge_verdict(), EXTRAS)
    assert len(page.encode()) < 6_000_000
    figure = Page(page).figure
    assert 60_000 > sum(len(trace["x"]) for trace in figure["data"])


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(random_events(), max_size=12))
def test_no_stream_of_events_whatsoever_breaks_the_page(events):
    timeline = build_timeline(folded(events))
    Page(report_html(events, sample.hostile_verdict(), EXTRAS))
    assert embed_json(timeline.figure)


def test_what_a_stopped_run_did_on_leaving_is_read_before_any_reason():
    verdict = sample.left_verdict()
    text = Page(report_html([], verdict, EXTRAS)).text
    assert text.index(verdict.leaving.told[0]) < text.index(verdict.reasons[0])
    assert set(verdict.leaving.told) <= set(text)


def test_the_names_of_a_headline_stay_whole_and_their_text_the_same():
    told = msgspec.structs.replace(sample.wedged_verdict(), headline="On prefill-0>decode-0 nothing completes")
    page = report_html(sample.wedged_events(), told, EXTRAS)
    (line,) = re.findall("<h1>(.*?)</h1>", page)
    assert '<span class="whole">prefill-0&gt;decode-0</span>' in line
    assert "On prefill-0&gt;decode-0 nothing completes" == re.sub("<[^>]*>", "", line)

"""The fast exposition reader agrees with prometheus_client and refuses what is no exposition."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from chaos.engine.probes.exposition import BadExposition, Exposition, Reading, Wanted
from chaos.model.events import Sample

STYLE = """\
# HELP sglang:num_prefill_bootstrap_queue_reqs The number of requests in the prefill bootstrap queue.
# TYPE sglang:num_prefill_bootstrap_queue_reqs gauge
sglang:num_prefill_bootstrap_queue_reqs{engine_type="prefill",model_name="deepseek",tp_rank="0"} 58.0
sglang:num_prefill_bootstrap_queue_reqs{engine_type="prefill",model_name="deepseek",tp_rank="1"} 57.0
# HELP sglang:num_prefill_bootstrap_queue_reqs_seconds Not the same family.
# TYPE sglang:num_prefill_bootstrap_queue_reqs_seconds gauge
sglang:num_prefill_bootstrap_queue_reqs_seconds{tp_rank="0"} 1.0
# HELP sglang:num_transfer_failed_reqs_total The number of transfer failed requests.
# TYPE sglang:num_transfer_failed_reqs_total counter
# HELP sglang:num_aborted_requests_total Number of requests aborted.
# TYPE sglang:num_aborted_requests_total counter
sglang:num_aborted_requests_total{engine_type="prefill",model_name="deepseek"} 60.0
# HELP sglang:fwd_occupancy Forward pass GPU occupancy percentage.
# TYPE sglang:fwd_occupancy gauge
sglang:fwd_occupancy{tp_rank="0"} NaN
# HELP sglang:realtime_tokens_total Tokens.
# TYPE sglang:realtime_tokens_total counter
sglang:realtime_tokens_total{mode="decode",tp_rank="0"} 1.25e+06
sglang:realtime_tokens_total{mode="prefill_compute",tp_rank="0"} 7.0
"""


def test_labels_that_name_the_process_do_not_tell_series_apart_but_can_be_asked_for() -> None:
    before, after = (f'running{{pid="{pid}",rank="0"}} 3.0\n' for pid in (17, 18))
    reader = Exposition([gauge("running", where=(("pid", "17"),)), gauge("all", "running")], frozenset({"pid"}))
    assert ("rank=0", "rank=0") == tuple(sample.labels for sample in reader.read(before.encode()).samples)
    assert (Sample(name="all", labels="rank=0", value=3.0),) == reader.read(after.encode()).samples


def gauge(name: str, *exposed: str, where: tuple[tuple[str, str], ...] = ()) -> Wanted:
    return Wanted(name=name, kind="gauge", use="queue", exposed=exposed or (name,), where=where)


def counter(name: str, *exposed: str, where: tuple[tuple[str, str], ...] = ()) -> Wanted:
    return Wanted(name=name, kind="counter", use="progress", exposed=exposed or (name,), where=where)


def read(body: str, *wanted: Wanted) -> Reading:
    return Exposition(wanted).read(body.encode())


def test_samples_of_all_ranks_come_under_the_canonical_name_with_their_labels() -> None:
    got = read(STYLE, gauge("bootstrap", "sglang:num_prefill_bootstrap_queue_reqs"))
    assert [
        ("engine_type=prefill,model_name=deepseek,tp_rank=0", 58.0),
        ("engine_type=prefill,model_name=deepseek,tp_rank=1", 57.0),
    ] == [(sample.labels, sample.value) for sample in got.samples]


def test_a_counter_announced_without_a_sample_is_zero_and_a_gauge_like_that_unknown() -> None:
    announced = "# HELP g Never set.\n# TYPE g gauge\n# HELP c_total Never counted.\n# TYPE c_total counter\n"
    assert Reading((), ("c",)) == read(announced, gauge("g"), counter("c", "c_total"))


def test_a_counter_announced_under_its_family_name_is_zero_too() -> None:
    assert ("c",) == read("# TYPE c counter\n# EOF\n", counter("c", "c_total")).zero


def test_a_family_that_is_not_there_is_neither_sample_nor_zero() -> None:
    assert Reading((), ()) == read(STYLE, counter("gone", "sglang:gone_total"), gauge("num", "sglang:num"))


def test_a_value_that_is_not_finite_is_unknown() -> None:
    body = 'g{r="0"} NaN\ng{r="1"} +Inf\ng{r="2"} -Inf\n'
    assert Reading((), ()) == read(body, gauge("g"), gauge("occupancy", "sglang:fwd_occupancy"))


def test_the_first_name_that_is_there_wins() -> None:
    body = "old_name 3\nnew_name 4\n"
    assert 4.0 == read(body, gauge("q", "new_name", "old_name")).samples[0].value
    assert 3.0 == read(body, gauge("q", "newer_name", "old_name")).samples[0].value


def test_only_samples_with_the_wanted_labels_count() -> None:
    wanted = counter("tokens", "sglang:realtime_tokens_total", where=(("mode", "decode"),))
    assert [1.25e6] == [sample.value for sample in read(STYLE, wanted).samples]


def test_label_values_may_hold_anything() -> None:
    body = 'g{a="}",b="x\\"y\\\\n",c="# {",d="\\n"} 5 1700000000000\n'
    sample = read(body, gauge("g")).samples[0]
    assert Sample(name="g", labels='a=},b=x"y\\n,c=# {,d=\n', value=5.0) == sample


def test_an_exemplar_is_not_part_of_the_value() -> None:
    body = 'c_total{a="1"} 7.0 # {trace_id="}abc"} 1.0 1700000000.0\n# EOF\n'
    assert [7.0] == [sample.value for sample in read(body, counter("c", "c_total")).samples]


@pytest.mark.parametrize(
    "body",
    [
        "",
        "\n\n",
        "<!DOCTYPE html><html>404</html>\n",
        '{"detail":"Not Found"}\n',
        "\x00\x01\x02\xff garbage\n",
        STYLE[:-1],
        STYLE[: STYLE.index("58.0") + 2],
        "g{r=0} 1\n# TYPE g gauge\ng\n" + 'g{r="0" 5\n',
        'g{r="0"} five\n',
        'g{r="0"}\n',
        "g 1 2 3\n",
        'g{r="0",#} 1\n',
    ],
    ids=["empty", "blank", "html", "json", "binary", "no-end", "cut", "open", "word", "nothing", "fields", "labels"],
)
def test_what_is_no_whole_exposition_is_refused(body: str) -> None:
    with pytest.raises(BadExposition):
        read(body, gauge("g"))


label_values = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]) | st.sampled_from('\\"\n{},=# '))
# The text format reserves names that begin with two underscores, and prometheus_client refuses them.
labels = st.dictionaries(st.from_regex(r"(?!__)[a-z_][a-z0-9_]{0,8}", fullmatch=True), label_values, max_size=3)
values = st.floats(allow_nan=True, allow_infinity=True)
names = st.sampled_from(["wanted", "wanted_more", "other:wanted", "w", "unwanted"])


def exposed(value: float) -> str:
    return "NaN" if math.isnan(value) else f"{value:+}" if math.isinf(value) else repr(value)


def line(name: str, pairs: dict[str, str], value: float, stamp: int | None, gap: str) -> str:
    def escaped(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    shown = ",".join(f'{key}="{escaped(pairs[key])}"' for key in pairs)
    tail = "" if stamp is None else f" {stamp}"
    return f"{name}{{{shown}}}{gap}{exposed(value)}{tail}\n" if pairs else f"{name} {exposed(value)}{tail}\n"


lines = st.builds(
    line, names, labels, values, st.none() | st.integers(0, 2**53), st.sampled_from([" ", "  ", "\t", ""])
)


@settings(deadline=None)
@given(st.lists(lines, max_size=8), st.booleans())
@example(['wanted{a="b"}1.0\n'], False)
def test_it_reads_what_prometheus_client_reads(sampled: list[str], announced: bool) -> None:
    body = ("# HELP wanted Something {odd} # here\n# TYPE wanted gauge\n" if announced else "# x\n") + "".join(sampled)
    expected = [
        (",".join(f"{key}={sample.labels[key]}" for key in sorted(sample.labels)), sample.value)
        for family in text_string_to_metric_families(body)
        for sample in family.samples
        if sample.name == "wanted" and math.isfinite(sample.value)
    ]
    got = read(body, gauge("wanted"))
    assert sorted(expected) == sorted((sample.labels, sample.value) for sample in got.samples)

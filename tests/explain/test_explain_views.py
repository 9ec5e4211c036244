"""Tests how a report of fastgemm.explain is shown: as text, HTML, JSON and pictures."""

import json
import re
from html.parser import HTMLParser

import explain_model as model
import pytest
from fastgemm._explain import figures, plots


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.seen = [], set()

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_html_is_well_formed_and_has_no_scripts(report_of):
    report = report_of(model.transposed(32), "transpose", "shared", (256, 256))
    html, tags = report._repr_html_(), Tags()
    tags.feed(html)
    assert not tags.open and "script" not in tags.seen
    assert "staged[i][x]" in html and "t.to&lt;T&gt;" in html, "source is escaped"
    assert re.search(r"<span[^>]*color: #d64024[^>]*>\s*32\.0\s*<", html), "waste is red"
    for scheme in ("color: #000000", "color: #ffffff", "background"):
        assert scheme not in html, "the page decides"


def test_to_dict_is_json(report_of):
    report = report_of(model.transposed(32), "transpose", "shared", (256, 256))
    found = json.loads(json.dumps(report.to_dict()))
    assert json.loads(report.to_json()) == found
    site = found["launches"][0]["sites"][2]
    assert (site["conflict"], site["kind"], site["line"]) == (32.0, "load", 27)
    assert found["roofline"]["bound"] == "shared memory" and found["totals"]["conflict"] == 16.5
    assert found["launches"][0]["occupancy"]["blocks"] == 8


def test_changes_between_two_reports(report_of):
    shared = report_of(model.transposed(32), "transpose", "shared", (256, 256))
    padded = report_of(model.transposed(33), "transpose", "padded", (256, 256))
    found = {change.before.name: change for change in figures.changes(shared, padded)}
    assert found["wavefronts over ideal"].factor == 1 / 16.5 and found["wavefronts over ideal"].matters
    assert found["wavefronts over ideal"].text == "1/16.5"
    assert not found["global requests"].matters and found["global requests"].text == "="
    names = [change.before.name for change in figures.largest_changes(shared, padded)]
    assert names == ["shared wavefronts", "wavefronts over ideal"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (9999, "9999"), (65536, "65.5 k"), (134217728, "134 M"), (9996e3, "10.0 M")],
)
def test_counts_keep_three_digits(value, shown):
    assert figures.count(value) == shown


# --- pictures


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("stride", [0, 4, 8, 16, 128, 132, 136, 144, 1024])
def test_pictures_show_as_many_wavefronts_as_are_counted(width, stride):
    offsets = tuple(lane * stride // width * width for lane in range(32))
    words = plots.place_in_wavefronts(offsets, width)
    assert max(word.wavefront for word in words) + 1 == model.wavefronts(list(offsets), width)[0]
    assert len({(word.wavefront, word.bank) for word in words}) == len(words), "one word of each bank"
    assert {lane for word in words for lane in word.lanes} == set(range(32))


def test_the_same_access_is_drawn_of_both_reports(report_of):
    reports = [report_of(model.transposed(p), "transpose", "shared", (256, 256)) for p in (32, 33)]
    for order in (reports, reports[::-1]):
        sites = plots.worst_sites(order, "shared")
        assert [(site.kind, site.buffer) for site in sites] == [("load", "staged")] * 2
    assert plots.worst_sites(reports[:1], "none") == [None]


def test_plots_are_written(report_of, tmp_path):
    report = report_of(model.transposed(32), "transpose", "shared", (256, 256))
    for kind, start in (("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF")):
        figure = report.plot(tmp_path / f"banks.{kind}")
        assert (tmp_path / f"banks.{kind}").read_bytes().startswith(start)
    titles = [axis.get_title(loc="left") for axis in figure.axes]
    assert any("32 wavefronts in this request" in title for title in titles)


def test_a_report_without_accesses_can_be_shown(report_of, tmp_path):
    report = report_of(([model.launch("naive", "x", [])], {}))
    report.plot(tmp_path / "empty.svg")
    assert "naive" in str(report) and "naive" in report._repr_html_()

"""The opening view and its URL, against views worked out by hand."""

from __future__ import annotations

import json
from urllib.parse import parse_qs, urlsplit

import pytest

from converter.ui_link import Contents, Step, View, deep_link, opening_view
from schemas.errors import UsageError

STEPS = (
    Step(0, 1_000_000, 90_000, 7, 100_000),
    Step(0, 1_100_000, 90_000, 8, 120_000),
    Step(0, 1_220_000, 70_000, 9, None),
    Step(1, 1_000_500, 90_000, 7, 130_000),
)
TWO = Contents(
    bounds=(900_000, 1_400_000),
    tracks={0: frozenset({"Steps", "Gaps", "Busy streams"}), 1: frozenset({"Steps", "Segments"})},
    windows={0: (1_000_000, 1_300_000), 1: (1_000_500, 1_290_000)},
    steps=STEPS,
    devices=("NPU 0",),
    gaps=True,
)


def calls(view: View, name: str) -> list[tuple[str, ...]]:
    return [args for command, args in view.commands if command == f"dev.perfetto.{name}"]


def test_the_slowest_step_is_in_view_with_a_margin() -> None:
    view = opening_view(TWO)
    assert view.step == STEPS[3]
    assert view.visible == (1_000_500 - 6_500, 1_130_500 + 6_500)


def test_the_device_work_of_the_step_is_in_view_too() -> None:
    step = Step(0, 1_000_000, 90_000, 7, 100_000, 990_000, 1_190_000)
    assert opening_view(Contents((0, 2_000_000), {0: frozenset({"Steps"})}, {}, (step,))).visible == (
        980_000,
        1_200_000,
    )


def test_a_step_asked_for_is_taken_where_it_is_slowest() -> None:
    assert opening_view(TWO, 7).step == STEPS[3]
    assert opening_view(TWO, 7, [0]).step == STEPS[0]
    assert opening_view(TWO, 9).step == STEPS[2]


def test_the_view_stays_inside_the_trace() -> None:
    contents = Contents((1_000_000, 1_050_000), {0: frozenset({"Steps"})}, {}, (Step(0, 1_000_000, 90_000, 7),))
    assert opening_view(contents).visible == (1_000_000, 1_050_000)


def test_without_steps_the_window_of_the_recorded_tasks() -> None:
    contents = Contents((0, 3_000_000), {0: frozenset({"Gaps"})}, {0: (1_000_000, 2_000_000)}, gaps=True)
    view = opening_view(contents)
    assert view.step is None
    assert view.visible == (950_000, 2_050_000)
    assert calls(view, "PinTracksByRegex") == [("^(Gaps)$",)]
    assert "npu.gap" in calls(view, "RunQueryAndShowTab")[0][0]


def test_a_trace_of_another_tool_opens_as_it_is() -> None:
    view = opening_view(Contents((0, 10)))
    assert view == View()


def test_one_rank_is_pinned_whole_several_only_their_steps() -> None:
    one = Contents(TWO.bounds, {0: TWO.tracks[0]}, {}, STEPS[:3])
    assert calls(opening_view(one), "PinTracksByRegex") == [("^(Steps|Gaps)$",)]
    assert calls(opening_view(TWO), "PinTracksByRegex") == [("^(Steps|Segments)$",)]


def test_some_ranks_out_of_many_get_a_workspace() -> None:
    view = opening_view(TWO, ranks=[1])
    assert view.workspace == "Rank 1"
    assert ("^(All ranks|Rank (1)( .*)?)$", "Rank 1") in calls(view, "CopyTracksToWorkspaceByRegex")
    assert calls(view, "SwitchWorkspace")[-1] == ("Rank 1",)
    assert opening_view(TWO).workspace == opening_view(TWO, ranks=[1, 0]).workspace == ""


def test_of_more_than_two_ranks_the_one_with_the_step() -> None:
    many = Contents(
        (0, 10_000), {r: frozenset({"Steps"}) for r in range(4)}, {}, (Step(2, 0, 500, 1), Step(3, 0, 400, 1))
    )
    assert opening_view(many).ranks == (2,)
    assert opening_view(many, ranks=[3, 1, 0]).workspace == "Ranks 0 to 1, 3"


@pytest.mark.parametrize(
    ("contents", "step", "ranks", "words"),
    [
        (TWO, 12, [], "it has forward_ct 7 to 9"),
        (TWO, 8, [1], "it has forward_ct 7"),
        (Contents((0, 1), {0: frozenset()}), 1, [], "it has no steps"),
        (Contents((0, 1), {}, {}, (Step(0, 0, 1),)), 1, [], "its steps have no forward_ct"),
        (TWO, None, [5], "it has 0 to 1"),
        (Contents((0, 1)), None, [5], "it names no ranks"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(
    contents: Contents, step: int | None, ranks: list[int], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        opening_view(contents, step, ranks)


def test_the_link_reads_back() -> None:
    view = opening_view(TWO)
    link = deep_link("http://127.0.0.1:5/", "http://127.0.0.1:5/t/a%20b.pftrace", view)
    assert "+" not in link and " " not in link
    fragment = urlsplit(link).fragment
    assert fragment.startswith("!/?")
    query = parse_qs(fragment[3:], strict_parsing=True)
    assert query["url"] == ["http://127.0.0.1:5/t/a%20b.pftrace"]
    assert (int(query["visStart"][0]), int(query["visEnd"][0])) == view.visible
    commands = json.loads(query["startupCommands"][0])
    assert [(c["id"], tuple(c["args"])) for c in commands] == list(view.commands)

"""Whatever a report's bounds, what it reads is what was admitted between them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from billing.reports.read_plan import DAY_SECONDS, ReadPlan, read_plan

NOON = DAY_SECONDS // 2
LATER = 10 * DAY_SECONDS

moments = st.one_of(
    st.integers(0, 4 * DAY_SECONDS),
    st.builds(lambda day, beside: day * DAY_SECONDS + beside, st.integers(1, 4), st.sampled_from([-1, 0, 1])),
)


def test_whole_days_are_read_from_sums_alone() -> None:
    assert read_plan(0, 3 * DAY_SECONDS, now=LATER) == ReadPlan(0, 3, added=(), taken_off=())


def test_a_short_part_of_a_day_is_read_from_its_lines() -> None:
    start, end = DAY_SECONDS - 60, 3 * DAY_SECONDS + 60

    assert read_plan(start, end, now=LATER) == ReadPlan(
        1, 3, added=((start, DAY_SECONDS), (3 * DAY_SECONDS, end)), taken_off=()
    )
    assert read_plan(NOON, NOON + 1, now=LATER) == ReadPlan(1, 1, added=((NOON, NOON + 1),), taken_off=())


def test_the_lines_outside_are_taken_off_where_they_are_fewer() -> None:
    assert read_plan(60, DAY_SECONDS - 60, now=LATER) == ReadPlan(
        0, 1, added=(), taken_off=((0, 60), (DAY_SECONDS - 60, DAY_SECONDS))
    )


def test_a_report_up_to_now_reads_hardly_a_line() -> None:
    now = 2 * DAY_SECONDS + 3_600

    # Most of today is yet to come, and has no lines.
    assert read_plan(0, now + 1, now=now) == ReadPlan(0, 3, added=(), taken_off=((now + 1, 3 * DAY_SECONDS),))


@given(
    bounds=st.lists(moments, min_size=2, max_size=2, unique=True).map(sorted),
    now=moments,
    admitted=st.lists(moments, max_size=20),
)
def test_a_plan_counts_each_moment_between_the_bounds_once(
    bounds: list[int], now: int, admitted: list[int]
) -> None:
    start, end = bounds
    plan = read_plan(start, end, now=now)

    for moment in (*admitted, start - 1, start, end - 1, end):
        times = int(plan.first_day <= moment // DAY_SECONDS < plan.end_day)
        times += sum(first <= moment < last for first, last in plan.added)
        times -= sum(first <= moment < last for first, last in plan.taken_off)
        assert times == int(start <= moment < end)

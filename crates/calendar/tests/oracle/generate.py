#!/usr/bin/env python3
"""Writes cases.csv: windows as Python's zoneinfo sees them, for tests/oracle.rs to compare with.

Nothing is worked out here: each case walks through time, reads the clock on the wall at every step, and notes when a window
starts. Run it in this folder after a change of the rules, or when the time zone database says something else about the past.
"""

import calendar
import csv
import datetime as dt
import random
import zoneinfo

CASES = 600
# Later than this the database may still change its mind; a few zones are asked beyond it, where rules take over from tables.
PAST = (0, int(dt.datetime(2024, 6, 1, tzinfo=dt.timezone.utc).timestamp()))
FUTURE = (PAST[1], int(dt.datetime(2149, 1, 1, tzinfo=dt.timezone.utc).timestamp()))
FUTURE_ZONES = ["America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "Europe/Berlin", "UTC"]
# Zones that did something unusual after 1970, which are asked more often.
ODD_ZONES = [
    "Africa/Casablanca", "Africa/Monrovia", "America/Caracas", "America/Havana", "America/Sao_Paulo", "America/St_Johns",
    "Antarctica/Casey", "Antarctica/Troll", "Asia/Beirut", "Asia/Kathmandu", "Asia/Pyongyang", "Asia/Tehran",
    "Australia/Lord_Howe", "Europe/Berlin", "Pacific/Apia", "Pacific/Fakaofo", "Pacific/Kiritimati", "Pacific/Kwajalein",
]
WEEKDAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
DAY = 86_400
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


def wall(zone, second):
    """What the clock on the wall shows, without its zone."""
    return (EPOCH + dt.timedelta(seconds=second)).astimezone(zone).replace(tzinfo=None)


def label(period, anchor, shown):
    """A number for the window that a clock on the wall names; later windows have higher ones."""
    if period == "day":
        return (shown - dt.timedelta(hours=anchor)).toordinal()
    if period == "week":
        return (shown.toordinal() - 1 - WEEKDAYS.index(anchor)) // 7
    last = lambda month: calendar.monthrange(shown.year, month)[1]
    if period == "month":
        return shown.year * 12 + shown.month - (shown.day < min(anchor, last(shown.month)))
    month, day = map(int, anchor.split("-"))
    return shown.year - ((shown.month, shown.day) < (month, min(day, last(month))))


def window_of_dates(zone, period, anchor, now):
    """Starts are where the highest label so far rises."""
    days = {"day": 4, "week": 11, "month": 35, "year": 370}[period]
    step = 6 * 3600
    highest = lambda second, so_far: max(so_far, label(period, anchor, wall(zone, second)))
    second, start = now - days * DAY, None
    held = max(label(period, anchor, wall(zone, second - back * 900)) for back in range(300))
    while True:
        if highest(second + step, held) == held and steady(zone, second, second + step):
            second += step
            continue
        # Something happens within this step: look at every quarter of an hour, then at every second.
        for quarter in range(second, second + step, 900):
            if highest(quarter + 900, held) == held and steady(zone, quarter, quarter + 900):
                continue
            for one in range(quarter + 1, quarter + 901):
                if highest(one, held) > held:
                    held = highest(one, held)
                    if one > now:
                        return start, one
                    start = one
        second += step


def steady(zone, first, last):
    return wall(zone, last) - wall(zone, first) == dt.timedelta(seconds=last - first)


def window_of_the_clock(zone, period, now):
    """Starts are where a full minute or hour is shown, or left out."""
    full = {"minute": {"second": 0, "microsecond": 0}, "hour": {"minute": 0, "second": 0, "microsecond": 0}}[period]

    def starts(second):
        shown, before = wall(zone, second), wall(zone, second - 1)
        return shown == shown.replace(**full) or shown.replace(**full) > before.replace(**full)

    start, end = now, now + 1
    while not starts(start):
        start -= 1
    while not starts(end):
        end += 1
    return start, end


def near_a_change(zone, span):
    """A moment within two days of a change of the zone's offset, or any moment if none is found soon."""
    for _ in range(200):
        at = random.randrange(*span)
        if not steady(zone, at, at + 40 * DAY):
            low, high = at, at + 40 * DAY
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if steady(zone, at, middle) else (low, middle)
            near = random.choice([1, 60, 3600, 2 * DAY])
            return max(0, high + random.randrange(-near, near + 1))
    return random.randrange(*span)


def case(number, zones):
    period = random.choice(["minute", "hour", "hour", "day", "day", "week", "month", "month", "year"])
    anchor = {
        "minute": lambda: "",
        "hour": lambda: "",
        "day": lambda: random.choice([0, 0, 1, 2, 3, random.randrange(24)]),
        "week": lambda: random.choice(WEEKDAYS),
        "month": lambda: random.choice([1, 29, 30, 31, random.randrange(1, 32)]),
        "year": lambda: random.choice(["01-01", "02-29", "12-31", "04-01", "10-25"]),
    }[period]()
    future = number % 6 == 0
    name = random.choice(FUTURE_ZONES if future else random.choice([ODD_ZONES, zones]))
    zone = zoneinfo.ZoneInfo(name)
    span = FUTURE if future else PAST
    now = near_a_change(zone, span) if number % 3 else random.randrange(*span)
    if period in ("minute", "hour"):
        start, end = window_of_the_clock(zone, period, now)
    else:
        start, end = window_of_dates(zone, period, anchor, now)
    assert start <= now < end, (name, period, anchor, now, start, end)
    return [name, period, anchor, now, max(0, start), end]


def main():
    random.seed(20261116)
    skipped = ("Factory", "localtime", "posixrules")
    zones = sorted(zone for zone in zoneinfo.available_timezones() if zone not in skipped)
    with open("cases.csv", "w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["zone", "period", "anchor", "now", "start", "end"])
        rows.writerows(sorted(case(number, zones) for number in range(CASES)))


main()

// Times as people read them, in this browser's zone and on the workspace's clock.

import { now } from "./store.js";

const format = (options) => new Intl.DateTimeFormat(undefined, options);
const TIME = format({ hour: "numeric", minute: "2-digit" });
const TIME_SECS = format({ hour: "numeric", minute: "2-digit", second: "2-digit" });
const NUM = format({ year: "numeric", month: "2-digit", day: "2-digit" });
const SHORT = format({ month: "short", day: "numeric", year: "numeric" });
const LONG = format({ weekday: "long", month: "long", day: "numeric", year: "numeric" });
const DAY = format({ month: "long", day: "numeric", year: "numeric" });
const WEEKDAY = format({ weekday: "long", month: "long", day: "numeric" });
const FULL = format({ weekday: "short", month: "short", day: "numeric", hour: "numeric", minute: "2-digit", second: "2-digit" });

const date = (seconds) => new Date(seconds * 1000);
export const clockTime = (seconds) => TIME.format(date(seconds));
export const fullTime = (seconds) => FULL.format(date(seconds));

function dayNumber(seconds) {
  const at = date(seconds);
  return Math.round(Date.UTC(at.getFullYear(), at.getMonth(), at.getDate()) / 86400000);
}

function pretty(seconds, plain) {
  return { "-1": "yesterday", 0: "today", 1: "tomorrow" }[dayNumber(seconds) - dayNumber(now())] ?? plain;
}

export function dayName(seconds) {
  const words = pretty(seconds, WEEKDAY.format(date(seconds)));
  return words.charAt(0).toUpperCase() + words.slice(1);
}

function ago(seconds) {
  const distance = Math.round(now() - seconds);
  const steps = [[86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]];
  const [size, name] = steps.find(([s]) => Math.abs(distance) >= s) ?? [1, "second"];
  return new Intl.RelativeTimeFormat(undefined, { numeric: "auto" }).format(-Math.trunc(distance / size), name);
}

/** The words of `<!date^seconds^format>`. */
export function dateWords(seconds, pattern) {
  const parts = {
    date_num: () => NUM.format(date(seconds)),
    date: () => DAY.format(date(seconds)),
    date_short: () => SHORT.format(date(seconds)),
    date_long: () => LONG.format(date(seconds)),
    date_pretty: () => pretty(seconds, DAY.format(date(seconds))),
    date_short_pretty: () => pretty(seconds, SHORT.format(date(seconds))),
    date_long_pretty: () => pretty(seconds, LONG.format(date(seconds))),
    time: () => TIME.format(date(seconds)),
    time_secs: () => TIME_SECS.format(date(seconds)),
    ago: () => ago(seconds),
  };
  return pattern.replace(/\{(\w+)\}/g, (whole, name) => (parts[name] ? parts[name]() : whole));
}

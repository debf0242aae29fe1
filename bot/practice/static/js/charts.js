// data_visualization blocks as small SVG drawings, with a table for people who do not see them.

import { h, s } from "./dom.js";

const COLOURS = ["#2f7ed8", "#1f9e77", "#e8912d", "#a05ac8", "#d64550", "#6b8e23", "#17a2b8", "#c2618f", "#8c6d4f", "#5b6abf", "#b8a10f", "#777"];
/** Narrower on a phone, so that the words keep their size where the drawing shrinks. */
const width = () => (window.innerWidth < 560 ? 300 : 480);
const HEIGHT = 200;
const LEFT = 46;
const BOTTOM = 48;
const TOP = 34;
/** With less room for each column, names and amounts stand upright. */
const CROWDED = 50;

const colour = (index) => COLOURS[index % COLOURS.length];
const number = (value) => new Intl.NumberFormat(undefined, { maximumFractionDigits: 2 }).format(value);

function legend(entries) {
  return h("ul", { class: "legend" }, entries.map(([words, index]) => {
    const dot = h("span", { class: "dot", "aria-hidden": "true" });
    dot.style.background = colour(index);
    return h("li", {}, dot, words);
  }));
}

function pie(chart) {
  const total = chart.segments.reduce((sum, segment) => sum + segment.value, 0) || 1;
  let angle = -Math.PI / 2;
  const slices = chart.segments.map((segment, index) => {
    const share = segment.value / total;
    const end = angle + Math.min(share, 0.99999) * 2 * Math.PI;
    const at = (a) => `${100 + 90 * Math.cos(a)} ${100 + 90 * Math.sin(a)}`;
    const path = `M100 100 L${at(angle)} A90 90 0 ${share > 0.5 ? 1 : 0} 1 ${at(end)} Z`;
    angle = end;
    return s("path", { d: path, fill: colour(index), class: "slice" }, s("title", {}, `${segment.label}: ${number(segment.value)}`));
  });
  const words = chart.segments.map((segment, index) => [`${segment.label} — ${number(segment.value)} (${Math.round((segment.value / total) * 100)}%)`, index]);
  return h("div", { class: "pie" }, s("svg", { viewBox: "0 0 200 200", class: "pie-svg", "aria-hidden": "true" }, slices, s("circle", { cx: 100, cy: 100, r: 46, class: "hole" })), legend(words));
}

/** Round numbers that enclose the data: [low, high, step]. */
function scale(values) {
  const low = Math.min(0, ...values);
  const high = Math.max(0, ...values) || 1;
  const rough = (high - low) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((m) => m >= rough);
  return [Math.floor(low / step) * step, Math.ceil(high / step) * step, step];
}

function slotOf(chart) {
  return (width() - 6 - LEFT) / chart.axis_config.categories.length;
}

function axes(chart, low, high, step, y) {
  const parts = [];
  const slot = slotOf(chart);
  for (let value = low; value <= high + step / 2; value += step) {
    parts.push(s("line", { x1: LEFT, x2: width() - 6, y1: y(value), y2: y(value), class: Math.abs(value) < step / 100 ? "axis" : "grid" }));
    parts.push(s("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, number(value)));
  }
  const { categories } = chart.axis_config;
  categories.forEach((words, index) => {
    const x = LEFT + slot * (index + 0.5);
    const upright = slot < CROWDED && { transform: `rotate(-90 ${x + 3} ${HEIGHT - 6})` };
    const at = upright ? { x: x + 3, y: HEIGHT - 6, "text-anchor": "start", ...upright } : { x, y: HEIGHT - 8, "text-anchor": "middle" };
    parts.push(s("text", at, words));
  });
  return parts;
}

/** The amount above its bar; upright where the bars stand close. */
function amount(point, x, y, chart) {
  const upright = slotOf(chart) < CROWDED;
  const at = upright ? { x: x + 3, y, transform: `rotate(-90 ${x + 3} ${y})` } : { x, y, "text-anchor": "middle" };
  const cents = chart.axis_config.y_label === "US dollars" ? 2 : 0;
  const words = new Intl.NumberFormat(undefined, { minimumFractionDigits: cents, maximumFractionDigits: 2 }).format(point.value);
  return s("text", { class: "amount", ...at }, words);
}

function marks(chart, low, y) {
  const slot = slotOf(chart);
  const title = (series, point) => s("title", {}, `${series.name}, ${point.label}: ${number(point.value)}`);
  if (chart.type === "bar") {
    const wide = Math.min(34, (slot * 0.72) / chart.series.length);
    return chart.series.flatMap((series, n) => series.data.flatMap((point, index) => {
      if (point.value === 0) return [];
      const x = LEFT + slot * (index + 0.5) - (wide * chart.series.length) / 2 + n * wide;
      const [a, b] = [y(Math.max(0, point.value)), y(Math.min(0, point.value))];
      const bar = s("rect", { x, y: a, width: Math.max(1, wide - 2), height: Math.max(1, b - a), rx: 2, fill: colour(n) }, title(series, point));
      return chart.series.length > 1 ? [bar] : [bar, amount(point, x + wide / 2, a - 3, chart)];
    }));
  }
  return chart.series.flatMap((series, n) => {
    const points = series.data.map((point, index) => [LEFT + slot * (index + 0.5), y(point.value), point]);
    const path = points.map(([x, at], index) => `${index ? "L" : "M"}${x} ${at}`).join(" ");
    const line = s("path", { d: path, fill: "none", stroke: colour(n), "stroke-width": 2.2, "stroke-linejoin": "round" });
    const dots = points.map(([x, at, point]) => s("circle", { cx: x, cy: at, r: 3, fill: colour(n) }, title(series, point)));
    if (chart.type !== "area") return [line, ...dots];
    const base = y(Math.max(0, low));
    const ground = s("path", { d: `${path} L${points.at(-1)[0]} ${base} L${points[0][0]} ${base} Z`, fill: colour(n), opacity: 0.18 });
    return [ground, line, ...dots];
  });
}

function plot(chart) {
  const [low, high, step] = scale(chart.series.flatMap((series) => series.data.map((point) => point.value)));
  const y = (value) => TOP + ((high - value) / (high - low)) * (HEIGHT - TOP - BOTTOM);
  const drawing = s("svg", { viewBox: `0 0 ${width()} ${HEIGHT}`, class: "plot", "aria-hidden": "true" }, axes(chart, low, high, step, y), marks(chart, low, y));
  const { x_label: xLabel, y_label: yLabel } = chart.axis_config;
  const caption = [yLabel, xLabel && `by ${xLabel}`].filter(Boolean).join(" ");
  return h("div", {}, caption && h("div", { class: "axis-label" }, caption), drawing, chart.series.length > 1 && legend(chart.series.map((series, n) => [series.name, n])));
}

function spoken(chart) {
  const rows = chart.type === "pie"
    ? chart.segments.map((segment) => `${segment.label}: ${number(segment.value)}`)
    : chart.series.flatMap((series) => series.data.map((point) => `${series.name}, ${point.label}: ${number(point.value)}`));
  return h("ul", { class: "sr-only" }, rows.map((words) => h("li", {}, words)));
}

export function chart(block) {
  const kinds = { pie, bar: plot, line: plot, area: plot };
  const draw = kinds[block.chart.type];
  if (!draw) throw new Error(`unknown chart type: ${block.chart.type}`);
  return h("figure", { class: "chart" }, h("figcaption", {}, block.title), draw(block.chart), spoken(block.chart));
}

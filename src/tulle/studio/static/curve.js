// A small curve as SVG: a line through points, and the place where the sliders stand.

import { element, svgElement } from "./elements.js";
import { shown } from "./numbers.js";

const WIDTH = 340;
const HEIGHT = 200;
const ROOM = { left: 52, right: 14, top: 10, bottom: 38 };

export function drawCurve({ title, xName, points, here = null, isShare = false, isRatio = false }) {
  const known = points.filter(([, y]) => y !== null);
  const figure = element("figure", {}, element("figcaption", {}, title));
  if (known.length < 2) return figure;
  const xs = known.map(([x]) => x);
  const ys = [...known.map(([, y]) => y), ...(here === null || here[1] === null ? [] : [here[1]])];
  const across = scale(xs, [ROOM.left, WIDTH - ROOM.right], isRatio);
  const up = scale(isShare ? [0, ...ys] : ys, [HEIGHT - ROOM.bottom, ROOM.top], isRatio);
  const picture = svgElement("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": described(title, xName, known, isShare),
  });
  picture.append(...axes(across, up, xName, isShare));
  const path = known.map(([x, y]) => `${across.at(x).toFixed(1)},${up.at(y).toFixed(1)}`);
  picture.append(svgElement("polyline", { class: "line", points: path.join(" ") }));
  for (const [x, y] of known) {
    picture.append(svgElement("circle", { class: "dot", cx: across.at(x), cy: up.at(y), r: 2.5 }));
  }
  if (here !== null && here[1] !== null) {
    picture.append(svgElement("circle", { class: "here", cx: across.at(here[0]), cy: up.at(here[1]), r: 5 }));
  }
  figure.append(picture);
  return figure;
}

function described(title, xName, points, isShare) {
  const told = points.map(([x, y]) => `${shown(x)}: ${text(y, isShare)}`);
  return `${title}, by ${xName}. ${told.join("; ")}`;
}

function text(value, isShare) {
  return isShare ? `${Number((100 * value).toPrecision(3))}%` : shown(value, 3);
}

function scale(values, [from, to], isRatio) {
  const form = isRatio ? Math.log : (value) => value;
  let [low, high] = [Math.min(...values), Math.max(...values)];
  if (low === high) [low, high] = isRatio ? [low / 2, high * 2] : [low - 1, high + 1];
  const [start, end] = [form(low), form(high)];
  return {
    low, high, middle: isRatio ? Math.sqrt(low * high) : (low + high) / 2,
    at: (value) => from + ((form(Math.min(high, Math.max(low, value))) - start) / (end - start)) * (to - from),
  };
}

function axes(across, up, xName, isShare) {
  const floor = HEIGHT - ROOM.bottom;
  const corner = `${ROOM.left},${ROOM.top} ${ROOM.left},${floor} ${WIDTH - ROOM.right},${floor}`;
  const marks = [svgElement("polyline", { class: "axis", points: corner })];
  for (const [value, anchor] of [[across.low, "start"], [across.middle, "middle"], [across.high, "end"]]) {
    marks.push(svgElement("text", { x: across.at(value), y: floor + 15, "text-anchor": anchor }, shown(value, 2)));
  }
  for (const value of [up.low, up.middle, up.high]) {
    marks.push(svgElement("text", { x: ROOM.left - 6, y: up.at(value) + 4, "text-anchor": "end" }, text(value, isShare)));
  }
  const middle = (ROOM.left + WIDTH - ROOM.right) / 2;
  marks.push(svgElement("text", { x: middle, y: HEIGHT - 6, "text-anchor": "middle" }, xName));
  return marks;
}

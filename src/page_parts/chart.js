// Charts. They are drawn for the width that there is, so that their texts are as large as
// others at every width.
const SVG = "http://www.w3.org/2000/svg";
const PAPER = { whole: 680, half: 320 };

function drawn(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// Draws a chart in a figure that is in the document, and again when its width changes;
// returns what draws it again.
const redraws = new WeakMap();
const widths = new ResizeObserver((entries) => {
  for (const { target } of entries) redraws.get(target)(false);
});
function plot(figure, draw) {
  const box = element("div", [], { class: "plot" });
  let before = 0;
  function redraw(always) {
    const paper = figure.closest(".charts") ? PAPER.half : PAPER.whole;
    const width = printing ? paper : Math.max(240, Math.floor(box.clientWidth));
    if (!always && width === before) return;
    before = width;
    box.replaceChildren(draw(width));
  }
  figure.append(box);
  redraws.set(box, redraw);
  redraw(true);
  widths.observe(box);
  return () => redraw(true);
}
onPrint.push(() => {
  for (const box of document.querySelectorAll(".plot")) redraws.get(box)(true);
});

function canvas(width, height, title) {
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  svg.append(drawn("title", {}, title));
  return svg;
}

// Moments for an axis of time, and their texts; each text takes 72 of the width.
function moments(from, to, width) {
  const most = Math.max(2, Math.floor(width / 72));
  const step = [0.25, 0.5, 1, 2, 3, 6, 12, 24, 48, 168, 336].map((hours) => hours * 3600).find((s) => (to - from) / s <= most) ||
    DAY * Math.ceil((to - from) / DAY / most);
  const all = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
    all.push([at, `${weekday(at)} ${step < DAY ? clock(at).slice(11, 16) : clock(at).slice(5, 10)}`]);
  }
  return all.length ? all : [[from, `${weekday(from)} ${clock(from).slice(11, 16)}`]];
}

// Round values for an axis from 0 to top.
function ticks(top) {
  if (!(top > 0)) return [0];
  const step = 10 ** Math.floor(Math.log10(top / 2));
  const wide = [1, 2, 5, 10].map((n) => n * step).find((s) => top / s <= 5) || step;
  const all = [];
  for (let at = 0; at <= top * 1.0001; at += wide) all.push(at);
  return all;
}

// A rate over time, with the limit and the moments when it was reached.
// shown: {points, from, to, title}.
function drawRate(W, shown, limit) {
  const H = 190, B = 30, T = 18, R = 10;
  const { points, from } = shown;
  const to = Math.max(shown.to, from + 1);
  const top = Math.max(...points.map(([, value]) => value), limit || 0, 1) * 1.08;
  const values = ticks(top);
  const L = 14 + 7 * Math.max(...values.map((value) => exactly(value).length), 3);
  const x = (t) => L + ((t - from) / (to - from)) * (W - L - R);
  const y = (value) => H - B - (value / top) * (H - B - T);
  const bites = points.filter(([, value]) => limit !== null && value >= limit);
  const svg = canvas(W, H, shown.title + (limit === null ? "" : `, ${bites.length ? "at or over" : "always below"} the limit of ${exactly(limit)}`));
  for (const value of values) {
    svg.append(drawn("line", { x1: L, x2: W - R, y1: y(value), y2: y(value), class: "axis" }),
      drawn("text", { x: L - 6, y: y(value) + 4, "text-anchor": "end" }, exactly(value)));
  }
  const line = points.map(([t, value], n) => (n ? "L" : "M") + x(t).toFixed(1) + " " + y(value).toFixed(1)).join("");
  svg.append(drawn("path", { d: line, class: "data" }));
  for (const [t, value] of bites) {
    const bit = drawn("circle", { cx: x(t).toFixed(1), cy: y(value).toFixed(1), r: 2.6, class: "bit" });
    bit.append(drawn("title", {}, `${time(t)}: ${rate(value, limit)}`));
    svg.append(bit);
  }
  if (limit !== null && limit <= top) {
    svg.append(drawn("line", { x1: L, x2: W - R, y1: y(limit), y2: y(limit), class: "limit" }),
      drawn("text", { x: W - R, y: y(limit) - 4, class: "limit-text", "text-anchor": "end" }, `limit ${exactly(limit)}`));
  }
  for (const [t, text] of moments(from, to, W - L - R)) {
    const anchor = x(t) > W - 32 ? "end" : "middle";
    svg.append(drawn("line", { x1: x(t), x2: x(t), y1: H - B, y2: H - B + 4, class: "axis" }),
      drawn("text", { x: x(t), y: H - 8, "text-anchor": anchor }, text));
  }
  return svg;
}

// Columns over time, whose upper part was refused: {label, sent, refused, text}.
function drawColumns(W, columns, title) {
  // The last text is below the last column, and within the picture.
  const H = 150, B = 24, T = 10, R = 14;
  const top = Math.max(...columns.map(({ sent, refused }) => sent + refused), 1) * 1.08;
  const values = ticks(top);
  const L = 14 + 7 * Math.max(...values.map((value) => exactly(value).length), 3);
  const step = (W - L - R) / columns.length, every = Math.ceil(44 / step);
  const y = (value) => H - B - (value / top) * (H - B - T);
  const svg = canvas(W, H, title);
  for (const value of values) {
    svg.append(drawn("line", { x1: L, x2: W - R, y1: y(value), y2: y(value), class: "axis" }),
      drawn("text", { x: L - 6, y: y(value) + 4, "text-anchor": "end" }, exactly(value)));
  }
  columns.forEach(({ label, sent, refused, text }, n) => {
    const x = L + (n + 0.1) * step, width = step * 0.8, all = sent + refused;
    const one = drawn("g", {});
    one.append(drawn("title", {}, text), drawn("rect", { x, y: y(sent), width, height: y(0) - y(sent), class: "bar" }),
      drawn("rect", { x, y: y(all), width, height: y(sent) - y(all), class: "bar hit" }));
    svg.append(one);
    // The last one always has its text.
    if ((columns.length - 1 - n) % every === 0) svg.append(drawn("text", { x: x + width / 2, y: H - 8, "text-anchor": "middle" }, label));
  });
  return svg;
}

// How much of a limit is used; beyond it, the limit is a mark within the bar.
function drawShare(part, isOver) {
  const W = 200, H = 10, all = Math.max(1, Math.min(part, 1e9));
  const svg = drawn("svg", { viewBox: `0 0 ${W} ${H}`, preserveAspectRatio: "none", "aria-hidden": "true", class: "share" });
  svg.append(drawn("rect", { x: 0, y: 0, width: W, height: H, class: "track" }),
    drawn("rect", { x: 0, y: 0, width: Math.max(0, W * Math.min(part, all) / all), height: H, class: isOver ? "bar hit" : "bar" }));
  if (part > 1) svg.append(drawn("rect", { x: W / all - 1, y: 0, width: 2, height: H, class: "mark" }));
  return svg;
}

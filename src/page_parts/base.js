// Elements, numbers and times. All that comes from logs or from a database is put into the page
// as text (textContent), never as markup.
const WEEKDAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const DAY = 86400;
const NAME = 120;

function element(name, content, attributes) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  for (const part of [content].flat()) {
    if (part !== undefined && part !== null) made.append(part);
  }
  return made;
}
function button(content, run) {
  const made = element("button", content, { type: "button" });
  made.addEventListener("click", run);
  return made;
}

// Control characters, and those that change the direction of text, are shown as escapes.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
function visible(text, most) {
  const safe = text.replace(HIDDEN, (c) => "\\u{" + c.codePointAt(0).toString(16) + "}");
  if (!most || safe.length <= most) return safe;
  return safe.slice(0, most) + "… (" + whole(text.length) + " characters)";
}
// Lines end after an `@`, a dot or a blank of a name, and nowhere else, unless a part is longer
// than a narrow window.
const PART = 30;
const name = (text) => element("bdi", visible(text === "" ? "(empty)" : text, NAME)
  .split(/(?<=[@. ])/).flatMap((part, n) => {
    const made = element("span", part, { class: part.length > PART ? "long" : "part" });
    return n ? [element("wbr"), made] : [made];
  }));

const decimals = (most) => (n) => n.toLocaleString("en-US", { maximumFractionDigits: most });
const whole = decimals(0);
// A limit, as it was given.
const exactly = decimals(6);
// A rate, rounded as the commands do: to a tenth, and what is in the middle to the even one; with
// more decimals where it takes them to be on its side of the limit.
function rate(n, limit) {
  if (n === null || n === undefined) return "none";
  let places = 1, shown = n % 1 === 0.25 ? Math.floor(n * 10) / 10 : Number(n.toFixed(1));
  if (limit !== null && limit !== undefined) {
    while (places < 6 && Math.sign(shown - limit) !== Math.sign(n - limit)) shown = Number(n.toFixed(places += 1));
  }
  return shown.toLocaleString("en-US", { minimumFractionDigits: places, maximumFractionDigits: places });
}
const many = (n, one, several) => `${whole(n)} ${n === 1 ? one : several}`;
function share(part, all) {
  const percent = all > 0 ? (100 * part) / all : 0;
  return (part > 0 && percent < 0.1 ? "less than 0.1" : decimals(1)(percent)) + "\u00a0%";
}
// Only what is the whole or more is shown as 100 %.
function percent(part) {
  if (part === null) return "";
  return (part < 1 ? Math.min(99, Math.round(100 * part)) : Math.round(100 * part)) + "\u00a0%";
}
const weekday = (t) => WEEKDAYS[new Date(t * 1000).getUTCDay()];
const clock = (t) => new Date(t * 1000).toISOString().slice(0, 19).replace("T", "\u00a0");
const time = (t) => `${weekday(t)} ${clock(t)}`;
// The same in a cell: a line ends after the day, if at all.
const moment = (t) => element("time", [element("span", `${weekday(t)} ${clock(t).slice(0, 10)}`), " ", element("span", clock(t).slice(11))]);
// Rounded up, in the two largest units, without the seconds once it is minutes.
function duration(seconds) {
  if (seconds <= 59) return Math.ceil(seconds) + "s";
  const minutes = Math.ceil(seconds / 60), hours = Math.ceil(minutes / 60);
  const two = (large, one, small, other) => (large ? large + one : "") + (small || !large ? small + other : "");
  return minutes < 1440 ? two(Math.floor(minutes / 60), "h", minutes % 60, "m") : two(Math.floor(hours / 24), "d", hours % 24, "h");
}

// How many of the sorted values are below.
function below(sorted, value) {
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle + 1; else high = middle;
  }
  return low;
}

// On paper all is shown that fits: what is on the screen comes back afterwards.
let printing = false;
const onPrint = [];
function print(now) {
  printing = now;
  for (const one of onPrint) one();
}
window.addEventListener("beforeprint", () => print(true));
window.addEventListener("afterprint", () => print(false));

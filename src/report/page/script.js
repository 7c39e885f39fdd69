"use strict";
// All that comes from logs is put into the page as text (textContent), never as markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const main = document.getElementById("main");
  const WEEKDAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
  const PAGE = 50;
  const FEW = 10;
  const NAME = 120;
  const SVG = "http://www.w3.org/2000/svg";

  function element(name, content, attributes) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
    for (const part of [content].flat()) {
      if (part !== undefined && part !== null) made.append(part);
    }
    return made;
  }
  function drawn(name, attributes, text) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  // Control characters, and those that change the direction of text, are shown as escapes.
  const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
  function visible(text, most) {
    const safe = text.replace(HIDDEN, (c) => "\\u{" + c.codePointAt(0).toString(16) + "}");
    if (!most || safe.length <= most) return safe;
    return safe.slice(0, most) + "… (" + text.length + " characters)";
  }
  const name = (text) => element("bdi", visible(text === "" ? "(empty)" : text, NAME));
  const whole = (n) => Math.round(n).toLocaleString("en-US");
  function rate(n) {
    if (n === null || n === undefined) return "none";
    return n >= 1000 ? whole(n) : (Math.round(n * 10) / 10).toString();
  }
  const time = (t) => new Date(t * 1000).toISOString().slice(0, 19).replace("T", " ");
  const share = (a, b) => (b > 0 ? Math.round((1000 * a) / b) / 10 : 0) + " %";
  function duration(seconds) {
    if (seconds < 60) return Math.ceil(seconds) + " s";
    if (seconds < 3600) return Math.ceil(seconds / 60) + " min";
    if (seconds < 86400) return (Math.ceil(seconds / 360) / 10) + " h";
    return (Math.ceil(seconds / 8640) / 10) + " d";
  }

  const sections = document.getElementById("sections");
  function section(id, title, about) {
    const made = element("section", [element("h2", title, { id: id + "-title" })], { id, "aria-labelledby": id + "-title" });
    if (about) made.append(element("p", about, { class: "about" }));
    main.append(made);
    sections.append(element("li", element("a", title, { href: "#" + id })));
    return made;
  }

  // A table with sortable, searchable rows of which one page is in the document.
  // columns: [{title, value(i), text(i) or node(i), number}], rows are numbers 0..count-1.
  function grid(columns, count, options) {
    let order = Array.from({ length: count }, (_, i) => i);
    let sorted = options.sorted, down = true, page = 0, wanted = "";
    const head = element("tr");
    const body = element("tbody");
    const caption = element("caption");
    const status = element("p", "", { role: "status", class: "quiet" });
    const buttons = columns.map((column, number) => {
      const button = element("button", column.title, { type: "button" });
      button.addEventListener("click", () => {
        down = sorted === number ? !down : !!column.number;
        sorted = number;
        arrange();
      });
      head.append(element("th", button, { scope: "col", class: column.number ? "n" : "" }));
      return button;
    });
    const back = element("button", "Previous", { type: "button" });
    const next = element("button", "Next", { type: "button" });
    back.addEventListener("click", () => { page -= 1; show(); });
    next.addEventListener("click", () => { page += 1; show(); });
    function arrange() {
      const key = columns[sorted].value;
      order = Array.from({ length: count }, (_, i) => i);
      if (wanted) order = order.filter((i) => options.search(i).toLowerCase().includes(wanted));
      const values = new Map(order.map((i) => [i, key(i)]));
      order.sort((a, b) => {
        const [x, y] = [values.get(a), values.get(b)];
        const less = x < y ? -1 : x > y ? 1 : a - b;
        return down ? -less : less;
      });
      page = 0;
      show();
    }
    function show() {
      const last = Math.max(0, Math.ceil(order.length / PAGE) - 1);
      page = Math.min(Math.max(page, 0), last);
      const shown = order.slice(page * PAGE, (page + 1) * PAGE);
      body.replaceChildren(...shown.map((i) => element("tr", columns.map((column) => {
        const content = column.node ? column.node(i) : column.text(i);
        const over = column.over && column.over(i) ? " over" : "";
        return element("td", content, { class: (column.number ? "n" : "name") + over });
      }))));
      for (const [number, cell] of [...head.children].entries()) {
        if (number === sorted) cell.setAttribute("aria-sort", down ? "descending" : "ascending");
        else cell.removeAttribute("aria-sort");
        buttons[number].textContent = columns[number].title + (number === sorted ? (down ? " ▼" : " ▲") : "");
      }
      const from = order.length ? page * PAGE + 1 : 0;
      status.textContent = `${whole(from)} to ${whole(page * PAGE + shown.length)} of ${whole(order.length)}` +
        (wanted ? `, of ${whole(count)} in all` : "");
      back.disabled = page === 0;
      next.disabled = page >= last;
    }
    caption.textContent = options.caption;
    const controls = element("div", [], { class: "controls" });
    if (options.search) {
      const input = element("input", [], { type: "search", autocomplete: "off", spellcheck: "false" });
      input.addEventListener("input", () => { wanted = input.value.trim().toLowerCase(); arrange(); });
      controls.append(element("label", [options.label, input]));
    }
    controls.append(back, next, status);
    controls.hidden = count <= FEW;
    const table = element("table", [caption, element("thead", head), body]);
    arrange();
    return element("div", [controls, element("div", table, { class: "scroll" })]);
  }

  // The texts of charts are as large as others: charts are drawn for the width that there is.
  const isNarrow = () => window.innerWidth < 600;

  // Moments for an axis of time: whole days or hours, and their texts.
  function moments(from, to) {
    const most = isNarrow() ? 3 : 5;
    const step = [1, 2, 3, 6, 12, 24, 48, 168, 336].map((hours) => hours * 3600).find((s) => (to - from) / s <= most) ||
      86400 * Math.ceil((to - from) / 86400 / most);
    const all = [];
    for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
      const text = time(at);
      all.push([at, step < 86400 ? text.slice(5, 16) : `${WEEKDAYS[new Date(at * 1000).getUTCDay()]} ${text.slice(5, 10)}`]);
    }
    return all.length ? all : [[from, time(from).slice(5, 16)]];
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

  const log = data.log;
  const what = log ? `${log.unit} in ${log.period}` : "";
  document.getElementById("about").textContent = log
    ? `${whole(log.total)} messages of ${whole(log.names.length)} ${log.who}, ${time(log.span[0])} to ${time(log.span[1])} (${log.zone}).`
    : "The state of the rate database.";
  document.getElementById("made").textContent = `Made by exirate ${data.version} at ${data.made}. ` +
    "The page is one file: it loads nothing and sends nothing.";
  for (const note of data.notes) main.append(element("p", visible(note, 400), { class: "quiet text" }));

  // What a log shows -----------------------------------------------------------------------

  let limit = log ? log.limit : null;
  const changed = [];
  const numbers = log ? new Map(log.names.map((one, i) => [one, i])) : new Map();

  function chooseLimit() {
    const made = section("limit", "Which limit?", `Move the slider: who would have been at or over a limit of so many ${what}? ` +
      "The rates are those that the limiter computes (a strict limit that counts everything).");
    const peaks = log.peaks.slice().sort((a, b) => a - b);
    const lowest = Math.max(0.5, peaks[0] || 0.5), highest = Math.max(lowest * 2, (peaks[peaks.length - 1] || 1) * 1.1);
    const STEPS = 1000;
    const ofStep = (step) => nice(lowest * (highest / lowest) ** (step / STEPS));
    const toStep = (value) => Math.round((STEPS * Math.log(Math.max(value, lowest) / lowest)) / Math.log(highest / lowest));
    function nice(value) {
      const digit = 10 ** Math.max(0, Math.floor(Math.log10(value)) - 1);
      return Math.max(1, Math.round(value / digit) * digit);
    }
    const slider = element("input", [], { type: "range", min: 0, max: STEPS, step: 1, id: "slider" });
    const exact = element("input", [], { type: "number", min: 0, step: "any", id: "exact" });
    const answer = element("p", "", { class: "answer", role: "status", id: "answer" });
    const who = element("p", "", { class: "text" });
    const chart = element("figure");
    // How many of the sorted values are below.
    function below(sorted, value) {
      let low = 0, high = sorted.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (sorted[middle] < value) low = middle + 1; else high = middle;
      }
      return low;
    }
    const byPeak = log.names.map((_, i) => i).sort((a, b) => log.peaks[b] - log.peaks[a]);
    function show() {
      const hit = peaks.length - below(peaks, limit);
      const messages = log.rates.reduce((sum, [from, count]) => (from >= limit ? sum + count : sum), 0);
      answer.textContent = `A limit of ${rate(limit)} ${what} would have hit ${whole(hit)} of ${whole(peaks.length)} ` +
        `${log.who} (${share(hit, peaks.length)}), at about ${whole(messages)} of ${whole(log.total)} messages (${share(messages, log.total)}).`;
      who.replaceChildren(hit ? "The highest: " : "Nobody.");
      byPeak.slice(0, Math.min(hit, 8)).forEach((i, n) => who.append(n ? ", " : "", name(log.names[i]), ` (${rate(log.peaks[i])})`));
      if (hit > 8) who.append(", …");
      drawPeaks(chart, peaks, lowest, highest);
      for (const one of changed) one();
    }
    function set(value, from) {
      if (!(value > 0)) return;
      limit = value;
      if (from !== slider) slider.value = toStep(value);
      if (from !== exact) exact.value = value;
      slider.setAttribute("aria-valuetext", `${rate(limit)} ${what}`);
      show();
    }
    slider.addEventListener("input", () => set(ofStep(Number(slider.value)), slider));
    exact.addEventListener("input", () => set(Number(exact.value), exact));
    made.append(element("div", [
      element("label", ["Limit", slider]), element("label", [element("span", what), exact]),
    ], { class: "controls" }), answer, who, chart);
    // Without --limit, that of the policies which refuses the most, if it is of the same kind.
    const same = (one) => one.unit === log.unit && one.window === `${one.limit}/${log.period}`;
    const ofPolicy = data.policy && data.policy.limits.find(same);
    set(limit || (ofPolicy && ofPolicy.limit) || nice(peaks[Math.floor(peaks.length * 0.99)] || 1), null);
    let width = isNarrow();
    window.addEventListener("resize", () => {
      if (isNarrow() !== width) { width = isNarrow(); show(); }
    });
  }

  // How many identities have peaked how high, on a logarithmic scale.
  function drawPeaks(figure, peaks, lowest, highest) {
    const W = isNarrow() ? 330 : 900, H = 226, L = 56, B = 40, T = 18;
    const bins = new Array(isNarrow() ? 20 : 45).fill(0);
    const x = (value) => Math.log(Math.max(value, lowest) / lowest) / Math.log(highest / lowest);
    for (const peak of peaks) bins[Math.min(bins.length - 1, Math.floor(x(peak) * bins.length))] += 1;
    const top = Math.max(...bins, 1);
    // One identity is visible beside thousands.
    const y = (count) => (count ? (0.06 + 0.94 * Math.log1p(count) / Math.log1p(top)) : 0) * (H - B - T);
    const svg = drawn("svg", { viewBox: `0 0 ${W} ${H}`, role: "img" });
    svg.append(drawn("title", {}, `How high the rates of ${whole(peaks.length)} ${log.who} peaked; both axes are logarithmic`));
    const width = (W - L - 10) / bins.length;
    bins.forEach((count, n) => {
      const from = lowest * (highest / lowest) ** (n / bins.length);
      const to = lowest * (highest / lowest) ** ((n + 1) / bins.length);
      const bar = drawn("rect", { x: L + n * width + 1, y: H - B - y(count), width: width - 2, height: y(count), class: to > limit ? "bar hit" : "bar" });
      bar.append(drawn("title", {}, `${whole(count)} peaked at ${rate(from)} to ${rate(to)}`));
      svg.append(bar);
    });
    svg.append(drawn("line", { x1: L, x2: W - 10, y1: H - B, y2: H - B, class: "axis" }));
    for (let power = Math.ceil(Math.log10(lowest)); 10 ** power <= highest; power += 1) {
      const at = L + x(10 ** power) * (W - L - 10);
      svg.append(drawn("line", { x1: at, x2: at, y1: H - B, y2: H - B + 4, class: "axis" }),
        drawn("text", { x: at, y: H - B + 18, "text-anchor": "middle" }, whole(10 ** power)));
    }
    for (const count of [1, 10, 100, 1000, 10000, 100000].filter((n) => n <= top)) {
      svg.append(drawn("text", { x: L - 6, y: H - B - y(count) + 4, "text-anchor": "end" }, whole(count)));
    }
    svg.append(drawn("text", { x: W - 10, y: H - 6, "text-anchor": "end" }, `highest rate, ${what} (logarithmic)`));
    svg.append(drawn("text", { x: 4, y: 12 }, log.who + " (logarithmic)"));
    const at = L + x(limit) * (W - L - 10);
    svg.append(drawn("line", { x1: at, x2: at, y1: T - 4, y2: H - B, class: "limit" }),
      drawn("text", { x: at > W / 2 ? at - 6 : at + 6, y: T + 4, class: "limit-text", "text-anchor": at > W / 2 ? "end" : "start" }, `limit ${rate(limit)}`));
    figure.replaceChildren(element("figcaption", "Distribution of the peaks"), svg);
  }

  // The rate of one identity over time, with the limit and the moments when it was reached.
  function chart(one) {
    const W = isNarrow() ? 330 : 560, H = 190, L = 52, B = 30, T = 16, R = 10;
    const points = one.points;
    const [from, to] = [log.span[0], Math.max(log.span[1], log.span[0] + 1)];
    const top = Math.max(...points.map(([, value]) => value), limit || 0, 1) * 1.08;
    const x = (t) => L + ((t - from) / (to - from)) * (W - L - R);
    const y = (value) => H - B - (value / top) * (H - B - T);
    const svg = drawn("svg", { viewBox: `0 0 ${W} ${H}`, role: "img" });
    const label = visible(log.names[one.id], 60);
    const bites = points.filter(([, value]) => limit !== null && value >= limit);
    svg.append(drawn("title", {}, `Rate of ${label} over time: at most ${rate(log.peaks[one.id])} ${what}` +
      (limit !== null ? `, ${bites.length ? "at or over" : "never over"} the limit of ${rate(limit)}` : "")));
    for (const value of ticks(top)) {
      svg.append(drawn("line", { x1: L, x2: W - R, y1: y(value), y2: y(value), class: "axis" }),
        drawn("text", { x: L - 6, y: y(value) + 4, "text-anchor": "end" }, rate(value)));
    }
    const line = points.map(([t, value], n) => (n ? "L" : "M") + x(t).toFixed(1) + " " + y(value).toFixed(1)).join("");
    svg.append(drawn("path", { d: line, class: "data" }));
    for (const [t, value] of bites) {
      const bit = drawn("circle", { cx: x(t), cy: y(value), r: 2.6, class: "bit" });
      bit.append(drawn("title", {}, `${time(t)}: ${rate(value)}`));
      svg.append(bit);
    }
    if (limit !== null && limit <= top) {
      svg.append(drawn("line", { x1: L, x2: W - R, y1: y(limit), y2: y(limit), class: "limit" }),
        drawn("text", { x: W - R, y: y(limit) - 4, class: "limit-text", "text-anchor": "end" }, `limit ${rate(limit)}`));
    }
    for (const [t, text] of moments(from, to)) {
      const anchor = x(t) < L + 40 ? "start" : x(t) > W - R - 40 ? "end" : "middle";
      svg.append(drawn("line", { x1: x(t), x2: x(t), y1: H - B, y2: H - B + 4, class: "axis" }),
        drawn("text", { x: x(t), y: H - 8, "text-anchor": anchor }, text));
    }
    const caption = element("figcaption", name(log.names[one.id]));
    return element("figure", [caption, svg]);
  }

  function showBusiest() {
    const made = section("busiest", "The busiest over time",
      `The rates of the ${log.series.length > 8 ? 8 : log.series.length} ${log.who} with the highest peaks, in ${what}. ` +
      "The dashed line is the limit of the slider; dots are where the rate was at or over it.");
    const charts = element("div", [], { class: "charts" });
    made.append(charts);
    let due = false;
    const draw = () => { due = false; charts.replaceChildren(...log.series.slice(0, 8).map(chart)); };
    draw();
    changed.push(() => { if (!due) { due = true; requestAnimationFrame(draw); } });
  }

  function showHeat() {
    const made = section("hours", "Hours of the week", `Messages by hour and weekday (${log.zone}).`);
    const DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
    const top = Math.max(...log.heat.flat(), 1);
    const head = element("tr", [element("th", "")].concat(log.heat[0].map((_, hour) => element("th", String(hour), { scope: "col" }))));
    const rows = log.heat.map((counts, day) => element("tr", [element("th", DAYS[day], { scope: "row" })].concat(counts.map((count) => {
      const cell = element("td", count >= 10000 ? Math.round(count / 1000) + "k" : String(count), { title: whole(count) + " messages" });
      cell.style.backgroundColor = `rgba(var(--heat), ${(0.5 * Math.sqrt(count / top)).toFixed(3)})`;
      return cell;
    }))));
    made.append(element("div", element("table", [element("caption", "Messages in each hour"), element("thead", head), element("tbody", rows)], { class: "heat" }), { class: "scroll" }));
  }

  function showIdentities() {
    const made = section("identities", "All " + log.who, "Choose one to see its rate over time and what refused it.");
    const columns = [
      { title: log.one, value: (i) => log.names[i], node: (i) => pick(log.names[i]) },
      { title: "Peak", number: true, value: (i) => log.peaks[i], text: (i) => rate(log.peaks[i]), over: (i) => limit !== null && log.peaks[i] >= limit },
      { title: "Peaked at", value: (i) => log.when[i], text: (i) => time(log.when[i]) },
      { title: "Messages", number: true, value: (i) => log.messages[i], text: (i) => whole(log.messages[i]) },
    ];
    if (log.unit !== "messages") {
      columns.push({ title: log.unit[0].toUpperCase() + log.unit.slice(1), number: true, value: (i) => log.counts[i], text: (i) => whole(log.counts[i]) });
    }
    if (policy) columns.push({ title: "Refused", number: true, value: (i) => refusedOf(log.names[i]), text: (i) => whole(refusedOf(log.names[i])) });
    made.append(grid(columns, log.names.length, {
      sorted: 1, caption: `The peak is the highest rate, in ${what}.`, label: "Search", search: (i) => log.names[i],
    }));
  }

  // Somebody in detail ---------------------------------------------------------------------

  const detail = element("div", [], { id: "detail", tabindex: "-1", role: "region", "aria-label": "Details of the chosen one" });
  function pick(text) {
    const button = element("button", name(text), { type: "button" });
    button.addEventListener("click", () => { show(text); detail.focus(); detail.scrollIntoView({ block: "nearest" }); });
    return button;
  }
  // The values of a policy's key: `auth:alice,client:192.0.2.7`.
  function values(key) {
    return key.replaceAll(",,", "\u0000").split(",").map((part) => part.slice(part.indexOf(":") + 1).replaceAll("\u0000", ","));
  }
  const policy = data.policy;
  const limitsOf = new Map();
  if (policy) {
    policy.limits.forEach((one, number) => {
      for (const value of values(one.key)) {
        if (!limitsOf.has(value)) limitsOf.set(value, []);
        limitsOf.get(value).push(number);
      }
    });
  }
  const limitsFor = (text) => limitsOf.get(text) || limitsOf.get(text.toLowerCase()) || [];
  const refusedOf = (text) => limitsFor(text).reduce((sum, n) => sum + policy.limits[n].refused, 0);

  function show(text) {
    detail.replaceChildren(element("h3", name(text)));
    if (text.length > NAME) {
      detail.append(element("details", [element("summary", "The whole name"), element("p", element("bdi", visible(text)), { class: "text" })]));
    }
    const number = numbers.get(text);
    if (number !== undefined) {
      detail.append(element("p", `Peak ${rate(log.peaks[number])} ${what}, at ${time(log.when[number])}; ${whole(log.messages[number])} messages.`));
      const series = log.series.find((one) => one.id === number);
      if (series) detail.append(chart(series));
      else detail.append(element("p", "Its rate over time is not in this page: only that of the busiest is.", { class: "quiet" }));
    }
    if (!policy) {
      detail.append(element("p", "No policy was given, so nothing is known of refusals.", { class: "quiet" }));
      return;
    }
    const found = limitsFor(text);
    if (!found.length) detail.append(element("p", "No limit of the policies would have refused anything."));
    for (const n of found) {
      const one = policy.limits[n];
      detail.append(element("h3", [`${one.unit} ${one.window}, policy `, name(one.policy), `, ${visible(one.rule)}` + (one.observed ? " (only observed)" : "")]));
      detail.append(element("p", `${whole(one.refused)} refused, first ${time(one.first)}, last ${time(one.last)}. Over the limit ${one.times === 1 ? "once" : whole(one.times) + " times"}, ` +
        `for ${duration(one.over)} in all; highest rate ${rate(one.peak)}, limit ${rate(one.limit)}.`));
      const rows = policy.refusals.filter((row) => row[0] === n);
      if (!rows.length) continue;
      const head = element("tr", ["Refused at", "Rate", "Limit", "One more passes from", "Recipient"].map((title, k) => element("th", title, { scope: "col", class: k === 1 || k === 2 ? "n" : "" })));
      const body = rows.map(([, at, reached, passes, recipient]) => element("tr", [
        element("td", `${time(at)} ${WEEKDAYS[new Date(at * 1000).getUTCDay()]}`), element("td", rate(reached), { class: "n over" }), element("td", rate(one.limit), { class: "n" }),
        element("td", passes === null ? "never" : time(passes)), element("td", recipient ? name(recipient) : "", { class: "name" }),
      ]));
      const caption = element("caption", rows.length < one.refused ? `${whole(rows.length)} of ${whole(one.refused)} refusals` : "All refusals");
      detail.append(element("div", element("table", [caption, element("thead", head), element("tbody", body)]), { class: "scroll" }));
    }
  }
  function showPolicy() {
    const made = section("refused", "What the policies would have refused",
      `The policies of ${visible(policy.file, 200)}, evaluated on the log's own times. Rates start at zero where the log begins.`);
    made.append(element("ul", [
      element("li", [element("b", whole(policy.refused)), "refused"]),
      element("li", [element("b", whole(policy.decided)), "decided"]),
      element("li", [element("b", share(policy.refused, policy.decided)), "of all"]),
    ], { class: "facts" }));
    if (!policy.limits.length) {
      made.append(element("p", "No limit would have refused anything."));
      return;
    }
    const of = (field) => (i) => policy.limits[i][field];
    const columns = [
      { title: "Key", value: of("key"), node: (i) => pick(values(policy.limits[i].key)[0]) },
      { title: "Policy", value: of("policy"), node: (i) => name(policy.limits[i].policy) },
      { title: "Rule", value: of("rule"), node: (i) => name(policy.limits[i].rule) },
      { title: "Limit", value: (i) => policy.limits[i].unit + policy.limits[i].window, text: (i) => `${policy.limits[i].unit} ${policy.limits[i].window}` },
      { title: "Refused", number: true, value: of("refused"), text: (i) => whole(policy.limits[i].refused) },
      { title: "Times", number: true, value: of("times"), text: (i) => whole(policy.limits[i].times) },
      { title: "Over for", number: true, value: of("over"), text: (i) => duration(policy.limits[i].over) },
      { title: "Peak", number: true, value: of("peak"), text: (i) => rate(policy.limits[i].peak), over: () => true },
      { title: "First", value: of("first"), text: (i) => time(policy.limits[i].first) },
    ];
    made.append(grid(columns, policy.limits.length, {
      sorted: 4, caption: "A row for each limit and key.", label: "Search", search: (i) => policy.limits[i].key + " " + policy.limits[i].policy,
    }));
  }

  // A live database ------------------------------------------------------------------------

  function showLive(live) {
    const made = section("now", "Now", `The rate database at ${live.at}.`);
    const facts = [[live.keys, "keys"], [live.over.length, "over the limit"], [live.close.length, "above 80 %"]];
    if (live.trace) facts.push([live.trace.messages, "messages in the trace store"], [Math.round(live.trace.bytes / 1048576), "MiB of it"]);
    made.append(element("ul", facts.map(([count, title]) => element("li", [element("b", whole(count)), title])), { class: "facts" }));
    const columns = (rows) => [
      { title: "Key", value: (i) => rows[i].key, node: (i) => name(rows[i].key) },
      { title: "What", value: (i) => rows[i].what, node: (i) => name(rows[i].what) },
      { title: "Rate", number: true, value: (i) => rows[i].rate, text: (i) => rate(rows[i].rate), over: (i) => rows[i].rate >= rows[i].limit },
      { title: "Limit", number: true, value: (i) => rows[i].limit, text: (i) => rate(rows[i].limit) },
      { title: "Share", number: true, value: (i) => rows[i].share, text: (i) => (rows[i].share === null ? "" : Math.round(100 * rows[i].share) + " %") },
      { title: "Passes again", value: (i) => rows[i].free, text: (i) => rows[i].free },
    ];
    for (const [title, rows] of [["Over the limit", live.over], ["Close to the limit", live.close]]) {
      made.append(element("h3", title));
      if (!rows.length) made.append(element("p", "Nobody."));
      else made.append(grid(columns(rows), rows.length, { sorted: 4, caption: "The rate at that time, and when one more event would pass.", label: "Search", search: (i) => rows[i].key }));
    }
    made.append(element("h3", "Crossings of the last 30 days"));
    if (live.crossings.length) showCrossings(made, live.crossings);
    else made.append(element("p", "None is logged."));
    made.append(element("h3", "Refusals of the last 30 days"));
    if (live.refusals.length) showRefusals(made, live.refusals);
    else made.append(element("p", "None is logged."));
  }

  function showCrossings(made, rows) {
    made.append(grid([
      { title: "When", value: (i) => rows[i].when, text: (i) => rows[i].when },
      { title: "Key", value: (i) => rows[i].key, node: (i) => name(rows[i].key) },
      { title: "Limit", value: (i) => rows[i].limit, text: (i) => rows[i].limit },
      { title: "Rate", number: true, value: (i) => rows[i].rate, text: (i) => rate(rows[i].rate) },
      { title: "What was sent", value: (i) => rows[i].judgement, text: (i) => visible(rows[i].judgement) },
    ], rows.length, { sorted: 0, caption: "Each key that went over a limit.", label: "Search", search: (i) => rows[i].key }));
  }

  function showRefusals(made, rows) {
    const text = (title, field) => ({ title, value: (i) => rows[i][field], node: (i) => (rows[i][field] ? name(rows[i][field]) : "") });
    made.append(grid([
      text("When", "when"), text("Key", "key"), text("Limit", "limit"),
      { title: "Rate", number: true, value: (i) => rows[i].rate, text: (i) => rate(rows[i].rate) },
      text("Policy", "policy"), text("Rule", "rule"), text("Login", "login"), text("Client", "client"),
      text("Sender", "sender"), text("Recipient", "recipient"), text("Message", "message_id"),
    ], rows.length, {
      sorted: 0, caption: "The log of refusals, as exirate events --refusals shows it.", label: "Search",
      search: (i) => ["when", "key", "login", "client", "sender", "recipient", "message_id"].map((field) => rows[i][field]).join(" "),
    }));
  }

  if (data.live) showLive(data.live);
  if (log) {
    chooseLimit();
    showBusiest();
    if (policy) showPolicy();
    showIdentities();
    document.getElementById("identities").append(detail);
    showHeat();
  }
  document.documentElement.dataset.ready = "yes";
})();

// What a log shows: the rates of its identities, and who a limit would have hit.
const log = data.log;
const what = log ? `${log.unit} in ${log.period}` : "";
let limit = log ? log.limit : null;
const changed = [];

// The limits that the slider steps through: each differs from the next, in two digits.
function sliderLimits(lowest, highest) {
  const all = [];
  const digit = (value) => 10 ** Math.max(0, Math.floor(Math.log10(value)) - 1);
  const first = Math.max(1, lowest);
  for (let value = Math.max(1, Math.floor(first / digit(first)) * digit(first)); ; value += digit(value)) {
    all.push(value);
    if (value > highest) return all;
  }
}

function chooseLimit() {
  const made = section("limit", "Which limit?", `Move the slider: who would have been at or over a limit of so many ${what}? ` +
    "The rates are those that the limiter computes, of a strict limit: what is refused counts as well.");
  const peaks = log.peaks.slice().sort((a, b) => a - b);
  const limits = sliderLimits(peaks[0] || 1, peaks[peaks.length - 1] || 1);
  const slider = element("input", [], { type: "range", min: 0, max: limits.length - 1, step: 1, id: "slider" });
  const exact = element("input", [], { type: "number", min: 0, step: "any", id: "exact", "aria-describedby": "fault" });
  const fault = element("p", "", { class: "over", role: "alert", id: "fault" });
  const answer = element("p", "", { class: "answer", role: "status", id: "answer" });
  const who = element("p", "", { class: "text" });
  const figure = element("figure", element("figcaption", "Distribution of the peaks"));
  const byPeak = log.names.map((_, i) => i).sort((a, b) => log.peaks[b] - log.peaks[a]);
  function show() {
    const hit = peaks.length - below(peaks, limit);
    const messages = hit ? log.rates.reduce((sum, [from, count]) => (from >= limit ? sum + count : sum), 0) : 0;
    answer.textContent = `A limit of ${exactly(limit)} ${what} would have hit ${whole(hit)} of ${whole(peaks.length)} ` +
      `${log.who} (${share(hit, peaks.length)}), at about ${whole(messages)} of ${whole(log.total)} messages (${share(messages, log.total)}).`;
    who.replaceChildren(hit ? "The highest: " : "Nobody.");
    byPeak.slice(0, Math.min(hit, 8)).forEach((i, n) => who.append(n ? ", " : "", name(log.names[i]), ` (${rate(log.peaks[i], limit)})`));
    if (hit > 8) who.append(", …");
    for (const one of changed) one();
  }
  function set(value, from) {
    limit = value;
    exact.removeAttribute("aria-invalid");
    fault.textContent = "";
    if (from !== slider) slider.value = Math.max(0, below(limits, limit * (1 + 1e-9)) - 1);
    if (from !== exact) exact.value = value;
    slider.setAttribute("aria-valuetext", `${exactly(limit)} ${what}`);
    show();
  }
  slider.addEventListener("input", () => set(limits[slider.valueAsNumber], slider));
  exact.addEventListener("input", () => {
    const value = exact.valueAsNumber;
    if (value > 0 && Number.isFinite(value)) return set(value, exact);
    exact.setAttribute("aria-invalid", "true");
    fault.textContent = `A limit is a number above 0. The page still shows the limit of ${exactly(limit)}.`;
    answer.textContent = "";
    who.replaceChildren();
  });
  made.append(element("div", [
    element("label", ["Limit", slider]), element("label", [element("span", what), exact]),
  ], { class: "controls limits" }), fault, answer, who, figure);
  // Without --limit, that of the policies which refuses the most, if it is of the same kind.
  const same = (one) => one.unit === log.unit && one.window === `${one.limit}/${log.period}`;
  const ofPolicy = data.policy && data.policy.limits.find(same);
  const calm = peaks[Math.floor(peaks.length * 0.99)] || 1;
  set(limit || (ofPolicy && ofPolicy.limit) || limits[Math.min(below(limits, calm), limits.length - 1)], null);
  changed.push(plot(figure, (width) => drawPeaks(width, peaks, limit, log.who, what)));
}

// Charts of the rate of an identity: of all the time, or around its peak.
function rateFigure(title, parent, series, near) {
  const [from, to] = near ? series.around : log.span;
  const figure = element("figure", element("figcaption", title));
  const highest = `Rate of ${visible(log.names[series.id], 60)} ${near ? "around its peak" : "over time"}: at most ${rate(log.peaks[series.id], limit)} ${what}`;
  const shown = { points: near ? series.near : series.points, from, to, title: highest };
  parent.append(figure);
  return plot(figure, (width) => drawRate(width, shown, limit));
}

function showBusiest() {
  const busiest = log.series.slice(0, 8);
  const made = section("busiest", "The busiest over time",
    `The rates of the ${many(busiest.length, "one", log.who)} with the highest peaks, in ${what}. ` +
    "The dashed line is the limit of the slider; dots are where the rate was at or over it. A name opens its details, with the hours around the peak.");
  const charts = element("div", [], { class: "charts" });
  made.append(charts);
  const draws = busiest.map((series) => rateFigure(pick(series.id), charts, series, false));
  let due = false;
  changed.push(() => {
    if (due) return;
    due = true;
    requestAnimationFrame(() => { due = false; for (const draw of draws) draw(); });
  });
}

function showHeat() {
  const made = section("hours", "Hours of the week", `Messages by hour and weekday (${log.zone}).`);
  const DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
  const top = Math.max(...log.heat.flat(), 1);
  const head = element("tr", [element("td", "")].concat(log.heat[0].map((_, hour) => element("th", String(hour), { scope: "col" }))));
  const rows = log.heat.map((counts, day) => element("tr", [element("th", DAYS[day], { scope: "row" })].concat(counts.map((count) => {
    const cell = element("td", count >= 10000 ? Math.round(count / 1000) + "k" : String(count), { title: many(count, "message", "messages") });
    cell.style.backgroundColor = `rgba(var(--heat), ${(0.5 * Math.sqrt(count / top)).toFixed(3)})`;
    return cell;
  }))));
  const table = element("table", [element("thead", head), element("tbody", rows)], { class: "heat" });
  made.append(framed(table, "Messages in each hour"));
}

function showIdentities() {
  const made = section("identities", "All " + log.who, "Choose one to see its rate over time, from where its mail came, and what refused it.");
  const columns = [
    { title: log.one, value: (i) => log.names[i], node: pick },
    { title: "Peak", number: true, value: (i) => log.peaks[i], text: (i) => rate(log.peaks[i], limit), over: (i) => limit !== null && log.peaks[i] >= limit },
  ];
  if (policy) columns.push({ title: "Refused", number: true, value: (i) => policy.of[i] ?? -1, text: refusedOf });
  columns.push(
    { title: "Peaked at", value: (i) => log.when[i], cell: (i) => moment(log.when[i]) },
    { title: "Messages", number: true, value: (i) => log.messages[i], text: (i) => whole(log.messages[i]) },
  );
  if (log.unit !== "messages") {
    columns.push({ title: log.unit[0].toUpperCase() + log.unit.slice(1), number: true, value: (i) => log.counts[i], text: (i) => whole(log.counts[i]) });
  }
  let caption = `The peak is the highest rate, in ${what}, rounded down.`;
  if (policy) {
    caption += " Refused are attempts of this one, whatever key they were counted by.";
    const rest = policy.refused - policy.of.reduce((all, count) => all + count, 0);
    if (rest > 0 && !policy.of.includes(null)) caption += ` ${many(rest, "refused attempt is", "refused attempts are")} of none of these.`;
  }
  made.append(grid(columns, log.names.length, { sorted: 1, label: "Search", search: (i) => log.names[i], caption, changed }));
}

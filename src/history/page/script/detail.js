// One identity, or one key of a policy, in detail: in a dialog, so that it is where the reader
// is, and Escape leads back there.
const detail = element("dialog", [], { id: "detail", "aria-labelledby": "detail-title" });
const seen = [];

const pick = (i) => button(name(log.names[i]), () => openDetail(() => identity(i)));
const pickKey = (n) => button(name(keyText(policy.limits[n].key)), () => openDetail(() => key(n)));

function openDetail(fill) {
  if (!detail.open) seen.length = 0;
  seen.push(fill);
  showDetail();
}
function showDetail() {
  const close = button("Close", () => detail.close());
  const bar = element("div", close, { class: "controls bar" });
  if (seen.length > 1) bar.prepend(button("Back", () => { seen.pop(); showDetail(); }));
  detail.replaceChildren(bar);
  if (!detail.open) detail.showModal();
  seen[seen.length - 1]();
  detail.scrollTop = 0;
  close.focus();
}
// All around it is the dialog itself.
detail.addEventListener("click", (event) => { if (event.target === detail) detail.close(); });

function title(text) {
  detail.append(element("h2", name(text), { id: "detail-title" }));
  if (text.length > NAME) {
    detail.append(element("details", [element("summary", "The whole name"), element("p", element("bdi", visible(text)), { class: "text" })]));
  }
}
const say = (text, attributes) => detail.append(element("p", text, attributes));

function identity(i) {
  title(log.names[i]);
  const counts = log.unit === "messages" ? "" : `, ${whole(log.counts[i])} ${log.unit}`;
  say(`${many(log.messages[i], "message", "messages")}${counts}. Its highest rate was ${rate(log.peaks[i], limit)} ${what}, on ${time(log.when[i])}.`);
  const series = log.series.find((one) => one.id === i);
  if (series) {
    const [from, to] = series.around;
    const half = duration(Math.max(log.when[i] - from, to - log.when[i]));
    const isAll = from <= log.span[0] && to >= log.span[1];
    if (!isAll) rateFigure(`Up to ${half} before and after the peak of ${time(log.when[i])}`, detail, series, true);
    rateFigure("All the time of the log", detail, series, isAll);
  } else {
    say(`Its rate over time is not in this page, only that of the ${whole(log.series.length)} with the highest peaks.`, { class: "quiet" });
  }
  showNetworks(i);
  if (!policy) {
    say("No policy was given, so nothing is known of refusals.", { class: "quiet" });
    return;
  }
  const refused = policy.of[i], limits = sharesOf("identity", i);
  if (refused === null) say("How many of its attempts would have been refused is not known: there are too many keys, or they are counted by what the log does not show.");
  else if (!refused) say("No limit of the policies would have refused anything of it.");
  for (const [n, count] of limits) refusals(n, i, count);
  const rest = refused === null ? 0 : refused - sum(limits);
  if (rest > 0) say(`${many(rest, "more attempt", "more attempts")} would have been refused by limits and keys that are not in this page.`);
}

function showNetworks(i) {
  const of = log.networks.find((one) => one.id === i);
  if (!of) return;
  detail.append(element("h3", "Where its mail came from"));
  const caption = of.count > of.busiest.length
    ? `The ${whole(of.busiest.length)} networks with the most messages, of ${whole(of.count)}`
    : "A network is a /24 of IPv4 or a /64 of IPv6; where all came from one address, this is shown";
  detail.append(plain(["Network or address", "#Messages", "First", "Last"],
    of.busiest.map((one) => [one.name, whole(one.messages), moment(one.first), moment(one.last)]), caption));
}

// A key: the identity that it counts, or all of them.
function key(n) {
  const one = policy.limits[n], who = sharesOf("limit", n), rest = one.refused - sum(who);
  if (who.length === 1 && rest === 0) {
    identity(who[0][0]);
    return;
  }
  title(keyText(one.key));
  if (who.length) {
    const list = element("p", `Refused were attempts of ${many(who.length, log.one.toLowerCase(), log.who)}: `, { class: "text" });
    who.slice(0, 20).forEach(([i, count], n) => list.append(n ? ", " : "", pick(i), ` (${whole(count)})`));
    if (who.length > 20) list.append(", …");
    detail.append(list);
  }
  if (rest > 0) say(`${many(rest, "attempt", "attempts")} of none of the ${log.who} that this page lists.`);
  refusals(n, null, one.refused);
}

// What a limit refused: of one identity, or in all. Its rates may be lower than those of the
// log: most limits do not count what they refuse.
function refusals(n, i, count) {
  const one = policy.limits[n];
  const isShared = i !== null && count < one.refused;
  detail.append(element("h3", [`${one.unit} ${one.window}, policy `, name(one.policy), `, ${visible(one.rule)}` + (one.observed ? " (only observed)" : "")]));
  const key = element("bdi", visible(one.key, NAME));
  detail.append(element("p", isShared
    ? [`${many(count, "attempt", "attempts")} of this one refused; ${whole(one.refused)} of all that are counted together by the key `, key, "."]
    : [`${many(count, "attempt", "attempts")} refused, counted by the key `, key, "."]));
  const often = one.times === 0 ? "The rate did not reach the limit" : `The rate went over the limit ${one.times === 1 ? "once" : whole(one.times) + " times"}`;
  say(`First on ${time(one.first)}, last on ${time(one.last)}. The limit is ${exactly(one.limit)}, the highest rate by its own count was ${rate(one.peak, one.limit)}. ` +
    often + (one.over > 0 ? `, and was over it for ${duration(one.over)}${one.times > 1 ? " in all" : ""}.` : "."));
  const of = policy.refusals.filter((row) => row[0] === n), rows = of.filter((row) => !isShared || row[5] === i);
  if (!rows.length) {
    say(of.length ? `The first ${whole(of.length)} refusals of the key are of others.` : "Single refusals of this limit are not in this page.", { class: "quiet" });
    return;
  }
  const titles = ["Refused at", "#Rate", "One more passes from", "Recipient"];
  const cells = rows.map(([, at, reached, passes, recipient]) => [
    moment(at), element("span", rate(reached), { class: "over" }), passes === null ? "never" : moment(passes), recipient ? name(recipient) : "",
  ]);
  const isMixed = i === null && sharesOf("limit", n).length > 0;
  if (isMixed) {
    titles.push(log.one);
    rows.forEach((row, k) => cells[k].push(row[5] === null ? "" : name(log.names[row[5]])));
  }
  const all = count === 1 ? "The refusal" : `All ${whole(count)} refusals`;
  detail.append(plain(titles, cells, rows.length < count ? `The first ${whole(rows.length)} of ${whole(count)} refusals` : all));
}
